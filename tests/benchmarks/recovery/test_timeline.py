"""From the steps that were written down to figures, promises and goals."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.recovery import figures
from benchmarks.recovery.systems import SYSTEMS
from benchmarks.recovery.timeline import Change, Line, between


def steps(incarnation: str, world_size: int, began: float, numbers: range, *, size: int = 24) -> list[Line]:
    return [
        Line(time=began + number, incarnation=incarnation, world_size=world_size, first=number * size, end=(number + 1) * size)
        for number in numbers
    ]


BEFORE = steps("a", 2, 0.0, range(10))  # a second each; the last one at 9.0, sample 240


def cost(seconds: float, *, gap: float, full: float, redone: float = 0, lost: int = 0, step: float = 1.0) -> Change:
    return Change(seconds=seconds, gap_seconds=gap, full_seconds=full, step_seconds=step, steps_redone=redone, samples_lost=lost)


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        pytest.param(range(10, 12), cost(3.0, gap=4.0, full=4.0), id="goes-on"),
        pytest.param(range(7, 12), cost(3.0, gap=4.0, full=4.0, redone=3), id="three-steps-again"),
        pytest.param(range(11, 13), cost(3.0, gap=4.0, full=4.0, lost=24), id="one-step-left-out"),
        pytest.param(range(10, 11), cost(4.0, gap=4.0, full=4.0, step=0.0), id="an-ordinary-step-is-not-known-yet"),
    ],
)
def test_a_change(after: range, expected: Change) -> None:
    assert between([*BEFORE, *steps("b", 1, 13.0 - after.start, after)], {"a"}, 1) == expected


@pytest.mark.parametrize(
    ("happened", "seconds"), [(9.6, 2.4), (8.0, 3.0)], ids=["in-the-middle-of-a-step", "before-the-last-step"]
)
def test_what_was_done_of_a_step_before_the_change_is_no_part_of_its_seconds(happened: float, seconds: float) -> None:
    lines = [*BEFORE, *steps("b", 1, 3.0, range(10, 12))]
    assert between(lines, {"a"}, 1, happened=happened) == cost(seconds, gap=4.0, full=4.0)


def test_there_is_no_change_before_the_first_step_of_the_right_size() -> None:
    assert between(BEFORE, {"a"}, 1) is None
    between_worlds = steps("b", 1, 5.0, range(10, 11))
    assert between([*BEFORE, *between_worlds], {"a"}, 2) is None
    found = between([*BEFORE, *between_worlds, *steps("c", 2, 10.0, range(11, 12))], {"a"}, 2)
    assert found == cost(6.0, gap=6.0, full=12.0, step=0.0)


def test_what_some_do_without_the_others_counts() -> None:
    """A step of one alone is neither done again nor left out when both train together again."""
    alone, together = steps("b", 1, 0.5, range(9, 12)), steps("c", 2, 5.0, range(13, 15))
    assert between([*BEFORE, *alone, *together], {"a"}, 2) == cost(5.5, gap=6.5, full=9.0, redone=1, lost=24)


def test_steps_that_the_old_ones_still_did_after_the_event_count_as_before() -> None:
    late = [*BEFORE, *steps("b", 2, 20.0, range(12, 14)), *steps("a", 2, 0.0, range(10, 12))]
    assert between(late, {"a"}, 2) == cost(20.0, gap=21.0, full=21.0)


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


def test_lines_of_torchft_are_those_of_rank_zero_of_each_quorum(tmp_path: Path) -> None:
    """A process has another rank in the next quorum, and a newcomer does not count in the step in which it takes its state."""
    (tmp_path / "steps").mkdir()
    told = {
        11: [(5.0, 1, 0, 2, 24), (6.0, 2, 1, 1, 48), (7.0, 2, 1, 2, 60)],
        12: [(5.1, 1, 1, 2, 24), (6.1, 2, 0, 1, 48), (7.1, 2, 0, 2, 60)],
    }
    for pid, lines in told.items():
        words = [
            json.dumps(
                {"time": seconds, "generation": quorum, "rank": rank, "world_size": size, "from": first, "to": first + 12 * size}
            )
            for seconds, quorum, rank, size, first in lines
        ]
        (tmp_path / "steps" / f"{pid}.jsonl").write_text("\n".join(words) + '\n{"tim')
    (tmp_path / "steps" / "13.jsonl").write_text("")
    assert SYSTEMS["torchft"].lines(tmp_path) == [
        Line(time=5.0, incarnation="1 of 2", world_size=2, first=24, end=48),
        Line(time=6.1, incarnation="2 of 1", world_size=1, first=48, end=60),
        Line(time=7.1, incarnation="2 of 2", world_size=2, first=60, end=84),
    ]


def change(seconds: float, redone: float = 0, lost: int = 0, **facts: Any) -> Change:
    costs = {"gap_seconds": seconds + 1, "full_seconds": seconds + 2, "step_seconds": 1.0}
    return Change(seconds=seconds, steps_redone=redone, samples_lost=lost, **{**costs, "pids_kept": True, **facts})


def test_a_figure_is_the_median_and_null_when_one_round_failed() -> None:
    found = figures.figure(
        [change(3, transfer_seconds=2.5, bytes_read=7, load=4.0), change(1, 2), change(2, bytes_read=5, pids_kept=False)]
    )
    assert found == {
        "median_seconds": 2,
        "p95_seconds": 3,
        "p95_beside_transfer_seconds": 2,
        "transfer_seconds": 0,
        "gap_seconds": 3,
        "full_seconds": 4,
        "step_seconds": 1,
        "steps_redone": 2,
        "samples_lost": 0,
        "bytes_read": 7,
        "pids_kept": False,
        "load": 0,
        "events": 3,
    }
    assert figures.figure([change(1), "no step in 120 s"]) is None
    assert figures.figure([]) is None
    failed: figures.Found = {"c10d": {"join": {"5": [change(1), "the job ended"]}}}
    assert figures.reasons(failed) == {"c10d join 5": "1 of 2: the job ended"}


FOUND: figures.Found = {
    "ours": {
        "notice": {"5": [change(2.0)], "1600": [change(0.5, 1)]},
        "join": {"5": [change(3.0, transfer_seconds=2.5)]},
        "kill_pod": {"5": ["the job ended"], "400": [change(0.9, 1, bytes_read=2_000_000)]},
        "kill_two": {"5": [change(0.9, 2, pids_kept=False)]},
        "silent": {"5": [change(4.9, 1, 24)]},
    },
    "restart": {"kill_pod": {"5": [change(8.0, 30, bytes_read=9_000_000, pids_kept=False)]}, "notice": {"5": [change(8.0, 1)]}},
    "etcd": {"notice": {"5": [change(9.0)]}, "join": {"5": [change(40.0)]}},
    "etcd_best": {"notice": {"5": [change(2.5)], "1600": [change(2.5)]}},
    "c10d": {"join": {"5": ["the job ended"]}},
}


def test_promises_hold_on_any_machine() -> None:
    made = {promise.text: promise.kept for promise in figures.promises(figures.figures(FOUND))}
    assert made == {
        "notice, 5 MB, ours: 0 steps redone, at most 0; 0 samples lost": True,
        "notice, 5 MB, ours: the same processes at the others, 0 bytes read": True,
        "notice, 1600 MB, ours: 1 steps redone, at most 0; 0 samples lost": False,
        "notice, 1600 MB, ours: the same processes at the others, 0 bytes read": True,
        "join, 5 MB, ours: 0 steps redone, at most 0; 0 samples lost": True,
        "join, 5 MB, ours: the same processes at the others, 0 bytes read": True,
        "kill_pod, 5 MB, ours: it did not go on": False,
        "kill_pod, 400 MB, ours: 1 steps redone, at most 1; 0 samples lost": True,
        "kill_pod, 400 MB, ours: the same processes at the others, 2,000,000 bytes read": False,
        "kill_two, 5 MB, ours: 2 steps redone, at most 1; 0 samples lost": False,
        "kill_two, 5 MB, ours: other processes at the others, 0 bytes read": False,
        "silent, 5 MB, ours: 1 steps redone, at most 1; 24 samples lost": False,
        "silent, 5 MB, ours: the same processes at the others, 0 bytes read": True,
        "kill_pod, 5 MB, restart: 30 steps redone, at most 3000; 0 samples lost": True,
        "notice, 5 MB, restart: 1 steps redone, at most 0; 0 samples lost": False,
    }


def test_goals_are_times_of_ours_and_of_those_beside_it() -> None:
    table = figures.figures(FOUND)
    made = {goal.text: goal.kept for goal in figures.goals(table)}
    assert made == {
        "notice, 5 MB: 2 s beside the transfer, of which p95 is to be at most 1": False,
        "notice, 5 MB: 2 s, etcd 9 s: 4.5 times, wanted 5": False,
        "notice, 5 MB: 2 s, etcd_best 2.5 s: 1.2 times, wanted 1": True,
        "notice, 1600 MB: 0.5 s beside the transfer, of which p95 is to be at most 1": True,
        "notice, 1600 MB: 0.5 s, etcd_best 2.5 s: 5.0 times, wanted 1": True,
        "join, 5 MB: 0.5 s beside the transfer, of which p95 is to be at most 1": True,
        "join, 5 MB: 3 s, etcd 40 s: 13.3 times, wanted 5": True,
        "join, 5 MB: 3 s, c10d does not go on": True,
        "kill_pod, 400 MB: 0.9 s beside the transfer, of which p95 is to be at most 1": True,
        "kill_two, 5 MB: 0.9 s beside the transfer, of which p95 is to be at most 1": True,
        "silent, 5 MB: 4.9 s beside the transfer, of which p95 is to be at most 5": True,
    }
    rows = figures.table_lines(table)
    assert rows[1].split() == ["ours,", "5", "MB", "-", "0.90", "(2)", "3.00", "(0)", "2.00", "(0)", "4.90", "(1)"]
