"""One rank of the storage's check. Rank 0 prints a line for each figure: the word ebb-storage, then JSON.

start      path, machines, sample_bytes
figure     operation, bytes, operations, bytes_per_second and per_second of all machines together, least_bytes_per_second: of one
end        through; without it the check was not finished

The files are in a folder of the volume that is removed at the end; a later check removes what one that was killed has left.
"""

from __future__ import annotations

import argparse
import os
import shutil
import socket
import sys
import time
from functools import partial
from pathlib import Path

from ebb.elastic.contract import EXIT_FINISHED, EXIT_PEER_LOST, EXIT_PROGRAM_FAILED, EXIT_RECLAIMED, STORAGE_LINE
from ebb.elastic.faults import Fault, fault_of
from ebb.elastic.notices.notice import install
from ebb.elastic.storagecheck.measure import OPERATIONS, SECONDS, Done, MachineFiles, run

_LEAVE_SECONDS = 2.0  # after a notice: there is nothing to save
_PREFIX, _OLD_SECONDS = ".ebb-storage-check-", 7200.0  # of a folder, and of one that nobody writes to any more


def main(arguments: list[str]) -> int:
    """Return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m ebb.elastic.storagecheck", description=__doc__)
    parser.add_argument("path", type=Path, help="where the volume is")
    parser.add_argument(
        "--sample-bytes", type=int, default=110_000, metavar="BYTES", help="size of small files (default: %(default)d)"
    )
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of each operation, at most (default: %(default)g)")
    asked = parser.parse_args(arguments)
    install().leave_within(_LEAVE_SECONDS, EXIT_RECLAIMED)
    try:
        check(asked.path, asked.sample_bytes, asked.seconds)
    except Exception as error:  # whatever torch raises
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        return EXIT_PEER_LOST if fault_of(str(error)) is Fault.PEER else EXIT_PROGRAM_FAILED
    return EXIT_FINISHED


def check(path: Path, sample_bytes: int, seconds: float) -> None:
    """Measure all of it, together with the other ranks."""
    import torch  # noqa: PLC0415 - it takes seconds, and a wrong argument none

    from ebb.elastic.netcheck.measure import Ranks  # noqa: PLC0415

    ranks = Ranks.meet(torch.device("cpu"))
    measures = os.environ.get("LOCAL_RANK", "0") == "0"
    places = [rank for rank, one in enumerate(ranks.gather(measures)) if one]
    folder = ranks.gather(str(path / f"{_PREFIX}{socket.gethostname()}-{os.getpid()}"))[0]
    mine = theirs = MachineFiles(Path(folder), sample_bytes=sample_bytes)
    if measures:
        number = places.index(ranks.rank)
        mine, theirs = (
            MachineFiles(Path(folder, str(one % len(places))), sample_bytes=sample_bytes) for one in (number, number + 1)
        )
    say = partial(ranks.tell, STORAGE_LINE)
    try:
        if ranks.rank == 0:
            _tidy(path)
        if measures:
            mine.folder.mkdir(parents=True)
        say("start", path=str(path), machines=len(places), sample_bytes=sample_bytes)
        for operation in OPERATIONS:
            ranks.agree(0.0)  # all begin together, and nobody reads what is not there yet
            done = run(operation, mine, theirs, seconds=seconds) if measures else None
            say("figure", operation=operation, **_sum([one for one in ranks.gather(done and tuple(done)) if one]))
    finally:
        if measures:
            shutil.rmtree(mine.folder, ignore_errors=True)
    ranks.agree(0.0)  # nobody's connections close, and no folder goes, before all are through
    if ranks.rank == 0:
        shutil.rmtree(folder, ignore_errors=True)
    say("end")


def _sum(told: list[tuple[int, int, float]]) -> dict[str, float]:
    every = [Done(*one) for one in told]
    return {
        "bytes": sum(one.bytes for one in every),
        "operations": sum(one.operations for one in every),
        "bytes_per_second": sum(one.bytes / one.seconds for one in every),
        "per_second": sum(one.operations / one.seconds for one in every),
        "least_bytes_per_second": min(one.bytes / one.seconds for one in every),
    }


def _tidy(path: Path) -> None:
    """Remove what a killed check has left."""
    for folder in path.glob(f"{_PREFIX}*"):
        if time.time() - folder.stat().st_mtime > _OLD_SECONDS:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    from ebb.elastic.runtime.main import end_process

    end_process(main(sys.argv[1:]))
