"""The ledger's checker, on histories written by hand: it must find what is broken, and only that."""

import json
from pathlib import Path
from typing import Any

import pytest

from testing.exactness import LedgerError, check, main

# 5 samples, 2 epochs, 4 a step: steps 0, 1, 2 with 4, 4, 2 samples; step 1 holds the end of epoch 0 and the start of epoch 1
SHAPE = {"dataset_size": 5, "global_batch": 4, "epochs": 2}
STEPS = [[4, 0, 2, 1], [3, 1, 0, 2], [4, 3]]
Lines = dict[int, list[int]]


class History:
    """Files as the trainer writes them."""

    def __init__(self, output: Path) -> None:
        self.output = output
        (output / "ledger").mkdir()

    def rank(
        self, generation: int, rank: int, of: int, lines: Lines, *, resumed: tuple[int, int] = (0, 0), **changes: Any
    ) -> None:
        """`resumed` is (generation, step)."""
        header = {
            "generation": generation,
            "rank": rank,
            "world_size": of,
            "resumed_generation": resumed[0],
            "resumed_step": resumed[1],
            **SHAPE,
            **changes,
        }
        entries = [{"step": step, "time": 0.0, "ids": ids} for step, ids in lines.items()]
        text = "".join(json.dumps(line) + "\n" for line in [header, *entries])
        (self.output / f"ledger/g{generation}-r{rank}.jsonl").write_text(text)

    def alone(self, generation: int, steps: dict[int, list[int]], *, resumed: tuple[int, int] = (0, 0), **changes: Any) -> None:
        self.rank(generation, 0, 1, steps, resumed=resumed, **changes)

    def finish(self, generation: int) -> None:
        (self.output / "result.json").write_text(json.dumps({"generation": generation}))


@pytest.fixture
def history(tmp_path: Path) -> History:
    return History(tmp_path)


def numbers(history: History) -> tuple[bool, int, int, int, int]:
    """exact, lost, repeated, redone, generations"""
    verdict = check(history.output)
    return verdict.exact, verdict.samples_lost, verdict.samples_repeated, verdict.steps_redone, verdict.generations


def whole(generation: int = 1) -> dict[int, list[int]]:
    return dict(enumerate(STEPS))


def test_undisturbed(history: History) -> None:
    history.alone(1, whole())
    history.finish(1)
    assert numbers(history) == (True, 0, 0, 0, 1)


def test_two_ranks_then_one_then_three_with_notice(history: History) -> None:
    history.rank(1, 0, 2, {0: [4, 0]})
    history.rank(1, 1, 2, {0: [2, 1]})
    history.alone(2, {1: [3, 1, 0, 2]}, resumed=(1, 1))
    history.rank(3, 0, 3, {2: [4]}, resumed=(2, 2))
    history.rank(3, 1, 3, {2: [3]}, resumed=(2, 2))
    history.rank(3, 2, 3, {2: []}, resumed=(2, 2))
    history.finish(3)
    assert numbers(history) == (True, 0, 0, 0, 3)


def test_discarded_steps_count_once_and_are_told(history: History) -> None:
    history.alone(1, whole())  # ran to the end of its steps, but only step 0 was saved
    history.alone(2, {1: STEPS[1]}, resumed=(1, 1))  # killed in step 1, saved nothing
    history.alone(3, {1: STEPS[1], 2: STEPS[2]}, resumed=(1, 1))
    history.finish(3)
    assert numbers(history) == (True, 0, 0, 3, 2)
    assert check(history.output).discarded == {1: 2, 2: 1}
    assert check(history.output).setbacks == {2: {1: {0: 2}}, 3: {2: {0: 1}}}


def test_one_setback_throws_away_the_work_of_several_generations(history: History) -> None:
    """All were lost in generation 3, and the last checkpoint was of generation 1."""
    history.rank(1, 0, 2, {0: [4, 0], 1: [3, 1]})
    history.rank(1, 1, 2, {0: [2, 1]})
    history.alone(2, {1: STEPS[1]}, resumed=(1, 1))  # with what generation 1 had begun
    history.alone(3, {2: STEPS[2]}, resumed=(2, 2))
    history.alone(4, whole(), resumed=(0, 0))
    history.finish(4)
    verdict = check(history.output)
    assert (verdict.exact, verdict.steps_redone, verdict.discarded) == (True, 4, {1: 2, 2: 1, 3: 1})
    assert verdict.setbacks == {2: {1: {0: 1}}, 4: {1: {0: 1, 1: 1}, 2: {0: 1}, 3: {0: 1}}}


def test_what_another_one_did_is_thrown_away_where_an_older_one_is_resumed_from_later(history: History) -> None:
    history.alone(1, {0: STEPS[0], 1: STEPS[1]})
    history.alone(2, {1: STEPS[1], 2: STEPS[2]}, resumed=(1, 1))
    history.alone(3, {2: STEPS[2]}, resumed=(1, 2))
    history.finish(3)
    assert numbers(history) == (True, 0, 0, 2, 2)
    assert check(history.output).setbacks == {2: {1: {0: 1}}, 3: {2: {0: 2}}}


