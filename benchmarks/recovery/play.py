"""Lets the changes happen to one job of one system, one after the other, and times each.

    for event, found in play(system, events, stage, folder, run_id): ...   # found is a Change, or the reason why there is none

A job has MACHINES of them. A change that needs fewer or more comes after joins, which are timed too, or has a new job. When a
change is not survived before the cap, the next one gets a new job.
"""

import contextlib
import dataclasses
import os
import re
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.exact import processes
from benchmarks.exact.machines import Fresh, Machine, until
from benchmarks.exact.watch import Rank
from benchmarks.recovery.namespaces import Network
from benchmarks.recovery.systems import System
from benchmarks.recovery.timeline import Change, between

MACHINES = 2


@dataclass(frozen=True, kw_only=True)
class Event:
    """`before` and `after` are numbers of machines, besides MACHINES."""

    text: str
    before: int = 0
    after: int = 0
    rank0: bool = False  # it hits the machine of rank 0, not that of the last rank
    process: bool = False  # or one process of it alone
    goal_seconds: float = 1.0  # 95 % of the events cost at most so much


SILENT = "silent"
# In an order in which most find the number of machines that they need.
EVENTS = {
    "kill_process": Event(text="kill -9 of one worker process", process=True),
    "kill_rank0_process": Event(text="kill -9 of rank 0's worker process", process=True, rank0=True),
    "kill_pod": Event(text="kill -9 of a pod", after=-1),
    "join_two": Event(text="two pods join at once", before=-1, after=1),
    "kill_two": Event(text="kill -9 of two pods at once", before=1, after=-1),
    "join": Event(text="one more pod joins", before=-1),
    "kill_rank0_pod": Event(text="kill -9 of rank 0's pod", after=-1, rank0=True),
    "notice": Event(text="a pod leaves with notice (SIGTERM)", after=-1),
    SILENT: Event(text="a pod's network falls silent, no socket is closed", after=-1, goal_seconds=5.0),
}
# By all, before the next change. Several, since the first ones of a membership are slower; some seconds of small ones.
STEADY_STEPS, STEADY_SECONDS = 5, 1.5
Found = Change | str


@dataclass(frozen=True, kw_only=True)
class Stage:
    """Settings of one system at one size of state. Without a network of namespaces all machines are on the loopback."""

    megabytes: float
    endpoint: Callable[[bool], str]  # of the rendezvous: on the network, or on the loopback
    network: Network | None
    cap_seconds: float
    device: str = "cpu"  # or cuda


class FailedError(Exception):
    """The job of a system did not come up; the text says what there was."""


