"""Processes and their children, by /proc: who belongs to a machine, and how a machine loses its power. Linux."""

import contextlib
import os
import signal
from pathlib import Path


def children() -> dict[int, list[int]]:
    """Of all processes there are now."""
    found: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, IndexError):
            parent = int(path.read_text().rpartition(")")[2].split()[1])
            found.setdefault(parent, []).append(int(path.parent.name))
    return found


def family(pid: int) -> list[int]:
    """It and all its descendants."""
    tree, found = children(), [pid]
    for member in found:
        found += tree.get(member, [])
    return found


def kill(pid: int) -> None:
    """As a machine that loses its power: all stand still first, so that nobody in it runs another line, or starts one more."""
    for member in stop(pid):
        send(member, signal.SIGKILL)


def stop(*pids: int) -> set[int]:
    """Let these processes, and all that they have started, stand still; returns them."""
    stopped: set[int] = set()
    while missing := [member for pid in pids for member in family(pid) if member not in stopped]:
        for member in missing:
            send(member, signal.SIGSTOP)
        stopped.update(missing)
    return stopped


def send(pid: int, number: signal.Signals) -> None:
    """To one process. One that is gone is fine."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def has_open(pid: int, folder: Path) -> list[str]:
    """The names of the files in `folder` that a process has open."""
    names = []
    with contextlib.suppress(OSError):
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                target = entry.readlink()
                if target.parent == folder:
                    names.append(target.name)
    return names
