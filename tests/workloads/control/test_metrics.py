"""Prometheus text, both ways, and the scraper that reads it from workers."""

import asyncio
from contextlib import suppress

import pytest

from tests.workloads.builders import NOW
from tests.workloads.fake_time import run
from workloads.clock import stamp
from workloads.control.metrics import RECLAIMS, RECONCILE_SECONDS, Metrics, parse, read_progress
from workloads.control.scraper import Key, Scraper
from workloads.job.status import Progress

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
"""


def test_a_workers_page_is_progress() -> None:
    assert read_progress(PAGE, NOW) == Progress(
        step=120, total_steps=2300, epoch=3, loss=0.25, world_size=2, generation=4, samples_per_second=310.5, at=stamp(NOW)
    )


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


def test_the_first_worker_that_answers_is_believed_and_changes_are_told() -> None:
    async def story() -> None:
        asked: list[str] = []
        told: list[Key] = []
        pages = {"10.0.0.2": PAGE}

        async def fetch(address: str) -> str | None:
            asked.append(address)
            return pages.get(address)

        key = ("ns", "job")
        scraper = Scraper(fetch, lambda: {key: ["10.0.0.1", "10.0.0.2", "10.0.0.3"]}, told.append, clock=lambda: NOW)
        task = asyncio.create_task(scraper.run())
        await asyncio.sleep(7)
        assert asked[:4] == ["10.0.0.1", "10.0.0.2", "10.0.0.1", "10.0.0.2"]
        assert told == [key], "the step did not move"
        pages["10.0.0.2"] = "ebb_step 121\n"
        await asyncio.sleep(4)
        assert told == [key, key]
        assert scraper.latest[key].step == 121
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    run(story())
