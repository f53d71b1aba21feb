"""A command for the tests of the host: says, raises, waits, or has a child from a fork server."""

import atexit
import multiprocessing
import os
import signal
import sys
import threading
from typing import Any


def leave(_number: int, _frame: Any) -> None:
    sys.exit(138)


def child() -> None:
    loaded = "json is loaded" if "json" in sys.modules else "json is missing"
    print(f"in a child: {loaded}, {threading.active_count()} thread", flush=True)
    sys.exit(3)


def main(arguments: list[str]) -> int:
    if arguments[0] == "say":
        atexit.register(lambda: print("atexit", flush=True))
        print(arguments[1], os.environ["WORD"], flush=True)
        return 7
    if arguments[0] == "raise":
        return 1 // 0
    if arguments[0] == "wait":
        signal.signal(signal.SIGTERM, leave)
        print("waiting", flush=True)
        signal.pause()
    process = multiprocessing.get_context("forkserver").Process(target=child)
    process.start()
    process.join()
    print(f"child ended with {process.exitcode}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
