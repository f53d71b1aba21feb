"""A trace of some steps of a running job, which its program makes when it finds the request in its folder.

    trace = await take(ebb, "digits", 5, Path("trace.json.gz"), note=print)

The request and the trace are files on the output volume, so no port of a worker is opened and nothing is run in it. The runtime's
side is ebb/elastic/runtime/profiling.py.
"""

import asyncio
import json
import secrets
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ebb.client.errors import BadRequest, Missing, TimedOut
from ebb.client.files.data import output_folder
from ebb.client.files.transfer import Files, gateway, printable
from ebb.client.jobs.view import OVER, RUNNING_STATE, view
from ebb.client.jobs.watch import ignore
from ebb.client.platform.connection import Ebb, read_job

MOST_STEPS = 100  # as the runtime allows
EVERY_SECONDS = 1.0
NOTE_SECONDS = 60.0
_HOPE = "only a program that trains by run.steps() of ebb.elastic makes one, and no step may be longer than the wait"


@dataclass(frozen=True, kw_only=True)
class Trace:
    job: str
    file: str
    steps: int
    size: int  # bytes


async def take(
    ebb: Ebb,
    job: str,
    steps: int,
    target: Path,
    *,
    timeout_seconds: float = 600.0,
    note: Callable[[str], None] = ignore,
    every: float = EVERY_SECONDS,
) -> Trace:
    """Ask for a trace, wait for it, and fetch it. Whatever ends the wait takes the request back.

    Raises BadRequest for a number of steps that is not allowed and a job that does not run, Missing, TimedOut, KubeError.
    """
    if not 1 <= steps <= MOST_STEPS:
        raise BadRequest(f"steps {steps} is not allowed: use 1 to {MOST_STEPS}.")
    await _check_runs(ebb, job)
    name = secrets.token_hex(4)
    async with gateway(ebb) as files:
        folder = f"{await output_folder(ebb, files, job)}/profile"
        request = f"{folder}/request.json"
        with suppress(Missing):
            await files.stat(request)
            raise BadRequest(f"{job} makes a trace for somebody else now: try again when it is done, or remove {request}.")
        with tempfile.TemporaryDirectory(prefix="ebb-profile-") as own:
            asked = Path(own) / "request.json"
            asked.write_text(json.dumps({"id": name, "steps": steps}))
            await files.put(request, asked, ask=False)
        note(f"waiting for {steps} steps of {job} ...")
        try:
            async with asyncio.timeout(timeout_seconds):
                await _until_there(ebb, files, job, f"{folder}/{name}.json.gz", note=note, every=every)
        except TimeoutError:
            raise TimedOut(f"{job} has made no trace in {timeout_seconds:.0f} s: {_HOPE}.") from None
        finally:
            await asyncio.shield(_take_back(files, request))
        stored = await files.get(f"{folder}/{name}.json.gz", target)
        return Trace(job=job, file=printable(target), steps=steps, size=stored.size)


async def _check_runs(ebb: Ebb, job: str) -> None:
    state = view(await read_job(ebb.kube, ebb.namespace, job)).state
    if state != RUNNING_STATE:
        raise BadRequest(f"{job} is {state} and makes no steps: take a trace while it runs.")


async def _until_there(ebb: Ebb, files: Files, job: str, path: str, *, note: Callable[[str], None], every: float) -> None:
    loop = asyncio.get_running_loop()
    told = loop.time()
    while True:
        with suppress(Missing):
            await files.stat(path)
            return
        state = view(await read_job(ebb.kube, ebb.namespace, job)).state
        if state in OVER:
            raise BadRequest(f"{job} is {state}: it ended before its trace was made.")
        if loop.time() - told > NOTE_SECONDS:
            note(f"no trace of {job} so far: {_HOPE}")
            told = loop.time()
        await asyncio.sleep(every)


async def _take_back(files: Files, request: str) -> None:
    with suppress(Missing):  # the runtime removes it when the trace is there
        await files.remove(request)