def test_a_generation_that_only_evaluated(history: History) -> None:
    history.alone(1, whole())
    history.alone(2, {}, resumed=(1, 3))
    history.finish(2)
    assert numbers(history) == (True, 0, 0, 0, 1)


def test_a_line_cut_off_by_a_kill_is_no_line(history: History) -> None:
    history.alone(1, {0: STEPS[0]})
    path = history.output / "ledger/g1-r0.jsonl"
    path.write_text(path.read_text() + '{"step": 1, "ids": [3, 1')
    history.alone(2, {1: STEPS[1], 2: STEPS[2]}, resumed=(1, 1))
    history.finish(2)
    assert numbers(history) == (True, 0, 0, 0, 2)


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        pytest.param({0: [4, 0, 2], 1: STEPS[1], 2: STEPS[2]}, (1, 0), id="dropped"),
        pytest.param({0: [4, 0, 2, 1, 1], 1: STEPS[1], 2: STEPS[2]}, (0, 1), id="doubled"),
        pytest.param({0: [4, 0, 2, 2], 1: STEPS[1], 2: STEPS[2]}, (1, 1), id="one-instead-of-another"),
        pytest.param({0: STEPS[0], 1: STEPS[1]}, (2, 0), id="last-step-missing"),
        pytest.param({0: STEPS[0], 2: STEPS[2]}, (4, 0), id="step-in-the-middle-missing"),
        pytest.param({0: STEPS[0], 1: [3, 4, 0, 2], 2: [1, 3]}, (0, 0), id="moved-within-an-epoch-is-fine"),
        pytest.param({0: [4, 0, 2, 3], 1: [1, 1, 0, 2], 2: STEPS[2]}, (0, 0), id="other-order-is-fine"),
        pytest.param({0: [4, 0, 2, 9], 1: STEPS[1], 2: STEPS[2]}, (1, 0), id="a-number-of-no-sample"),
    ],
)
def test_what_is_lost_and_repeated(history: History, steps: dict[int, list[int]], expected: tuple[int, int]) -> None:
    history.alone(1, steps)
    history.finish(1)
    verdict = check(history.output)
    assert (verdict.samples_lost, verdict.samples_repeated) == expected
    fine = expected == (0, 0)
    assert verdict.exact is fine


@pytest.mark.parametrize(
    ("second", "expected"),
    [
        pytest.param([3, 1, 0, 2], (True, 0, 0), id="whole"),
        pytest.param([3, 1, 0], (False, 1, 0), id="dropped"),
        pytest.param([3, 1, 0, 0], (False, 1, 1), id="one-instead-of-another"),
    ],
)
def test_a_job_that_was_ended_from_outside_is_judged_as_far_as_it_came(
    history: History, second: list[int], expected: tuple[bool, int, int]
) -> None:
    """Step 2 was under way; of its epoch, the second one, step 1 holds three samples."""
    history.alone(1, {0: STEPS[0], 1: STEPS[1]})
    history.alone(2, {1: second, 2: [4]}, resumed=(1, 1))
    verdict = check(history.output, unfinished=(2, 2))
    assert (verdict.exact, verdict.samples_lost, verdict.samples_repeated) == expected
    assert (verdict.steps, verdict.steps_redone, verdict.discarded) == (2, 1, {1: 1})


def test_a_step_of_another_size_although_no_sample_is_lost(history: History) -> None:
    history.alone(1, {0: STEPS[0], 1: STEPS[1][:3], 2: [STEPS[1][3], *STEPS[2]]})
    history.finish(1)
    verdict = check(history.output)
    assert (verdict.exact, verdict.samples_lost, verdict.steps_of_other_size) == (False, 0, 2)


def test_a_rank_that_wrote_nothing(history: History) -> None:
    history.rank(1, 0, 2, {0: [4, 0], 1: [3, 1], 2: [4]})
    history.finish(1)
    verdict = check(history.output)
    assert (verdict.exact, verdict.samples_lost) == (False, 5)
    assert verdict.problems[0] == "generation 1, step 0: nothing written by rank 1 of 2"


def test_a_step_written_twice_in_one_generation(history: History) -> None:
    history.alone(1, whole())
    path = history.output / "ledger/g1-r0.jsonl"
    path.write_text(path.read_text() + json.dumps({"step": 2, "ids": STEPS[2]}) + "\n")
    history.finish(1)
    verdict = check(history.output)
    assert (verdict.exact, verdict.samples_repeated) == (False, 2)
    assert verdict.problems == ["generation 1, step 2: written more than once by rank 0"]


