"""Lives through a week of jobs in an hour, and says whether all of them came to the end that a small model predicts."""

import argparse
import asyncio
import json
import shutil
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.controller.processes import BenchmarkError
from benchmarks.week.kinds import KINDS
from benchmarks.week.run import Figures, WeekSettings, run
from devcluster.commands import say
from devcluster.settings import CHECKOUT, BoxError
from ebb.kube import KubeError

AGREES, DIFFERS, FAILED, INTERRUPTED = 0, 1, 2, 130
HELP = """\
A real etcd, API server, scheduler and controller manager, machines that pretend to run pods (kwok), and the real controller in a
process of its own. Jobs of 1 to 16 workers come in; each has its scenario drawn from the seed: it succeeds, its program fails, it
is suspended, scaled, deleted, never starts, is too late or too dear. Meanwhile machines boot in seconds that stand for minutes,
are taken back with notice, without, and silently; zones run out of machines; the controller is killed and started again.

What every job must come to is predicted before, from its scenario alone. The last line is one JSON object; `violations` lists
where the cluster was not as predicted, or was at any moment what it must never be.

exit status: 0 all is as predicted, 1 it is not (logs are kept, the last lines say where), 2 it could not be run, 130 interrupted
"""


def read_settings(arguments: Sequence[str]) -> WeekSettings:
    """The only reader of argv."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.week", description=__doc__, epilog=HELP, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=300, help="(default: %(default)d)")
    parser.add_argument("--minutes", type=float, default=60.0, help="in which they come and go (default: %(default)g)")
    parser.add_argument("--seed", type=int, default=1, help="draws jobs, scenarios and the cloud's moods (default: %(default)d)")
    parser.add_argument("--only", metavar="KIND,KIND", default="", help=f"of {', '.join(KINDS)} (default: all)")
    parser.add_argument("--ours", metavar="FOLDER", type=Path, default=CHECKOUT, help="run the controller of another checkout")
    given = parser.parse_args(arguments)
    only = tuple(word for word in given.only.split(",") if word)
    for word in only:
        if word not in KINDS:
            parser.error(f"--only {word!r} is none of {', '.join(KINDS)}")
    if given.jobs < 1 or given.minutes < 1:
        parser.error(f"--jobs {given.jobs} and --minutes {given.minutes:g} must both be at least 1")
    folder = Path(tempfile.mkdtemp(prefix="ebb-week-"))
    return WeekSettings(
        jobs=given.jobs, minutes=given.minutes, seed=given.seed, only=only, checkout=given.ours.resolve(), folder=folder
    )


async def play(settings: WeekSettings) -> int:
    """Until the end, or until told to stop; returns the exit status."""
    work = asyncio.create_task(run(settings))
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, work.cancel)
    try:
        return report(await work, settings)
    except asyncio.CancelledError:
        say("interrupted; everything is stopped")
        return INTERRUPTED


def report(figures: Figures, settings: WeekSettings) -> int:
    """Print the last line; returns the exit status."""
    if figures["violations"]:
        say(f"logs are kept in {settings.folder}")
    print(json.dumps(figures), flush=True)
    return DIFFERS if figures["violations"] else AGREES


def main(arguments: Sequence[str]) -> int:
    """Returns the exit status."""
    settings = read_settings(arguments)
    status = FAILED
    try:
        status = asyncio.run(play(settings))
    except* (BenchmarkError, BoxError, KubeError) as errors:
        print(f"it could not be run; logs are kept in {settings.folder}:", *_each(errors), sep="\n", file=sys.stderr)
    finally:
        if status in (AGREES, INTERRUPTED):
            shutil.rmtree(settings.folder, ignore_errors=True)
    return status


def _each(errors: BaseExceptionGroup[Exception]) -> list[str]:
    """The errors, as texts, out of groups in groups."""
    parts = [_each(one) if isinstance(one, BaseExceptionGroup) else [str(one)] for one in errors.exceptions]
    return [text for part in parts for text in part]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
