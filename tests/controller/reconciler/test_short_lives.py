"""Workers that are lost as soon as they come: the pauses, what resets them, and when the job is held."""

from typing import Any

import pytest

from ebb.controller.reconciler.types import Plan
from tests.builders import NOW, make_job, make_pod
from tests.controller.reconciler.scenes import why
from tests.controller.reconciler.stories import Story
from tests.looks import again, done, look

Object = dict[str, Any]

JOB = make_job(replicas=1, low=1, high=1)
PAIR = make_job(replicas=2, low=1, high=2)
REFUSED: Object = {
    "phase": "Failed",
    "reason": "OutOfnvidia.com/gpu",
    "said": "Pod was rejected: Node didn't have enough resource: nvidia.com/gpu, requested: 1, used: 0, capacity: 0",
}
PAUSES = [0, 5, 10, 20, 40, 80, 160]


def left(at: float, lived: float, code: int = 138) -> Object:
    """A launcher that left by itself."""
    return {"phase": "Failed", "exit_code": code, "started": NOW + at - lived, "finished": NOW + at}


def lose(story: Story, at: float, times: int, index: int = 0, **how: Any) -> float:
    """Lose the worker so often, each time as soon as it may be created anew; returns the time after the last."""
    for _ in range(times):
        story.look(at, make_pod(story.job, index, uid=f"lost-{at}", **how))
        decided = story.look(at)
        while "+0" not in done(decided) and decided.status.hold is None:
            assert decided.wake_at is not None
            at = decided.wake_at - NOW
            decided = story.look(at)
    return at


def test_each_loss_makes_the_next_pause_twice_as_long() -> None:
    story, at, pauses = Story(JOB), 0.0, []
    for _ in PAUSES:
        then = lose(story, at, 1, **REFUSED)
        pauses.append(round(then - at))
        at = then
    assert pauses == PAUSES


def test_a_worker_that_exits_with_138_at_once_pauses_too() -> None:
    story = Story(JOB)
    story.look(0, make_pod(JOB, **left(0, lived=3)))
    assert done(story.look(0)) == ["+0"]
    story.look(10, make_pod(JOB, uid="second", **left(10, lived=3)))
    decided = story.look(10)
    assert (done(decided), decided.wake_at) == ([], NOW + 15)
    assert why(decided) == (
        "RepeatedlyLost",
        "0 of at least 1 workers run: worker 0 was lost 2 times in a row before it had run for 60 s, the last time on n0: the "
        "launcher left with exit code 138. The next is created at 2027-01-15T08:00:15Z.",
    )


def test_after_eight_in_a_row_the_job_is_held_and_says_how_to_go_on() -> None:
    story = Story(JOB)
    at = lose(story, 0, 7, **REFUSED)
    last = story.look(at, make_pod(JOB, uid="last", **REFUSED))
    assert last.status.hold is not None
    assert last.status.hold.reason == "RepeatedlyLost"
    assert last.status.hold.message == (
        "Worker 0 was lost 8 times in a row before it had run for 60 s, the last time on n0: Pod was rejected: Node didn't have "
        "enough resource: nvidia.com/gpu, requested: 1, used: 0, capacity: 0. The job is stopped. If the machine refuses it, "
        "`kubectl describe node n0` says what it lacks; if its program leaves by itself, its log says why. Any change of the "
        "job's spec lets it try again."
    )
    held = story.look(at + 1)
    assert (held.status.state, done(held), held.status.failures, held.status.short_lived) == ("Suspended", [], 0, ())


def test_a_job_that_was_held_begins_anew_after_a_change() -> None:
    story = Story(JOB)
    lose(story, 0, 8, **REFUSED)
    story.look(1000)
    story.job = {**story.job, "metadata": {**story.job["metadata"], "generation": 2}}
    assert done(story.look(1001)) == ["+0"]
    assert lose(story, 1002, 1, **REFUSED) == 1002


def test_a_job_is_not_held_while_enough_others_run() -> None:
    story, at = Story(PAIR), 0.0
    other = make_pod(PAIR, 1)
    decided: Plan | None = None
    for turn in range(12):
        story.look(at, make_pod(PAIR, 0, uid=f"lost-{turn}", **REFUSED), other)
        decided = story.look(at, other)
        at += 301
    assert decided is not None
    assert (decided.status.hold, decided.status.state) == (None, "Running")
    assert decided.status.short_lived[0].times == 12
    assert decided.wake_at == NOW + at - 1  # 300 s, the longest pause


RESETS: dict[str, Object] = {
    "it-ran-for-a-minute": {"how": left(100, lived=60)},
    "its-machine-was-taken-away": {"how": {}, "gone": frozenset({"n0"})},
}


@pytest.mark.parametrize("case", RESETS.values(), ids=RESETS.keys())
def test_a_worker_that_lived_or_lost_its_machine_begins_anew(case: Object) -> None:
    story = Story(JOB)
    lose(story, 0, 4, **REFUSED)
    lost = make_pod(JOB, uid="long", **case["how"])
    decided = look(story.job, lost, now=NOW + 100, gone=case.get("gone", frozenset()))
    story.job = again(story.job, decided)
    assert decided.status.short_lived == ()
    assert done(story.look(100)) == ["+0"]


NOT_COUNTED: dict[str, Object] = {
    "preempted": {
        "phase": "Pending",
        "conditions": ({"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"},),
    },
    "its-machine-shuts-down": {"phase": "Failed", "reason": "Terminated", "said": "Pod was terminated in response to shutdown"},
    "somebody-deleted-it": {"deleted": NOW},
    "the-program-failed": left(0, lived=3, code=1),
}


@pytest.mark.parametrize("how", NOT_COUNTED.values(), ids=NOT_COUNTED.keys())
def test_losses_that_set_their_own_pace_are_not_counted(how: Object) -> None:
    decided = Story(JOB).look(0, make_pod(JOB, **how))
    assert decided.status.short_lived == ()


def test_a_storm_of_reclaims_never_holds_a_job() -> None:
    """Machines that live for three minutes each, and of which the launcher alone tells."""
    story = Story(JOB)
    for turn in range(1, 40):
        at = turn * 300.0
        story.look(at, make_pod(JOB, uid=f"pod-{turn}", **left(at, lived=180)))
        assert done(story.look(at)) == ["+0"]
    assert story.look(20000, make_pod(JOB)).status.state == "Running"


def test_a_worker_that_was_scaled_away_is_forgotten() -> None:
    story = Story(PAIR)
    story.look(0, make_pod(PAIR, 1, **REFUSED), make_pod(PAIR, 0))
    worker = story.job["spec"]["replicaSpecs"]["Worker"]
    story.job["spec"]["replicaSpecs"] = {"Worker": {**worker, "replicas": 1}}
    decided = story.look(5, make_pod(PAIR, 0, uid="another", **REFUSED))
    assert [item.index for item in decided.status.short_lived] == [0]
