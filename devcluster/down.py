"""Take a devcluster down: everything of it goes, also of a half-made, half-killed or half-deleted one, and then check that it
is gone.

    await down("ebb")        # raises BoxError that lists what is left, when something is

What stays is shared by all devclusters of the checkout: tools, images, the training environment.
"""

import asyncio
import os
import shutil
import signal
from contextlib import suppress
from pathlib import Path

from devcluster import registry
from devcluster.commands import holder, is_root, locked, run, say
from devcluster.machines import cgroups, network, processes
from devcluster.machines.machine_files import PRIVATE_FOLDERS
from devcluster.settings import EBB_HOME, REGISTRY, Box, BoxError
from devcluster.up import CLOUD

GRACE_SECONDS = 3.0


async def down(name: str) -> None:
    """Idempotent. Raises BoxError."""
    if not is_root():
        raise BoxError("a devcluster belongs to root: repeat it as root (sudo make down)")
    # Not inside the devcluster's folder: that goes, and a lock with it.
    lock = EBB_HOME / "boxes" / f".{name}.lock"
    _stop_up(lock)
    box = registry.find(name)
    if box is None:
        shutil.rmtree(EBB_HOME / "boxes" / name, ignore_errors=True)  # without its record it has nothing that runs
        lock.unlink(missing_ok=True)
        say(f"there is no devcluster {name!r}")
        return
    async with locked(lock, f"devcluster {name!r}"):
        # First the cloud, or it would boot machines again.
        await processes.stop(box, CLOUD, GRACE_SECONDS)
        await _remove(box)
        registry.forget(name)
        left = await leftovers(box)
    lock.unlink(missing_ok=True)
    if left:
        raise BoxError(
            "\n".join(
                [
                    f"of devcluster {name!r} this is left; repeat `python -m devcluster down --box {name}`, "
                    "and report it if it stays:",
                    *left,
                ]
            )
        )
    say(f"devcluster {name} is down; nothing of it is left")


async def _remove(box: Box) -> None:
    await cgroups.kill(box.cgroup)
    for pid in await _processes(box):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    for mount in reversed(_mounts(box)):
        await run("umount", "--lazy", mount)
    await network.remove_link(box.link)
    for netns in network.namespaces(box):
        await network.remove_namespace(netns)
    await cgroups.remove(box.cgroup)
    for parent in cgroups.exists("ebb"):
        with suppress(OSError):  # another devcluster is in it
            parent.rmdir()
    await asyncio.to_thread(shutil.rmtree, box.folder, ignore_errors=True)
    if not [entry for entry in registry.entries() if entry.name != box.name]:
        for folder in PRIVATE_FOLDERS:
            with suppress(OSError):  # not empty: not only ours
                folder.rmdir()


async def leftovers(box: Box) -> list[str]:
    """An independent look: what this machine still has of the devcluster, one line each."""
    links = await run("ip", "-o", "link", "show")
    routes = await run("ip", "-4", "-o", "route", "show", "table", "all")
    found = [f"process {pid}" for pid in await _processes(box)]
    found += [f"mount {mount}" for mount in _mounts(box)]
    found += [f"network namespace {netns}" for netns in network.namespaces(box)]
    found += [f"interface {box.link}" for line in links.splitlines() if line.split()[1].split("@")[0].rstrip(":") == box.link]
    found += [f"route {taken}" for taken in registry.taken_networks(routes) if taken.overlaps(box.network)]
    found += [f"control group {folder}" for folder in cgroups.exists(box.cgroup)]
    found += [f"file {path}" for path in (box.folder, REGISTRY / f"{box.name}.json") if path.exists()]
    return found


async def _processes(box: Box) -> list[int]:
    """In the devcluster's control groups or in its namespaces."""
    pids = cgroups.members(box.cgroup)
    for netns in network.namespaces(box):
        with suppress(BoxError):
            pids.update(int(pid) for pid in (await run("ip", "netns", "pids", netns)).split())
    return sorted(pid for pid in pids if Path(f"/proc/{pid}").exists())


def _mounts(box: Box) -> list[str]:
    mounts = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    return [mount for mount in mounts if mount.startswith(f"{box.folder}/")]


def _stop_up(lock: Path) -> None:
    """An `up` that still runs, say because only the program that called it was killed, is told to end."""
    if pid := holder(lock):
        say(f"ending another run on this devcluster (pid {pid})")
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
