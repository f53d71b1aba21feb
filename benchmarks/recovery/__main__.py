"""Seconds without a step when machines come and go, ours beside stock torchrun: `python -m benchmarks.recovery`."""

import argparse
import dataclasses
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import torch

from benchmarks.controller.processes import BenchmarkError
from benchmarks.exact.machines import GivenUpError, side_by_side
from benchmarks.exact.records import Records, fingerprint
from benchmarks.recovery import figures as kept
from benchmarks.recovery.namespaces import Network
from benchmarks.recovery.play import EVENTS, MACHINES, SILENT, FailedError, Found, Stage, play
from benchmarks.recovery.systems import SYSTEMS
from benchmarks.recovery.timeline import Change
from devcluster.commands import say
from devcluster.settings import EBB_HOME, BoxError

KEPT, BROKEN, FAILED, INTERRUPTED = 0, 1, 2, 130
PLAYED = ("ours", "restart", "etcd_best", "c10d_best", "torchft_best")
STATES = (5.0, 400.0, 1600.0)
LARGE_MEGABYTES = 100.0  # above it there are fewer rounds, and no two jobs at once
ROUNDS, LARGE_ROUNDS, OTHER_ROUNDS = 20, 5, 1  # three hours on two cores, half of it ours; 50 minutes with --states 5
OTHERS_AT_ONCE = 3  # nearly all of their time they wait for clocks of their own: two cores were 96 % idle with one of them
# Memory of a process, in sizes of its state: with gradients and what travels 1.7 (2.4 in a newcomer, for a moment); a checkpoint
# that is loaded comes as bytes and as tensors besides. Snapshots take two more where there is room; elsewhere there are none.
MEMORY = {"ours": 2.5, "restart": 4.5}
OTHERS_MEMORY = 3.5
# For the first estimate of the time: seconds of an event with a small state, and more for each 1,000 MB.
EVENT_SECONDS, OTHERS_SECONDS = {"ours": (9.0, 25.0), "restart": (9.0, 60.0)}, (35.0, 60.0)
HELP = f"""\
{MACHINES} machines of one process each train a perceptron under Adam on loopback, 24 samples a step, 10 steps a second at most.
Then, in turn, with a pod as another word for a machine:

{chr(10).join(f"  {name:20}{event.text}" for name, event in EVENTS.items())}

and each time: seconds from the change, or the last step before it if that came later, to the first step after it, less those of
an ordinary step (with what was thrown away of the step under way: gap_seconds); steps that were done again; samples that were
left out; what the processes of the other machines have read (/proc/PID/io: all of read() and the like, a new process's imports
too; nothing from sockets), and whether they are the same processes.

{chr(10).join(f"  {name:20}{system.title}" for name, system in SYSTEMS.items())}

Ours plays alone, and so does each system with a large state; with a small one the others play three at a time. Stock torchrun
runs benchmarks/recovery/stock.py, and torchft runs torchft_program.py; both save every 60 steps. A system that does not go on
before the cap, or of which all machines end, has null there; `reasons` says which. {SILENT} needs network namespaces: root may
make them, and others where the kernel lets users. A c10d rendezvous lives on one of the machines and is not tried there, and
torchft's peers find each other's state by the host's name, which says nothing in a namespace. torchft is installed on first
use.

Each event is kept under --results as soon as it is timed: started again after Ctrl-C, the run goes on where it was, unless the
code of the runtime or of the benchmark has changed. The last line is one JSON object: system -> event -> MB of state -> figures.

exit status: 0 every promise about ours is kept (goals of time do not count), 1 one is broken, 2 it could not be measured,
130 interrupted
"""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Options of the command line."""

    systems: tuple[str, ...]
    events: tuple[str, ...]
    states: tuple[float, ...]
    repeat: int
    others: int
    cap_seconds: float
    device: str
    results: Path

    def rounds(self, system: str, megabytes: float) -> int:
        ours = self.repeat or (ROUNDS if megabytes < LARGE_MEGABYTES else LARGE_ROUNDS)
        return ours if system == "ours" else min(ours, self.others)


def read_settings(arguments: Sequence[str]) -> Settings:
    """The only reader of argv."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.recovery", description=__doc__, epilog=HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    states = ",".join(f"{each:g}" for each in STATES)
    parser.add_argument("--only", metavar="A,B", default="", help=f"of the systems below (default: {','.join(PLAYED)})")
    parser.add_argument("--events", metavar="A,B", default=",".join(EVENTS), help="of the changes below (default: all)")
    parser.add_argument("--states", metavar="MB,MB", default=states, help="sizes of the state (default: %(default)s)")
    parser.add_argument(
        "--repeat", metavar="N", type=int, default=0,
        help=f"rounds of ours (default: {ROUNDS}, {LARGE_ROUNDS} from {LARGE_MEGABYTES:g} MB on)",
    )  # fmt: skip
    parser.add_argument(
        "--others", metavar="N", type=int, default=OTHER_ROUNDS, help="rounds of the others (default: %(default)d)"
    )
    parser.add_argument(
        "--cap", metavar="SECONDS", type=float, default=120.0, help="longest wait for a step (default: %(default)g)"
    )
    parser.add_argument(
        "--device", choices=("cpu", "cuda"), default="cpu",
        help="cuda: ours and restart alone, all machines on the first GPU, as many hosts to NCCL (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--results", metavar="DIR", type=Path, default=EBB_HOME / "recovery", help="where a run that is not through is kept"
    )
    given = parser.parse_args(arguments)
    played = ",".join(name for name in PLAYED if given.device == "cpu" or SYSTEMS[name].is_ours)
    systems, events = tuple((given.only or played).split(",")), tuple(given.events.split(","))
    for option, words, allowed in (("--only", systems, SYSTEMS), ("--events", events, EVENTS)):
        for word in words:
            if word not in allowed:
                parser.error(f"{option} {word!r} is none of {', '.join(allowed)}")
    if given.device == "cuda":
        if others := [name for name in systems if not SYSTEMS[name].is_ours]:
            parser.error(f"--only {others[0]!r} trains on the CPU; with --device cuda name ours, restart or both")
        if not torch.cuda.is_available():
            parser.error("--device is 'cuda', but torch sees no GPU here; --device cpu needs none")
    try:
        sizes = tuple(float(word) for word in given.states.split(","))
    except ValueError:
        parser.error(f"--states {given.states!r} must be numbers, such as 5,400")
    if given.repeat < 0 or given.others < 1 or min(sizes) <= 0:
        parser.error("--repeat, --others and --states must be positive")
    return Settings(
        systems=systems,
        events=events,
        states=sizes,
        repeat=given.repeat,
        others=given.others,
        cap_seconds=given.cap,
        device=given.device,
        results=given.results,
    )


