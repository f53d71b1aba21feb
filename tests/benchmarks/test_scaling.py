"""The model of scaling and what holds for any network, the figures and promises, the page."""

import math
from itertools import pairwise
from typing import Any

import pytest

from benchmarks.controller.processes import BenchmarkError
from benchmarks.scaling import cases, figures, measured, model
from benchmarks.scaling.cases import MACHINES, PRESETS, SIZES, seconds_for, speed_up, worth
from benchmarks.scaling.measured import Epoch, epoch_of
from benchmarks.scaling.model import Point, Ring, Work, efficiency, fit, network_of, step_seconds
from benchmarks.scaling.page import page
from ebb.client.scaling import PRESETS as MEASURED_PRESETS
from ebb.elastic.runtime.buckets import BUCKET_BYTES
from tests.client.report.html import read
from trainer.text.decoder import SIZES as DECODERS
from trainer.text.flops import PEAKS, flops_per_token

NETWORK = Ring(hop_seconds=1e-4, bytes_per_second=1e9)
WORK = Work(name="a", parameters=50e6, seconds=0.5)
RANKS = (1, 2, 3, 4, 8, 16, 64)


def test_a_ring_sends_its_bytes_twice_less_what_stays_and_waits_for_each_hop() -> None:
    assert NETWORK.all_reduce(1e9, 2) == pytest.approx(1.0 + 2 * 1e-4)
    assert NETWORK.all_reduce(1e9, 64) == pytest.approx(2 * 63 / 64 + 126 * 1e-4)
    assert NETWORK.all_reduce(0, 3) == pytest.approx(4 * 1e-4)
    assert NETWORK.all_reduce(1e9, 1) == 0.0


@pytest.mark.parametrize("overlap", [True, False])
def test_a_step_is_never_shorter_on_more_ranks_nor_with_more_bytes(overlap: bool) -> None:
    times = [step_seconds(WORK, NETWORK.all_reduce, ranks, overlap=overlap) for ranks in RANKS]
    assert times[0] == WORK.seconds
    assert all(before < after for before, after in pairwise(times))
    larger = Work(name="b", parameters=60e6, seconds=0.5)
    assert step_seconds(larger, NETWORK.all_reduce, 4, overlap=overlap) > step_seconds(
        WORK, NETWORK.all_reduce, 4, overlap=overlap
    )


@pytest.mark.parametrize("overlap", [True, False])
def test_a_network_without_limits_costs_nothing(overlap: bool) -> None:
    endless = Ring(hop_seconds=0.0, bytes_per_second=math.inf)
    for ranks in RANKS:
        assert efficiency(lambda n: step_seconds(WORK, endless.all_reduce, n, overlap=overlap), ranks) == pytest.approx(1.0)


def test_what_is_sent_beside_the_backward_pass_costs_the_last_bucket_alone() -> None:
    """Unless the network is slower than the pass: then it is the network's time that counts."""
    buckets = math.ceil(WORK.gradient_bytes / model.BUCKET_BYTES)
    fast = Ring(hop_seconds=0.0, bytes_per_second=10e9)
    each = fast.all_reduce(WORK.gradient_bytes / buckets, 4)
    assert step_seconds(WORK, fast.all_reduce, 4) == pytest.approx(WORK.seconds + each)
    slow = Ring(hop_seconds=0.0, bytes_per_second=1e7)
    first = WORK.seconds * (1 - model.BACKWARD + model.BACKWARD / buckets)
    assert step_seconds(WORK, slow.all_reduce, 4) == pytest.approx(first + slow.all_reduce(WORK.gradient_bytes, 4))
    assert step_seconds(WORK, slow.all_reduce, 4, overlap=False) > step_seconds(WORK, slow.all_reduce, 4)


def test_ranks_that_share_cores_compute_more_slowly() -> None:
    assert step_seconds(WORK, NETWORK.all_reduce, 1, slowdown=2.0) == 1.0


def test_a_fit_finds_the_network_again_and_takes_no_time_below_nothing() -> None:
    points: list[Point] = [(ranks, 2**power, NETWORK.all_reduce(2**power, ranks)) for ranks in (2, 4) for power in (3, 20, 26)]
    found = fit(points)
    assert found.hop_seconds == pytest.approx(1e-4)
    assert found.bytes_per_second == pytest.approx(1e9)
    falling = fit([(2, 2**20, 1e-3), (2, 2**26, 0.2)])
    assert falling.hop_seconds == 0.0
    assert falling.bytes_per_second > 0
    with pytest.raises(ValueError, match="measure 2 sizes"):
        fit([(2, 8, 1e-3), (1, 8, 1e-3)])


def test_a_network_has_the_two_figures_that_it_is_made_of() -> None:
    sizes = [8 << number for number in range(28)]
    found = network_of(42.04e9, 8.24e9, ranks=16, sizes=sizes)
    rates = [2 * 15 / 16 * size / found.all_reduce(size, 16) for size in sizes]
    assert max(rates) == pytest.approx(42.04e9, rel=1e-3)
    assert sum(rates) / len(rates) == pytest.approx(8.24e9, rel=1e-3)
    # the same article's table, in seconds: sizes of a bucket and more
    for size, seconds in ((2**25, 3422e-6), (2**27, 7216.9e-6), (2**28, 12738e-6)):
        assert found.all_reduce(size, 16) == pytest.approx(seconds, rel=0.1)


