"""Which Python trains: one that has torch, and finds the package `ebb`."""

import shutil
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ebb.client.errors import BadRequest

CHECKOUT = Path(__file__).parents[3]  # or the folder into which Ebb was installed
_LOOK = "import importlib.util as u; print(*(m for m in ('torch', 'ebb') if u.find_spec(m)))"
_LOOK_SECONDS = 30.0  # a Python on a network file system, the first time


@dataclass(frozen=True, kw_only=True)
class Interpreter:
    """A Python that can train. `path` is what PYTHONPATH needs for it to find ebb, "" for nothing."""

    python: str
    path: str = ""


def find_python(given: str | None, *, others: Iterable[str] | None = None) -> Interpreter:
    """The one that is given, else this one, else the shell's own. Raises BadRequest if it has no torch."""
    if given is not None:
        return _usable(_program(given), _modules(_program(given)), given)
    tried = dict.fromkeys([sys.executable, *(_on_path() if others is None else others)])
    for python in tried:
        if "torch" in (found := _modules(python)):
            return _usable(python, found, python)
    raise BadRequest(
        f"python {' and '.join(tried)} cannot import torch, and training needs it: install it there with "
        f"`{sys.executable} -m pip install torch torchvision`, or name a Python that has it with --python."
    )


def _usable(python: str, found: set[str], given: str) -> Interpreter:
    if "torch" not in found:
        raise BadRequest(
            f"python {given!r} cannot import torch, and training needs it: install it with "
            f"`{python} -m pip install torch torchvision`, or name another Python with --python."
        )
    if "ebb" in found:
        return Interpreter(python=python)
    if not (CHECKOUT / "ebb" / "elastic" / "launch").is_dir():
        raise BadRequest(f"python {given!r} cannot import Ebb's package ebb: install Ebb into it as well.")
    return Interpreter(python=python, path=str(CHECKOUT))


def _program(given: str) -> str:
    found = shutil.which(given)
    if not found:
        raise BadRequest(f"python {given!r} is not a program: give a path, as in --python ~/venv/bin/python.")
    return found


def _on_path() -> list[str]:
    return [found for name in ("python", "python3") if (found := shutil.which(name))]


def _modules(python: str) -> set[str]:
    """Which of torch and ebb it finds by itself, whatever lies in the current folder; it imports neither."""
    try:
        done = subprocess.run(
            [python, "-c", _LOOK],
            capture_output=True,
            text=True,
            timeout=_LOOK_SECONDS,
            check=False,
            cwd=Path(python).anchor,
        )
    except (OSError, subprocess.TimeoutExpired):
        return set()
    return set(done.stdout.split())
