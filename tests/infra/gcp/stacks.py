"""Stacks on Google Cloud for tests: the one in the repository, with changes, and what it declares."""

from collections.abc import Callable
from functools import cache
from typing import Any

import pulumi

from infra import config, groups, program
from infra.clouds.gcp.cloud import Gcp
from infra.config import ROOT, Stack
from tests.infra.declared import Declared, declared
from tests.infra.gcp.case import CASE
from tests.infra.stacks import changed, settings

EXISTING = {"name": "theirs", "subnet": "sub", "podsRange": "pods-of-theirs", "servicesRange": "services-of-theirs"}


def stack(changes: dict[str, Any] | None = None) -> Stack:
    """Pulumi.gcp.yaml without jobs and data sets; `changes`: path -> value, as tests/infra/stacks.py has them."""
    values = settings("gcp") | {"jobs": [], "datasets": []}
    for path, value in (changes or {}).items():
        changed(values, path, value)
    return config.parse(values, ROOT, stack="gcp")


def world(changes: dict[str, Any] | None = None) -> Declared:
    """The whole program on it."""
    given = stack(changes)
    return _declared(lambda: program.declare(given, Gcp(given, given.settings)))


@cache
def usual() -> Declared:
    """The usual stack, declared once for all that only look at it."""
    return world()


def outputs(changes: dict[str, Any] | None = None) -> dict[str, Any]:
    """What a person reads after `up`."""
    given = stack(changes)

    def declare() -> Any:
        cloud = Gcp(given, given.settings)
        cluster = cloud.cluster()
        cloud.storage(cluster, [])
        cloud.images(cluster)
        return pulumi.Output.all(**cloud.outputs(cluster))

    found: dict[str, Any] = _declared(declare).returned
    return found


def facts(changes: dict[str, Any] | None = None) -> dict[str, dict[str, Any]]:
    """Node group -> its entry in ebb-platform."""
    given = stack(changes)
    cloud = Gcp(given, given.settings)
    return {group.name: group.facts() for group in groups.job_groups(given, cloud)}


def _declared(declare: Callable[[], Any]) -> Declared:
    return declared(declare, stack="gcp", answers=CASE.answers)
