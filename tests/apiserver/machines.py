"""Machines without hardware: Nodes with heartbeats, and of each kubelet what a controller can see of it.

    async with machines(made, "team") as ours:          # pods of the namespace get machines, run, and leave when they are told to
        await ours.ends("digits-worker-0", 1)            # its program
        await ours.vanish(ours.of("digits-worker-0"))    # the cloud took the machine, and the Node is gone
        ours.lose(...);  await ours.unready(...);  await ours.notice(..., seconds=120)

Every worker has a machine of its own. Besides the API's objects it knows which programs live: `doubles` has every worker that was
started while another of its job and index still ran on a machine that was not lost: no list of pods would show that.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from ebb.api import contract as names
from ebb.api.clock import stamp
from ebb.kube import NODES, PODS, KubeError
from tests.apiserver.kubelets import Kubelets, Machine, terminated
from tests.apiserver.plane import Made, ended, gone

Object = dict[str, Any]


class Machines(Kubelets):
    """See the module's docstring."""

    async def add(self, **labels: str) -> Machine:
        """A machine that is up and says so. Until it is, no pod goes there: the test has one to bind to it."""
        machine = self._new(labels)
        machine.doomed = True
        await self._boot(machine)
        machine.doomed = False
        return machine

    def of(self, pod: str) -> Machine:
        """The machine of a pod."""
        return self.all[self._pod(pod)["spec"]["nodeName"]]

    async def ends(self, pod: str, code: int, *, reason: str = "", message: str = "", lived: float = 3600.0) -> None:
        """A worker's program ends by itself, after so many seconds."""
        self._die(pod)
        await self._write_status(self._pod(pod), terminated(code, reason, message, lived), "Succeeded" if code == 0 else "Failed")

    async def fails(self, pod: str, reason: str, message: str = "", *conditions: Object) -> None:
        """The kubelet ends a pod, for reasons that are its own."""
        self._die(pod)
        status = {"phase": "Failed", "reason": reason, "message": message, "conditions": list(conditions)}
        await self._patch(PODS, pod, {"status": status}, "status")

    async def stuck(self, pod: str, reason: str, message: str) -> None:
        """A container that cannot start."""
        await self._write_status(self._pod(pod), {"waiting": {"reason": reason, "message": message}}, "Pending")

    def serve(self, pod: str) -> None:
        """Let this one pod start, although others may not."""
        self.served.add(pod)
        self._spawn(pod)

    async def vanish(self, machine: Machine) -> None:
        """The machine is gone, and the cloud says so."""
        self.lose(machine)
        await gone(self.kube.delete(NODES, None, machine.name))

    def lose(self, machine: Machine) -> None:
        """The machine is gone, and nobody says so."""
        machine.lost, machine.beats = True, False
        for program in self.programs:
            if program.machine is machine:
                program.alive = False

    async def unready(self, machine: Machine, status: str = "False", message: str = "container runtime is down") -> None:
        """Its kubelet says that it is not ready; Unknown is what Kubernetes says of one that went silent."""
        machine.doomed = True
        await self.condition(machine, "Ready", status, "KubeletNotReady", message)

    async def notice(self, machine: Machine, seconds: float) -> None:
        """The cloud will take the machine back, and somebody on it has heard of it."""
        machine.doomed = True
        message = f"spot machine is reclaimed at {stamp(time.time() + seconds)}"
        await self.condition(machine, names.CONDITION_RECLAIM, "True", "Notice", message)

    async def taint(self, machine: Machine, key: str, effect: str = "NoSchedule") -> None:
        machine.doomed = True
        await self.kube.patch(NODES, None, machine.name, {"spec": {"taints": [{"key": key, "effect": effect}]}})

    def hold_heartbeats(self) -> None:
        """None gets through."""
        self._held = set(self.all)

    async def release_heartbeats(self, seconds: float) -> None:
        """They get through again, of one machine after the other."""
        for name in sorted(self._held):
            await asyncio.sleep(seconds / len(self.all))
            self._held.discard(name)
            with suppress(KubeError):
                await self._beat(self.all[name])

    def again(self) -> None:
        """Look at every pod: what the machines may do has changed."""
        for pod in self.made.seen.all(PODS, self.namespace):
            self._spawn(pod["metadata"]["name"])


@asynccontextmanager
async def machines(made: Made, namespace: str, **settings: Any) -> AsyncIterator[Machines]:
    """Of one namespace, until the block ends."""
    ours = Machines(made, namespace, **settings)
    made.seen.listeners.append(ours.listen)
    beating = asyncio.create_task(ours.heartbeats())
    try:
        yield ours
    finally:
        made.seen.listeners.remove(ours.listen)
        await ended(beating)
        await ours.close()
