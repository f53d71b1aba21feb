"""Breaks everything under several jobs, and says which promises were broken with it: `python -m benchmarks.chaos`."""

import argparse
import asyncio
import json
import shutil
import signal
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from benchmarks.chaos.actions import KINDS
from benchmarks.chaos.history import HistoryError, read
from benchmarks.chaos.judge import judge
from benchmarks.chaos.run import ChaosSettings, play
from benchmarks.chaos.stack import IN_CONTROLLERS, IN_WORKERS, Stack
from benchmarks.controller.processes import BenchmarkError
from devcluster.commands import say
from devcluster.settings import CHECKOUT, BoxError
from ebb.kube import KubeError

KEPT, BROKEN, FAILED, INTERRUPTED = 0, 1, 2, 130
PLANTS = (*IN_WORKERS, *IN_CONTROLLERS)
# What a planted fault needs to show.
SHOWS = {"fencing": ("zombie",), "budget": ("machine", "reclaim"), "sampler": ("machine", "notice")}
HELP = f"""\
A devcluster of its own with the local stack on it. Two jobs at a time, of one or two workers, train on CPUs with a ledger of
every sample; of four one has a program that fails. Meanwhile things break, for a moment or for as long as the seed says:

{chr(10).join(f"  {name:12}{kind.what}{'' if kind.cards else ' (only where asked for)'}" for name, kind in KINDS.items())}

All that is seen goes into a history, and the judge reads nothing else: --judge judges one again. It demands that every job
ends as planned, every sample is used once, the budget of failures is charged for failures alone, nothing of an older generation
is committed after a newer one, the platform is whole again, and `ebb cost` is the devcluster's own bill.

--plant breaks the product itself, in processes of this devcluster alone: fencing (checkpoints are committed whatever generation
etcd has), budget (reclaims are charged as failures), sampler (off by one). Violations must be found then.

It needs root on Linux, two cores and about 6 GB. The last line is one JSON object.

exit status: 0 every promise is kept, 1 one is broken (the last lines say which), 2 it could not be run, or what was planted was
not found, 130 interrupted
"""


def read_settings(arguments: Sequence[str]) -> tuple[ChaosSettings, Path | None]:
    """The only reader of argv; the second is a history that is to be judged again."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.chaos", description=__doc__, epilog=HELP, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=600.0, help="in which things break (default: %(default)g)")
    parser.add_argument("--seed", type=int, default=1, help="draws jobs and what breaks (default: %(default)d)")
    parser.add_argument("--plant", choices=PLANTS, default="", help="break the product, which must be found")
    parser.add_argument("--only", metavar="KIND,KIND", default="", help="of those below (default: all, or what shows the plant)")
    parser.add_argument("--history", metavar="FILE", type=Path, help="(default: build/chaos-SEED.jsonl)")
    parser.add_argument("--judge", metavar="HISTORY", type=Path, help="run nothing: judge this one again")
    given = parser.parse_args(arguments)
    only = tuple(word for word in given.only.split(",") if word) or SHOWS.get(given.plant, ())
    for word in only:
        if word not in KINDS:
            parser.error(f"--only {word!r} is none of {', '.join(KINDS)}")
    if given.seconds < 60:
        parser.error(f"--seconds {given.seconds:g} must be 60 or more: less breaks next to nothing")
    name = "-".join(["chaos", str(given.seed), *([given.plant] if given.plant else [])])
    settings = ChaosSettings(
        seconds=given.seconds,
        seed=given.seed,
        plant=given.plant,
        only=only,
        history=given.history or CHECKOUT / "build" / f"{name}.jsonl",
        folder=Path(tempfile.mkdtemp(prefix="ebb-chaos-")),
    )
    return settings, given.judge


def run(settings: ChaosSettings) -> None:
    """Raises BenchmarkError, BoxError, KubeError, or a group of them."""
    say("a devcluster and the stack on it: some two minutes, or ten where its tools have to be built first")
    with Stack(settings.folder, planted=settings.plant).up() as stack:
        asyncio.run(play(settings, stack))


def report(history: Path) -> int:
    """Judge it, and print the last lines; returns the exit status. Raises HistoryError."""
    records = read(history)
    verdict, plant = judge(records), records[0]["plant"]
    for violation in verdict.violations:
        say(f"VIOLATION {violation}")
    if plant and not verdict.violations:
        say(f"{plant} was planted, and nothing was found: play it for longer, or with another seed, so that what breaks meets it")
    figures = asdict(verdict)
    first = {name: figures.pop(name) for name in ("seed", "events", "violations", "samples_lost", "samples_repeated")}
    print(json.dumps(first | figures | {"history": str(history)}), flush=True)
    return BROKEN if verdict.violations else FAILED if plant else KEPT


def main(arguments: Sequence[str]) -> int:
    """Returns the exit status."""
    settings, judged = read_settings(arguments)
    for number in (signal.SIGTERM, signal.SIGINT):  # the second: a shell ignores it for what it runs in the background
        signal.signal(number, signal.default_int_handler)
    try:
        if judged is None:
            run(settings)
        return report(judged or settings.history)
    except* (BenchmarkError, BoxError, KubeError, HistoryError) as errors:
        print("it could not be run:", *map(str, _leaves(errors)), sep="\n", file=sys.stderr)
        return_code = FAILED
    except* KeyboardInterrupt:
        say("interrupted; everything is stopped")
        return_code = INTERRUPTED
    finally:
        shutil.rmtree(settings.folder, ignore_errors=True)
    return return_code


def _leaves(group: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    return [leaf for one in group.exceptions for leaf in (_leaves(one) if isinstance(one, BaseExceptionGroup) else [one])]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
