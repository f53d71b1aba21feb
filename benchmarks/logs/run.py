"""Plays it: pods that write, two of them lost and replaced, `ebb logs -f` all the while, and `ebb logs` afterwards."""

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from benchmarks.controller.processes import BenchmarkError, Process
from benchmarks.logs.cluster import JOB, NAMESPACE, Cluster, job
from benchmarks.logs.judge import Said, acknowledged, judge, parse_said
from benchmarks.logs.pods import Place, Pod
from devcluster.commands import say
from devcluster.settings import CHECKOUT
from ebb.client.files.transfer import PAUSES, Files
from ebb.client.logs import Line, follow_logs, print_logs
from testing.ports import free_port

PODS, RANKS = 2, 2
START_SECONDS, END_SECONDS = 120.0, 60.0
COST_SECONDS = 10.0
LEAST = 0.5  # of the lines that were asked for: with fewer nothing is shown
Figures = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Arguments of the command line."""

    seconds: float
    rate: float
    cost: bool
    folder: Path


@dataclass
class Printed:
    """The lines that `ebb logs` would print."""

    lines: list[Said] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    from_api: int = 0  # lines of pods that had no file yet, or that were slow to have one

    def line(self, _worker: int, line: Line) -> None:
        self.from_api += not line.stream
        if (found := parse_said(line.text)) is not None:
            self.lines.append(found)

    def note(self, text: str) -> None:
        self.notes.append(text)


async def run(settings: Settings) -> tuple[Figures, list[str]]:
    """The figures, and what was broken. Raises BenchmarkError."""
    place = Place(
        folder=settings.folder, cluster=Cluster(f"{settings.folder}/output/elastic-job/prove"), ranks=RANKS, rate=settings.rate
    )
    place.prepare()
    place.output.mkdir(parents=True)
    followed, printed = Printed(), Printed()
    async with gateway(settings.folder) as files:
        follower = asyncio.create_task(follow_logs(place.cluster, NAMESPACE, JOB, followed, files=files))
        took = await _play(place, settings.seconds)
        await asyncio.wait_for(follower, END_SECONDS)
        await print_logs(place.cluster, NAMESPACE, JOB, printed, files=files)
    acked = [line for ledger in place.ledgers() for line in acknowledged(ledger)]
    problems = _judged(place, acked, {"ebb logs": printed.lines, "ebb logs -f": followed.lines})
    wanted = PODS * RANKS * settings.rate * settings.seconds
    if len(acked) < LEAST * wanted:
        problems.append(f"only {len(acked)} of {wanted:.0f} lines were written: the machine is too busy to show anything")
    figures: Figures = {
        "lines_acknowledged": len(acked),
        "lines_printed": len(printed.lines),
        "lines_followed": len(followed.lines),
        "lines_followed_from_api": followed.from_api,
        "lines_only_in_pipes": sum(place.counts().values()) - len(acked),
        "lines_per_second_and_rank": round(len(acked) / took / PODS / RANKS),
        "pods_lost": PODS,
        "seconds": round(took, 1),
    }
    if settings.cost:
        figures |= await cost(settings)
    return figures, problems


async def cost(settings: Settings) -> Figures:
    """Return what a launcher of four ranks pays for their lines: its CPU time with them, less that without any."""
    spent = []
    for number, rate in enumerate((0.0, settings.rate)):
        folder = settings.folder / f"cost-{number}"
        place = Place(folder=folder, cluster=Cluster(str(folder)), ranks=4, rate=rate, watched=False)
        place.prepare()
        pod = Pod(place, 0, "pod-0")
        await _until(lambda: len(place.counts()) == 4, "the ranks did not start", [pod])  # noqa: B023 - called at once
        began, before, lines = time.monotonic(), pod.cpu_seconds(), sum(place.counts().values())
        await asyncio.sleep(COST_SECONDS)
        took, lines = time.monotonic() - began, sum(place.counts().values()) - lines
        spent.append(((pod.cpu_seconds() - before) / took, lines / took))
        place.stop()
        await asyncio.to_thread(pod.end, END_SECONDS)
    (idle, _), (busy, rate) = spent
    say(f"a launcher of four ranks uses {busy:.1%} of a core at {rate:.0f} lines/s, {idle:.1%} without lines")
    return {"cpu_us_per_line": round((busy - idle) / rate * 1e6, 1), "cpu_percent_of_a_core": round((busy - idle) * 100, 1)}


async def _play(place: Place, seconds: float) -> float:
    """Return how long the ranks wrote."""
    pods = [Pod(place, worker, f"pod-{worker}") for worker in range(PODS)]
    await _until(lambda: len(place.counts()) == PODS * RANKS and all(place.counts().values()), "the ranks did not start", pods)
    began = time.monotonic()
    for number in range(PODS):
        await asyncio.sleep(began + seconds * (number + 1) / (PODS + 1) - time.monotonic())
        lost = pods[number]
        await asyncio.to_thread(lost.lose)
        pods[number] = Pod(place, lost.worker, f"pod-{PODS + number}")
        say(f"pod-{number} was killed after {time.monotonic() - began:.0f} s, {pods[number].uid} takes its place")
    replaced = {pod.uid for pod in pods}
    await _until(lambda: len({uid for uid, _ in place.counts()} & replaced) == PODS, "the replacements did not start", pods)
    await asyncio.sleep(max(0.0, began + seconds - time.monotonic()))
    place.stop()
    took = time.monotonic() - began
    for pod in pods:
        if code := await asyncio.to_thread(pod.end, END_SECONDS):
            raise BenchmarkError(f"{pod.uid} ended with {code}; its last lines: {place.cluster.log(pod.uid)[-3:]}")
    place.cluster.put(job(str(place.output), over=True))
    return took


def _judged(place: Place, acked: list[Said], shown: dict[str, list[Said]]) -> list[str]:
    counts, undisturbed = place.counts(), {f"pod-{PODS + number}" for number in range(PODS)}
    problems = []
    for name, lines in shown.items():
        found = judge(acked, lines, written=counts, undisturbed=undisturbed)
        problems += [f"{name}: {problem}" for problem in found]
        middle = len(lines) // 2
        for what, planted in (("lost", lines[:middle] + lines[middle + 1 :]), ("doubled", [*lines, *lines[middle : middle + 1]])):
            if len(judge(acked, planted, written=counts, undisturbed=undisturbed)) <= len(found):
                problems.append(f"the checker does not see a line that is {what}")
    return problems


async def _until(condition: Callable[[], object], otherwise: str, pods: list[Pod]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not condition():
        if time.monotonic() > deadline or any(pod.has_ended for pod in pods):
            raise BenchmarkError(otherwise)
        await asyncio.sleep(0.05)  # other processes set no event


@asynccontextmanager
async def gateway(folder: Path) -> AsyncIterator[Files]:
    """The real one, as a process, and the client's way to it without an API server in between."""
    port = free_port()
    command = [sys.executable, "-m", "ebb.gateway", f"--port={port}", f"--volume=output={folder}/output"]
    process = await Process.start("gateway", command, folder, cwd=CHECKOUT)
    try:
        async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:
            yield Files(session, PAUSES, lambda: "")
    finally:
        await process.stop()
