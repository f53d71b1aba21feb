"""The benchmark of spot machines: traces, the cloud that follows them, what each way to buy makes of simple ones, the judge."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

from benchmarks.spot import others, ours
from benchmarks.spot.__main__ import begins, read_settings, run
from benchmarks.spot.cloud import BOOT_SECONDS, NOTICE_SECONDS, Cloud
from benchmarks.spot.curve import speed
from benchmarks.spot.figures import broken, figures
from benchmarks.spot.market import GAP_SECONDS, TraceError, Zone, drawn, read
from benchmarks.spot.others import RESTART_SECONDS, Case, Played

HOUR = 3600.0
FULL = BOOT_SECONDS + RESTART_SECONDS
CASE = Case(machines=4, gpus_per_machine=1, least=1, seconds=4 * HOUR, deadline=8 * HOUR)


def zone(name: str, *hours: tuple[int, float], **rest: Any) -> Zone:
    """Machines, and for how many hours there are so many."""
    counts = tuple(count for count, lasts in hours for _ in range(round(lasts * HOUR / GAP_SECONDS)))
    return Zone(name=name, gap_seconds=GAP_SECONDS, counts=counts, **rest)


def cloud(*zones: Zone) -> Cloud:
    return Cloud(zones, begin=0.0, on_demand_usd=1.0, discount=0.7, rng=random.Random(1))


ALWAYS = zone("a", (4, 100))
NEVER = zone("b", (0, 100))


def test_a_trace_is_read_with_its_prices(tmp_path: Path) -> None:
    (tmp_path / "us-a_v100_1.json").write_text(json.dumps({"metadata": {"gap_seconds": 300}, "data": [2, 0]}))
    rows = [
        {"AvailabilityZone": "us-a", "Timestamp": f"2026-11-01T0{hour}:00:00+00:00", "SpotPrice": f"{usd}"}
        for hour, usd in ((0, 0.5), (1, 0.75))
    ]
    (tmp_path / "prices.json").write_text(json.dumps({"SpotPriceHistory": rows}))
    (found,) = read(tmp_path)
    assert [found.most(at) for at in (0, 299, 300, 600)] == [2, 2, 0, 2]
    assert [found.price(at, 9.0) for at in (0, 3599, 3600, 1e6)] == [0.5, 0.5, 0.75, 0.75]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "cannot be read as JSON"),
        ('{"data": [1]}', "needs metadata.gap_seconds"),
        ('{"metadata": {"gap_seconds": 300}, "data": [1, -1]}', "integers from 0"),
        ('{"metadata": {"gap_seconds": 0}, "data": [1]}', "gap_seconds more than 0"),
    ],
)
def test_a_trace_that_is_none_is_refused(tmp_path: Path, content: str, words: str) -> None:
    (tmp_path / "a.json").write_text(content)
    with pytest.raises(TraceError, match=words):
        read(tmp_path)


def test_a_folder_without_traces_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="one trace for each zone"):
        read(tmp_path)


def test_drawn_zones_are_without_machines_as_often_as_the_published_ones() -> None:
    counts = [count for seed in range(6) for one in drawn(random.Random(seed), days=60) for count in one.counts]
    assert 0.37 <= counts.count(0) / len(counts) <= 0.56
    assert 0.38 <= counts.count(16) / len(counts) <= 0.46


def test_a_cloud_gives_what_the_trace_has_takes_the_rest_back_with_notice_and_bills_until_then() -> None:
    found = cloud(zone("a", (2, 1), (1, 1)))
    first, second, third = (found.ask("a", "spot") for _ in range(3))
    assert first
    assert second
    assert third is None
    assert found.advance(HOUR) == []
    assert found.usd == pytest.approx(2 * 0.3)
    (goes,) = [one for one in found.machines if one.ends is not None]
    assert found.ask("a", "spot") is None
    assert found.advance(NOTICE_SECONDS) == [goes]
    assert found.usd == pytest.approx(2 * 0.3 * (1 + NOTICE_SECONDS / HOUR))
    assert found.reclaims == 1


def test_undisturbed_all_ways_take_as_long_and_spot_costs_its_price() -> None:
    full = others.on_demand(CASE, cloud(ALWAYS))
    assert full.seconds == CASE.seconds + FULL
    assert full.usd == pytest.approx(4 * (CASE.seconds + FULL) / HOUR)
    for play in (others.naive, others.restarts, others.elastic, others.uniform_progress, ours.play):
        played = play(CASE, cloud(ALWAYS))
        assert played.seconds == pytest.approx(full.seconds, abs=200), play
        assert played.usd == pytest.approx(0.3 * full.usd, rel=0.02), play
        assert played.reclaims == 0


def test_a_reclaim_costs_the_naive_all_and_restarts_the_work_since_the_checkpoint() -> None:
    gap = zone("a", (4, 2), (0, 1), (4, 100))
    naive, restarts = others.naive(CASE, cloud(gap)), others.restarts(CASE, cloud(gap))
    assert naive.seconds == pytest.approx(3 * HOUR + CASE.seconds + FULL, abs=60)
    assert restarts.seconds is not None
    assert CASE.seconds + HOUR < restarts.seconds < CASE.seconds + HOUR + 900 + 3 * FULL


def test_ours_goes_where_machines_are_trains_on_with_fewer_and_buys_the_rest_when_time_is_short() -> None:
    moved = ours.play(CASE, cloud(NEVER, zone("a", (4, 100))))
    assert moved.seconds is not None
    assert moved.seconds < CASE.seconds + HOUR
    assert moved.usd < 0.35 * 4 * 4
    fewer = ours.play(CASE, cloud(zone("a", (4, 1), (2, 100))))
    assert fewer.seconds == pytest.approx(HOUR + 3 * HOUR / CASE.rate(2), rel=0.05)
    assert fewer.usd < 0.35 * 4 * 4
    short = ours.play(CASE, cloud(zone("a", (4, 1), (0, 100))))
    assert short.seconds is not None
    assert CASE.deadline - HOUR < short.seconds <= CASE.deadline
    assert short.usd == pytest.approx(4 * (1 * 0.3 + 3 * 1.0), rel=0.1)


def test_without_a_deadline_in_the_job_it_falls_back_when_the_job_says() -> None:
    gone = zone("a", (4, 1), (0, 100))
    early = ours.play(CASE, cloud(gone), ours.Ours(fallback_after_seconds=600, deadline=False))
    assert early.seconds is not None
    assert early.seconds < CASE.seconds + HOUR
    late = Case(machines=4, gpus_per_machine=1, least=1, seconds=4 * HOUR, deadline=5 * HOUR)
    assert ours.play(late, cloud(gone), ours.Ours(fallback_after_seconds=10**7, deadline=False)).seconds is None


def test_uniform_progress_buys_on_demand_machines_while_it_is_behind() -> None:
    played = others.uniform_progress(CASE, cloud(NEVER))
    assert played.seconds is not None
    assert not played.late(CASE.deadline)
    assert played.usd == pytest.approx(4 * (CASE.seconds + FULL) / HOUR, rel=0.3)


def test_the_curve_is_the_articles() -> None:
    assert speed(4) == 4
    assert speed(64) / speed(4) == pytest.approx(9)
    assert speed(16) / speed(4) > 3.4


def test_figures_and_the_judge() -> None:
    plays = [Played(usd=6.0, seconds=9 * HOUR, reclaims=2), Played(usd=3.0, seconds=None, reclaims=4)]
    full = [Played(usd=16.0, seconds=4 * HOUR, reclaims=0)] * 2
    found = figures(CASE, plays, full, 1.0)
    assert (found["saving"], found["late"], found["unfinished"], found["times_as_long"]) == (0.625, 2, 1, 2.25)
    good = {"saving": 0.65, "late": 0}
    assert broken({4: {"ours": good, "uniform_progress": good}}) == []
    assert len(broken({4: {"ours": {"saving": 0.5, "late": 1}, "uniform_progress": good}})) == 3
    little = {"ours": {"saving": 0.5, "late": 0}, "uniform_progress": {"saving": 0.5, "late": 0}}
    assert broken({12: little}) == ["12 GPUs: ours saves 0.5, less than 0.6"]
    assert broken({32: little}) == []


def test_plays_begin_so_that_their_deadline_is_within_the_trace() -> None:
    assert begins([zone("a", (1, 20))], CASE, 4) == [0, 4 * HOUR, 8 * HOUR, 12 * HOUR]
    assert begins([zone("a", (1, 5))], CASE, 2) == [0, 0]


def test_the_command_writes_its_page_and_ends_with_its_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "spot.html"
    status = run(read_settings(["--gpus", "4,32", "--hours", "2", "--starts", "1", "--slack", "3", "--page", str(page)]))
    last = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert status == bool(last["broken"])
    assert set(last["gpus"]["32"]) == {"on_demand", "naive", "restarts", "elastic", "uniform_progress", "ours"}
    assert "Uniform Progress" in page.read_text()


@pytest.mark.parametrize("words", [["--gpus", "a"], ["--gpus", "17"], ["--starts", "0"], ["--slack", "1"]])
def test_options_that_are_no_use_are_refused(words: list[str]) -> None:
    with pytest.raises(SystemExit):
        read_settings(words)
