"""One run of pip, with its progress in the launcher's lines and its last words in the error.

    run(["install", "--dry-run", ...], Path("requirements.txt"), {"torch": "2.13.0"}, say)

It may be interrupted at any moment by a signal (reclaim.py): then pip ends with it.
"""

import contextlib
import os
import queue
import re
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path

_NOTE_SECONDS = 5.0
_LAST_LINES = 12  # git's own words come before ten of pip's
_LENGTH = 300  # of a line: pip lists every version that there ever was
# -P: a file of the user's code that is called as one of Python's modules must not be imported by pip.
_PIP = (sys.executable, "-P", "-m", "pip", "--no-input", "--disable-pip-version-check")
_PROGRESS = re.compile(r"^\s*(Collecting|Downloading|Building|Installing|Cloning|Preparing|Using cached|Processing)\b")
_NO_INDEX = re.compile(
    r"Temporary failure in name resolution|Failed to establish a new connection|Network is unreachable|Name or service not known"
    r"|timed out|Connection refused|No route to host",
)
# What an index or git says to somebody without a name and a password, or with wrong ones.
_NOT_ALLOWED = re.compile(
    r"could not read (Username|Password)|error:? 401\b|\b401 (Client )?Error|Authentication failed",
    re.IGNORECASE,
)


class PipError(Exception):
    """pip failed; the message ends with its own words and the fix."""


def run(arguments: list[str], requirements: Path, own: Mapping[str, str], say: Callable[[str], None]) -> None:
    """In the folder of the requirements. `own` are the image's packages. Raises PipError."""
    process = subprocess.Popen(
        [*_PIP, *arguments, "--progress-bar=off", "--no-color"],
        cwd=requirements.parent,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,  # with all that it starts, it gets no signal of a terminal's, and can be ended as a whole
    )
    try:
        last = _follow(process, say)
    finally:
        if process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if process.returncode != 0:
        raise PipError(_words(requirements, process.returncode, last, own))


def _follow(process: "subprocess.Popen[str]", say: Callable[[str], None]) -> list[str]:
    """The last lines; while it runs, where it is, every few seconds."""
    lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(process, lines), name="pip", daemon=True).start()
    last: deque[str] = deque(maxlen=_LAST_LINES)
    now, began = "pip is at work", time.monotonic()
    told = began
    while True:
        with contextlib.suppress(queue.Empty):
            line = lines.get(timeout=0.2)  # short: a signal is heard between two lines of Python
            if line is None:
                process.wait()
                return list(last)
            last.append(line[:_LENGTH])
            if _PROGRESS.match(line):
                now = line.strip()[:_LENGTH]
        if time.monotonic() - told >= _NOTE_SECONDS:
            told = time.monotonic()
            say(f"{now} ({told - began:.0f} s)")


def _read(process: "subprocess.Popen[str]", lines: "queue.SimpleQueue[str | None]") -> None:
    assert process.stdout is not None
    with process.stdout as output:
        for line in output:
            if line.strip():
                lines.put(line.rstrip())
    lines.put(None)


def _words(requirements: Path, code: int, last: list[str], own: Mapping[str, str]) -> str:
    said = "\n".join(f"  {line}" for line in last)
    return f"{requirements.name} could not be installed; pip ended with {code} after:\n{said}\n{_fix(requirements, said, own)}"


def _fix(requirements: Path, said: str, own: Mapping[str, str]) -> str:
    """The most likely one."""
    if "No module named pip" in said:
        return "The image has no pip: take one that has, or put the packages into an image of your own (--image)."
    if "(constraint)" in said or "conflicting dependencies" in said:
        torch = f" (torch {own['torch']} among them)" if "torch" in own else ""
        return (
            f"The image's own packages{torch} stay as they are: loosen what {requirements.name} asks for, leave the package out, "
            "or bring an image of your own (--image)."
        )
    if _NOT_ALLOWED.search(said):
        return (
            f"A server wants a name and a password. Those in a URL of {requirements.name} are not enough: pip leaves them out of "
            "its list of what to install. Name an index that has the package with --env PIP_INDEX_URL=https://NAME:TOKEN@..., or "
            "put a wheel of it into the code's folder (`pip wheel`) and its path in place of the URL."
        )
    if _NO_INDEX.search(said):
        return (
            "Pods reach no package index: name one that they reach with --env PIP_INDEX_URL=..., or put wheels into the code's "
            f"folder and `--no-index --find-links wheels` into {requirements.name}."
        )
    if "No space left" in said:
        return "Free space on the output volume (`ebb data rm`), or put the packages into an image of your own (--image)."
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    return f"Mend {requirements.name}: names and versions must be there for Python {python} on this machine's kind of processor."
