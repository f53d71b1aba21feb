"""The pack as Pulumi's engine runs it: `pulumi preview --policy-pack infra/policies`, and the same with `up`.

The engine starts this file with each resource's inputs and options; what the stack allows is read from its own file. A policy
hears of no retainOnDelete, so that half of the rules of kept data is the program's tests alone (tests/infra/test_policies.py).
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(CHECKOUT))  # the engine starts a folder, and Python knows only that

from pulumi_policy import (  # noqa: E402
    EnforcementLevel,
    PolicyPack,
    ReportViolation,
    ResourceValidationArgs,
    ResourceValidationPolicy,
)
from pulumi_policy.proxy import UnknownValueError  # noqa: E402

from infra import clouds, config  # noqa: E402
from infra.config import Stack  # noqa: E402
from infra.policies import cluster  # noqa: E402
from infra.policies.rules import UNKNOWN, Declaration, Rule  # noqa: E402


def rules() -> list[Rule]:
    """Those of every cloud: which of them a resource is judged by, its type says."""
    return [*cluster.RULES, *(rule for name in clouds.names() for rule in clouds.named(name).rules())]


def policy(rule: Rule) -> ResourceValidationPolicy:
    return ResourceValidationPolicy(rule.name, rule.title, _validation(rule))


def _validation(rule: Rule) -> Callable[[ResourceValidationArgs, ReportViolation], None]:
    def validate(given: ResourceValidationArgs, report: ReportViolation) -> None:
        if rule.judges(given.resource_type):
            for sentence in rule.broken_by(declaration(given), stack_of(given.urn)):
                report(sentence, None)

    return validate


def declaration(given: ResourceValidationArgs) -> Declaration:
    """The resource as rules judge it."""
    return Declaration(
        type=given.resource_type,
        name=given.name,
        inputs=known(given.props),
        provider=known(given.provider.props) if given.provider else {},
        protect=given.opts.protect,
        deleted_first=bool(given.opts.delete_before_replace),
    )


def known(value: Any) -> Any:
    """Plain data, with UNKNOWN in the place of what the engine does not know yet, which pulumi_policy refuses to read."""
    if isinstance(value, Mapping):
        return {key: _item(value, key) for key in value}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_item(value, index) for index in range(len(value))]
    return value


def _item(value: Any, key: Any) -> Any:
    try:
        return known(value[key])
    except UnknownValueError:
        return UNKNOWN


@cache
def _read(name: str) -> Stack:
    """From the folder of the project that runs, which tests have elsewhere."""
    here = Path.cwd()
    return config.read(name, here if (here / f"Pulumi.{name}.yaml").is_file() else CHECKOUT)


def stack_of(urn: str) -> Stack:
    """The settings of a resource's stack. `urn`: urn:pulumi:<stack>::<project>::<types>::<name>."""
    return _read(urn.split("::", 1)[0].removeprefix("urn:pulumi:"))


if __name__ == "__main__":
    PolicyPack("ebb", [policy(one) for one in rules()], enforcement_level=EnforcementLevel.MANDATORY)
