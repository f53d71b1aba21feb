"""Five hundred histories of machines that come and go, and every sample counted: `python -m benchmarks.exact`."""

import argparse
import json
import shutil
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.controller.processes import BenchmarkError
from benchmarks.exact.history import LARGEST_WORLD, RECOVERIES
from benchmarks.exact.judge import TOLERANCE
from benchmarks.exact.run import Settings, histories, run
from devcluster.commands import say
from devcluster.settings import BoxError

KEPT, BROKEN, FAILED, INTERRUPTED = 0, 1, 2, 130
HELP = f"""\
Each history trains a small network on loopback with real launchers, a real etcd and gloo, while machines join, leave with notice
(SIGTERM) and are killed (-9: a process, a machine, that of rank 0, all of them), 3 to 5 events at moments drawn from the seed, at
world sizes of 1 to {LARGEST_WORLD}, with 1 to 4 processes a machine. Some of the events come while the job still recovers from
the last one. What is left goes on in memory (--recovery memory), or starts anew from a checkpoint (restart): the seed says which,
and each has about 1,000 events. `--agents` of the histories start every launcher from nothing; in the others launchers and
workers are forked from a process that has torch loaded, and run the same code.

What every history must show: along the lineage of the final weights no sample of any epoch is lost or repeated, and every step
holds the global batch; steps are done again only after a kill, or where a machine got no processor time for so long that the
others took it for dead (left_behind counts these), and at most those since the last checkpoint (every second here);
the loss of every step, and the validation at the end, are those of the undisturbed run within {TOLERANCE}; with virtual workers
(three histories of ten, with BatchNorm or dropout) the weights are the same, bit for bit; every machine ends with the right exit
code. In memory, besides: a process that no event has hit is still there; a checkpoint is read, and more than the step under way
is done again, only where no process was left that had trained. The checker is tested on each ledger: samples that are dropped,
doubled or replaced in it must be found.

What is done is kept in .ebb/exact for this very code, so that a run that was interrupted goes on where it was. With --seed it
begins there and plays each anew. The last line is one JSON object.

exit status: 0 every promise is kept, 1 one is broken (logs are kept, the last lines say where and how to repeat it), 2 it could
not be run, 130 interrupted
"""


def read_settings(arguments: Sequence[str]) -> Settings:
    """The only reader of argv."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.exact", description=__doc__, epilog=HELP, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", metavar="N", type=int, help="begin with this history, and play those that are done anew")
    parser.add_argument("--histories", metavar="N", type=int, default=500, help="(default: %(default)d)")
    parser.add_argument(
        "--recovery", choices=["both", *RECOVERIES], default="both", help="of all histories (default: %(default)s)"
    )
    parser.add_argument("--events", metavar="N", type=int, help="of each history (default: 3 to 5, by the seed)")
    parser.add_argument("--agents", metavar="N", type=int, help="how many of them start launchers from nothing (default: 1 of 6)")
    parser.add_argument("--at-once", metavar="N", type=int, default=3, help="histories played at a time (default: %(default)d)")
    given = parser.parse_args(arguments)
    agents = -(-given.histories // 6) if given.agents is None else given.agents
    for name in ("histories", "at_once", "events"):
        if (number := getattr(given, name)) is not None and number < 1:
            parser.error(f"--{name.replace('_', '-')} {number} is not 1 or more")
    if not 0 <= agents <= given.histories:
        parser.error(f"--agents {agents} is not between 0 and --histories {given.histories}")
    return Settings(
        first=given.seed or 1,
        histories=given.histories,
        recovery=None if given.recovery == "both" else given.recovery,
        events=given.events,
        agents=agents,
        at_once=given.at_once,
        resume=given.seed is None,
        folder=Path(tempfile.mkdtemp(prefix="ebb-exact-")),
    )


def main(arguments: Sequence[str]) -> int:
    """Returns the exit status."""
    settings = read_settings(arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    status = FAILED
    try:
        figures, broken = run(settings)
        status = BROKEN if broken else KEPT
        for seed, problems in sorted(broken.items()):
            history = next(history for history in histories(settings) if history.seed == seed)
            say(f"BROKEN, seed {seed}: {'; '.join(problems)}")
            say(f"  its logs: {settings.folder}/exact-{seed}; repeat it: "
                f"python -m benchmarks.exact --seed {seed} --histories 1 --agents {int(history.agents)} "
                f"--recovery {history.recovery}{f' --events {settings.events}' if settings.events else ''}")  # fmt: skip
        print(json.dumps(figures | {"broken": sorted(broken)}), flush=True)
    except (BenchmarkError, BoxError) as error:
        print(f"it could not be run; logs are in {settings.folder}: {error}", file=sys.stderr)
    except KeyboardInterrupt:
        say("interrupted; what is done is kept")
        status = INTERRUPTED
    finally:
        if status in (KEPT, INTERRUPTED):
            shutil.rmtree(settings.folder, ignore_errors=True)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
