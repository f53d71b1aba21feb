"""Prometheus text, both ways, and the scraper that reads it from workers."""

import time
from typing import Any

import pytest

from ebb.api.clock import stamp
from ebb.api.status import Progress
from ebb.controller.metrics import (
    HISTOGRAMS,
    RECLAIMS,
    RECONCILE_SECONDS,
    RECOVERY_SECONDS,
    REPLACEMENT_SECONDS,
    Metrics,
    by_state,
    parse,
    read_progress,
    show_process,
)
from tests.builders import NOW

PAGE = """\
# HELP ebb_step Steps done.
# TYPE ebb_step gauge
ebb_step 120
ebb_total_steps 2.3e3
ebb_epoch 3
ebb_loss{rank="0"} 0.25 1800000000000
ebb_samples_per_second 310.5
ebb_world_size 2
ebb_generation 4
ebb_checkpoint_step 100
ebb_useful_seconds_total 71.25
"""


def test_a_workers_page_is_progress() -> None:
    assert read_progress(PAGE, NOW) == Progress(
        step=120,
        total_steps=2300,
        epoch=3,
        loss=0.25,
        world_size=2,
        generation=4,
        samples_per_second=310.5,
        checkpoint_step=100,
        useful_seconds=71.25,
        at=stamp(NOW),
    )


@pytest.mark.parametrize(
    ("said", "known"),
    [
        ("https://wandb.ai/team/digits/runs/5f3c", "https://wandb.ai/team/digits/runs/5f3c"),
        ("http://mlflow:5000/#/experiments/1/runs/a1", "http://mlflow:5000/#/experiments/1/runs/a1"),
        ("javascript:alert(1)", None),
        ("https://two words", None),
        ("https://" + "x" * 500, None),
        ("", None),
    ],
)
def test_a_trackers_address_is_one_of_the_web_or_none(said: str, known: str | None) -> None:
    progress = read_progress(f'ebb_step 1\nebb_tracker_info{{url="{said}"}} 1\n', NOW)
    assert progress is not None
    assert progress.tracker == known


@pytest.mark.parametrize("loss", ["NaN", "+Inf", "-Inf", "many"])
def test_a_loss_that_is_no_number_is_left_out(loss: str) -> None:
    progress = read_progress(f"ebb_step 1\nebb_loss {loss}\n", NOW)
    assert progress is not None
    assert progress.loss is None


@pytest.mark.parametrize(
    "page", ["", "ebb_loss 1\n", "<html>404</html>\n", "}\n{\nebb_step\n"], ids=["empty", "no-step", "html", "noise"]
)
def test_a_page_without_a_step_is_no_progress(page: str) -> None:
    assert read_progress(page, NOW) is None


def test_what_the_controller_writes_can_be_read() -> None:
    metrics = Metrics()
    metrics.count(RECLAIMS, 'cause="NodeGone"')
    metrics.count(RECLAIMS, 'cause="NodeGone"')
    metrics.observe(RECONCILE_SECONDS, 0.003)
    metrics.gauge("ebb_queue_depth", "Depth.", lambda: {"": 7.0})
    values = parse(metrics.text())
    assert (values["ebb_reclaims_total"], values["ebb_queue_depth"]) == (2, 7)
    assert (values["ebb_reconcile_seconds_count"], values["ebb_reconcile_seconds_sum"]) == (1, 0.003)
    assert 'ebb_reconcile_seconds_bucket{le="0.001"} 0\nebb_reconcile_seconds_bucket{le="0.005"} 1' in metrics.text()


@pytest.mark.parametrize("name", [REPLACEMENT_SECONDS, RECOVERY_SECONDS])
def test_losses_are_measured_from_a_blink_to_ten_minutes(name: str) -> None:
    assert (HISTOGRAMS[name][0], HISTOGRAMS[name][-1]) == (0.05, 600)
    metrics = Metrics()
    for seconds in (0.04, 7.0, 3600.0):
        metrics.observe(name, seconds)
    page = metrics.text()
    for bound, number in (("0.05", 1), ("5.0", 1), ("10.0", 2), ("600.0", 2), ("+Inf", 3)):
        assert f'{name}_bucket{{le="{bound}"}} {number}\n' in page
    assert metrics.observations(name) == 3


def test_large_figures_are_exact() -> None:
    """Six digits would make a counter in the millions stand still, and a start time wrong by hours."""
    metrics = Metrics()
    metrics.gauge("ebb_large", "Large.", lambda: {"": 1_763_712_345.25, 'kind="x"': 12_345_678.0})
    assert 'ebb_large 1763712345.25\nebb_large{kind="x"} 12345678\n' in metrics.text()


def test_a_gauge_can_be_asked_for() -> None:
    metrics = Metrics()
    metrics.gauge("ebb_one", "One.", lambda: {"": 1.0})
    assert (metrics.value("ebb_one"), metrics.value("ebb_none")) == ({"": 1.0}, {})


def test_jobs_are_counted_by_state_and_no_state_goes_missing() -> None:
    jobs: list[dict[str, Any]] = [
        {"status": {"state": "Running"}},
        {"status": {"state": "Running"}},
        {},
        {"status": None},
        {"status": {"state": "New"}},
    ]
    assert by_state(jobs) == {
        'state="Failed"': 0,
        'state="New"': 1,
        'state="Restarting"': 0,
        'state="Running"': 2,
        'state="Succeeded"': 0,
        'state="Suspended"': 0,
        'state="Waiting"': 2,
    }


def test_the_process_says_what_it_uses_under_the_usual_names() -> None:
    metrics = Metrics()
    show_process(metrics)
    values = parse(metrics.text())
    assert 10e6 < values["process_resident_memory_bytes"] < 10e9
    assert values["process_cpu_seconds_total"] > 0
    assert 0 < time.time() - values["process_start_time_seconds"] < 24 * 3600
    assert values["process_open_fds"] > 2
    assert "# TYPE process_cpu_seconds_total counter" in metrics.text()
