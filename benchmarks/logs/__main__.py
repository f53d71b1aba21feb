"""Two pods lost among four ranks that write 1,000 lines/s each, and every line counted: `python -m benchmarks.logs`."""

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
from benchmarks.logs.run import Settings, run
from devcluster.commands import say

KEPT, BROKEN, FAILED, INTERRUPTED = 0, 1, 2, 130
HELP = """\
Two pods of two ranks each: real launchers, whose output volume is a folder. `ebb logs -f` follows them through the real gateway
from the start; the API server is a stand-in that has the pods and their logs. One pod after the other is killed (-9: launcher and
ranks, all standing still first) and replaced. Then the job is over, `ebb logs -f` ends, and `ebb logs` is read.

What both must show: every line whose write to the volume has returned, once and in the order of its rank's stream; every line of
the ranks that nobody killed; and nothing else. Which writes have returned is written down by the launchers' own os.write, in a
ledger beside the volume. The checker is tested besides: a line that is taken away or doubled must be found.

Lines that were on their way to the launcher when it was killed are `lines_only_in_pipes`: no write for them has returned. What a
network file system may lose of those for which it has, when a machine dies, is written in ebb/elastic/launch/logs; a folder of
this machine loses nothing of them by a kill.

The last line is one JSON object.

exit status: 0 the promise is kept, 1 it is broken (logs are kept), 2 it could not be run, 130 interrupted
"""


def read_settings(arguments: Sequence[str]) -> Settings:
    """The only reader of argv."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.logs", description=__doc__, epilog=HELP, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", metavar="S", type=float, default=60.0, help="(default: %(default)g)")
    parser.add_argument("--rate", metavar="N", type=float, default=1000.0, help="lines a second and rank (default: %(default)g)")
    parser.add_argument("--no-cost", action="store_true", help="do not measure the launcher's CPU time a line (30 s)")
    given = parser.parse_args(arguments)
    if given.seconds <= 0 or given.rate <= 0:
        parser.error(f"--seconds {given.seconds:g} and --rate {given.rate:g} must be more than 0")
    folder = Path(tempfile.mkdtemp(prefix="ebb-logs-"))
    return Settings(seconds=given.seconds, rate=given.rate, cost=not given.no_cost, folder=folder)


def main(arguments: Sequence[str]) -> int:
    """Returns the exit status."""
    settings = read_settings(arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    status = FAILED
    try:
        figures, problems = asyncio.run(run(settings))
        status = BROKEN if problems else KEPT
        for problem in problems:
            say(f"BROKEN: {problem}; its files: {settings.folder}")
        print(json.dumps(figures | {"broken": problems}), flush=True)
    except BenchmarkError as error:
        print(f"it could not be run; logs are in {settings.folder}: {error}", file=sys.stderr)
    except KeyboardInterrupt:
        say("interrupted")
        status = INTERRUPTED
    finally:
        if status in (KEPT, INTERRUPTED):
            shutil.rmtree(settings.folder, ignore_errors=True)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
