"""The program that workers would start: is it there at all?

    missing = find_missing(settings, os.environ, say)     # "" where it is there; else a sentence that names it and the fix

Asked before any worker starts. No other machine and no other try could find it, so the launcher ends with EXIT_NO_PROGRAM, and
the job with it, in place of one boot of all machines after the other.
"""

import argparse
import importlib.util
import os
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from ebb.elastic.contract import ENV_CODE_ARCHIVE

# A network file system's client may answer for up to a minute that a file is not there which another machine has just written.
PATIENCE_SECONDS = 60.0
_NOTE_SECONDS = 10.0


def find_missing(
    settings: argparse.Namespace,
    environment: Mapping[str, str],
    say: Callable[[str], None],
    *,
    patience_seconds: float = PATIENCE_SECONDS,
) -> str:
    """Return why the program cannot be started here; "" if it can, as far as can be seen without starting it."""
    name: str = settings.training_script
    if settings.module and not settings.no_python:
        if _has_module(name.partition(".")[0], environment):
            return ""
        return f"no module {name!r} {_where(environment)}"
    if settings.no_python:
        return "" if shutil.which(name) else f"no program {name!r} that may be run {_where(environment)}"
    path = Path(name)
    there = wait_for_file(path, say, patience_seconds=patience_seconds) if _is_on_volume(path) else path.exists()
    return "" if there else f"no file {name!r} {_where(environment)}"


def _where(environment: Mapping[str, str]) -> str:
    if environment.get(ENV_CODE_ARCHIVE):
        return "in the code that came with the job: name it as it is there, or send the folder that holds it with --code DIR"
    return f"in {Path.cwd()}, and no code came with the job: send its folder along with --code DIR, or name one that is there"


def _has_module(name: str, environment: Mapping[str, str]) -> bool:
    """Return whether a top-level module would be found by a worker, whose path has what code.py has added; imports nothing."""
    before = sys.path[:]
    sys.path[:0] = [path for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path]
    try:
        return importlib.util.find_spec(name) is not None
    except ValueError:  # it is loaded, and has no spec
        return name in sys.modules
    finally:
        sys.path[:] = before


def wait_for_file(path: Path, say: Callable[[str], None], *, patience_seconds: float = PATIENCE_SECONDS) -> bool:
    """Give a volume time to show what another machine has written; return True if it is there. Raises OSError."""
    now = time.monotonic()
    deadline, next_note = now + patience_seconds, now
    while not path.exists():
        now = time.monotonic()
        if now >= deadline:
            return False
        if now >= next_note:
            say(f"waiting for {path} to show up on its volume")
            next_note = now + _NOTE_SECONDS
        time.sleep(min(1.0, patience_seconds))  # network file systems tell of no changes by other machines
    return True


def _is_on_volume(path: Path) -> bool:
    """True below a mount point other than the root; an image, and the job's own code, are whole from the start."""
    return path.is_absolute() and any(os.path.ismount(folder) for folder in list(path.parents)[:-1])
