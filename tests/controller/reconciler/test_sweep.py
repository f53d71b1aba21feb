"""A run among the others of its sweep, as the planner sees one look at it."""

from typing import Any

import pytest

from ebb.api.halving import Phase, Siblings, SweepRun
from ebb.api.status import Progress
from ebb.controller.reconciler.types import Plan
from tests.builders import make_job, make_pod
from tests.controller.reconciler.scenes import reasons, why
from tests.looks import again, done, look

Object = dict[str, Any]
HALF = {"algorithm": "stop-worst", "after": 10}
THIRD = {"algorithm": "asha", "after": 9, "factor": 3}


def run(halving: Object | None, *, status: Object | None = None, **group: Any) -> Object:
    rule = {"halving": halving} if halving else {}
    return make_job("scan-1", replicas=1, status=status, group={"name": "scan", **rule, **group})


def paused(name: str, value: float, promoted: int = 0) -> SweepRun:
    return SweepRun(name=name, phase=Phase.PAUSED, rungs={9: value}, promoted=promoted)


def seen(job: Object, step: int, loss: float | None, *others: SweepRun, promoted: tuple[str, ...] = ()) -> Plan:
    """A look at it while it trains."""
    progress = Progress(step=step, total_steps=100, loss=loss)
    return look(job, make_pod(job), progress=progress, siblings=Siblings(runs=others, promoted=promoted))


def hold(decided: Plan) -> tuple[str, str]:
    return (decided.status.hold.reason, decided.status.hold.message) if decided.status.hold else ("", "")


NEW = SweepRun(name="scan-9", phase=Phase.NEW)
BETTER = SweepRun(name="scan-2", rungs={10: 0.1})


@pytest.mark.parametrize(
    ("decided", "reason"),
    [
        (seen(run(HALF), 12, 0.5, BETTER), "AmongTheWorst"),
        (seen(run(HALF), 9, 0.5, BETTER), ""),
        (seen(run(HALF), 12, 0.05, BETTER), ""),
        (seen(run(HALF), 12, 0.5), ""),
        (seen(run(HALF), 100, 0.5, BETTER), ""),
        (seen(run(None, maxParallel=2), 12, 0.5, BETTER), ""),
        (seen(run(THIRD), 8, 0.5), ""),
        (seen(run(THIRD), 9, 0.5, NEW), "PausedBySweep"),
        (seen(run(THIRD), 9, 0.5), ""),
        (seen(run(THIRD), 100, 0.5), ""),
    ],
    ids=[
        "worst",
        "not there",
        "better",
        "alone",
        "at its end",
        "no rule",
        "before its rung",
        "at its rung",
        "the only one",
        "asha at its end",
    ],
)
def test_when_it_is_held(decided: Plan, reason: str) -> None:
    assert hold(decided)[0] == reason


def test_why_it_is_held() -> None:
    assert hold(seen(run(HALF), 12, 0.5, BETTER))[1] == (
        "loss 0.5 at step 10 is among the worst 50% of 2 runs. Continue it: ebb resume scan-1"
    )
    assert hold(seen(run(THIRD), 12, 0.5, NEW))[1] == (
        "loss 0.5 at step 9: the run pauses, and goes on when it is among the best of every 3 that came there. "
        "Continue it whatever the others have: ebb resume scan-1"
    )


def test_a_value_at_a_rung_is_kept_whatever_comes_after() -> None:
    job = run(HALF)
    first = seen(job, 12, 0.5)
    later = seen(again(job, first), 15, 0.1)
    assert first.status.sweep is not None
    assert [(rung.step, rung.value) for rung in first.status.sweep.rungs] == [(10, 0.5)]
    assert later.status.sweep == first.status.sweep


def test_a_run_that_is_promoted_at_its_rung_goes_on_without_a_pause() -> None:
    worse = (paused("scan-2", 0.6), paused("scan-3", 0.7))
    decided = seen(run(THIRD), 9, 0.5, *worse)
    assert hold(decided) == ("", "")
    assert decided.status.sweep is not None
    assert decided.status.sweep.promotions == 1
    assert "PromotedBySweep" in reasons(decided)
    busy = SweepRun(name="scan-4")
    assert hold(seen(run(THIRD, maxParallel=1), 9, 0.5, *worse, busy))[0] == "PausedBySweep", "another one has its place"
    better = (paused("scan-2", 0.4), paused("scan-3", 0.7))
    assert hold(seen(run(THIRD, maxParallel=1), 9, 0.5, *better))[0] == "PausedBySweep"


def held(job: Object) -> Object:
    """Paused, its worker gone."""
    decided = seen(job, 9, 0.5, NEW)
    assert hold(decided)[0] == "PausedBySweep"
    stopped = look(again(job, decided), make_pod(job))
    assert done(stopped) == ["-0"]
    return again(job, look(again(job, stopped)))


def test_a_paused_run_waits_without_machines_and_goes_on_when_it_is_promoted() -> None:
    job = held(run(THIRD))
    waits = look(job, siblings=Siblings(promoted=("scan-2",)))
    assert (done(waits), hold(waits)[0], waits.status.state) == ([], "PausedBySweep", "Suspended")
    goes_on = look(job, siblings=Siblings(promoted=("scan-2", "scan-1")))
    assert (done(goes_on), hold(goes_on)) == (["+0"], ("", ""))
    assert goes_on.status.sweep is not None
    assert goes_on.status.sweep.promotions == 1
    assert "ElasticJobResumed" in reasons(goes_on)


def test_people_come_before_a_sweep() -> None:
    job = held(run(THIRD))
    job["spec"]["suspend"] = True
    stopped = look(job, siblings=Siblings(promoted=("scan-1",)))
    assert (done(stopped), hold(stopped)[0]) == ([], "PausedBySweep")


def test_a_changed_spec_lets_it_go_on_only_without_the_rule() -> None:
    """As a larger maxParallel, which `ebb sweep` writes into all of them."""
    job = held(run(THIRD))
    job["metadata"]["generation"] = 2
    job["spec"]["group"]["maxParallel"] = 5
    same = look(job)
    assert (done(same), hold(same)[0], reasons(same)) == ([], "PausedBySweep", [])
    del job["spec"]["group"]["halving"]
    assert (done(look(job)), hold(look(job))) == (["+0"], ("", ""))


def test_a_new_run_lets_promoted_ones_go_first() -> None:
    new = run(THIRD, maxParallel=2)
    waits = look(new, siblings=Siblings(promoted=("scan-2",)))
    assert done(waits) == []
    assert why(waits) == (
        "GroupFull",
        "group 'scan' runs 2 at once, as its maxParallel says: scan-2 is promoted first.",
    )
    assert done(look(new)) == ["+0"]
    assert done(look(run(THIRD), siblings=Siblings(promoted=("scan-2",)))) == ["+0"], "there is room for all"


def test_nobody_is_warned_of_a_pause() -> None:
    job = run(THIRD)
    stopped = look(again(job, seen(job, 9, 0.5, NEW)), make_pod(job))
    assert [(event.reason, event.warning) for event in stopped.events] == [("PausedBySweep", False)]
