"""Many members of one job on this machine, each a process of its own without a trainer: how long do they need to meet?

    python -m tests.elastic.rendezvous.scale --version 3.6 --members 64 --lost 20

All are started at once and meet; then so many of them are killed (-9) at once, rank 0 among them, and the others meet again. Both
times every member exchanges its name with all others through the store of the generation, which fails where two have different
ideas of it. The last line of standard output is JSON.
"""

import argparse
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.elastic.rendezvous.machine import Machines
from tests.elastic.rendezvous.servers import VERSIONS, Server, built

LIMIT_SECONDS = 300.0


@dataclass(frozen=True, kw_only=True)
class Scale:
    """`start_seconds`: until all processes are there, which is no matter of the rendezvous; `form_seconds`: from then on;
    `survive_seconds`: from the first kill. Both until the last member is in."""

    version: str
    members: int
    start_seconds: float
    form_seconds: float
    lost: int
    survive_seconds: float
    generations: int  # from the first one to that of the survivors
    load: float  # average of this machine in the last minute, at the end


def gather(version: str, folder: Path, members: int, lost: int) -> Scale:
    """Raises AssertionError where they do not meet, or not all of them and no others."""
    server = Server(built(version), folder).start()
    planned = {"EBB_PLANNED_WORKERS": str(members)}  # all of them meet in the first generation
    machines = Machines(server.endpoint, folder, planned, size=f"1:{members}", last_call_timeout=LIMIT_SECONDS)
    names = [f"m{number:02}" for number in range(members)]
    try:
        began = time.time()
        for name in names:
            machines.start(name)
        first = machines.together(*names, limit_seconds=LIMIT_SECONDS)
        there = max(machines[name].path.with_suffix(".begun").stat().st_mtime for name in names)
        formed = max(_entered(machines, name) for name in names)
        by_rank = sorted(names, key=lambda name: int(machines[name].last()["rank"]))
        killed = time.time()
        for name in by_rank[:lost]:
            machines[name].signal(signal.SIGKILL)
        last = machines.together(*by_rank[lost:], limit_seconds=LIMIT_SECONDS)
        survived = max(_entered(machines, name) for name in by_rank[lost:])
        return Scale(
            version=version,
            members=members,
            start_seconds=round(there - began, 2),
            form_seconds=round(formed - there, 2),
            lost=lost,
            survive_seconds=round(survived - killed, 2),
            generations=last - first,
            load=round(os.getloadavg()[0], 1),
        )
    finally:
        machines.kill_quietly()
        server.kill()


def _entered(machines: Machines, name: str) -> float:
    return float(machines[name].last()["time"])


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--version", choices=sorted(VERSIONS), default="3.6")
    parser.add_argument("--members", type=int, default=64)
    parser.add_argument("--lost", type=int, default=20)
    given = parser.parse_args(arguments)
    if not 0 < given.lost < given.members:
        parser.error(f"--lost {given.lost} must leave some of --members {given.members}, and take one at least")
    with tempfile.TemporaryDirectory(prefix="ebb-scale-", ignore_cleanup_errors=True) as folder:
        print(json.dumps(asdict(gather(given.version, Path(folder), given.members, given.lost))), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
