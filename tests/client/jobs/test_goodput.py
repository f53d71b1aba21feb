"""Goodput: what is paid for, what counts, and when nothing can be said."""

from typing import Any

import pytest

from ebb.client.jobs.goodput import LEAST_SECONDS, goodput, paid_machine_seconds

T0, T1 = "2026-11-21T12:00:00Z", "2026-11-21T12:01:40Z"
NOON = 1795262400.0


def status(*, useful: float | None = 300.0, at: str = T0, **cost: Any) -> dict[str, Any]:
    found = {"machineSeconds": 400.0, "machines": 2.0, "usefulMachineSeconds": 300.0, "at": T0, **cost}
    return {"cost": found, "progress": {"step": 5, "usefulSeconds": useful, "at": at}}


TABLE = {
    "three quarters": (status(), 0.75),
    "paid goes on until the trainer was last asked": (status(at=T1), 0.5),  # 400 + 2 machines x 100 s
    "never above one": (status(usefulMachineSeconds=401.0), 1.0),
    "nothing trained yet": (status(usefulMachineSeconds=0.0), 0.0),
    "a trainer that says nothing": (status(useful=None), None),
    "too early": (status(machineSeconds=LEAST_SECONDS - 1), None),
    "no cost": ({"progress": {"usefulSeconds": 3.0}}, None),
    "no status": ({}, None),
}


@pytest.mark.parametrize(("given", "expected"), TABLE.values(), ids=TABLE)
def test_goodput(given: dict[str, Any], expected: float | None) -> None:
    assert goodput(given) == expected


def test_paid_time_goes_on_and_never_back() -> None:
    cost = {"machineSeconds": 10.0, "machines": 3.0, "at": T0}
    assert [paid_machine_seconds(cost, now) for now in (None, NOON - 5, NOON, NOON + 10)] == [10, 10, 10, 40]
