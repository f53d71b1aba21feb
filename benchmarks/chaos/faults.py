"""Breaks things on a devcluster, and heals them: machines, components, kubelets, networks, zones and the output volume.

    faults = Faults(box, kube, workers=watch.nodes_of_workers)
    done = await faults.begin(action)          # Done(victim, heal), or Skipped: there is nothing that it could break now
    await done.heal()

Processes are killed by their numbers, as the kernel does it: no API server is asked, so that it may be away.
"""

import asyncio
import errno
import os
import signal
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from benchmarks.chaos.actions import Action, victim
from devcluster import tools, up
from devcluster.cloud import verbs
from devcluster.commands import CommandError, run
from devcluster.control_plane import daemons
from devcluster.machines import cgroups, lifecycle, processes
from devcluster.machines.lifecycle import MachineRecord
from devcluster.settings import ZONES, Box, BoxError
from ebb.api.contract import LABEL_CAPACITY
from ebb.kube import LEASES, Kube, KubeError

NOTICE_SECONDS = 10.0
ZOMBIE_SECONDS = 20.0  # for which a worker that was replaced lives on, and reaches etcd: it commits every 5 s
SLOW = ("rate", "2mbit", "burst", "32kb", "latency", "400ms")
BALLAST = ".ballast"
SYSTEM, LEASE = "ebb-system", "ebb-controller"
CONTROLLER, GATEWAY, RENDEZVOUS = "ebb.controller", "ebb.gateway", "/var/lib/etcd/v3"  # words of their command lines


class Skipped(Exception):
    """There is nothing to break in this way now; the message says why."""


class Done(NamedTuple):
    victim: str
    heal: Callable[[], Awaitable[None]]


