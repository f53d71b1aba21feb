"""Goodput with an event a minute, ours beside stock torchrun: `python -m benchmarks.goodput`."""

import argparse
import dataclasses
import json
import os
import shutil
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.controller.processes import BenchmarkError
from benchmarks.exact.machines import GivenUpError, side_by_side
from benchmarks.goodput.account import by_name, take_account
from benchmarks.goodput.play import BACK, KINDS, MACHINES, Play, Played, draw
from benchmarks.recovery.play import EVENTS, FailedError, Stage
from benchmarks.recovery.systems import STEP_SECONDS, SYSTEMS
from devcluster import tools
from devcluster.commands import say
from devcluster.settings import BoxError

KEPT, BROKEN, FAILED, INTERRUPTED = 0, 1, 2, 130
OURS, GOAL = "ours", 0.97
PLAYED = (OURS, "restart", "etcd_best")
CAP_SECONDS = 120.0  # for a job to come up, and for its first step after the end
LONGEST_REFERENCE_SECONDS = 60.0
START_SECONDS = 20.0  # of a system, for the estimate of the time
Figures = dict[str, Any]
HELP = f"""\
{MACHINES} machines of one process each train a perceptron under Adam on loopback. After an undisturbed time, as long as that
between two events but at most {LONGEST_REFERENCE_SECONDS:g} s, comes the first event, and one more each --every seconds, in
an order drawn from --seed:

{chr(10).join(f"  {name:20}{EVENTS[name].text}" for name in KINDS)}

with a pod as another word for a machine. One that is lost comes back after {100 * BACK[0]:g} to {100 * BACK[1]:g} % of --every,
as a cloud replaces it: one event more, "join", which is timed too. Each system gets the same events at the same times.

goodput = steps that count at the end / steps that an undisturbed job would have made in the same time

from the first event to the end of --minutes, at the rate before the first event in the same run. A step that was done again
counts once, one that was thrown away does not. A step lasts {STEP_SECONDS:g} s at least, so that the rate does not depend on the
number of machines; with a large state, or on a busy machine, it does, and `reasons` says so. A job that ends makes no steps
in the rest of the time; `reasons` says when and why. A launcher that ends by itself is not started again.
benchmarks/goodput/__init__.py has all of the definition.

{chr(10).join(f"  {name:20}{system.title}" for name, system in SYSTEMS.items())}

The systems play one after the other, since each step, and each start of a process, takes from the cores that all of them share:
three systems take three times --minutes and a little. With --at-once all but ours play side by side after it: ours, which is
judged, is always alone.

The last line is one JSON object: system -> figures, null where a system could not be measured.

exit status: 0 ours has a goodput of {GOAL:g} and lost or repeated no sample, 1 it has not, 2 a system could not be measured,
130 interrupted
"""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Options of the command line."""

    systems: tuple[str, ...]
    minutes: float
    every: float
    seed: int
    megabytes: float
    at_once: bool

    @property
    def seconds(self) -> float:
        return 60 * self.minutes

    @property
    def reference_seconds(self) -> float:
        return min(self.every, LONGEST_REFERENCE_SECONDS)

    @property
    def each_seconds(self) -> float:
        """Of one system, about."""
        return START_SECONDS + self.reference_seconds + self.seconds


def read_settings(arguments: Sequence[str]) -> Settings:
    """The only reader of argv."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.goodput", description=__doc__, epilog=HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("--only", metavar="A,B", default=",".join(PLAYED), help="of the systems below (default: %(default)s)")
    parser.add_argument("--minutes", type=float, default=30.0, help="from the first event on (default: %(default)g)")
    parser.add_argument(
        "--every", metavar="SECONDS", type=float, default=60.0, help="time between two events (default: %(default)g)"
    )
    parser.add_argument("--seed", type=int, default=1, help="of the events' order (default: %(default)d)")
    parser.add_argument(
        "--state-megabytes", metavar="MB", type=float, default=5.0, help="weights and Adam's moments (default: %(default)g)"
    )
    parser.add_argument("--at-once", action="store_true", help="play all but ours side by side, after it")
    given = parser.parse_args(arguments)
    systems = tuple(dict.fromkeys(given.only.split(",")))
    for word in systems:
        if word not in SYSTEMS:
            parser.error(f"--only {word!r} is none of {', '.join(SYSTEMS)}")
    if given.every < 10:
        parser.error(f"--every {given.every:g} must be at least 10: a machine must be back, and train, before the next event")
    if 60 * given.minutes < given.every:
        parser.error(f"--minutes {given.minutes:g} is shorter than --every {given.every:g} s: there would be no event; raise it")
    if given.state_megabytes <= 0:
        parser.error(f"--state-megabytes {given.state_megabytes:g} must be positive")
    return Settings(
        systems=systems,
        minutes=given.minutes,
        every=given.every,
        seed=given.seed,
        megabytes=given.state_megabytes,
        at_once=given.at_once,
    )


