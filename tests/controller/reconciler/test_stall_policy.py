"""Jobs that run and make no step: which are noticed and when, what is done the first and the second time."""

from typing import Any

import pytest

from ebb.api.clock import stamp
from ebb.api.status import Progress
from ebb.controller.reconciler.types import Plan
from tests.builders import NOW, make_job, make_pod
from tests.controller.reconciler.stories import Story, stalled
from tests.looks import running

Object = dict[str, Any]

JOB = make_job(replicas=2, low=2)
TESTED = make_job(replicas=2, low=2, progress={"stallTimeoutSeconds": 600}, burnInSeconds=120)
TIMED = make_job(replicas=2, low=2, progress={"stallTimeoutSeconds": 600})


def step(number: int, generation: int = 1) -> Progress:
    return Progress(step=number, generation=generation, at=stamp(NOW))


def generations(*seen: tuple[int, int]) -> Plan:
    """The last look at a job whose workers reported these (step, generation), half a minute apart."""
    story = Story(JOB)
    for at, (number, generation) in enumerate(seen):
        decided = story.look(at * 31, *running(JOB, 2), progress=step(number, generation))
    return decided


GENERATIONS: dict[str, tuple[Plan, bool]] = {
    "five-without-a-step": (generations((100, 1), (100, 2), (100, 3), (100, 4), (100, 5), (100, 6)), True),
    "four": (generations((100, 1), (100, 2), (100, 3), (100, 4), (100, 5)), False),
    "several-at-once": (generations((100, 1), (100, 6)), True),
    "each-falls-back-to-a-checkpoint": (generations((100, 1), (90, 2), (95, 3), (99, 4), (95, 5), (100, 6)), True),
    "a-step-between": (generations((100, 1), (100, 2), (100, 3), (101, 4), (101, 5), (101, 6), (101, 7)), False),
    "steps-in-each": (generations(*((number, number) for number in range(1, 12))), False),
    "numbered-anew": (generations((100, 9), (100, 1), (100, 2), (100, 3)), False),
    "numbered-anew-and-five-of-those": (generations((100, 9), *((100, number) for number in range(1, 7))), True),
}


@pytest.mark.parametrize(("decided", "expected"), GENERATIONS.values(), ids=GENERATIONS.keys())
def test_generations_without_a_new_step(decided: Plan, expected: bool) -> None:
    assert stalled(decided) == (("True", "NoProgress") if expected else None)
    assert decided.status.restarts == int(expected)


def test_generations_that_were_not_written_yet_are_counted_all_the_same() -> None:
    """Figures are written every 30 s; each look adds up from what was."""
    story = Story(JOB)
    for at in range(6):
        decided = story.look(at, *running(JOB, 2), progress=step(100, 1 + at))
    assert stalled(decided) == ("True", "NoProgress")


def idle(*looks: tuple[float, int, Progress | None], job: Object = TIMED) -> Plan:
    """The last of some looks: (second, workers that run, what they report)."""
    story = Story(job)
    for at, count, progress in looks:
        decided = story.look(at, *running(TIMED, count), progress=progress)
    return decided


IDLE: dict[str, tuple[Plan, bool]] = {
    "no-step-in-time": (idle((0, 2, step(5)), (600, 2, step(5))), True),
    "not-yet": (idle((0, 2, step(5)), (599, 2, step(5))), False),
    "without-the-setting": (idle((0, 2, step(5)), (6000, 2, step(5)), job=JOB), False),
    "a-step-in-between": (idle((0, 2, step(5)), (300, 2, step(6)), (899, 2, step(6))), False),
    "steps-that-are-done-again": (
        idle((0, 2, step(500)), (300, 2, step(20, 2)), (590, 2, step(90, 2)), (610, 2, step(90, 2))),
        False,
    ),
    "time-below-minReplicas": (idle((0, 2, step(5)), (500, 1, step(5)), (1500, 2, step(5)), (2000, 2, step(5))), False),
    "below-minReplicas-when-its-time-is-up": (idle((0, 2, step(5)), (500, 1, step(5)), (610, 1, step(5))), False),
    "too-long-after-it-runs-again": (
        idle((0, 2, step(5)), (500, 1, step(5)), (1500, 2, step(5)), (2100, 2, step(5))),
        True,
    ),
    "while-machines-are-tested": (idle((0, 2, None), (779, 2, None), job=TESTED), False),
    "long-after-they-were": (idle((0, 2, None), (780, 2, None), job=TESTED), True),
    "while-one-that-came-later-is": (idle((0, 2, step(5)), (700, 2, step(5)), job=TESTED), False),
    "metrics-never-seen": (idle((0, 2, None), (600, 2, None)), True),
    "metrics-never-seen-but-waits-for-machines": (idle((0, 1, None), (6000, 1, None)), False),
    "a-controller-that-has-not-asked-the-workers": (idle((0, 2, step(5)), (600, 2, None)), False),
    "asked-then": (idle((0, 2, step(5)), (600, 2, None), (603, 2, step(5))), True),
    "no-controller-looked-for-an-hour": (idle((0, 2, None), (3600, 2, None)), False),
    "and-then-for-the-whole-time": (idle((0, 2, None), (3600, 2, None), (4200, 2, None)), True),
    "a-step-in-the-hour-in-which-none-looked": (idle((0, 2, step(5)), (3600, 2, None), (3603, 2, step(400))), False),
}


