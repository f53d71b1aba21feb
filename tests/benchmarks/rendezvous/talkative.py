"""For version 3.6 it prints a MiB and makes a file; for another one it waits 30 s at most for that file. Then one JSON line."""

import argparse
import json
import sys
import time
from pathlib import Path

MIB = 2**20

parser = argparse.ArgumentParser()
parser.add_argument("--done", type=Path)
parser.add_argument("--version")
given = parser.parse_args()
if given.version == "3.6":
    print("\n".join(["x" * 79] * (MIB // 80)), flush=True)
    given.done.touch()
deadline = time.monotonic() + 30
while not given.done.exists():
    if time.monotonic() > deadline:
        sys.exit("the other one has not finished")
    time.sleep(0.05)
print(json.dumps({"version": given.version}))
