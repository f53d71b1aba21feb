"""Lets one history happen to real machines, and waits for their end.

    played = Play(history, stage, folder, epochs=32).run()      # raises BrokenError when the job does not go on

What it knows of the job is what the ranks write and which processes there are. It judges nothing but that the job goes on:
judge.py does.
"""

import signal
import time
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.exact import processes, watch
from benchmarks.exact.history import LARGEST_WORLD, Event, History, Kind, after
from benchmarks.exact.machines import Machine, Starter, environment, until

# Without a step. Above the longest that a job may need on a busy machine: a start from nothing of six launchers on two cores
# takes 40 s.
PATIENCE_SECONDS = 180.0
FINISHED, RECLAIMED = 0, 138  # exit codes, as a controller knows them
# A step lasts so long at least, so that events hit a job that trains. Real agents need seconds to come, and what is trained
# meanwhile costs processor time.
STEP_SECONDS = {True: 0.25, False: 0.08}
CHECKPOINT_SECONDS = 1.0
# Shorter waits for newcomers, and for leases of which nobody is left, than the defaults: more happens in a minute.
_QUICK = "last_call_timeout=1,join_batch_seconds=0.3,lease_seconds=4"
_AFTERWARDS = Event(kind="join", steps=2)  # never happens: what the last event has left is looked at when this one is due


class BrokenError(Exception):
    """A promise was broken; the text says which, by what was seen."""


@dataclass(frozen=True, kw_only=True)
class Stage:
    """Settings that all histories have in common."""

    data: Path
    endpoint: str
    fresh: Starter
    forked: Starter


@dataclass(frozen=True, kw_only=True)
class Played:
    """`events` are those that hit the job before it had finished, `codes` the exit codes of all launchers that were not killed.
    Of worker processes that no event has hit, `pids_kept` were still there, and `pids_lost` not, when all trained again.
    """

    output: Path
    events: tuple[Kind, ...]
    codes: tuple[int, ...]
    seconds: float
    step_seconds: float
    pids_kept: int = 0
    pids_lost: int = 0
    nobody_left: int = 0  # events after which no process was left that had trained
    checkpoints_read: int = 0
    needlessly_read: int = 0  # of them, while a process was there that had trained
    left_behind: int = 0  # machines that lived and were taken for dead, each time
    killed: frozenset[tuple[int, int]] = frozenset()  # (generation, rank) of the processes that died in it by an event


def training(stage: Stage, history: History, *, epochs: int) -> list[str]:
    """The trainer's own flags."""
    shape = history.shape
    return [
        *["-m", *shape.program, "--data", str(stage.data / shape.data), "--device", "cpu"],
        *["--global-batch", str(shape.global_batch), "--epochs", str(epochs), "--seed", "7"],
        *["--lr", str(shape.lr), "--workers", "0"],
        *["--checkpoint-seconds", str(CHECKPOINT_SECONDS), "--checkpoint-min-seconds", "0.2", "--ledger", "--log-every", "1"],
        *["--recovery", history.recovery],
        *(["--virtual-workers", str(LARGEST_WORLD)] if history.virtual else []),  # every rank must have one
    ]


