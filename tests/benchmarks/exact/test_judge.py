"""The judge and the planted faults, on records written by hand."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from benchmarks.exact import planted
from benchmarks.exact.history import Kind, Recovery, draw
from benchmarks.exact.judge import Findings, Result, interval_steps, judge
from benchmarks.exact.play import Played
from testing import exactness as ledger
from tests.benchmarks.exact import records

EVENTS: tuple[Kind, ...] = ("join", "notice", "kill-all")
REFERENCE = Result(validation=1.0, losses={str(step): 0.1 for step in range(1, 7)}, sha256="a" * 64)


def judged(
    output: Path,
    *,
    virtual: bool = False,
    events: tuple[Kind, ...] = EVENTS,
    codes: tuple[int, ...] = (0,),
    recovery: Recovery = "restart",
    processes: Mapping[str, int] | None = None,
    killed: frozenset[tuple[int, int]] = frozenset(),
) -> Findings:
    played = Played(output=output, events=events, codes=codes, seconds=1.0, step_seconds=0.1, killed=killed, **(processes or {}))
    return judge(draw(1, agents=False, virtual=virtual, recovery=recovery), played, REFERENCE)


def test_all_promises_kept(tmp_path: Path) -> None:
    findings = judged(records.write(tmp_path, redone=2), virtual=True, codes=(0, 138))
    assert findings.problems == []
    assert (findings.samples, findings.steps, findings.steps_redone, findings.most_redone) == (24, 6, 2, 2)
    assert (findings.generations, findings.bit_identical, findings.loss_off) == (2, True, 0.0)


def test_other_weights_are_broken_with_virtual_workers_only(tmp_path: Path) -> None:
    records.write(tmp_path, sha256="b" * 64)
    assert judged(tmp_path).problems == []
    assert not judged(tmp_path).bit_identical
    assert judged(tmp_path, virtual=True).problems == ["the weights are not those of the undisturbed run, bit for bit"]


def test_a_result_that_differs_by_more_than_the_order_of_sums(tmp_path: Path) -> None:
    assert judged(records.write(tmp_path / "near", accuracy=0.99991, loss=0.10009)).problems == []
    assert judged(records.write(tmp_path / "far", accuracy=0.9)).problems == [
        "the validation is 0.1 off the undisturbed run's, more than 0.0001"
    ]
    assert judged(records.write(tmp_path / "other", loss=0.11)).problems == [
        "the loss of a step is 0.01 off the undisturbed run's, more than 0.0001"
    ]


def test_one_step_of_other_samples_is_seen_in_its_loss(tmp_path: Path) -> None:
    with (records.write(tmp_path) / "metrics.jsonl").open("a") as file:
        file.write('{"step": 3, "loss": 0.2}\n')
    assert judged(tmp_path).problems == ["the loss of a step is 0.1 off the undisturbed run's, more than 0.0001"]


def test_a_step_without_a_loss_needs_a_kill(tmp_path: Path) -> None:
    lines = (records.write(tmp_path) / "metrics.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "metrics.jsonl").write_text("".join(lines[1:]))
    assert judged(tmp_path).problems == []
    problems = judged(tmp_path, events=("join", "notice", "join")).problems
    assert problems == ["the losses of 1 steps are not written down, but there were 0 kills"]


def test_text_is_judged_by_its_bits_per_token(tmp_path: Path) -> None:
    result = json.loads((records.write(tmp_path) / "result.json").read_text())
    result["validation_bits_per_token"] = result.pop("test_accuracy")
    (tmp_path / "result.json").write_text(json.dumps(result))
    assert judged(tmp_path).problems == []


def test_a_step_done_again_needs_a_kill(tmp_path: Path) -> None:
    records.write(tmp_path, redone=1)
    assert judged(tmp_path).problems == []
    problems = judged(tmp_path, events=("join", "notice", "join")).problems
    assert problems == ["1 generations did steps again, but there were 0 kills: {2: 1}"]


def test_a_machine_that_was_taken_for_dead_may_cost_a_step_as_one_that_was_killed(tmp_path: Path) -> None:
    events: tuple[Kind, ...] = ("join", "notice", "join")
    records.write(tmp_path, redone=1)
    assert judged(tmp_path, events=events, processes={"left_behind": 1}).problems == []


def test_more_than_an_interval_done_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert interval_steps(0.1) == 21
    monkeypatch.setattr("benchmarks.exact.judge.interval_steps", lambda _: 2)
    assert judged(records.write(tmp_path, redone=3)).problems == [
        "generation 2: 3 steps done again, more than the 2 of a checkpoint interval"
    ]


@pytest.mark.parametrize(
    ("redone", "processes", "problem"),
    [
        pytest.param(1, {}, "", id="the step under way"),
        pytest.param(2, {"nobody_left": 1, "checkpoints_read": 2}, "", id="nobody was left"),
        pytest.param(2, {}, "more than the step under way was done again: {2: 2}, but nobody was left only 0 times", id="redone"),
        pytest.param(0, {"pids_lost": 1}, "1 processes that no event had hit were not there any more", id="process"),
        pytest.param(0, {"needlessly_read": 1}, "1 checkpoints were read while processes were there that had trained", id="read"),
    ],
)
def test_survivors_keep_their_processes_and_all_but_a_step(
    tmp_path: Path, redone: int, processes: dict[str, int], problem: str
) -> None:
    records.write(tmp_path, redone=redone)
    assert judged(tmp_path, recovery="memory", processes=processes).problems == ([problem] if problem else [])
    assert judged(tmp_path, recovery="restart", processes=processes).problems == [], "all start anew from a checkpoint"


def test_the_steps_that_only_a_killed_rank_had_begun_are_not_done_again_by_the_others(tmp_path: Path) -> None:
    """It had the sum of the step before and nobody else had, so that the sum died with it."""
    records.write(tmp_path, redone=2)
    ledger_of_survivor = tmp_path / "ledger" / "g1-r1.jsonl"
    ledger_of_survivor.write_text("".join(ledger_of_survivor.read_text().splitlines(keepends=True)[:-1]))
    found = ["more than the step under way was done again: {2: 2}, but nobody was left only 0 times"]
    for killed, problems in (({(1, 0)}, []), ({(1, 1)}, found), ({(1, 0), (1, 1)}, found), (set(), found)):
        assert judged(tmp_path, recovery="memory", killed=frozenset(killed)).problems == problems


def test_one_loss_of_all_may_cost_the_work_of_several_generations(tmp_path: Path) -> None:
    """Since the last checkpoint, which was of step 3; generation 3 had done steps 4 and 5."""
    records.write(tmp_path, redone=1)
    records.generation(tmp_path, 2, 1, (1, 3), range(3, 4))
    records.generation(tmp_path, 3, 2, (2, 4), range(4, 6))
    records.generation(tmp_path, 4, 1, (1, 3), range(3, 6))
    result = json.loads((tmp_path / "result.json").read_text())
    (tmp_path / "result.json").write_text(json.dumps(result | {"generation": 4}))
    kills: tuple[Kind, ...] = ("join", "kill-process", "kill-all")
    nobody = {"nobody_left": 1}
    assert judged(tmp_path, events=kills, recovery="memory", processes=nobody).problems == []
    assert judged(tmp_path, events=kills, recovery="memory", processes=nobody).most_redone == 3
    one_kill = judged(tmp_path, recovery="memory", processes=nobody).problems
    assert one_kill == ["2 generations did steps again, but there were 1 kills: {2: 1, 4: 3}"]
    assert judged(tmp_path, events=kills, recovery="memory").problems == [
        "more than the step under way was done again: {4: 3}, but nobody was left only 0 times"
    ]


def test_wrong_exit_codes_and_too_few_events(tmp_path: Path) -> None:
    problems = judged(records.write(tmp_path), events=("join",), codes=(0, 1, -9)).problems
    assert problems == [
        "a machine ended with 1",
        "a machine ended with -9",
        "the job ended after 1 events, fewer than 3",
    ]


@pytest.mark.parametrize("fault", planted.FAULTS)
def test_each_planted_fault_is_found(tmp_path: Path, fault: planted.Fault) -> None:
    records.write(tmp_path, redone=2)
    assert ledger.check(tmp_path).exact
    planted.plant(tmp_path, fault)
    verdict = ledger.check(tmp_path)
    assert not verdict.exact
    counts = {"dropped": (1, 0), "doubled": (0, 1), "replaced": (1, 1), "step dropped": (4, 0)}
    assert (verdict.samples_lost, verdict.samples_repeated) == counts[fault]
    assert judged(tmp_path).problems


def test_a_blind_checker_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    records.write(tmp_path)
    assert planted.missed_faults(tmp_path, tmp_path / "scratch") == []
    fine = ledger.check(tmp_path)
    monkeypatch.setattr(ledger, "check", lambda _: fine)
    assert planted.missed_faults(tmp_path, tmp_path / "scratch") == list(planted.FAULTS)


def test_a_fault_is_planted_in_a_step_that_counts(tmp_path: Path) -> None:
    """Generation 2 has steps of its own; where it has none, the fault goes into generation 1, not into what was discarded."""
    records.write(tmp_path, redone=2)
    planted.plant(tmp_path, "dropped")
    lines = (tmp_path / "ledger" / "g2-r0.jsonl").read_text().splitlines()
    assert json.loads(lines[1])["ids"] == [1, 2, 3]