@dataclass
class Run:
    """One run. `table` and `reasons` are what the last line says of each system."""

    settings: Settings
    folder: Path  # of what the jobs write
    table: dict[str, Figures | None] = field(default_factory=dict)
    reasons: dict[str, list[str]] = field(default_factory=dict)
    _waiting: float = 0.0  # seconds of what has not begun

    def measure(self) -> None:
        settings = self.settings
        alone = [name for name in settings.systems if name == OURS or not settings.at_once]
        beside = [name for name in settings.systems if name not in alone]
        turns = [*([name] for name in alone), *([beside] if beside else [])]
        say(f"{', then '.join(' beside '.join(names) for names in turns)}: {settings.each_seconds / 60:.0f} minutes each")
        for name in settings.systems:  # building one takes minutes, and cores
            if (etcd := SYSTEMS[name].etcd) is not None:
                tools.main_ensure(etcd[0])
        for number, names in enumerate(turns, 1):
            self._waiting = (len(turns) - number) * settings.each_seconds
            if len(names) == 1:
                self._play(names[0])
            else:
                self._play_at_once(names)

    def _play_at_once(self, names: Sequence[str]) -> None:
        with side_by_side(len(names)) as pool:
            for future in [pool.submit(self._play, name) for name in names]:
                future.result()

    def _play(self, name: str) -> None:
        settings, system = self.settings, SYSTEMS[name]
        self.table[name] = None
        try:
            with system.rendezvous(self.folder) as endpoint:
                stage = Stage(megabytes=settings.megabytes, endpoint=lambda _: endpoint, network=None, cap_seconds=CAP_SECONDS)
                played = Play(
                    system=system,
                    stage=stage,
                    changes=draw(seed=settings.seed, seconds=settings.seconds, every=settings.every),
                    folder=self.folder / name,
                    seconds=settings.seconds,
                    reference_seconds=settings.reference_seconds,
                    tell=lambda text, left: say(f"{text}; about {(left + self._waiting) / 60:.0f} minutes left"),
                ).run()
        except FailedError as error:  # of this system; the others are measured all the same
            self.reasons[name] = [str(error)]
            say(f"{name} could not be measured: {error}")
            return
        self.table[name] = figures(played)
        if played.reasons:
            self.reasons[name] = played.reasons


def figures(played: Played) -> Figures:
    """The last line's of one system."""
    account = dataclasses.asdict(take_account(played.lines, played.happened, played.window))
    waits = account.pop("waits")
    ledger = played.ledger
    found = {
        **account,
        "seconds": round(played.window.ended - played.window.began, 1),
        "ended_early": played.ended_early,
        "events": by_name(played.happened, waits),
        "pids_kept": played.pids_kept,
        "pids_lost": played.pids_lost,
        "load": round(statistics.median(played.loads), 1),
    }
    if ledger is not None:
        found |= {"samples_lost": ledger.samples_lost, "samples_repeated": ledger.samples_repeated, "exact": ledger.exact}
    return found


def judge(run: Run) -> int:
    """The exit status."""
    ours = run.table.get(OURS)
    if ours is not None and (ours["goodput"] < GOAL or not ours.get("exact")):
        return BROKEN
    return FAILED if None in run.table.values() else KEPT


def table_lines(run: Run) -> list[str]:
    """For people."""
    lines = []
    for name, found in run.table.items():
        if found is None:
            lines.append(f"{name}: not measured")
            continue
        events = ", ".join(
            f"{event} {one['median_seconds']:.2f} ({one['largest_seconds']:.2f})" for event, one in found["events"].items()
        )
        lines.append(
            f"{name}: goodput {100 * found['goodput']:.1f} %, {found['steps']} of {found['ideal_steps']:.0f} steps, "
            f"{found['steps_redone']} redone; seconds without a step, median (largest): {events}"
        )
    return lines + [f"{name}: {reason}" for name, reasons in run.reasons.items() for reason in reasons]


def main(arguments: Sequence[str]) -> int:
    """Returns the exit status."""
    settings, began = read_settings(arguments), time.monotonic()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    status = FAILED
    folder = Path(tempfile.mkdtemp(prefix="ebb-goodput-"))
    run = Run(settings, folder)
    try:
        run.measure()
        status = judge(run)
        for line in table_lines(run):
            say(line)
        facts = {
            "reasons": run.reasons,
            "goal": GOAL,
            "minutes": settings.minutes,
            "every_seconds": settings.every,
            "seed": settings.seed,
            "state_megabytes": settings.megabytes,
            "at_once": settings.at_once,
            "cores": os.cpu_count(),
            "took_seconds": round(time.monotonic() - began, 1),
        }
        print(json.dumps({**run.table, **facts}), flush=True)
    except (BenchmarkError, BoxError) as error:
        print(f"it could not be measured: {error}", file=sys.stderr)
    except (KeyboardInterrupt, GivenUpError):
        say("interrupted")
        status = INTERRUPTED
    finally:
        if status in (KEPT, INTERRUPTED):
            shutil.rmtree(folder, ignore_errors=True)
        else:
            print(f"logs are in {folder}", file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