def test_the_model_trains_what_the_product_trains() -> None:
    assert model.BUCKET_BYTES == BUCKET_BYTES
    text = DECODERS["200m"]
    assert text.context == cases.TEXT_TOKENS
    assert pytest.approx(flops_per_token(text, adapters=False), rel=0.01) == cases.TEXT_FLOPS
    assert all(PEAKS[gpu] == peak for gpu, peak in cases.PEAKS.items())
    assert {name: one.batch for name, one in PRESETS.items()} == {
        name: one.batch_of_gpu for name, one in MEASURED_PRESETS.items()
    }


@pytest.mark.parametrize("machines", MACHINES)
@pytest.mark.parametrize("preset", PRESETS)
def test_no_modelled_job_beats_the_ideal(machines: str, preset: str) -> None:
    for gpus in SIZES:
        assert 0 < speed_up(PRESETS[preset], MACHINES[machines], gpus) <= gpus / 4 + 1e-9


def test_a_faster_network_is_worth_something_and_less_the_slower_the_step() -> None:
    works = [Work(name="a", parameters=25.6e6, seconds=seconds) for seconds in (0.02, 0.1, 0.5, 2.5)]
    found = [worth(work) for work in works]
    assert all(before > after > 0 for before, after in pairwise(found))
    again = seconds_for(works[0], found[2])
    assert again == pytest.approx(0.5, rel=1e-3)


def line(step: int, seconds: float, **rest: Any) -> dict[str, Any]:
    return {"step": step, "total_steps": 3, "world_size": 2, "step_seconds": seconds, **rest}


def test_an_epoch_is_its_median_step_without_the_first() -> None:
    found = epoch_of(2, [line(1, 9.0), line(2, 0.5), line(3, 0.7)])
    assert found.steps == 3
    assert (found.step_seconds, found.seconds) == pytest.approx((0.6, 1.8))
    cut: list[list[dict[str, Any]]] = [
        [],
        [line(1, 1.0)],
        [line(1, 1.0), line(2, 1.0)],
        [line(1, 1.0), line(3, 1.0, world_size=1)],
    ]
    for lines in cut:
        with pytest.raises(BenchmarkError, match="was not finished"):
            epoch_of(2, lines)


def played(*steps: float) -> dict[str, Any]:
    """Figures of 1, 2, ... ranks with these steps, on a network that takes 0.05 s and more for what they send."""
    points = [(ranks, size, NETWORK.all_reduce(size, ranks)) for ranks in (2, 3, 4) for size in (2**16, 2**20, 2**26)]
    epochs = [Epoch(ranks=ranks, steps=12 // ranks, step_seconds=seconds) for ranks, seconds in enumerate(steps, 1)]
    return figures.here([*epochs, Epoch(ranks=1, steps=12, step_seconds=9.0)], points, cores=2)


def test_the_fastest_of_all_rounds_counts_and_stands_beside_the_model() -> None:
    found = played(0.4, 0.45, 0.8)["ranks"]
    assert [found[ranks]["speed_up"] for ranks in (1, 2, 3)] == [1.0, 1.778, 1.5]
    sent = 2 * NETWORK.all_reduce(measured.PARAMETERS * 4 / 2, 2)
    assert found[2]["model_step_seconds"] == pytest.approx(0.4 + sent, abs=1e-4)
    assert found[3]["model_step_seconds"] > 0.6  # three ranks on two cores


def test_only_as_many_ranks_as_cores_are_promised() -> None:
    whole = figures.modelled()
    assert figures.broken(played(0.4, 0.45, 9.0), whole) == []
    assert figures.broken(played(0.4, 0.7), whole) == [
        "2 ranks here: the model's step of 0.4386 s is 37% off the measured 0.7 s, more than 25%",
        "2 ranks here: efficiency 0.571, less than 0.6",
    ]


def test_a_model_that_scales_badly_breaks_a_promise(monkeypatch: pytest.MonkeyPatch) -> None:
    assert figures.broken({"cores": 2, "ranks": {}}, figures.modelled()) == []
    monkeypatch.setattr(model, "BUCKET_BYTES", 2**20)
    wrong = figures.broken({"cores": 2, "ranks": {}}, figures.modelled())
    assert any("resnet50 on EFA" in sentence and "on 64 GPUs, less than 8" in sentence for sentence in wrong)


def test_the_page_has_both_halves_and_what_is_assumed() -> None:
    found = played(0.4, 0.45, 0.8, 1.0)
    points = [(ranks, size, NETWORK.all_reduce(size, ranks)) for ranks in (2, 3) for size in (8, 2**16, 2**20, 2**26)]
    html = read(page(found, points, figures.modelled(), about="Measured <here>.", command="make scaling"))
    assert len(html.all("figure")) == 2 + len(MACHINES)
    words = html.all("body")[0].words
    assert "Measured <here>." in words
    assert all(one in words for one in cases.ASSUMPTIONS)
    assert "8 to 10x" in words
    assert "15 % to 18 %" in words