@dataclass
class Run:
    """One run. `found`: system -> event -> MB of state -> one for each time that it was played."""

    settings: Settings
    records: Records
    folder: Path  # of what the jobs write
    found: dict[str, dict[str, dict[str, list[Found]]]] = field(default_factory=dict)
    _expected: float = 0.0  # seconds, by the first estimate
    _played: float = 0.0  # of those
    _spent: float = 0.0

    def measure(self) -> None:
        settings = self.settings
        self._expected = sum(self._guess(name, each) * settings.rounds(name, each) for name, each in self._stages())
        say(f"about {self._expected / 60:.0f} minutes; results are kept in {self.records.path}")
        for megabytes in settings.states:
            with ExitStack() as opened:
                stages = {name: self._stage(name, megabytes, opened) for name in settings.systems}
                for number in range(max(settings.rounds(name, megabytes) for name in settings.systems)):
                    # In turns, so that a machine that is busy for a while hinders all alike.
                    names = [name for name in settings.systems if number < settings.rounds(name, megabytes)]
                    self._round_of_all(number, names, stages)

    def _stages(self) -> Iterator[tuple[str, float]]:
        return ((name, each) for each in self.settings.states for name in self.settings.systems)

    def _guess(self, name: str, megabytes: float) -> float:
        """Seconds of a round."""
        each, more = EVENT_SECONDS.get(name, OTHERS_SECONDS)
        return len(self.settings.events) * (each + more * megabytes / 1000)

    def _round_of_all(self, number: int, names: list[str], stages: dict[str, Stage]) -> None:
        """Ours by itself, then the others: side by side where the state is small."""
        with side_by_side(OTHERS_AT_ONCE) as pool:
            small = [name for name in names if not SYSTEMS[name].is_ours and stages[name].megabytes < LARGE_MEGABYTES]
            for name in names:
                if name not in small:
                    self._round(number, name, stages[name])
            for future in [pool.submit(self._round, number, name, stages[name]) for name in small]:
                future.result()

    def _round(self, number: int, name: str, stage: Stage) -> None:
        state, began = f"{stage.megabytes:g}", time.monotonic()
        found = self.found.setdefault(name, {})
        done = self._recall(number, name, state)
        lost = [event for event in found if any(isinstance(one, str) for one in found[event].get(state, []))]
        events = [event for event in self.settings.events if event not in (*lost, *done)]
        if SILENT in events and stage.network is None:
            events.remove(SILENT)
        if short := _memory_short(name, stage.megabytes):
            for event in events:
                self._keep(number, name, event, state, short)
            events = []
        if not events:
            self._expected -= self._guess(name, stage.megabytes)
            return
        folder, played = self.folder / name / f"{state}-{number + 1}", set()
        try:
            for event, one in play(SYSTEMS[name], events, stage, folder, f"{name}-{state}-{number}-{os.getpid()}"):
                self._keep(number, name, event, state, one)
                played.add(event)
        except FailedError as error:  # of this system; the others are measured all the same
            for event in events:
                if event not in played:
                    self._keep(number, name, event, state, str(error))
        for output in folder.glob("job*/output"):  # checkpoints take their room; the logs stay
            shutil.rmtree(output, ignore_errors=True)
        self._played += self._guess(name, stage.megabytes)
        self._spent += time.monotonic() - began
        left = max(0.0, self._expected - self._played) * self._spent / self._played
        say(f"round {number + 1} of {name} with {state} MB is done; about {left / 60:.0f} minutes left")

    def _recall(self, number: int, name: str, state: str) -> set[str]:
        """The events that an earlier, interrupted run has played of this round."""
        done = set()
        for event in EVENTS:
            count = 0
            while (found := self.records.get(f"{name} {state} {number} {event} {count}")) is not None:
                told = self.found[name].setdefault(event, {}).setdefault(state, [])
                told.append(found["reason"] if "reason" in found else Change(**found))
                done.add(event)
                count += 1
        return done

    def _keep(self, number: int, name: str, event: str, state: str, one: Found) -> None:
        self.found[name].setdefault(event, {}).setdefault(state, []).append(one)
        count = 0  # a join may come more than once in a round
        while self.records.get(f"{name} {state} {number} {event} {count}") is not None:
            count += 1
        value = {"reason": one} if isinstance(one, str) else dataclasses.asdict(one)
        self.records.keep(f"{name} {state} {number} {event} {count}", value)
        words = one if isinstance(one, str) else f"{one.seconds:.2f} s, {one.steps_redone:g} steps redone"
        say(f"round {number + 1}, {name}, {state} MB, {event}: {words}; load {os.getloadavg()[0]:.1f}")

    def _stage(self, name: str, megabytes: float, opened: ExitStack) -> Stage:
        """A rendezvous of its own; for one on etcd another in a network of namespaces."""
        system, network, far = SYSTEMS[name], None, ""
        near = opened.enter_context(system.rendezvous(self.folder))
        if system.etcd is not None and SILENT in self.settings.events and not _silence_missing():
            network = opened.enter_context(Network())
            far = opened.enter_context(system.rendezvous(self.folder, host=network.address(0), within=network.within(0)))
        return Stage(
            megabytes=megabytes,
            endpoint=lambda on_network: far if on_network else near,
            network=network,
            cap_seconds=self.settings.cap_seconds,
            device=self.settings.device,
        )


