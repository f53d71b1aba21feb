"""From the steps that were written down to goodput, on lines written by hand; and the events that are drawn."""

from collections import Counter
from itertools import pairwise

import pytest

from benchmarks.goodput.account import Account, Happened, UnmeasuredError, Window, by_name, lineage, longest_waits, take_account
from benchmarks.goodput.play import BACK, JOIN, KINDS, MACHINES, draw
from benchmarks.recovery.play import EVENTS
from benchmarks.recovery.timeline import Line

WINDOW = Window(reference=0.0, began=30.0, ended=130.0)
KILL, JOINED = Happened(name="kill_pod", time=30.0), Happened(name=JOIN, time=60.0)


def steps(incarnation: str, began: float, numbers: range, *, size: int = 24, seconds: float = 1.0) -> list[Line]:
    """Each step number is done `seconds` after the one before, the first of them at `began`."""
    return [
        Line(
            time=began + seconds * (number - numbers.start),
            incarnation=incarnation,
            world_size=2,
            first=number * size,
            end=(number + 1) * size,
        )
        for number in numbers
    ]


BEFORE = steps("a", 0.5, range(30))  # the last one at 29.5


def account(lines: list[Line]) -> Account:
    return take_account([*BEFORE, *lines], [KILL, JOINED], WINDOW)


def test_an_undisturbed_job_has_a_goodput_of_one() -> None:
    found = account(steps("a", 30.5, range(30, 150)))  # those after 130 are not in it
    assert found == Account(
        goodput=1.0,
        steps=100,
        ideal_steps=100.0,
        seconds_lost=0.0,
        seconds_without_step=0.0,
        steps_redone=0,
        step_seconds=1.0,
        waits=[0.0, 0.0],
    )


def test_a_pause_is_missing() -> None:
    found = account([*steps("a", 30.5, range(30, 50)), *steps("b", 70.5, range(50, 120))])
    assert (found.goodput, found.steps, found.seconds_lost) == (0.8, 80, 20.0)
    assert found.waits == [9.5, 9.5]  # from 49.5 until the join at 60; from there until 70.5; each but for an ordinary step
    assert found.seconds_without_step == 19.0


def test_a_step_that_is_done_again_counts_once() -> None:
    found = account([*steps("a", 30.5, range(30, 80)), *steps("b", 80.5, range(70, 150))])
    assert (found.steps, found.steps_redone, found.goodput) == (90, 10, 0.9)


def test_steps_from_before_the_first_event_that_it_throws_away_are_missing() -> None:
    """As where a script saves at the end of an epoch, and had done ten steps of one."""
    found = account(steps("b", 30.5, range(20, 140)))
    assert (found.steps, found.steps_redone, found.goodput) == (90, 10, 0.9)


def test_a_job_that_has_not_made_up_for_what_was_thrown_away_has_no_goodput() -> None:
    found = account(steps("b", 90.5, range(0, 20)))
    assert (found.steps, found.goodput, found.steps_redone, found.seconds_lost) == (0, 0.0, 20, 100.0)


def test_steps_of_another_size_take_the_place_of_those_they_do_again() -> None:
    """Fewer processes of a stock script make smaller steps, and more of them; a step is a step."""
    lines = [*steps("a", 30.5, range(30, 40)), *steps("b", 60.5, range(60, 200), size=12)]
    assert lineage(lines) == steps("b", 60.5, range(60, 200), size=12)
    found = account(lines)
    assert (found.steps, found.steps_redone) == (70, 10)


def test_the_steps_after_the_end_say_which_of_those_before_it_are_thrown_away() -> None:
    lines = steps("a", 30.5, range(30, 130))
    assert account(lines).steps == 100
    assert account([*lines, *steps("b", 140.0, range(90, 92))]).steps == 60


def test_a_job_that_ends_makes_no_steps_in_the_rest_of_the_time() -> None:
    found = account(steps("a", 30.5, range(30, 55)))
    assert (found.goodput, found.steps, found.seconds_lost) == (0.25, 25, 75.0)
    assert found.waits == [4.5, 69.0]
    nothing = account([])
    assert (nothing.goodput, nothing.steps, nothing.waits) == (0.0, 0, [29.0, 69.0])


def test_a_slower_step_is_no_pause_but_it_costs_goodput() -> None:
    found = account(steps("a", 32.0, range(30, 80), seconds=2.0))
    assert (found.goodput, found.waits) == (0.5, [1.0, 1.0])


def test_the_order_of_the_lines_is_that_of_their_times() -> None:
    lines = [*steps("a", 30.5, range(30, 80)), *steps("b", 80.5, range(70, 150))]
    assert account(lines[::-1]) == account(lines)


def test_without_enough_steps_before_the_first_event_there_is_no_rate() -> None:
    with pytest.raises(UnmeasuredError, match=r"^19 steps in the 30 s before the first event, fewer than 20$"):
        take_account(steps("a", 0.5, range(19)), [KILL], WINDOW)
    late = steps("a", 30.5, range(60))
    with pytest.raises(UnmeasuredError, match=r"^0 steps"):
        take_account(late, [KILL], WINDOW)


def test_the_wait_of_an_event_ends_with_the_next_event() -> None:
    happened = [Happened(name="notice", time=10.0), Happened(name=JOIN, time=12.0), Happened(name="notice", time=40.0)]
    lines = [*steps("a", 0.0, range(11)), *steps("b", 30.0, range(11, 41))]
    assert longest_waits(lines, happened, 60.0, 1.0) == [1.0, 17.0, 0.0]
    assert by_name(happened, [1.0, 17.0, 0.0]) == {
        "notice": {"count": 2, "median_seconds": 0.5, "largest_seconds": 1.0},
        JOIN: {"count": 1, "median_seconds": 17.0, "largest_seconds": 17.0},
    }


def test_the_same_seed_draws_the_same_events() -> None:
    asked = {"seconds": 1800.0, "every": 60.0}
    assert draw(seed=1, **asked) == draw(seed=1, **asked)
    assert draw(seed=1, **asked) != draw(seed=2, **asked)


def test_an_event_a_minute_of_each_kind_as_often_as_of_the_others() -> None:
    changes = draw(seed=3, seconds=1800.0, every=60.0)
    drawn = [change for change in changes if change.name != JOIN]
    assert [change.seconds for change in drawn] == [60.0 * number for number in range(30)]
    assert Counter(change.name for change in drawn) == dict.fromkeys(KINDS, 6)


@pytest.mark.parametrize("seed", range(5))
def test_a_machine_that_is_lost_is_back_before_the_next_event(seed: int) -> None:
    machines, changes = MACHINES, draw(seed=seed, seconds=600.0, every=20.0)
    for change, later in pairwise(changes):
        machines += 1 if change.name == JOIN else EVENTS[change.name].after
        assert machines in (MACHINES - 1, MACHINES)
        if machines < MACHINES:
            assert later.name == JOIN
            assert 20 * BACK[0] - 0.1 <= later.seconds - change.seconds <= 20 * BACK[1] + 0.1