class Faults:
    """`workers()`: the machines that have workers; those are preferred as victims. `output`: the volume that is filled."""

    def __init__(self, box: Box, kube: Kube, *, output: Path, workers: Callable[[], Collection[str]]) -> None:
        self._box, self._kube, self._output, self._workers = box, kube, output, workers
        self._held: set[str] = set()  # things that one action has broken for a while, and no other may touch
        self._kinds: dict[str, Callable[[Action], Awaitable[Done]]] = {
            "machine": self._machine, "reclaim": self._reclaim, "notice": self._reclaim, "manager": self._manager,
            "controller": self._controller, "gateway": self._gateway, "rendezvous": self._rendezvous, "etcd": self._plane,
            "apiserver": self._plane, "kubelet": self._kubelet, "frozen": self._kubelet, "zone": self._zone, "disk": self._disk,
            "slow": self._slow, "link": self._link, "cut": self._link, "zombie": self._zombie,
        }  # fmt: skip

    async def begin(self, action: Action) -> Done:
        """Raises Skipped."""
        try:
            return await self._kinds[action.kind](action)
        except (BoxError, KubeError, OSError) as error:
            raise Skipped(f"{type(error).__name__}: {str(error)[:300]}") from error

    async def heal_all(self) -> None:
        """Whatever was left broken by a run that is cut off, as far as it would keep `down` from working."""
        (self._output / BALLAST).unlink(missing_ok=True)
        for machine in lifecycle.list_machines(self._box):
            for pid in self._kubelets(machine.name):
                os.kill(pid, signal.SIGCONT)

    # Machines

    def _machines(self, *, spot: bool = True) -> dict[str, MachineRecord]:
        found = {one.name: one for one in lifecycle.list_machines(self._box) if one.alive and one.name not in self._held}
        return {name: one for name, one in found.items() if (one.spec.labels.get(LABEL_CAPACITY) == "spot") == spot}

    def _spot(self, action: Action) -> MachineRecord:
        machines = self._machines()
        used = [name for name in machines if name in self._workers()]
        chosen = victim(used or list(machines), action.pick)
        if chosen is None:
            raise Skipped("there is no spot machine that is well")
        return machines[chosen]

    async def _machine(self, action: Action) -> Done:
        machine = self._spot(action)
        await lifecycle.kill(self._box, machine.name)
        return Done(machine.name, _nothing)

    async def _reclaim(self, action: Action) -> Done:
        machine = self._spot(action)
        seconds = NOTICE_SECONDS if action.kind == "notice" else 0.0
        await verbs.reclaim(self._box, machine.name, notice_seconds=seconds, wait=False, say=lambda _: None)
        return Done(machine.name, _nothing)

    async def _manager(self, action: Action) -> Done:
        chosen = victim(list(self._machines(spot=False)), action.pick)
        if chosen is None:
            raise Skipped("there is no manager machine")
        await lifecycle.kill(self._box, chosen)
        return Done(chosen, _nothing)

    # Kubelets and links

    def _kubelets(self, machine: str) -> list[int]:
        pids = cgroups.members(f"{lifecycle.cgroup_of(self._box, machine)}/daemons")
        return [pid for pid in pids if _words(pid)[:1] and _words(pid)[0].endswith("/kubelet")]

    async def _kubelet(self, action: Action) -> Done:
        machine = self._spot(action)
        pids = self._kubelets(machine.name)
        if not pids:
            raise Skipped(f"{machine.name} has no kubelet yet")
        number = signal.SIGKILL if action.kind == "kubelet" else signal.SIGSTOP
        for pid in pids:
            os.kill(pid, number)

        async def wake() -> None:
            for pid in self._kubelets(machine.name):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)

        return self._held_until(machine.name, wake) if action.seconds else Done(machine.name, _nothing)

    async def _slow(self, action: Action) -> Done:
        machine = self._spot(action)
        port = f"m{machine.index}"
        # What the bridge sends to the machine, and what the machine sends.
        places = [(self._box.netns, port), (self._box.machine_netns(machine.name), "eth0")]
        for netns, device in places:
            await run("tc", "-n", netns, "qdisc", "replace", "dev", device, "root", "tbf", *SLOW)

        async def unbind() -> None:
            for netns, device in places:
                with suppress(CommandError):  # the machine is gone, and its link with it
                    await run("tc", "-n", netns, "qdisc", "del", "dev", device, "root")

        return self._held_until(machine.name, unbind)

    async def _link(self, action: Action) -> Done:
        machine = self._spot(action)
        port = f"m{machine.index}"
        await run("ip", "-n", self._box.netns, "link", "set", port, "down")

        async def join() -> None:
            with suppress(CommandError):
                await run("ip", "-n", self._box.netns, "link", "set", port, "up")

        return self._held_until(machine.name, join)

    async def _zombie(self, action: Action) -> Done:
        """Its workers are long replaced when they reach etcd again, and no kubelet has heard of that."""
        done = await self._link(action)
        pids = self._kubelets(done.victim)
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)

        async def bury() -> None:
            await done.heal()
            await asyncio.sleep(ZOMBIE_SECONDS)
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)

        return Done(done.victim, bury)

    def _held_until(self, name: str, heal: Callable[[], Awaitable[None]]) -> Done:
        """Nothing else breaks it meanwhile: a link that is down and cut again would come back too early."""
        self._held.add(name)

        async def free() -> None:
            await heal()
            self._held.discard(name)

        return Done(name, free)

    # Components

    async def _controller(self, action: Action) -> Done:
        found = self._programs(CONTROLLER)
        leader = ""
        with suppress(KubeError, TimeoutError):
            async with asyncio.timeout(2):
                leader = (await self._kube.get(LEASES, SYSTEM, LEASE))["spec"].get("holderIdentity") or ""
        chosen = leader if leader in found else victim(list(found), action.pick)
        return self._killed(found, chosen, "controller")

    async def _gateway(self, action: Action) -> Done:
        found = self._programs(GATEWAY)
        return self._killed(found, victim(list(found), action.pick), "gateway")

    async def _rendezvous(self, action: Action) -> Done:
        found = self._programs(RENDEZVOUS)
        return self._killed(found, victim(list(found), action.pick), "etcd of the rendezvous")

    def _killed(self, found: dict[str, list[int]], chosen: str | None, what: str) -> Done:
        if chosen is None:
            raise Skipped(f"no {what} runs")
        for pid in found[chosen]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return Done(chosen, _nothing)

    def _programs(self, word: str) -> dict[str, list[int]]:
        """The processes with this word in their command lines that run in pods, by the pods' host names."""
        found: dict[str, list[int]] = {}
        for pid in cgroups.members(f"{self._box.cgroup}/machines"):
            words = _words(pid)
            if any(word in one for one in words[1:]) and not any(one.endswith(".probe") for one in words):
                found.setdefault(_variable(pid, "HOSTNAME"), []).append(pid)
        return found

    async def _plane(self, action: Action) -> Done:
        name = {"etcd": "etcd", "apiserver": "kube-apiserver"}[action.kind]
        if "plane" in self._held:
            raise Skipped("a part of the control plane is away already")
        self._held.add("plane")
        await processes.stop(self._box, name)

        async def start() -> None:
            await daemons.ensure(self._box, await tools.programs())
            await up.start_cloud(self._box)
            self._held.discard("plane")

        return Done(name, start)

    # Zones and disks

    async def _zone(self, action: Action) -> Done:
        zone = victim([zone for zone in ZONES if zone not in self._held], action.pick)
        if zone is None:
            raise Skipped("no zone has machines")
        verbs.exhaust(self._box, zone)

        async def restore() -> None:
            verbs.restore(self._box, zone)

        return self._held_until(zone, restore)

    async def _disk(self, _: Action) -> Done:
        if BALLAST in self._held:
            raise Skipped("it is full already")
        await asyncio.to_thread(fill, self._output / BALLAST)

        async def empty() -> None:
            (self._output / BALLAST).unlink()

        held = self._held_until(BALLAST, empty)
        return Done("output volume", held.heal)


async def _nothing() -> None:
    """Others heal it: the devcluster's cloud, or Kubernetes."""


def fill(path: Path) -> None:
    """Until the file system is full. Raises OSError for anything else."""
    block = bytes(2**20)
    with path.open("wb", buffering=0) as file:
        while block:
            try:
                file.write(block)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                block = block[: len(block) // 2]  # to the last page


def _words(pid: int) -> list[str]:
    """The command line of a process, [] for one that is gone."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    return []


def _variable(pid: int, name: str) -> str:
    with suppress(OSError):
        for one in Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace").split("\0"):
            key, _, value = one.partition("=")
            if key == name:
                return value
    return ""
