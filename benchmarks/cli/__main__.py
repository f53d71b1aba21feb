"""Measures how long `ebb` takes, and says whether what we promise is kept: `python -m benchmarks.cli`."""

import argparse
import asyncio
import shutil
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.cli.measure import in_turns, middle, output
from benchmarks.cli.plane import JOBS_NAMESPACE, jobs_on_a_plane
from benchmarks.controller.figures import Figures, Promise, judge, last_line, report
from benchmarks.controller.processes import BenchmarkError
from devcluster import tools
from devcluster.commands import locked, say
from devcluster.settings import EBB_HOME, BoxError
from ebb.kube import KubeError

KEPT, BROKEN, FAILED, INTERRUPTED = 0, 1, 2, 130
ROUNDS = 9
EBB, PYTHON = str(Path(sys.executable).with_name("ebb")), sys.executable
HELP_TIMES = 5.0  # of `python -c pass`
PROMISES = (
    Promise(figure="help_times", limit=HELP_TIMES, meaning=f"ebb --help takes at most {HELP_TIMES:g} times python -c pass"),
)
HELP = """\
  help   ebb --help beside python -c pass
  list   ebb list of 500 jobs beside kubectl get elasticjobs of the same, on a real API server and etcd without machines

Each is the median of whole processes that run in turns. Progress goes to standard output; its last line is one JSON object. The
first run builds Kubernetes and etcd with Go (about 5 minutes). Nothing outside .ebb changes.

exit status: 0 every promise that was measured is kept, 1 one is broken, 2 it could not be measured, 130 interrupted
"""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Arguments of the command line."""

    only: tuple[str, ...]
    jobs: int
    rounds: int


def read_settings(arguments: Sequence[str]) -> Settings:
    """The only reader of argv."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.cli",
        description="How long does a user wait for `ebb`?",
        epilog=HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", choices=("help", "list"), help="one of both (default: both)")
    parser.add_argument("--jobs", metavar="N", type=int, default=500, help="jobs on the API server (default: %(default)d)")
    parser.add_argument(
        "--rounds", metavar="N", type=int, default=ROUNDS, help="of which medians are taken (default: %(default)d)"
    )
    given = parser.parse_args(arguments)
    for option, value in (("--jobs", given.jobs), ("--rounds", given.rounds)):
        if value < 1:
            parser.error(f"{option} {value} is less than 1")
    return Settings(only=(given.only,) if given.only else ("help", "list"), jobs=given.jobs, rounds=given.rounds)


async def measure(settings: Settings) -> Figures:
    """All figures. Raises BenchmarkError, BoxError, KubeError."""
    folder = EBB_HOME / "benchmarks" / "cli"
    async with locked(folder.with_suffix(".lock"), "the benchmark"):
        shutil.rmtree(folder, ignore_errors=True)  # kept after a run for its logs
        folder.mkdir(mode=0o700, parents=True)
        found: Figures = {}
        if "help" in settings.only:
            found |= await _help(settings, folder)
        if "list" in settings.only:
            found |= await _list(settings, folder)
        return found


async def _help(settings: Settings, folder: Path) -> Figures:
    say(f"ebb --help and python -c pass, {settings.rounds} times each")
    took = await in_turns({"help": [EBB, "--help"], "pass": [PYTHON, "-c", "pass"]}, settings.rounds, folder=folder)
    ours, bare = middle(took["help"]), middle(took["pass"])
    say(f"ebb --help {ours:.3f} s, python -c pass {bare:.3f} s: {ours / bare:.2f} times as long")
    return {"help_seconds": ours, "python_seconds": bare, "help_times": round(ours / bare, 2)}


async def _list(settings: Settings, folder: Path) -> Figures:
    kubectl = str(await tools.ensure("kubernetes") / "kubectl")
    say(f"starting etcd and an API server, and making {settings.jobs} jobs")
    async with jobs_on_a_plane(folder, settings.jobs) as plane:
        access = {"EBB_KUBECONFIG": str(plane.kubeconfig), "KUBECONFIG": str(plane.kubeconfig), "HOME": str(folder)}
        commands = {"list": [EBB, "list"], "kubectl": [kubectl, "get", "elasticjobs", "-n", JOBS_NAMESPACE]}
        for name, command in commands.items():
            lines = (await output(command, **access)).splitlines()
            if len(lines) != settings.jobs + 1:
                raise BenchmarkError(f"{name} shows {len(lines) - 1} jobs of {settings.jobs}: {lines[:3]}")
        say(f"both show {settings.jobs} jobs; {settings.rounds} times each")
        took = await in_turns(commands, settings.rounds, folder=folder, **access)
    ours, theirs = middle(took["list"]), middle(took["kubectl"])
    say(f"ebb list {ours:.3f} s, kubectl get elasticjobs {theirs:.3f} s: {ours / theirs:.2f} times as long")
    return {f"list_{settings.jobs}_seconds": ours, "kubectl_seconds": theirs, "list_times": round(ours / theirs, 2)}


async def run(settings: Settings) -> int:
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
    verdicts = judge(found, PROMISES)
    for line in report(verdicts):
        say(line)
    print(last_line(found, verdicts), flush=True)
    return BROKEN if any(verdict.kept is False for verdict in verdicts) else KEPT


if __name__ == "__main__":
    sys.exit(asyncio.run(run(read_settings(sys.argv[1:]))))
