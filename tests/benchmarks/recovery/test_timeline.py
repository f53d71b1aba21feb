"""What is made of the steps that were written down."""

import json
from pathlib import Path

import pytest

from benchmarks.recovery import figures
from benchmarks.recovery.systems import SYSTEMS
from benchmarks.recovery.timeline import Change, Line, between


def steps(incarnation: str, world_size: int, began: float, numbers: range, *, size: int = 24) -> list[Line]:
    return [
        Line(time=began + number, incarnation=incarnation, world_size=world_size, first=number * size, end=(number + 1) * size)
        for number in numbers
    ]


BEFORE = steps("a", 2, 0.0, range(10))  # the last one at 9.0, sample 240


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        pytest.param(range(10, 12), Change(seconds=4.0, full_seconds=4.0, steps_redone=0, samples_lost=0), id="goes-on"),
        pytest.param(range(7, 12), Change(seconds=4.0, full_seconds=4.0, steps_redone=3, samples_lost=0), id="three-steps-again"),
        pytest.param(
            range(11, 12), Change(seconds=4.0, full_seconds=4.0, steps_redone=0, samples_lost=24), id="one-step-left-out"
        ),
    ],
)
def test_a_change(after: range, expected: Change) -> None:
    assert between([*BEFORE, *steps("b", 1, 13.0 - after.start, after)], {"a"}, 1) == expected


def test_there_is_no_change_before_the_first_step_of_the_right_size() -> None:
    assert between(BEFORE, {"a"}, 1) is None
    between_worlds = steps("b", 1, 5.0, range(10, 11))
    assert between([*BEFORE, *between_worlds], {"a"}, 2) is None
    found = between([*BEFORE, *between_worlds, *steps("c", 2, 10.0, range(11, 12))], {"a"}, 2)
    assert found == Change(seconds=6.0, full_seconds=12.0, steps_redone=0, samples_lost=0)


def test_what_some_do_without_the_others_counts() -> None:
    """A step of one alone is neither done again nor left out when both train together again."""
    alone, together = steps("b", 1, 0.5, range(9, 12)), steps("c", 2, 5.0, range(13, 15))
    assert between([*BEFORE, *alone, *together], {"a"}, 2) == Change(
        seconds=6.5, full_seconds=9.0, steps_redone=1, samples_lost=24
    )


def test_steps_that_the_old_ones_still_did_after_the_event_count_as_before() -> None:
    late = [*BEFORE, *steps("b", 2, 20.0, range(12, 14)), *steps("a", 2, 0.0, range(10, 12))]
    assert between(late, {"a"}, 2) == Change(seconds=21.0, full_seconds=21.0, steps_redone=0, samples_lost=0)


def test_lines_of_ours(tmp_path: Path) -> None:
    system = SYSTEMS["ours"]
    assert system.lines(tmp_path) == []
    line = {"time": 5.0, "generation": 3, "world_size": 2, "step": 4}
    (tmp_path / "metrics.jsonl").write_text(json.dumps(line) + '\n{"time": 6')
    assert system.lines(tmp_path) == [Line(time=5.0, incarnation="3", world_size=2, first=72, end=96)]


@pytest.mark.parametrize(("told", "steps"), [((4, 4), [4, 5, 6]), ((4, 3), [4, 6])], ids=["by-all-ranks", "by-one-rank"])
def test_a_step_whose_line_went_with_rank_zero_is_done_if_all_ranks_have_told_it(
    tmp_path: Path, told: tuple[int, int], steps: list[int]
) -> None:
    lines = [
        {"time": 4.0, "generation": 3, "world_size": 2, "step": 4},
        {"time": 9.0, "generation": 4, "world_size": 2, "step": 6},
    ]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (tmp_path / "ledger").mkdir()
    for rank, last in enumerate(told):
        ledger = [{"generation": 3}, *({"step": step, "time": step + rank / 8} for step in range(3, last + 1))]
        (tmp_path / "ledger" / f"g3-r{rank}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in ledger))
    found = SYSTEMS["ours"].lines(tmp_path)
    assert [line.end // 24 for line in found] == steps
    assert [line.time for line in found if line.end == 120] == [4.125] * (5 in steps)


def test_lines_of_stock_are_those_of_rank_zero(tmp_path: Path) -> None:
    (tmp_path / "steps").mkdir()
    for pid, rank in ((11, 0), (12, 1)):
        header = {"rank": rank, "world_size": 2, "started": 1.0}
        line = {"time": 5.0, "from": 24, "to": 48}
        (tmp_path / "steps" / f"{pid}.jsonl").write_text(json.dumps(header) + "\n" + json.dumps(line) + '\n{"tim')
    (tmp_path / "steps" / "13.jsonl").write_text("")
    assert SYSTEMS["etcd"].lines(tmp_path) == [Line(time=5.0, incarnation="11", world_size=2, first=24, end=48)]


def change(seconds: float, redone: float = 0, lost: int = 0) -> Change:
    return Change(seconds=seconds, full_seconds=seconds + 1, steps_redone=redone, samples_lost=lost)


def test_a_figure_is_the_median_and_null_when_one_round_failed() -> None:
    found = figures.figure([change(3), change(1, 2), change(2)])
    assert found == {"median_seconds": 2, "p95_seconds": 3, "full_seconds": 3, "steps_redone": 2, "samples_lost": 0}
    assert figures.figure([change(1), "no step in 120 s"]) is None
    assert figures.figure([]) is None
    assert figures.reasons({"c10d": {"join": [change(1), "the job ended"]}}) == {"c10d join": "1 of 2: the job ended"}


def test_promises_won_and_lost() -> None:
    table = figures.figures(
        {
            "ours": {"notice": [change(2.0)], "join": [change(3.0, 1)], "kill_pod": ["the job ended"]},
            "etcd": {"notice": [change(9.0)], "join": [change(40.0)], "kill_pod": [change(40.0)]},
            "etcd_best": {"notice": [change(2.5)]},
            "c10d": {"join": ["the job ended"]},
        }
    )
    made = {promise.text: promise.kept for promise in figures.promises(table)}
    assert made == {
        "notice: 2 s, etcd 9 s: 4.5 times, wanted 5": False,
        "notice: 2 s, etcd_best 2.5 s: 1.2 times, wanted 1": True,
        "notice, ours: 0 steps redone, at most 0; 0 samples lost": True,
        "join: 3 s, etcd 40 s: 13.3 times, wanted 5": True,
        "join: 3 s, c10d does not go on": True,
        "join, ours: 1 steps redone, at most 0; 0 samples lost": False,
        "kill_pod: ours did not go on": False,
    }
    rows = figures.table_lines(table, ("notice", "join", "kill_pod"))
    assert rows[1].split() == ["ours", "2.0", "(0)", "3.0", "(1)", "-"]
