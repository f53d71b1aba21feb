"""A worker's side: the pipes that its launcher has for it become its stdout and stderr. Imports nothing of its own package.

join(os.environ)         # first thing in a forked worker; a script that is started anew has them already
"""

import contextlib
import os
import sys
from collections.abc import MutableMapping

VARIABLES = {1: "EBB_TEE_STDOUT", 2: "EBB_TEE_STDERR"}


def join(environment: MutableMapping[str, str]) -> None:
    """A pipe that cannot be opened leaves the launcher's own stream: its lines are then not told apart, but not lost."""
    for number, stream in ((1, sys.stdout), (2, sys.stderr)):
        path = environment.pop(VARIABLES[number], "")
        if not path:
            continue
        stream.flush()
        with contextlib.suppress(OSError):
            pipe = os.open(path, os.O_WRONLY)
            os.dup2(pipe, number)
            os.close(pipe)
