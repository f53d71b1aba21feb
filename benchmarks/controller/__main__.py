"""Compares our controller with Kubeflow's and JobSet, and judges what we promise: `python -m benchmarks.controller`."""

import argparse
import asyncio
import json
import shutil
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from benchmarks.controller import figures as kept
from benchmarks.controller import scenarios
from benchmarks.controller.contenders import CONTENDERS, Contender, installed
from benchmarks.controller.figures import Figures
from benchmarks.controller.fleet import Fleet, machines
from benchmarks.controller.load import Bench, Sizes
from benchmarks.controller.plane import Plane
from benchmarks.controller.processes import BenchmarkError
from devcluster.commands import locked, say
from devcluster.settings import CHECKOUT, EBB_HOME, BoxError
from ebb.kube import KubeError

EVERYDAY, LARGE = ("create", "many", "replace", "nodes"), ("full", "wide", "waiting")
SIZES = {"everyday": EVERYDAY, "large": LARGE, "all": (*EVERYDAY, *LARGE)}
SCENARIOS = {name: getattr(scenarios, name) for name in SIZES["all"]}
SLOW = "shipped"  # makes 20 calls a second: ten thousand pods would take it 20 minutes
MACHINES, LARGE_MACHINES = 40, 100  # with room for 110 pods: 1280 and 2000 fit, and 10,000
KEPT, BROKEN, FAILED, INTERRUPTED = 0, 1, 2, 130
HELP = """\
It starts a real etcd, API server, controller manager and scheduler, and 40 machines that pretend to run pods (kwok). Then our
controller, Kubeflow's training-operator v1.9.3 tuned, the same as shipped, and JobSet v0.12.0 get the same work, one after the
other:

  create    20 jobs of 64 workers: from the first submission until all 1280 pods are created, and until all run
  many      500 jobs of 4 workers: the same, and the controller's memory while idle, at most, and afterwards
  replace   30 of 128 running workers are deleted at once, 5 times: from each one's end to its replacement's creation
  nodes     5 machines are deleted, and 5 fall silent, one by one: until each one's worker is created again

With --sizes large, or all, beside these; the operator as shipped is left out, as 10,000 pods would take it 20 minutes:

  full      200 jobs of 50 workers: the same as `create`, the controller's memory, and 30 workers lost of 10,000
  wide      one job of 1,000 workers: the same
  waiting   5,000 jobs that wait: processor time and memory while they do, and workers of one that runs lost one by one

A JobSet has one Indexed Job, so Kubernetes' own Job controller makes its pods: API calls of that one count with JobSet's, its
memory does not. It may make 2,000 calls a second here (Kubernetes' default: 20), as all of the control plane. Its wait before
it replaces a failed pod (10 s, doubled by each failure of the same index) is part of the figures. No webhook is called: neither
the operator's, nor JobSet's, whose defaults are written in the job instead. No promise is about JobSet.

Progress goes to standard output; its last line is one JSON object. A figure of Kubeflow begins with kubeflow_ (as shipped) or
kubeflow_tuned_, one of JobSet with jobset_; null means that the cap came first. The first run builds Kubernetes, etcd, kwok, the
operator and JobSet with Go (about 8 minutes); everything else takes about 35 minutes, with --sizes all longer. A run that was
interrupted goes on with --resume: what was measured is in .ebb/benchmarks/controller-measured.json. Nothing outside .ebb changes
but a folder in /tmp, which is removed again.
Run it on a machine that does nothing else: the seconds depend on the machine, which of two is faster hardly does.

exit status: 0 every promise that was measured is kept, 1 one is broken, 2 it could not be measured, 130 interrupted
"""


@dataclass(frozen=True, kw_only=True)
class BenchSettings:
    """Options of the command line."""

    scenarios: tuple[str, ...]
    contenders: tuple[Contender, ...]
    sizes: Sizes
    repeat: int
    resume: bool
    cap_seconds: float
    checkout: Path


