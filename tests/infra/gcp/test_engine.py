"""What Google Cloud alone has, on the real Pulumi engine against its echo. What all clouds have: tests/infra/test_engine.py."""

from typing import Any

import pytest

from testing.pulumi.mocks.engine import Stack
from testing.pulumi.mocks.run import name_of, type_of
from tests.infra.gcp.case import CASE, CLUSTER, FILESTORE, NETWORK, POOL
from tests.infra.test_engine import PV

pytestmark = pytest.mark.e2e

RIGHT = "gcp:projects/iAMMember:IAMMember"
LUSTRE, CONNECTION = "gcp:lustre/instance:Instance", "gcp:servicenetworking/connection:Connection"
LARGE: tuple[tuple[tuple[str, ...], Any], ...] = (
    (("ebb:gcp", "storage", "lustre"), {"zone": "us-central1-a"}),
    (("ebb:gcp", "storage", "data"), "delete"),
    (("ebb:jobs",), []),
    (
        ("ebb:nodeGroups",),
        [
            {"gpu": "H100", "capacity": "flex-start", "maxAgeHours": 48, "max": 2, "zones": ["us-central1-a"], "name": "flex"},
            {"gpu": "A100", "max": 4, "zones": ["us-central1-a"], "gcp": {"compactPlacement": True}},
            {"gpu": "H200", "max": 2, "zones": ["us-central1-a"], "gcp": {"gpuDirect": True}},
        ],
    ),
)


def test_a_large_stack_comes_up_and_goes_in_order() -> None:
    with Stack("gcp", CASE.values()) as stack:
        stack.configure({**CASE.values(), **{path[0]: value for path, value in LARGE[2:]}} | {"ebb:gcp": large()})
        stack.up()
        assert stack.up().changes == {}
        order = [type_of(urn) for urn in stack.destroy().finished("delete")]
        assert stack.resources() == {}
    for first, then in (
        (PV, LUSTRE),
        (LUSTRE, CONNECTION),
        (CONNECTION, NETWORK),
        (FILESTORE, NETWORK),
        (POOL, CLUSTER),
        (POOL, RIGHT),
    ):
        assert max(at for at, kind in enumerate(order) if kind == first) < order.index(then), (first, then)


def large() -> dict[str, object]:
    """Section gcp of the large stack."""
    section = CASE.values()["ebb:gcp"]
    for (_, part, key), value in LARGE[:2]:
        section[part][key] = value
    return dict(section)


def test_an_age_is_an_update_of_the_facts_but_for_flex_start() -> None:
    """There it is how long Google keeps the machine, which a pool is made with."""
    with Stack("gcp", CASE.values()) as stack:
        stack.up()
        settings = CASE.values()
        settings["ebb:nodeGroups"][0]["maxAgeHours"] = 12
        stack.configure(settings)
        assert {name_of(urn): done for urn, done in stack.preview().changes.items()} == {"ebb-platform": "update"}