@dataclass
class Job:
    system: System
    stage: Stage
    folder: Path
    run_id: str
    network: Network | None = None
    machines: list[Machine] = field(default_factory=list)
    left: list[Machine] = field(default_factory=list)  # that events have taken; one with notice may still be leaving
    _places: dict[int, int] = field(default_factory=dict)  # of a machine's process: its number in the network
    _started: int = 0

    @property
    def output(self) -> Path:
        return self.folder / "output"

    def start(self, planned: int) -> None:
        self.output.mkdir(parents=True, exist_ok=True)
        place, address = 0, "127.0.0.1"
        if self.network is not None:
            place = self.network.attach()
            address = self.network.address(place)
        command = self.system.command(
            endpoint=self.stage.endpoint(self.network is not None),
            run_id=self.run_id,
            address=address,
            number=self._started,
            megabytes=self.stage.megabytes,
            output=self.output,
            device=self.stage.device,
        )
        starter = Fresh(self.system.module, () if self.network is None else self.network.within(place))
        given = self.system.given(
            self.output,
            planned=planned,
            number=self._started,
            device=self.stage.device,
            interface="" if self.network is None else "eth0",
        )
        machine = starter.start(command, given, self.folder / f"machine{self._started}.log")
        self.machines.append(machine)
        self._places[machine.pid] = place
        self._started += 1

    def steady(self) -> bool:
        """Wait until all machines have trained together for a while; False if they do not."""
        return bool(until(self._is_steady, self.stage.cap_seconds))

    def _is_steady(self) -> bool:
        lines = self.system.lines(self.output)
        if not lines:
            return False
        newest = [line for line in lines if line.incarnation == lines[-1].incarnation]
        long_enough = len(newest) >= STEADY_STEPS and newest[-1].time - newest[0].time >= STEADY_SECONDS
        return long_enough and newest[0].world_size == len(self.machines)

    def change(self, name: str) -> Found:
        """Let it happen, and wait for the first step after it."""
        event = EVENTS[name]
        before = {line.incarnation for line in self.system.lines(self.output)}
        ranks = self.system.ranks(self.output, self.machines)
        count = MACHINES + event.after - len(self.machines)
        victims = choose_victims(ranks, event, -count) if event.process or count < 0 else []
        living = {rank.pid: rank.machine for rank in ranks.values() if rank.machine not in {each.machine for each in victims}}
        read = {pid: bytes_read(pid) for pid in living}
        happened = time.time()
        for _ in range(count):
            self.start(planned=MACHINES + event.after)
        for victim in victims:
            self.lose(name, victim)

        def look() -> Change | None:
            return between(self.system.lines(self.output), before, len(self.machines), happened=happened)

        if not until(lambda: look() or all(machine.code is not None for machine in self.machines), self.stage.cap_seconds):
            return f"no step in {self.stage.cap_seconds:.0f} s"
        if look() is None:
            return "the job ended"
        ranks = self.system.ranks(self.output, self.machines)
        now = [rank.pid for rank in ranks.values() if rank.machine in living.values()]
        read_now = sum(bytes_read(pid) - read.get(pid, 0) for pid in now)
        found = look() if self.steady() else None  # only now it is known how long an ordinary step of these machines is
        if found is None:
            return "it trained no further than the first step"
        return dataclasses.replace(
            found,
            bytes_read=read_now,
            pids_kept=set(now) == set(living),
            transfer_seconds=self._transfer_seconds(before),
            load=round(os.getloadavg()[0], 1),
        )

    def lose(self, name: str, victim: Rank) -> None:
        """Let the event of this name hit it. A machine that leaves is no longer among `machines`."""
        if EVENTS[name].process:
            return processes.send(victim.pid, signal.SIGKILL)
        self.machines.remove(victim.machine)
        self.left.append(victim.machine)
        if name == "notice":
            return victim.machine.tell()
        if name == SILENT:
            assert self.network is not None
            self.network.silence(self._places[victim.machine.pid])  # what its kernel closes is then heard by nobody
        return victim.machine.kill()

    def _transfer_seconds(self, before: set[str]) -> float:
        """The longest of the generations since then, as the launchers' logs tell it."""
        told = [0.0]
        for log in self.folder.glob("machine*.log"):
            found = _TRANSFER.findall(log.read_text(errors="replace"))
            told += [float(seconds) for generation, seconds in found if generation not in before]
        return max(told)

    def stop(self) -> None:
        for machine in (*self.machines, *self.left):
            machine.kill()


_TRANSFER = re.compile(r"generation (\d+): .* in memory, .*, of which ([\d.]+) s for the transfer")


def choose_victims(ranks: dict[int, Rank], event: Event, count: int) -> list[Rank]:
    """The first rank, or the last ones; one of each machine."""
    ordered = sorted(ranks, reverse=not event.rank0)
    return [ranks[number] for number in ordered[: max(1, count)]]


def bytes_read(pid: int) -> int:
    """All that a process has read from files and pipes since its start, by read() and the like; what comes over sockets is not
    among it, nor what is mapped. A program's imports are. 0 for one that is gone."""
    with contextlib.suppress(OSError):
        return int(Path(f"/proc/{pid}/io").read_text().split()[1])
    return 0


def play(system: System, events: Sequence[str], stage: Stage, folder: Path, run_id: str) -> Iterator[tuple[str, Found]]:
    """Each of `events` once, joins more often. Raises FailedError when a job of this system does not even come up."""
    job: Job | None = None
    number = 0
    try:
        for name in (each for each in EVENTS if each in events):
            wanted, network = MACHINES + EVENTS[name].before, stage.network if name == SILENT else None
            if job is not None and job.network is network and len(job.machines) == MACHINES - 1 and wanted == MACHINES:
                found = job.change("join")
                yield "join", found
                job = _goes_on(job, found)
            if job is None or len(job.machines) != wanted or job.network is not network:
                if job is not None:
                    job.stop()
                number += 1
                job = come_up(Job(system, stage, folder / f"job{number}", f"{run_id}-{number}", network), wanted)
            found = job.change(name)
            yield name, found
            job = _goes_on(job, found)
    finally:
        if job is not None:
            job.stop()


def _goes_on(job: Job, found: Found) -> Job | None:
    """The job, if it goes on; else it is stopped."""
    if isinstance(found, Change):
        return job
    job.stop()
    return None


def come_up(job: Job, machines: int) -> Job:
    """Wait until so many machines train together. Raises FailedError."""
    shutil.rmtree(job.folder, ignore_errors=True)
    for _ in range(machines):
        job.start(planned=machines)
    if not job.steady():
        job.stop()
        raise FailedError(f"{job.system.title}: {machines} machines did not train together; logs are in {job.folder}")
    return job
