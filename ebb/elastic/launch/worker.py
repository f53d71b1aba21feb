"""The first function of a worker process that the launcher forks: run a Python module as `python -m` would.

Without torch's own `python -m` there is one process start less, and none of the imports; see preload.py.
"""

import multiprocessing
import os
import runpy
import sys
import traceback

from ebb.elastic.launch import trackers
from ebb.elastic.launch.logs import rank
from ebb.elastic.launch.settings import is_ours
from ebb.elastic.notices import notice


def run_module(module: str, *arguments: str) -> None:
    """Run it as __main__ with these arguments; its exit code is that of the process (SystemExit)."""
    if is_ours(module):
        notice.install()  # before anything else: a signal that comes now must not kill a worker that would have saved
    trackers.leave_to_rank_zero(os.environ)
    rank.join(os.environ)
    # a process of the fork server would start its own children through another one, with all its imports
    multiprocessing.set_start_method("fork", force=True)
    sys.argv = [module, *arguments]
    # `python -m` would find the code that came with the job (code.py): the launcher's own path is older than it
    sys.path[:0] = [each for each in os.environ.get("PYTHONPATH", "").split(os.pathsep) if each and each not in sys.path]
    # it was imported for what it imports (node_agent.py), and now is run
    package = hasattr(sys.modules.get(module), "__path__")
    sys.modules.pop(f"{module}.__main__" if package else module, None)
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except Exception:
        traceback.print_exc()  # torch, which calls this, keeps it in a file that nobody reads
        raise
