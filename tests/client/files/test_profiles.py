"""A trace is asked for, waited for and fetched; whatever ends the wait takes the request back."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ebb.client.errors import BadRequest, Missing, TimedOut
from ebb.client.files.profiles import take
from tests.cli.world import elastic_job
from tests.client.files.test_outputs import HERE, output_volume
from tests.reached import ebb_of, reached

__all__ = ["output_volume"]


async def program(folder: Path, then: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Answer a request as a job's rank 0 does."""
    request = folder / "profile" / "request.json"
    async with asyncio.timeout(10):
        while not request.exists():  # noqa: ASYNC110 - files are on trial
            await asyncio.sleep(0.01)
    asked: dict[str, Any] = json.loads(request.read_text())
    then(asked)
    return asked


async def test_a_trace_is_fetched(tmp_path: Path, output_volume: Path) -> None:
    folder = output_volume / HERE
    folder.mkdir(parents=True)

    def write(asked: dict[str, Any]) -> None:
        (folder / "profile" / f"{asked['id']}.json.gz").write_bytes(b"trace")
        (folder / "profile" / "request.json").unlink()

    async with reached(tmp_path, elastic_job()) as kube:
        answering = asyncio.create_task(program(folder, write))
        trace = await take(ebb_of(kube), "digits", 7, tmp_path / "here.json.gz", every=0.02)
        assert (await answering)["steps"] == 7
    assert (trace.steps, trace.size, (tmp_path / "here.json.gz").read_bytes()) == (7, 5, b"trace")
    assert not (folder / "profile" / "request.json").exists()


async def test_a_program_that_makes_none_is_told_of_and_the_request_taken_back(tmp_path: Path, output_volume: Path) -> None:
    (output_volume / HERE).mkdir(parents=True)
    async with reached(tmp_path, elastic_job()) as kube:
        with pytest.raises(TimedOut, match=r"digits has made no trace in 0 s: only a program that trains by run.steps\(\)"):
            await take(ebb_of(kube), "digits", 5, tmp_path / "x", timeout_seconds=0.2, every=0.02)
    assert list((output_volume / HERE / "profile").iterdir()) == []


async def test_a_job_that_ends_meanwhile(tmp_path: Path, output_volume: Path) -> None:
    folder = output_volume / HERE
    folder.mkdir(parents=True)
    async with reached(tmp_path, elastic_job()) as kube:
        answering = asyncio.create_task(program(folder, lambda _: kube.put(elastic_job(state="Succeeded"))))
        with pytest.raises(BadRequest, match="digits is finished: it ended before its trace was made"):
            await take(ebb_of(kube), "digits", 5, tmp_path / "x", every=0.02)
        await answering
    assert list((folder / "profile").iterdir()) == []


async def test_two_do_not_take_each_others(tmp_path: Path, output_volume: Path) -> None:
    request = output_volume / HERE / "profile" / "request.json"
    request.parent.mkdir(parents=True)
    request.write_text("{}")
    async with reached(tmp_path, elastic_job()) as kube:
        with pytest.raises(BadRequest, match="digits makes a trace for somebody else now"):
            await take(ebb_of(kube), "digits", 5, tmp_path / "x")
    assert request.read_text() == "{}"


@pytest.mark.parametrize(("job", "steps", "error", "words"), [
    ("digits", 0, BadRequest, "steps 0 is not allowed: use 1 to 100"),
    ("digits", 101, BadRequest, "steps 101 is not allowed"),
    ("waits", 5, BadRequest, "waits is waiting and makes no steps"),
    ("never", 5, Missing, "no job named 'never'"),
])  # fmt: skip
async def test_refusals(  # noqa: PLR0917  # fixtures
    tmp_path: Path, output_volume: Path, job: str, steps: int, error: type[Exception], words: str
) -> None:
    async with reached(tmp_path, elastic_job(), elastic_job("waits", state="Waiting")) as kube:
        with pytest.raises(error, match=words):
            await take(ebb_of(kube), job, steps, tmp_path / "x")
    assert not list(output_volume.rglob("request.json"))
