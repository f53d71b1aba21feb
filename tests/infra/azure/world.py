"""A whole stack on Azure as the engine would see it: every registration, without an engine, a plugin or a subscription.

found = world()                                # of stacks.small(); or world(stacks.stack(...))
found.one("ManagedCluster").inputs
"""

from functools import cache
from typing import Any

from infra import config, program
from infra.clouds.azure.cloud import Azure
from tests.infra.azure import stacks
from tests.infra.azure.answers import ANSWERS
from tests.infra.declared import Declared, declared


def world(stack: config.Stack | None = None) -> Declared:
    """All that `up` of a stack would make; `returned` are its outputs."""
    return _usual() if stack is None else _made(stack)


@cache
def _usual() -> Declared:
    return _made(stacks.stack())


def _made(stack: config.Stack) -> Declared:
    cloud: list[Azure] = []

    def declare() -> Any:
        cloud.append(Azure(stack, stack.settings))
        program.declare(stack, cloud[0])
        return dict(cloud[0].outputs(None))  # type: ignore[arg-type]

    return declared(declare, answers=ANSWERS)


def inputs(found: Declared, kind: str, name: str | None = None) -> dict[str, Any]:
    return found.one(kind, name).inputs
