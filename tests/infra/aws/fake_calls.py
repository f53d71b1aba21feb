"""AWS without AWS: answers from a table, every request and answer held to botocore's model of the service.

calls = FakeCalls({("ec2", "describe_vpcs"): {"Vpcs": []}})      # or a function of the request's arguments, or an exception
calls.seen                                                        # [("ec2", "describe_vpcs", {...}), ...]
"""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import botocore.session
from botocore import xform_name
from botocore.model import OperationModel, ServiceModel, Shape, StructureShape
from botocore.validate import ParamValidator

Answer = dict[str, Any] | Exception | Callable[[dict[str, Any]], Any]


class FakeCalls:
    """See infra.clouds.aws.account.calls.Calls."""

    def __init__(self, answers: Mapping[tuple[str, str], Answer]) -> None:
        self.answers = dict(answers)
        self.seen: list[tuple[str, str, dict[str, Any]]] = []

    def __call__(self, service: str, operation: str, /, **arguments: Any) -> dict[str, Any]:
        self.seen.append((service, operation, arguments))
        model = _operation(service, operation)
        if model.input_shape is not None:
            found = ParamValidator().validate(arguments, model.input_shape)
            assert not found.has_errors(), f"{service} {operation}: {found.generate_report()}"
        assert (service, operation) in self.answers, f"nobody has said what {service} {operation} answers"
        answer = self.answers[service, operation]
        answer = answer(arguments) if callable(answer) else answer
        if isinstance(answer, BaseException):
            raise answer
        assert model.output_shape is not None or not answer
        if model.output_shape is not None:
            _check(model.output_shape, answer, f"{service} {operation}")
        return dict(answer)

    def all(self, service: str, operation: str, key: str, /, **arguments: Any) -> list[Any]:
        return list(self(service, operation, **arguments).get(key, []))

    def asked(self, service: str, operation: str) -> list[dict[str, Any]]:
        return [arguments for one, other, arguments in self.seen if (one, other) == (service, operation)]


@cache
def _service(name: str) -> ServiceModel:
    model: ServiceModel = botocore.session.get_session().get_service_model(name)
    return model


@cache
def _operation(service: str, operation: str) -> OperationModel:
    names = {xform_name(name): name for name in _service(service).operation_names}
    assert operation in names, f"{service} has no operation {operation}"
    return _service(service).operation_model(names[operation])


def _check(shape: Shape, value: Any, where: str) -> None:
    """No answer has a member that the service does not have."""
    if isinstance(shape, StructureShape):
        for key, inner in value.items():
            assert key in shape.members, f"{where}: an answer has no {key}, only {sorted(shape.members)}"
            _check(shape.members[key], inner, f"{where}.{key}")
    elif shape.type_name == "list":
        for inner in value:
            _check(shape.member, inner, where)
