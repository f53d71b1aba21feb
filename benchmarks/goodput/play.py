"""Draws the events of a run, and lets them happen to one job of one system.

    changes = draw(seed=1, seconds=1800.0, every=60.0)                  # the same for the same arguments, always
    played = Play(system, stage, changes, folder, seconds=1800.0, reference_seconds=60.0, tell=print).run()

An event comes each `every` seconds, the five kinds equally often, in an order of the seed's. One that takes a machine is followed
by a join, as a cloud replaces it: so two or three of MACHINES live, and as many at any time whatever the system. Which one it is
depends on where rank 0 is.
"""

import dataclasses
import os
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.exact.machines import Machine, until
from benchmarks.exact.watch import Rank
from benchmarks.goodput.account import Happened, UnmeasuredError, Window, take_account, undisturbed_step_seconds
from benchmarks.recovery.play import EVENTS, FailedError, Job, Stage, choose_victims, come_up
from benchmarks.recovery.systems import GLOBAL_BATCH, STEP_SECONDS, System
from benchmarks.recovery.timeline import Line
from devcluster.commands import last_lines, lives
from testing import exactness

MACHINES = 3
KINDS = ("notice", "kill_process", "kill_rank0_process", "kill_pod", "kill_rank0_pod")
JOIN = "join"
# After so much of the time between two events a lost machine is replaced: 6 to 24 s of a minute.
BACK = (0.1, 0.4)
# A mean step above it is one of a machine that is too busy: its rate would not stay the same.
MOST_STEP_SECONDS = 1.2 * STEP_SECONDS


@dataclass(frozen=True, kw_only=True)
class Change:
    """`seconds` are those since the first event."""

    name: str
    seconds: float


def draw(*, seed: int, seconds: float, every: float) -> list[Change]:
    """In the order of their times. Each event has as long as the others until the end, or the next one."""
    rng = random.Random(f"goodput {seed}")  # noqa: S311 - to be repeated
    changes: list[Change] = []
    bag: list[str] = []
    for number in range(int(seconds / every)):
        if not bag:
            bag = rng.sample(KINDS, len(KINDS))
        changes.append(Change(name=bag.pop(), seconds=number * every))
        if EVENTS[changes[-1].name].after < 0:
            changes.append(Change(name=JOIN, seconds=round((number + rng.uniform(*BACK)) * every, 1)))
    return changes


@dataclass(frozen=True, kw_only=True)
class Played:
    """`pids_kept` and `pids_lost` are of worker processes that no event had hit: still there at the next one, or not."""

    lines: list[Line]
    happened: list[Happened]
    window: Window
    pids_kept: int
    pids_lost: int
    loads: list[float]
    reasons: list[str]
    ended_early: bool
    ledger: exactness.Verdict | None  # of ours


