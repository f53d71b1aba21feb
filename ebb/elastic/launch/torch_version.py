"""The image's torch: old enough to lack something, or to lack too much. Known without importing it, which takes seconds.

    if problem := find_problem(version): say(problem)       # the launcher ends
    elif limits := find_limits(version): say(limits)        # in the first line of the log, and it goes on without

OLDEST is the first torch whose elastic agent hands out the rendezvous's own store and takes LogsSpecs, which agent.py builds on.
What an older one lacks and this package asks for is either here, or asked for in a way that works there as well (`accepted`,
`keep_signal_handlers`). Tried on 2.4.1 and the version that pyproject.toml names.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import inspect
import re
import signal
from collections.abc import Callable
from typing import Any

OLDEST = (2, 4)
# The first version that can, and what an older one cannot.
LIMITS = (
    ((2, 6), "an evaluation under --compile compiles its own shapes"),
    ((2, 7), "what --compile has compiled is not kept for the next start"),
)


def find_version() -> str | None:
    """torch's version, "" where it does not tell; None: there is no torch."""
    try:
        return importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return "" if importlib.util.find_spec("torch") else None


def find_problem(version: str | None) -> str:
    """Return why the launcher cannot run beside this torch; "" if it can."""
    needs = f"Ebb's launcher needs {_title(OLDEST)} or newer: take an image with it, or leave out --image for the stack's trainer"
    if version is None:
        return f"there is no torch for this Python, and {needs}"
    return f"the image's torch is {version}, and {needs}" if (_numbers(version) or OLDEST) < OLDEST else ""


def find_limits(version: str) -> str:
    """Return what this torch cannot do, as one line; "" for nothing."""
    found = _numbers(version)
    lacking = [text for first, text in LIMITS if found and found < first]
    return f"torch {version} is older than {_title(LIMITS[-1][0])}, so {' and '.join(lacking)}" if lacking else ""


def accepted(function: Callable[..., Any], **options: Any) -> dict[str, Any]:
    """The options that a function of this torch knows; newer ones have more."""
    known = inspect.signature(function).parameters
    return {name: value for name, value in options.items() if name in known}


def keep_signal_handlers(module: Any) -> None:
    """Let torch's start of workers leave our handlers in place. `module`: torch.distributed.elastic.multiprocessing.api, which
    puts its own one in for every signal where it does not know $TORCHELASTIC_SIGNALS_TO_HANDLE yet."""
    ours = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
    usual = module._terminate_process_handler

    def handle(number: int, frame: Any) -> None:
        found = ours.get(signal.Signals(number), usual)
        if callable(found):
            found(number, frame)

    module._terminate_process_handler = handle


def _numbers(version: str) -> tuple[int, int] | None:
    found = re.match(r"(\d+)\.(\d+)", version)
    return (int(found[1]), int(found[2])) if found else None


def _title(version: tuple[int, int]) -> str:
    return f"torch {version[0]}.{version[1]}" if version == OLDEST else f"{version[0]}.{version[1]}"
