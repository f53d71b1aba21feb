"""The figures of a report against those of the story that they are made from."""

import json
from dataclasses import asdict
from typing import Any

import pytest

from ebb.api.clock import stamp
from ebb.client.jobs.view import view
from ebb.client.report.data import RunReport, run_report
from ebb.client.report.lines import Reader
from tests.client.report import story


def make_report(
    *, moments: story.Moments = story.MOMENTS, until: float = 180.0, paid: float = 352.0, ranks: int = 1, **changes: Any
) -> RunReport:
    reader, now = Reader(), 200.0
    for line in story.metric_lines(moments, until=until):
        reader.add(line)
    job = view(story.job(**changes), story.BEGIN + now)
    return run_report(
        job, reader.done(), now=story.BEGIN + now, source="metrics.jsonl", paid_seconds=paid, ranks_per_worker=ranks
    )


def test_workers_and_zones_over_time() -> None:
    found = [(each.seconds, each.until, each.workers, each.zone) for each in make_report().stretches]
    assert found == [
        (40.2, 68.0, 2, "local-a"),
        (70.4, 80.0, 1, "local-a"),
        (82.2, 118.0, 2, "local-b"),
        (pytest.approx(120.133, abs=0.01), pytest.approx(180.0, abs=0.2), 3, "local-b"),
    ]


def test_two_ranks_are_one_worker_of_two_gpus() -> None:
    assert [each.workers for each in make_report(ranks=2).stretches] == [1, 1, 1, 2]


def test_each_loss_has_its_pause_and_what_was_done_again() -> None:
    events = make_report().events
    assert [event.loss for event in events] == [False, True, False, False]
    lost = events[1]
    assert (lost.seconds, lost.zone, lost.pause_seconds, lost.steps_redone) == (67.5, "local-a", 2.4, 1)
    assert lost.sentence == "worker 1 on spot-t4-local-a-x1b2c was lost: the cloud takes its machine back"
    assert [event.zone for event in events] == ["local-a", "local-a", "local-b", "local-b"]


def test_a_loss_long_after_every_pause_has_none() -> None:
    history = [{"at": stamp(story.BEGIN + 900.0), "what": "reclaimed", "worker": 0, "cause": "NodeGone"}]
    assert make_report(history=history).events[0].pause_seconds is None


def test_points_know_samples_and_which_steps_were_done_again() -> None:
    found = make_report(moments=((40.0, 2, 0), (60.0, 2, 30)), until=80.0)
    assert found.global_batch == story.BATCH
    assert all(point.samples == point.step * story.BATCH for point in found.points)
    assert [point.step for point in found.points if point.redone] == list(range(61, 91))
    assert [point.step for point in found.points if not point.redone] == list(range(1, 161))


def test_where_the_time_went_adds_up() -> None:
    times = make_report().times
    assert times.total == 182.0
    assert times.waiting == 40.0
    assert times.lost == pytest.approx(6.2)
    assert sum(each or 0.0 for each in (times.waiting, times.useful, times.lost, times.other)) == pytest.approx(180.0, abs=0.2)


def test_goodput_is_useful_machine_time_of_what_was_paid() -> None:
    """28 seconds of two machines, 10 of one, 36 of two and 60 of three trained, but for one step; 6 were paid after the last."""
    assert make_report().goodput == pytest.approx((28 * 2 + 10 - 0.2 + 36 * 2 + 60 * 3) / (352.0 - 6.0), abs=0.003)


def test_the_platforms_own_goodput_goes_before_that_of_the_lines() -> None:
    cost = {
        "usdSpent": 1.0,
        "usdOnDemand": 2.0,
        "machineSeconds": 100.0,
        "usefulMachineSeconds": 80.0,
        "at": stamp(story.BEGIN + 182),
    }
    progress = {"step": 900, "usefulSeconds": 40.0, "at": stamp(story.BEGIN + 182)}
    assert make_report(cost=cost, progress=progress).goodput == pytest.approx(0.8)


def test_money_ends_at_the_platforms_sums_and_begins_when_machines_do() -> None:
    money = make_report().money
    assert (money[-1].usd_spent, money[-1].usd_on_demand) == (0.0185, 0.0617)
    assert money[0].usd_spent == money[1].usd_spent == 0.0
    assert 0 < money[1].seconds < 40.2  # 352 machine seconds are more than the stretches: the machines started before
    spent = [each.usd_spent for each in money]
    assert spent == sorted(spent)


def test_no_prices_no_money() -> None:
    assert make_report(cost={"machineSeconds": 5.0}).money == ()


def test_a_job_without_any_line_still_tells_its_history() -> None:
    found = make_report(moments=())
    assert (found.points, found.stretches, found.times.useful) == ((), (), None)
    assert [event.what for event in found.events] == ["placed", "reclaimed", "placed", "ended"]


def test_a_history_that_is_full_says_that_it_forgot() -> None:
    history = [{"at": stamp(story.BEGIN + 50.0 + each), "what": "placed", "cause": "local-c"} for each in range(20)]
    found = make_report(history=history)
    assert any("last 20 events" in note for note in found.notes)
    assert found.stretches[0].zone == ""  # older than the history


def test_the_record_is_plain_json() -> None:
    found = json.loads(json.dumps(asdict(make_report()), allow_nan=False))
    assert list(found) == [
        "job", "begin", "source", "notes", "global_batch", "lines", "points", "stretches", "events", "times", "goodput", "money",
    ]  # fmt: skip
    assert list(found["points"][0]) == [
        "seconds", "step", "samples", "loss", "samples_per_second", "goodput", "figures", "redone",
    ]  # fmt: skip
