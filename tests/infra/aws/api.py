"""What an AWS API would say to a request, as far as botocore's model of it knows: names, types, lengths, enums and patterns.

api.problems("eks", "CreateNodegroup", api.request(resource.inputs, RENAMED))
"""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import botocore.session
from botocore.validate import ParamValidator


@cache
def _model(service: str) -> Any:
    return botocore.session.Session().get_service_model(service)


def problems(service: str, operation: str, parameters: Mapping[str, Any], shape: str | None = None) -> list[str]:
    """`shape`: a part of the operation's input, by name, where only that is of interest."""
    model = _model(service)
    wanted = model.shape_for(shape) if shape else model.operation_model(operation).input_shape
    report = ParamValidator().validate(parameters, wanted)
    return [*([report.generate_report()] if report.has_errors() else []), *_values(wanted, parameters, "")]


def _values(shape: Any, value: Any, path: str) -> Iterator[str]:
    """Enums and patterns, which botocore itself leaves to the service."""
    if shape.type_name == "structure":
        for name in value.keys() & shape.members.keys():
            yield from _values(shape.members[name], value[name], f"{path}.{name}")
    elif shape.type_name == "list":
        for index, inner in enumerate(value):
            yield from _values(shape.member, inner, f"{path}[{index}]")
    elif shape.type_name == "map":
        for name, inner in value.items():
            yield from _values(shape.key, name, f"{path}.{name} (key)")
            yield from _values(shape.value, inner, f"{path}.{name}")
    elif shape.type_name == "string":
        if shape.enum and value not in shape.enum:
            yield f"{path}: {value!r} is none of {shape.enum}"
        pattern = shape.metadata.get("pattern")
        if pattern and not re.fullmatch(pattern, value):
            yield f"{path}: {value!r} does not match {pattern}"


def request(inputs: Any, renamed: Mapping[str, str], *, capital: bool = False) -> Any:
    """Inputs of a Pulumi resource as the API's request: other names, and true instead of "true"."""
    if isinstance(inputs, Mapping):
        return {
            renamed.get(key, key[0].upper() + key[1:] if capital else key): (
                dict(value) if key in ("tags", "labels") else request(value, renamed, capital=capital)
            )
            for key, value in inputs.items()
        }
    if isinstance(inputs, list):
        return [request(one, renamed, capital=capital) for one in inputs]
    if isinstance(inputs, float) and inputs.is_integer():  # numbers are all one type on the way to the engine
        return int(inputs)
    return {"true": True, "false": False}.get(inputs, inputs) if isinstance(inputs, str) else inputs
