"""Control groups of a devcluster, on cgroup v1, v2 and the hybrid of both: make, look who is in, kill at once, remove.

Every process of a devcluster is in a group below `ebb/<box>`. Membership is how it knows its processes: unlike a pid file it
cannot be missing after a kill -9, nor name a stranger that got an old pid. Limits are not set here; the kubelet does that for
containers.
"""

import asyncio
import os
import signal
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

KILL_TIMEOUT_SECONDS = 20.0


@dataclass(frozen=True)
class Hierarchy:
    """One mounted tree of control groups; v2 has one for everything."""

    root: Path
    version: int
    controllers: frozenset[str]


def hierarchies(mountinfo: str | None = None) -> list[Hierarchy]:
    """All trees of this machine."""
    text = Path("/proc/self/mountinfo").read_text() if mountinfo is None else mountinfo
    found: dict[str, Hierarchy] = {}
    for line in text.splitlines():
        before, _, after = line.partition(" - ")
        kind, _, options = after.split(" ", 2)
        if kind in ("cgroup", "cgroup2") and before.split()[5].startswith("rw"):
            root = before.split()[4]
            found[root] = Hierarchy(Path(root), 2 if kind == "cgroup2" else 1, frozenset(options.split(",")))
    return list(found.values())


def is_v2(trees: Iterable[Hierarchy]) -> bool:
    """True if controllers are in the v2 tree. In the hybrid layout the v2 tree exists beside v1 and has none."""
    return all(tree.version == 2 for tree in trees)


def create(path: str) -> list[Path]:
    """Makes the group in every tree and returns the files that a process writes its pid into to join."""
    joins = []
    for tree in hierarchies():
        (tree.root / path).mkdir(parents=True, exist_ok=True)
        # A v1 cpuset admits nobody until its cpus are set; the container runtime does that for its own groups below.
        if "cpuset" not in tree.controllers:
            joins.append(tree.root / path / "cgroup.procs")
    return joins


def delegate(path: str) -> None:
    """Makes the group such that a kubelet can limit groups below it: on v2 every group above must pass its controllers on."""
    create(path)
    for tree in hierarchies():
        if tree.version == 2:
            above = [tree.root / parent for parent in reversed(Path(path).parents)]
            for controller in _read(tree.root / "cgroup.controllers").split():
                for folder in above:
                    with suppress(OSError):  # one that the host keeps for itself; the kubelet says which it lacks
                        (folder / "cgroup.subtree_control").write_text(f"+{controller}")


def members(path: str) -> set[int]:
    """Pids of all processes in the group and below it, in any tree."""
    pids: set[int] = set()
    for tree in hierarchies():
        for folder in _tree(tree.root / path):
            with suppress(FileNotFoundError, OSError):
                pids.update(int(pid) for pid in (folder / "cgroup.procs").read_text().split())
    return pids - {0}


async def kill(path: str) -> None:
    """Kills everything in the group at once, like power loss: frozen first where that is possible, so that none sees another die.
    Returns when nothing is left. Raises TimeoutError with the pids that cannot be killed."""
    deadline = time.monotonic() + KILL_TIMEOUT_SECONDS
    while pids := members(path):
        if time.monotonic() > deadline:
            raise TimeoutError(f"processes {sorted(pids)} of {path} do not die")
        _freeze(path, "FROZEN")
        for pid in members(path):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        _freeze(path, "THAWED")
        await asyncio.sleep(0.01)


async def remove(path: str) -> None:
    """Removes the empty group from every tree. The kernel frees a dead process a moment after it is gone, hence the patience."""
    deadline = time.monotonic() + KILL_TIMEOUT_SECONDS
    while left := [folder for tree in hierarchies() for folder in _tree(tree.root / path)]:
        for folder in reversed(left):
            with suppress(OSError):
                folder.rmdir()
        if not any(folder.exists() for folder in left):
            continue
        if time.monotonic() > deadline:
            raise TimeoutError(f"control group {left[-1]} cannot be removed; processes in it: {sorted(members(path))}")
        await asyncio.sleep(0.02)


def exists(path: str) -> list[Path]:
    """The group's folders that are there."""
    return [tree.root / path for tree in hierarchies() if (tree.root / path).is_dir()]


def _tree(folder: Path) -> list[Path]:
    """The folder and all below it, parents first."""
    return [Path(path) for path, _, _ in os.walk(folder)]


def _read(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def _freeze(path: str, state: str) -> None:
    for tree in hierarchies():
        file = tree.root / path / ("freezer.state" if tree.version == 1 else "cgroup.freeze")
        if tree.version == 1 and "freezer" not in tree.controllers:
            continue
        with suppress(OSError):
            file.write_text(state if tree.version == 1 else str(int(state == "FROZEN")))
