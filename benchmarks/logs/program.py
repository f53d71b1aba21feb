"""The program of each rank: numbered lines at a rate, until a file appears; how many of its writes have returned is in a file.

    RATE=1000 COUNTS=/tmp/counts STOP=/tmp/stop python program.py       # as a worker of ebb.elastic.launch

Every tenth line goes to stderr. It needs nothing but Python, so that a rank costs little.
"""

import mmap
import os
import struct
import sys
import time
from pathlib import Path

LOOK_SECONDS = 0.005
STDERR_OF = 10
PADDING = "loss 1.2345 lr 0.000100 samples/s 1234.5 and so on"


def main() -> None:
    pod, rank, rate = os.environ["EBB_POD_UID"], os.environ["LOCAL_RANK"], float(os.environ["RATE"])
    stop, written = Path(os.environ["STOP"]), counter(Path(os.environ["COUNTS"]) / f"{pod}.{rank}")
    began, number = time.monotonic(), 0
    while not stop.exists():
        while number < (time.monotonic() - began) * rate:
            stream = "err" if number % STDERR_OF == 0 else "out"
            print(f"{pod} {rank} {stream} {number} {PADDING}", file=sys.stderr if stream == "err" else sys.stdout)
            number += 1
            written[:8] = struct.pack("<q", number)
        time.sleep(LOOK_SECONDS)


def counter(path: Path) -> mmap.mmap:
    """Eight bytes that are there for others at once, also when this process is killed."""
    path.write_bytes(bytes(8))
    with path.open("r+b") as file:
        return mmap.mmap(file.fileno(), 8)


if __name__ == "__main__":
    main()
