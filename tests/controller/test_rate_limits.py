"""Which statuses are written at once and which may wait a second; how refused creations back off."""

from dataclasses import replace
from typing import Any

import pytest

from ebb.api.clock import stamp
from ebb.api.status import Cost, HistoryEntry, Hold, Member, Placed, Progress, ReplicaStatus, ReplicaStatuses, Status
from ebb.controller.rate_limits import Refusals, Retries, WriteLimit, only_figures, without_creations
from ebb.controller.reconciler.types import CreatePod, CreateService, DeletePod, Event, Plan
from tests.builders import NOW

KEY = ("elastic-job", "digits")
MEMBERS = (Member(index=0, uid="a", node="n0"), Member(index=1, uid="b"))
WRITTEN = Status(state="Waiting", ready="0/2", members=MEMBERS, observed_generation=1).with_condition(
    "Running", False, "WaitingForStart", "0 of at least 2 workers run", NOW
)
FIGURES: dict[str, Any] = {
    "ready": "1/2",
    "replicas": 2,
    "replica_statuses": ReplicaStatuses(worker=ReplicaStatus(active=1)),
    "last_reconcile_time": stamp(NOW),
    "progress": Progress(step=3),
    "cost": Cost(usd_spent=1.0),
}
MATTERS: dict[str, Any] = {
    "state": "Running",
    "placement": Placed(zone="local-a"),
    "start_time": stamp(NOW),
    "reclaims": 1,
    "failures": 1,
    "restarts": 1,
    "hold": Hold(reason="BudgetSpent", message="", generation=1, at=stamp(NOW)),
    "succeeded_indices": (0,),
    "waiting_since": stamp(NOW),
    "target": 2,
    "observed_generation": 2,
    "recorded": True,
}


@pytest.mark.parametrize("name", FIGURES)
def test_figures_may_wait(name: str) -> None:
    assert only_figures(WRITTEN, Plan(status=replace(WRITTEN, **{name: FIGURES[name]})))


@pytest.mark.parametrize("name", MATTERS)
def test_what_must_be_remembered_may_not(name: str) -> None:
    assert not only_figures(WRITTEN, Plan(status=replace(WRITTEN, **{name: MATTERS[name]})))


def test_a_condition_may_wait_only_while_nothing_but_its_sentence_changed() -> None:
    told = WRITTEN.with_condition("Running", False, "WaitingForStart", "1 of at least 2 workers run", NOW)
    assert only_figures(WRITTEN, Plan(status=told))
    for status, reason in ((False, "WaitingForMachines"), (True, "WaitingForStart")):
        assert not only_figures(WRITTEN, Plan(status=WRITTEN.with_condition("Running", status, reason, "", NOW)))
    assert not only_figures(WRITTEN, Plan(status=WRITTEN.with_condition("Suspended", False, "", "", NOW)))


@pytest.mark.parametrize(
    ("members", "waits"),
    [
        ((*MEMBERS, Member(index=2, uid="c")), True),
        ((MEMBERS[0], replace(MEMBERS[1], node="n1")), True),
        (MEMBERS[:1], True),
        (MEMBERS[1:], False),
        ((replace(MEMBERS[0], settled="Stopped"), MEMBERS[1]), False),
        ((*MEMBERS, Member(index=2, uid="c", settled="ProgramFailed")), False),
    ],
    ids=[
        "one more",
        "found a machine",
        "one without a machine is gone",
        "one with a machine is gone",
        "stopped",
        "failed at once",
    ],
)
def test_members_may_wait_while_no_fate_is_settled(members: tuple[Member, ...], waits: bool) -> None:
    assert only_figures(WRITTEN, Plan(status=replace(WRITTEN, members=members))) is waits


def test_what_people_are_told_of_is_written_at_once() -> None:
    counted = replace(WRITTEN, ready="1/2")
    assert not only_figures(WRITTEN, Plan(status=counted, events=(Event("Scaled", ""),)))
    entry = HistoryEntry(at=stamp(NOW), what="reclaimed")
    assert not only_figures(WRITTEN, Plan(status=counted, happened=(entry,)))


def test_figures_are_written_about_once_a_second() -> None:
    pace, counted = WriteLimit(), Plan(status=replace(WRITTEN, ready="1/2"))
    assert pace.wait(KEY, WRITTEN, counted, 10.0) == 0, "the first at once"
    pace.wrote(KEY, 10.0)
    assert pace.wait(KEY, WRITTEN, counted, 10.25) == 0.75
    assert pace.wait(KEY, WRITTEN, Plan(status=replace(WRITTEN, failures=1)), 10.25) == 0
    assert pace.wait(("ns", "other"), WRITTEN, counted, 10.25) == 0
    assert pace.wait(KEY, WRITTEN, counted, 11.0) == 0


def test_refusals_back_off_from_five_seconds_to_a_minute_until_something_succeeds() -> None:
    refusals, now, waits = Refusals(), 0.0, []
    for _ in range(6):
        waits.append(refusals.refused(KEY, ["exceeded quota"], now))
        assert refusals.resting(KEY, now + waits[-1] - 1) == (1.0, ("exceeded quota",))
        now += waits[-1]
        assert refusals.resting(KEY, now) == (0.0, ())
    assert waits == [5, 10, 20, 40, 60, 60]
    refusals.forget(KEY)
    assert refusals.refused(KEY, ["exceeded quota"], now) == 5


def test_a_plan_without_creations_still_stops_what_is_to_stop() -> None:
    stop = DeletePod(name="a", uid="u")
    events = (Event("SuccessfulCreatePod", ""), Event("Scaled", ""))
    decided = Plan(status=WRITTEN, actions=(CreatePod({}), stop, CreateService({})), events=events)
    assert without_creations(decided) == Plan(status=WRITTEN, actions=(stop,), events=events[1:])


def test_only_the_third_error_in_a_row_is_told_and_figures_in_it_change_nothing() -> None:
    retries = Retries()
    assert [retries.failed(KEY, f"no answer in {seconds} s") for seconds in (1, 2, 3, 4)] == ["", "", *["no answer in 1 s"] * 2]
    assert retries.failed(KEY, "refused") == "refused"
    retries.forget(KEY)
    assert (retries.words(KEY), retries.failed(KEY, "refused")) == ("", "")
