"""How the launcher's process ends: what was registered for the end runs, and then it is gone.

    ending = Ending()          # first thing in the process: what is registered first runs last
    ending.code = main(...)

The interpreter is not torn down, and the libraries that torch has loaded are not: CUDA's alone take 1.4 s of a notice, and on a
busy machine more than twelve were seen (torch 2.13, in the exit handlers of libcublasLt).
"""

import atexit
import os
import sys


class Ending:
    """One for the life of a process. Without a code the process ends as any other, so that SystemExit keeps its own."""

    def __init__(self) -> None:
        self.code: int | None = None
        atexit.register(self._end)

    def _end(self) -> None:
        if self.code is not None:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(self.code)