@dataclass
class Play:
    system: System
    stage: Stage
    changes: list[Change]
    folder: Path
    seconds: float
    reference_seconds: float
    tell: Callable[[str, float], None]  # a line of progress, and the seconds that are left
    _job: Job = field(init=False)
    _happened: list[Happened] = field(default_factory=list)
    _trained: dict[int, Machine] = field(default_factory=dict)  # the processes that no event has hit since they were seen
    _pids_kept: int = 0
    _pids_lost: int = 0
    _loads: list[float] = field(default_factory=list)
    _reasons: list[str] = field(default_factory=list)

    def run(self) -> Played:
        """Raises FailedError when the job does not come up, or ends before the first event."""
        self._job = Job(self.system, self.stage, self.folder, f"{self.folder.name}-{os.getpid()}")
        try:
            come_up(self._job, MACHINES)
            return self._run()
        finally:
            self._job.stop()

    def _run(self) -> Played:
        reference = time.time()
        if until(self._has_ended, self.reference_seconds):
            raise FailedError(f"{self.system.title}: the job ended before the first event")
        began = time.time()
        window = Window(reference=reference, began=began, ended=began + self.seconds)
        self._look_at_rate(window)
        for change in self.changes:
            if until(self._has_ended, began + change.seconds - time.time()):
                break
            if self._happened:
                self._tell(window)
            self._happen(change.name)
        ended_early = bool(until(self._has_ended, window.ended - time.time()))
        self._tell(window)
        if ended_early:
            self._reasons.append(self._why_it_ended(time.time() - began))
        else:
            self._count_processes()
            self._go_on_after(window.ended)
            self._reasons += [
                f"a machine ended by itself, with exit code {machine.code}: {last_lines(machine.log, 1)[:200]}"
                for machine in self._job.machines
                if machine.code is not None
            ]
        self._job.stop()
        lines = self.system.lines(self._job.output)
        return Played(
            lines=lines,
            happened=self._happened,
            window=window,
            pids_kept=self._pids_kept,
            pids_lost=self._pids_lost,
            loads=self._loads,
            reasons=self._reasons,
            ended_early=ended_early,
            ledger=self._check_ledger(lines) if self.system.is_ours else None,
        )

    def _look_at_rate(self, window: Window) -> None:
        try:
            step_seconds = undisturbed_step_seconds(self.system.lines(self._job.output), window)
        except UnmeasuredError as error:
            raise FailedError(f"{self.system.title}: {error}") from error
        if step_seconds > MOST_STEP_SECONDS:
            self._reasons.append(
                f"the machine was too busy: a step took {step_seconds:.3f} s before the first event, not {STEP_SECONDS:g}, so "
                "the rate depends on the load and on the number of machines"
            )
        self.tell(
            f"{self.system.name}: {MACHINES} machines train, {step_seconds:.3f} s a step; load {os.getloadavg()[0]:.1f}",
            self.seconds,
        )

    def _has_ended(self) -> bool:
        """All machines have, and nobody has taken them. Where all were taken the job waits for one that joins."""
        return bool(self._job.machines) and all(machine.code is not None for machine in self._job.machines)

    def _happen(self, name: str) -> None:
        self._count_processes()
        self._loads.append(os.getloadavg()[0])
        ranks = self.system.ranks(self._job.output, self._job.machines)
        self._trained = {rank.pid: rank.machine for rank in ranks.values()}
        self._happened.append(Happened(name=name, time=time.time()))
        if name == JOIN:
            for machine in self._job.left:
                machine.kill()  # with notice, it may not have gone yet: as many live everywhere
            self._job.start(planned=MACHINES)
            return
        victim, seconds = self._victim(name, ranks), time.time() - self._happened[0].time
        if victim is None:
            self._reasons.append(f"{name} after {seconds:.0f} s hit nothing: there was no worker process")
            return
        self._trained = {pid: machine for pid, machine in self._trained.items() if machine is not victim.machine}
        if ranks and not self._trained:
            self._reasons.append(f"{name} after {seconds:.0f} s left nobody who had trained: new machines were still starting")
        self._job.lose(name, victim)

    def _victim(self, name: str, ranks: dict[int, Rank]) -> Rank | None:
        """While a job has no ranks, the machine that is the oldest stands for that of rank 0, and the newest for another."""
        if ranks:
            return choose_victims(ranks, EVENTS[name], 1)[0]
        living = [machine for machine in self._job.machines if machine.code is None]
        if not living or EVENTS[name].process:
            return None
        machine = living[0 if EVENTS[name].rank0 else -1]
        return Rank(machine, machine.pid)

    def _count_processes(self) -> None:
        kept = sum(lives(pid) for pid in self._trained)
        self._pids_kept += kept
        self._pids_lost += len(self._trained) - kept

    def _tell(self, window: Window) -> None:
        """About the last event, now that its cost is known."""
        now, last = min(time.time(), window.ended), self._happened[-1]
        lines = self.system.lines(self._job.output)
        account = take_account(lines, self._happened, dataclasses.replace(window, ended=now))
        self.tell(
            f"{self.system.name}, {last.time - window.began:.0f} s, {last.name}: {account.waits[-1]:.2f} s without a step; "
            f"goodput so far {100 * account.goodput:.1f} %, {len(self._happened)} of {len(self.changes)} changes, "
            f"load {os.getloadavg()[0]:.1f}",
            window.ended - now,
        )

    def _go_on_after(self, ended: float) -> None:
        """Only with the next step it is known which of those before it count."""

        def has_step() -> bool:
            lines = self.system.lines(self._job.output)
            return self._has_ended() or bool(lines and lines[-1].time > ended)

        if not until(has_step, self.stage.cap_seconds):
            self._reasons.append(f"no step in the {self.stage.cap_seconds:.0f} s after the end")

    def _why_it_ended(self, seconds: float) -> str:
        codes = ", ".join(str(machine.code) for machine in self._job.machines)
        last = self._happened[-1]
        return (
            f"the job ended after {seconds:.0f} s, {time.time() - last.time:.0f} s after {last.name}; exit codes {codes}: "
            f"{last_lines(self._job.machines[0].log, 1)[:200]}"
        )

    def _check_ledger(self, lines: list[Line]) -> exactness.Verdict | None:
        """Up to the last step that was written down."""
        try:
            return exactness.check(self._job.output, unfinished=(int(lines[-1].incarnation), lines[-1].end // GLOBAL_BATCH))
        except exactness.LedgerError as error:
            self._reasons.append(f"the ledger cannot be judged: {error}")
            return None