@dataclass
class Play:
    history: History
    stage: Stage
    folder: Path
    epochs: int
    machines: list[Machine] = field(default_factory=list)  # that should live
    _trained: dict[int, Machine] = field(default_factory=dict)  # the processes that did when all had met, but for those hit since
    _pids_kept: int = 0
    _pids_lost: int = 0
    _nobody_left: int = 0
    _may_read: bool = True  # checkpoints: nobody was left who had trained, since all had met
    _read: int = 0  # when all had met
    _needlessly_read: int = 0
    _gone: list[tuple[Machine, bool]] = field(default_factory=list)  # and whether with notice
    _killed: set[tuple[int, int]] = field(default_factory=set)
    _dying: set[int] = field(default_factory=set)  # processes that were killed, which on a busy machine takes a while

    @property
    def output(self) -> Path:
        return self.folder / "output"

    @property
    def step_seconds(self) -> float:
        return STEP_SECONDS[self.history.agents]

    def run(self) -> Played:
        began = time.monotonic()
        self.output.mkdir(parents=True)
        try:
            self._start(self.history.machines, planned=self.history.machines)
            done: list[Kind] = []
            for event in self.history.events:
                if not self._wait_for(event):
                    break
                self._happen(event)
                self._nobody_left += not self._trained
                self._may_read |= not self._trained
                done.append(event.kind)
            else:
                self._wait_for(_AFTERWARDS)
            self._note("all has happened")
            codes = self._wait_for_end()
            self._note(f"ended with {codes}")
            self._count_reads()
        finally:
            for machine in [*self.machines, *(machine for machine, _ in self._gone)]:
                machine.kill()
        return Played(
            output=self.output,
            events=tuple(done),
            codes=codes,
            seconds=time.monotonic() - began,
            step_seconds=self.step_seconds,
            pids_kept=self._pids_kept,
            pids_lost=self._pids_lost,
            nobody_left=self._nobody_left,
            checkpoints_read=self._read,
            needlessly_read=self._needlessly_read,
            left_behind=watch.left_behind(self.folder),
            killed=frozenset(self._killed),
        )

    def _wait_for(self, event: Event) -> bool:
        """Until it is due. False when the job has finished before."""
        if event.seconds is not None:
            return not until(lambda: watch.is_finished(self.output), event.seconds)
        world_size = len(self.machines) * self.history.processes
        ranks: dict[int, watch.Rank] = {}

        def due() -> bool:
            nonlocal ranks
            self._look_after()
            sight = self._look()
            as_wanted = sight is not None and sight.world_size == world_size and sight.steps >= event.steps
            # A join and a loss leave the size as it was: only the ranks tell the next generation from the one that was hit.
            ranks = self._ranks() if as_wanted else {}
            return len(ranks) == world_size or watch.is_finished(self.output)

        if not until(due, PATIENCE_SECONDS, progress=watch.LastStep(self.output).look):
            raise BrokenError(
                f"{PATIENCE_SECONDS:.0f} s in vain for {event.steps} steps by {world_size} ranks; there is {self._look()}"
            )
        self._note("due")
        if watch.is_finished(self.output):
            return False
        self._compare_processes(ranks)
        return True

    def _compare_processes(self, ranks: dict[int, watch.Rank]) -> None:
        """All train: those that did when all had met before, and that no event has hit, are among them. Another look at the ranks
        could come too late: when a job ends, its processes go one by one."""
        now = {rank.pid: rank.machine for rank in ranks.values()}
        missing = self._trained.keys() - now.keys()
        self._pids_kept += len(self._trained) - len(missing)
        if missing and self.history.recovery == "memory":
            self._note(f"processes that no event had hit are gone: {sorted(missing)}")
        self._pids_lost += len(missing)
        self._trained = now
        self._count_reads()

    def _count_reads(self) -> None:
        """Since all had met before. Machines that start from nothing may meet one after the other, each from a checkpoint."""
        before, self._read = self._read, watch.checkpoints_read(self.folder)
        self._needlessly_read += 0 if self._may_read else self._read - before
        self._may_read = False

    def _look(self) -> watch.Sight | None:
        return watch.look(self.output)

    def _ranks(self) -> dict[int, watch.Rank]:
        found = watch.ranks(self.output, self.machines)
        return {rank: at for rank, at in found.items() if at.pid not in self._dying}

    def _note(self, text: str) -> None:
        """For whoever has to find out what went wrong."""
        with (self.folder / "events.txt").open("a") as event_log:
            event_log.write(f"{time.strftime('%H:%M:%S')} {time.time():.2f} {text}\n")

    def _look_after(self) -> None:
        for machine in self.machines:
            if machine.code not in (None, FINISHED):
                raise BrokenError(f"a machine ended with {machine.code}, and nobody had told or killed it: {machine.log}")

    def _happen(self, event: Event) -> None:
        self._note(f"{event}; there is {self._look()}")
        match event.kind:
            case "join":
                self._start(event.machines, planned=after(event, len(self.machines)))
            case "notice":
                self._let_go(self._target(event), told=True)
            case "kill-machine":
                self._let_go(self._target(event), told=False)
            case "kill-rank-zero":
                first = self._ranks().get(0)
                self._let_go(first.machine if first else self._target(event), told=False)
            case "kill-process":
                self._kill_process(event)
            case "kill-all":
                # On a busy machine those that are left for a second would meet and train on.
                processes.stop(*(machine.pid for machine in self.machines if machine.code is None))
                for machine in list(self.machines):
                    self._let_go(machine, told=False)
                self._start(event.machines, planned=event.machines)

    def _target(self, event: Event) -> Machine:
        return self.machines[event.target % len(self.machines)]

    def _kill_process(self, event: Event) -> None:
        found = until(lambda: self._ranks() or watch.is_finished(self.output), PATIENCE_SECONDS)
        if isinstance(found, dict):
            _, victim = sorted(found.items())[event.target % len(found)]
            self._forget(victim.machine, killed=True)
            self._dying.add(victim.pid)
            processes.send(victim.pid, signal.SIGKILL)

    def _forget(self, machine: Machine, *, killed: bool) -> None:
        """Its processes, which go together, need not be there any more."""
        self._trained = {pid: other for pid, other in self._trained.items() if other is not machine}
        if killed:
            self._killed |= {(at.generation, rank) for rank, at in self._ranks().items() if at.machine is machine}

    def _let_go(self, machine: Machine, *, told: bool) -> None:
        self._forget(machine, killed=not told)
        if told:
            machine.tell()
        else:
            machine.kill()
        self.machines.remove(machine)
        self._gone.append((machine, told))

    def _start(self, count: int, *, planned: int) -> None:
        starter = self.stage.fresh if self.history.agents else self.stage.forked
        name = f"{self.folder.name}-{self.epochs}"  # played again it is another job
        arguments = [
            *["--rdzv_backend=etcd3", f"--rdzv_endpoint={self.stage.endpoint}", f"--rdzv_id={name}"],
            *[f"--nnodes=1:{self.history.largest}", f"--nproc-per-node={self.history.processes}", "--local-addr=127.0.0.1"],
            *[f"--rdzv_conf={_QUICK}", *training(self.stage, self.history, epochs=self.epochs)],
            *["--min-step-seconds", str(self.step_seconds)],
        ]
        given = job_environment(self.output) | {"EBB_PLANNED_WORKERS": str(planned)}
        for _ in range(count):
            log = self.folder / f"machine{len(self.machines) + len(self._gone)}.log"
            self.machines.append(starter.start(arguments, given, log))

    def _wait_for_end(self) -> tuple[int, ...]:
        """The exit codes, once all that were not killed have ended. Raises BrokenError."""
        ends = [*self.machines, *(machine for machine, told in self._gone if told)]

        def ended() -> bool:
            self._look_after()
            return all(machine.code is not None for machine in ends)

        if not until(ended, PATIENCE_SECONDS, progress=watch.LastStep(self.output).look):
            raise BrokenError(f"not all machines ended; there is {self._look()}")
        if not watch.is_finished(self.output):
            raise BrokenError(f"all machines ended, but the job has no result.json; there is {self._look()}")
        return tuple(machine.code for machine in ends if machine.code is not None and not _was_told_too_soon(machine))


def _was_told_too_soon(machine: Machine) -> bool:
    """True if its interpreter, which on a busy machine takes seconds to start, had not yet run a line of ours."""
    return machine.code == -signal.SIGTERM and not machine.log.read_bytes()


def job_environment(output: Path) -> dict[str, str]:
    """A machine that is killed leaves its temporary files: they go with the history's."""
    temporary = output.parent / "tmp"
    temporary.mkdir(exist_ok=True)
    return environment() | {"EBB_OUTPUT_DIR": str(output), "TMPDIR": str(temporary)}