def read_settings(arguments: Sequence[str]) -> BenchSettings:
    """The only reader of argv."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.controller",
        description="How fast and how small is our controller beside Kubeflow's and JobSet?",
        epilog=HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    known = [contender.name for contender in CONTENDERS]
    parser.add_argument("--sizes", choices=SIZES, default="everyday", help="which scenarios (default: %(default)s)")
    parser.add_argument("--only", metavar="A,B", help=f"of {','.join(SCENARIOS)}, instead of --sizes")
    parser.add_argument(
        "--contenders", metavar="A,B", default=",".join(known), help=f"of {','.join(known)}, in this order (default: all)"
    )
    parser.add_argument("--jobs", metavar="N", type=int, default=Sizes.jobs, help="jobs of `create`, all else in proportion; "
                        "names of figures change with it, and promises about full size are not judged (default: 20)")  # fmt: skip
    parser.add_argument("--repeat", metavar="N", type=int, default=1, help="rounds, of which medians are reported (default: 1)")
    parser.add_argument("--cap", metavar="SECONDS", type=float, default=120.0, help="how long the worker of a dead machine is "
                        "waited for (default: %(default)g)")  # fmt: skip
    parser.add_argument("--resume", action="store_true", help="go on with an interrupted run of the same options")
    parser.add_argument(
        "--ours", metavar="FOLDER", type=Path, default=CHECKOUT, help="measure the controller of another checkout"
    )
    given = parser.parse_args(arguments)
    chosen, rivals = given.only.split(",") if given.only else SIZES[given.sizes], given.contenders.split(",")
    for option, words, allowed in (("--only", chosen, list(SCENARIOS)), ("--contenders", rivals, known)):
        for word in words:
            if word not in allowed:
                parser.error(f"{option} {word!r} is none of {', '.join(allowed)}")
    if not 1 <= given.jobs <= Sizes.jobs:
        parser.error(f"--jobs {given.jobs} is not between 1 and {Sizes.jobs}")
    if given.repeat < 1:
        parser.error(f"--repeat {given.repeat} is less than 1")
    return BenchSettings(
        scenarios=tuple(name for name in SCENARIOS if name in chosen),
        contenders=tuple(contender for word in rivals for contender in CONTENDERS if contender.name == word),
        sizes=Sizes.scaled(given.jobs),
        repeat=given.repeat,
        resume=given.resume,
        cap_seconds=given.cap,
        checkout=given.ours.resolve(),
    )


async def measure(settings: BenchSettings) -> Figures:
    """All figures. Raises BenchmarkError, BoxError, KubeError."""
    folder = EBB_HOME / "benchmarks" / "controller"
    async with locked(folder.with_suffix(".lock"), "the benchmark"), AsyncExitStack() as opened:
        shutil.rmtree(folder, ignore_errors=True)  # kept after a run for its logs
        folder.mkdir(mode=0o700)
        plane = await opened.enter_async_context(Plane.started(folder))
        fleet = await opened.enter_async_context(Fleet.started(plane))
        await opened.enter_async_context(installed(plane, settings.contenders, settings.checkout))
        count = LARGE_MACHINES if set(settings.scenarios) & set(LARGE) else MACHINES
        await fleet.add(machines("main", count))
        say("warming the API server up")
        await plane.warm_up()
        say(f"the control plane and {count} machines are up; logs are in {folder}")
        bench = Bench(
            plane=plane, fleet=fleet, checkout=settings.checkout, sizes=settings.sizes, cap_seconds=settings.cap_seconds
        )
        measured = Measured.opened(folder.with_name("controller-measured.json"), settings)
        found: Figures = {}
        for name in settings.scenarios:
            contenders = [one for one in settings.contenders if name in EVERYDAY or one.name != SLOW]
            # In turns, so that a machine that is busy for a while hinders all alike.
            rounds = [
                (contender, await measured.once(f"{name} {contender.name} {number}", SCENARIOS[name], bench, contender))
                for number in range(settings.repeat)
                for contender in contenders
            ]
            for contender in contenders:
                figures = kept.median([one for whose, one in rounds if whose is contender])
                found |= {contender.prefix + figure: value for figure, value in figures.items()}
        return found


class Measured:
    """Figures of the scenarios that are done, in a file: another run of the same options goes on from there."""

    def __init__(self, file: Path, options: str, figures: dict[str, Figures]) -> None:
        self._file, self._options, self._figures = file, options, figures

    @classmethod
    def opened(cls, file: Path, settings: BenchSettings) -> "Measured":
        """Empty, unless the settings ask for what is there and the run that wrote it had the same."""
        options = repr((settings.sizes, settings.cap_seconds, settings.checkout))
        if settings.resume and file.exists():
            written = json.loads(file.read_text())
            if written["options"] == options:
                return cls(file, options, written["figures"])
            raise BenchmarkError(f"{file} is of a run with other options: leave --resume out to begin anew")
        return cls(file, options, {})

    async def once(
        self, name: str, scenario: Callable[[Bench, Contender], Awaitable[Figures]], bench: Bench, contender: Contender
    ) -> Figures:
        """The figures of this scenario, measured now where they are not there."""
        if name not in self._figures:
            self._figures[name] = await scenario(bench, contender)
            new = self._file.with_suffix(".new")
            new.write_text(json.dumps({"options": self._options, "figures": self._figures}))
            new.replace(self._file)
        else:
            say(f"{name}: measured before")
        return self._figures[name]


async def run(settings: BenchSettings) -> int:
    """Measure until told to stop; returns the exit status."""
    work = asyncio.create_task(measure(settings))
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, work.cancel)
    try:
        found = await work
    except asyncio.CancelledError:
        say("interrupted; everything is stopped")
        return INTERRUPTED
    except (BenchmarkError, BoxError, KubeError) as error:
        print(f"it could not be measured: {error}", file=sys.stderr)
        return FAILED
    verdicts = kept.judge(found)
    for line in kept.report(verdicts):
        say(line)
    print(kept.last_line(found, verdicts), flush=True)
    return BROKEN if any(verdict.kept is False for verdict in verdicts) else KEPT


if __name__ == "__main__":
    sys.exit(asyncio.run(run(read_settings(sys.argv[1:]))))