def test_work_of_a_side_branch_does_not_fill_a_gap(history: History) -> None:
    """Generation 2 did step 1, but generation 3 resumed from 1 and skipped it: the final weights lack it."""
    history.alone(1, {0: STEPS[0]})
    history.alone(2, {1: STEPS[1]}, resumed=(1, 1))
    history.alone(3, {2: STEPS[2]}, resumed=(1, 1))
    history.finish(3)
    assert numbers(history) == (False, 4, 0, 1, 2)


def no_result(history: History) -> None:
    history.alone(1, whole())


def no_ledger(history: History) -> None:
    history.finish(1)


def other_generation_finished(history: History) -> None:
    history.alone(1, whole())
    history.finish(2)


def missing_ancestor(history: History) -> None:
    history.alone(3, {1: STEPS[1], 2: STEPS[2]}, resumed=(2, 1))
    history.finish(3)


def ancestor_from_the_future(history: History) -> None:
    history.alone(1, whole(), resumed=(2, 1))
    history.alone(2, whole(), resumed=(1, 1))
    history.finish(2)


def other_data(history: History) -> None:
    history.alone(1, whole(), dataset_size=6)
    history.alone(2, {1: STEPS[1], 2: STEPS[2]}, resumed=(1, 1))
    history.finish(2)


def resumed_before_its_start(history: History) -> None:
    history.alone(1, {0: STEPS[0]})
    history.alone(2, {2: STEPS[2]}, resumed=(1, 2))
    history.alone(3, {1: STEPS[1], 2: STEPS[2]}, resumed=(2, 1))
    history.finish(3)


def ranks_disagree(history: History) -> None:
    history.rank(1, 0, 2, {0: [4, 0]})
    history.rank(1, 1, 2, {0: [2, 1]}, resumed=(1, 2))
    history.finish(1)


def damaged_in_the_middle(history: History) -> None:
    history.alone(1, whole())
    path = history.output / "ledger/g1-r0.jsonl"
    path.write_text(path.read_text().replace('"ids"', '"ids', 1))
    history.finish(1)


BROKEN = {
    no_result: "has no result.json: the job has not finished",
    no_ledger: "has no ledger: train with --ledger",
    other_generation_finished: "the job ends in generation 2, of which there is no ledger",
    missing_ancestor: "generation 2, from which a later one resumed, has no ledger",
    ancestor_from_the_future: "generation 1 says that it resumed from generation 2",
    other_data: "generation 1 trained on other data",
    resumed_before_its_start: "generation 2 starts after step 2, but was resumed from at 1",
    ranks_disagree: "its header differs from that of another rank of generation 1",
    damaged_in_the_middle: "g1-r0.jsonl cannot be read",
}


@pytest.mark.parametrize("build", BROKEN, ids=lambda build: build.__name__)
def test_what_cannot_be_judged_is_an_error(history: History, capsys: pytest.CaptureFixture[str], build: Any) -> None:
    build(history)
    with pytest.raises(LedgerError, match=BROKEN[build]):
        check(history.output)
    assert main([str(history.output)]) == 1
    assert json.loads(capsys.readouterr().out)["ledger"] == "broken"


def test_the_program_prints_one_line(history: History, capsys: pytest.CaptureFixture[str]) -> None:
    history.alone(1, whole())
    history.finish(1)
    assert main([str(history.output)]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "ledger": "exact",
        "samples_lost": 0,
        "samples_repeated": 0,
        "steps": 3,
        "steps_redone": 0,
        "generations": 1,
        "samples": 10,
        "problems": [],
        "steps_of_other_size": 0,
        "discarded": {},
        "setbacks": {},
    }


class TestEpochsApart:
    """No step crosses an epoch's end: two steps an epoch, of 4 samples and of 1."""

    STEPS = (([4, 0, 2, 1], [3]), ([1, 0, 2, 4], [3]))

    def lines(self) -> Lines:
        return dict(enumerate([*self.STEPS[0], *self.STEPS[1]]))

    def test_each_sample_once_an_epoch_is_exact(self, history: History) -> None:
        history.alone(1, self.lines(), epochs_apart=True)
        history.finish(1)
        verdict = check(history.output)
        assert verdict.exact
        assert (verdict.steps, verdict.samples) == (4, 10)

    def test_a_sample_of_the_next_epoch_in_a_last_step_is_one_too_many(self, history: History) -> None:
        history.alone(1, {**self.lines(), 1: [3, 1]}, epochs_apart=True)
        history.finish(1)
        verdict = check(history.output)
        assert not verdict.exact
        assert (verdict.samples_repeated, verdict.steps_of_other_size) == (1, 1)

    def test_a_job_that_is_not_through_is_judged_so_far(self, history: History) -> None:
        history.alone(1, self.lines(), epochs_apart=True)
        verdict = check(history.output, unfinished=(1, 3))
        assert verdict.exact
        assert verdict.samples == 9