@pytest.mark.parametrize(("decided", "expected"), IDLE.values(), ids=IDLE.keys())
def test_time_without_a_step(decided: Plan, expected: bool) -> None:
    assert stalled(decided) == (("True", "NoProgress") if expected else None)


def test_it_is_looked_at_again_when_its_time_is_up() -> None:
    assert idle((0, 2, step(5))).wake_at == NOW + 600
    assert idle((0, 2, None)).wake_at == NOW + 600


SAID: dict[str, tuple[Plan, str]] = {
    "generations": (
        GENERATIONS["five-without-a-step"][0],
        "5 generations made no step after step 100. All workers are started again, once.",
    ),
    "time": (
        IDLE["no-step-in-time"][0],
        "No step after step 5 for 600 s (progress.stallTimeoutSeconds). All workers are started again, once.",
    ),
    "no-metrics": (
        IDLE["metrics-never-seen"][0],
        "No step was ever reported in 600 s of running (progress.stallTimeoutSeconds): either none is made, or the trainer does "
        "not serve the metric ebb_step on port 9400. All workers are started again, once.",
    ),
}


@pytest.mark.parametrize(("decided", "message"), SAID.values(), ids=SAID.keys())
def test_what_a_stalled_job_says(decided: Plan, message: str) -> None:
    condition = decided.status.condition("Stalled")
    assert condition is not None
    assert condition.message == message


def hung() -> Story:
    """A job that hung at step 5, and was started again at 600 s."""
    story = Story(TIMED)
    for at in (0, 600, 600):
        story.look(at, *running(TIMED, 2), progress=step(5))
    story.look(610, progress=step(5))
    return story


def test_a_hung_training_is_started_again_and_held_when_it_hangs_again() -> None:
    story = hung()
    up = story.look(700, *running(TIMED, 2, attempt=1), progress=step(5, 2))
    before = story.look(1299, *running(TIMED, 2, attempt=1), progress=step(5, 2))
    over = story.look(1300, *running(TIMED, 2, attempt=1), progress=step(5, 2))
    assert (up.status.restarts, before.status.hold, stalled(before)) == (1, None, ("True", "NoProgress"))
    assert over.status.hold is not None
    assert (over.status.hold.reason, over.status.restarts) == ("NoProgress", 1)


def test_a_new_step_ends_it() -> None:
    story = hung()
    story.look(700, *running(TIMED, 2, attempt=1), progress=step(5, 2))
    moved = story.look(760, *running(TIMED, 2, attempt=1), progress=step(6, 2))
    assert stalled(moved) == ("False", "Progresses")
    again_hung = story.look(1360, *running(TIMED, 2, attempt=1), progress=step(6, 2))
    assert (stalled(again_hung), again_hung.status.hold, again_hung.status.restarts) == (("True", "NoProgress"), None, 2)


def test_a_failure_of_the_program_goes_its_own_way() -> None:
    story = Story(TIMED)
    story.look(0, *running(TIMED, 2), progress=step(5))
    decided = story.look(600, make_pod(TIMED), make_pod(TIMED, 1, phase="Failed", exit_code=1), progress=step(5))
    assert (decided.status.failures, decided.status.restarts, stalled(decided)) == (1, 1, None)


def test_watching_a_healthy_job_writes_nothing() -> None:
    story = Story(TIMED)
    first = story.look(0, *running(TIMED, 2), progress=step(5))
    for at in (5, 100, 599):
        later = story.look(at, *running(TIMED, 2), progress=step(5))
        assert (later.status, later.events) == (first.status, ())