def _silence_missing() -> str:
    """Why no machine can fall silent here, "" if one can."""
    try:
        with Network() as network:
            network.silence(network.attach())
    except BenchmarkError as error:
        return str(error)
    return ""


def _memory_short(name: str, megabytes: float) -> str:
    """A reason not to play it: the processes of all machines would not fit."""
    needed = (MACHINES + 1) * MEMORY.get(name, OTHERS_MEMORY) * megabytes / 1000
    lines = Path("/proc/meminfo").read_text().splitlines()
    free = next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")) * 1024 / 1e9
    return "" if needed < free else f"it needs about {needed:.0f} GB of memory, and {free:.0f} are free"


def main(arguments: Sequence[str]) -> int:
    """Returns the exit status."""
    settings, began = read_settings(arguments), time.monotonic()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    status = FAILED
    folder = Path(tempfile.mkdtemp(prefix="ebb-recovery-"))
    run = Run(settings, Records.open(settings.results, f"{fingerprint(patterns=_CODE)}-{settings.device}"), folder)
    try:
        run.measure()
        status = _tell(run, round(time.monotonic() - began, 1))
        run.records.path.unlink(missing_ok=True)
    except (BenchmarkError, BoxError) as error:
        print(f"it could not be measured; logs are in {folder}: {error}", file=sys.stderr)
    except (KeyboardInterrupt, GivenUpError):
        say("interrupted; the same command goes on from here")
        status = INTERRUPTED
    finally:
        if status in (KEPT, INTERRUPTED):
            shutil.rmtree(folder, ignore_errors=True)
    return status


_CODE = ("ebb/elastic/**/*.py", "benchmarks/recovery/*.py")


def _tell(run: Run, seconds: float) -> int:
    """Print the table, the verdicts and the last line."""
    table = kept.figures(run.found)
    made, wanted = kept.promises(table), kept.goals(table)
    verdicts = [f"{'kept  ' if each.kept else 'BROKEN'} {each.text}" for each in made]
    verdicts += [f"{'met   ' if each.kept else 'missed'} {each.text}" for each in wanted]
    for line in [*kept.table_lines(table), *verdicts]:
        say(line)
    facts = {
        "reasons": kept.reasons(run.found),
        "states_megabytes": run.settings.states,
        "cap_seconds": run.settings.cap_seconds,
        "device": torch.cuda.get_device_name() if run.settings.device == "cuda" else "cpu",
        "silent_loss": _silence_missing() or "played: the link of a network namespace goes down",
        "cores": os.cpu_count(),
        "seconds": seconds,
        "promises_kept": sum(each.kept for each in made),
        "promises_broken": sum(not each.kept for each in made),
        "goals_met": sum(each.kept for each in wanted),
        "goals_missed": [each.text for each in wanted if not each.kept],
    }
    print(json.dumps({**table, **facts}), flush=True)
    return KEPT if all(each.kept for each in made) else BROKEN


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
