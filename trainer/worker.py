"""The first function of a worker process that the launcher forks: run a Python module as `python -m` would.

Without torch's own `python -m` there is one process start less, and none of the imports; see warm.py.
"""

import multiprocessing
import runpy
import sys

from trainer import notice


def run_module(module: str, *arguments: str) -> None:
    """Run it as __main__ with these arguments; its exit code is that of the process (SystemExit)."""
    if module.partition(".")[0] == "trainer":
        notice.install()  # before anything else: a signal that comes now must not kill a worker that would have saved
    # a process of the fork server would start its own children through another one, with all its imports
    multiprocessing.set_start_method("fork", force=True)
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
