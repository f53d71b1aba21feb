"""Lets the changes happen to one job of one system, one after the other, and times each.

    for event, found in play(system, events, stage, folder): ...       # found is a Change, or the reason why there is none

A job has two machines, or one before a join. When a change is not survived before the cap, the next one gets a new job.
"""

import shutil
import signal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.exact import processes
from benchmarks.exact.machines import Fresh, Machine, until
from benchmarks.recovery.systems import System
from benchmarks.recovery.timeline import Change, between

# In an order in which each finds the number of machines that it needs, with a join in between where it does not.
EVENTS = {
    "kill_process": "kill -9 of one worker process",
    "kill_pod": "kill -9 of a pod",
    "join": "a second pod joins",
    "kill_rank0_pod": "kill -9 of rank 0's pod",
    "notice": "a pod leaves with notice (SIGTERM)",
}
STEADY_STEPS = 15  # by all, before the next change
Found = Change | str


@dataclass(frozen=True, kw_only=True)
class Stage:
    data: Path
    arch: str
    endpoint: str
    cap_seconds: float


class FailedError(Exception):
    """The job of a system did not come up; the text says what there was."""


@dataclass
class Job:
    system: System
    stage: Stage
    folder: Path
    run_id: str
    machines: list[Machine] = field(default_factory=list)
    _left: list[Machine] = field(default_factory=list)
    _started: int = 0

    @property
    def output(self) -> Path:
        return self.folder / "output"

    def start(self, planned: int) -> None:
        self.output.mkdir(parents=True, exist_ok=True)
        command = self.system.command(
            endpoint=self.stage.endpoint, run_id=self.run_id, arch=self.stage.arch, data=self.stage.data, output=self.output
        )
        starter = Fresh(self.system.module)
        log = self.folder / f"machine{self._started}.log"
        self.machines.append(starter.start(command, self.system.given(self.output, planned=planned), log))
        self._started += 1

    def steady(self) -> bool:
        """Wait until all machines have trained together for a while; False if they do not."""
        return bool(until(self._is_steady, self.stage.cap_seconds))

    def _is_steady(self) -> bool:
        lines = self.system.lines(self.output)
        if not lines:
            return False
        newest = [line for line in lines if line.incarnation == lines[-1].incarnation]
        return len(newest) >= STEADY_STEPS and newest[0].world_size == len(self.machines)

    def change(self, event: str) -> Found:
        """Let it happen, and wait for the first step after it."""
        before = {line.incarnation for line in self.system.lines(self.output)}
        self._happen(event)

        def answer() -> Found | None:
            found = between(self.system.lines(self.output), before, len(self.machines))
            if found is None and all(machine.code is not None for machine in self.machines):
                return "the job ended"
            return found

        return until(answer, self.stage.cap_seconds) or f"no step in {self.stage.cap_seconds:.0f} s"

    def _happen(self, event: str) -> None:
        if event == "join":
            return self.start(planned=len(self.machines) + 1)
        ranks = self.system.ranks(self.output, self.machines)
        first, last = ranks[0], ranks[max(ranks)]
        if event == "kill_process":
            return processes.send(last.pid, signal.SIGKILL)
        victim = first.machine if event == "kill_rank0_pod" else last.machine
        self.machines.remove(victim)
        self._left.append(victim)
        if event == "notice":
            victim.tell()
        else:
            victim.kill()
        return None

    def stop(self) -> None:
        for machine in (*self.machines, *self._left):
            machine.kill()


def play(system: System, events: Sequence[str], stage: Stage, folder: Path, run_id: str) -> Iterator[tuple[str, Found]]:
    """Each of `events` once, joins more often. Raises FailedError when a job of this system does not even come up."""
    job: Job | None = None
    number = 0
    try:
        for event in (each for each in EVENTS if each in events):
            if job is not None and event != "join" and len(job.machines) < 2:
                found = job.change("join")
                yield "join", found
                job = _go_on(job, found)
            if job is None or len(job.machines) != (1 if event == "join" else 2):
                if job is not None:
                    job.stop()
                number += 1
                job = _come_up(system, stage, folder / f"job{number}", f"{run_id}-{number}", 1 if event == "join" else 2)
            found = job.change(event)
            yield event, found
            job = _go_on(job, found)
    finally:
        if job is not None:
            job.stop()


def _go_on(job: Job, found: Found) -> Job | None:
    """The job, if it goes on well; else it is stopped."""
    if isinstance(found, Change) and job.steady():
        return job
    job.stop()
    return None


def _come_up(system: System, stage: Stage, folder: Path, run_id: str, machines: int) -> Job:
    shutil.rmtree(folder, ignore_errors=True)
    job = Job(system, stage, folder, run_id)
    for _ in range(machines):
        job.start(planned=machines)
    if not job.steady():
        job.stop()
        raise FailedError(f"{system.title}: {machines} machines did not train together; logs are in {folder}")
    return job
