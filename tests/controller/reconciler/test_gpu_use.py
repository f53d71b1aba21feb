"""GPU utilization, from the launchers' pages to the status, and the warning of one that is hardly used."""

from dataclasses import replace
from typing import Any

import pytest

from ebb.api.schema import encode
from ebb.api.spec import Job
from ebb.api.status import GpuUse
from ebb.controller.launchers import read_gpus
from ebb.kube import PODS
from tests.builders import NOW, make_job
from tests.controller.reconciler.scenes import gpu_job
from tests.fake_time import run
from tests.looks import again, look, running
from tests.world import started

Object = dict[str, Any]
BUSY = GpuUse(worker=0, gpu=0, ranks=(0,), utilization=95, memory_used_bytes=2**34, memory_total_bytes=2**36)
IDLE = GpuUse(worker=1, gpu=0, ranks=(1,), utilization=2, idle_seconds=600)
PAGE = 'ebb_gpu_utilization_ratio{gpu="0",rank="0"} 0.5\nebb_gpu_memory_used_bytes{gpu="0",rank="0"} 1024\n'


def warnings(decided: Any) -> list[str]:
    return [event.message for event in decided.events if event.reason == "GPUIdle"]


def test_an_idle_gpu_is_told_of_once() -> None:
    job = make_job()
    pods = running(job, 2)
    first = look(job, *pods, gpus=(BUSY, replace(IDLE, idle_seconds=599)))
    assert warnings(first) == []
    job = again(job, first)
    second = look(job, *pods, gpus=(BUSY, IDLE))
    assert warnings(second) == [
        "GPU 0 of worker 1 (rank 1) is below 10 % for 10 minutes. It costs as much as one that works: ebb status shows all of "
        "them."
    ]
    job = again(job, second)
    assert warnings(look(job, *pods, gpus=(BUSY, replace(IDLE, idle_seconds=900)))) == []
    worked = again(job, look(job, *pods, gpus=(BUSY, replace(IDLE, idle_seconds=0))))
    assert len(warnings(look(worked, *pods, gpus=(BUSY, IDLE)))) == 1


def test_many_idle_gpus_are_one_warning() -> None:
    uses = tuple(replace(IDLE, worker=worker, ranks=()) for worker in range(100))
    decided = look(make_job(), *running(make_job(), 2), gpus=uses)
    assert warnings(decided)[0].startswith("GPU 0 of worker 0 is below 10 % for 10 minutes, as are 99 others of 100. ")
    assert len(decided.status.gpus) == 64


def test_of_very_many_the_least_busy_are_shown() -> None:
    uses = tuple(replace(BUSY, worker=worker, utilization=worker) for worker in range(100))
    shown = look(make_job(), *running(make_job(), 2), gpus=uses).status.gpus
    assert [use.worker for use in shown] == list(range(64))


def test_figures_alone_are_written_now_and_then() -> None:
    job = make_job()
    pods = running(job, 2)
    job = again(job, look(job, *pods, gpus=(BUSY,)))
    moved = replace(BUSY, utilization=20)
    soon = look(job, *pods, gpus=(moved,), now=NOW + 10)
    assert (encode(soon.status) == job["status"], soon.wake_at) == (True, NOW + 30)
    assert look(job, *pods, gpus=(moved,), now=NOW + 30).status.gpus == (moved,)


def test_a_controller_that_has_not_asked_yet_keeps_what_is_known() -> None:
    job = make_job()
    known = again(job, look(job, *running(job, 2), gpus=(BUSY, IDLE)))
    assert look(known, *running(job, 2)).status.gpus == (BUSY, IDLE)
    assert look(known, *running(job, 1)).status.gpus == (BUSY,)


def test_a_job_that_is_stopped_has_none() -> None:
    job = make_job()
    known = again(job, look(job, *running(job, 2), gpus=(BUSY,)))
    known["spec"] = known["spec"] | {"suspend": True}
    assert look(known, *running(job, 2)).status.gpus == ()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (PAGE, [(0, (0,), 50, 1024)]),
        ("", []),
        ('ebb_gpu_utilization_ratio{gpu="0",rank=""} 1', [(0, (), 100, None)]),
        ('ebb_gpu_memory_used_bytes{gpu="3",rank="12,13"} 5', [(3, (12, 13), None, 5)]),
        ('ebb_gpu_utilization_ratio{gpu="0",rank="0"} 1.5', []),
        ('ebb_gpu_utilization_ratio{gpu="0",rank="0"} NaN', []),
        ('ebb_gpu_utilization_ratio{gpu="-1",rank="0"} 1', []),
        ('ebb_gpu_utilization_ratio{gpu="999",rank="0"} 1', []),
        ('ebb_gpu_utilization_ratio{gpu="0",rank="x"} 1', []),
        ("ebb_gpu_utilization_ratio 1", []),
    ],
)
def test_what_a_launcher_says(text: str, expected: list[Any]) -> None:
    assert [(use.gpu, use.ranks, use.utilization, use.memory_used_bytes) for use in read_gpus(text, 0)] == expected


def test_from_every_launchers_page_to_the_status() -> None:
    async def story() -> None:
        async with started() as world:
            await world.start_all(gpu_job(replicas=2), nodes=2)
            for pod in world.api.all(PODS):
                world.launcher_text[pod["status"]["podIP"]] = PAGE
            await world.settle(60)
            assert [(use["worker"], use["utilization"]) for use in world.status()["gpus"]] == [(0, 50), (1, 50)]
            assert Job.of(world.job()).status.gpus[0].memory_used_bytes == 1024

    run(story())


def test_one_that_does_not_answer_is_left_alone_for_a_while() -> None:
    async def story() -> None:
        async with started() as world:
            await world.start_all(gpu_job(replicas=1), nodes=1)
            world.launcher_asked.clear()
            await world.settle(120)
            assert 3 <= len(world.launcher_asked) <= 5

    run(story())


def test_a_job_without_gpus_is_not_asked() -> None:
    async def story() -> None:
        async with started() as world:
            await world.start_all(make_job(replicas=1), nodes=1)
            await world.settle(60)
            assert world.launcher_asked == []

    run(story())


def test_its_workers_are_told_to_serve_a_page() -> None:
    async def story() -> None:
        async with started() as world:
            await world.start_all(gpu_job(replicas=1), nodes=1)
            (pod,) = world.api.all(PODS)
            told = {item["name"]: item.get("value") for item in pod["spec"]["containers"][0]["env"]}
            assert told["EBB_LAUNCHER_PORT"] == "9401"

    run(story())
