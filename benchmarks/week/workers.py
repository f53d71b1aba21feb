"""A simulation of the workers: their programs' ends, and the pages of metrics on which the controller reads their steps.

    simulated = SimulatedWorkers(kube, sight, namespace); simulated.watch(job_uid, low=2); simulated.trained(job_uid)
    ended = await simulated.end(worker, 1, "Error")

kwok starts and removes containers; what they come to by themselves is written here into the pods' status, as a kubelet would.
Every worker has an address of its own out of 127.0.0.0/8, on which it answers under the metrics' real port.
"""

import asyncio
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from benchmarks.week.cloud import Sight
from benchmarks.week.seen import Worker
from ebb.api import contract
from ebb.api.clock import stamp
from ebb.kube import MERGE, PODS, Conflict, Kube, NotFound

Object = dict[str, Any]

TICK_SECONDS = 0.25
STEPS_PER_SECOND = 10.0
LIVED_SECONDS = 3600.0  # what a worker that ends had run for, as far as the controller is told


@dataclass
class Training:
    """One job's program. `hung`: it makes no step any more."""

    low: int
    seconds: float = 0.0
    generation: int = 0
    members: frozenset[str] = frozenset()
    hung: bool = False

    @property
    def step(self) -> int:
        return int(self.seconds * STEPS_PER_SECOND)


class SimulatedWorkers:
    """See the module's docstring."""

    def __init__(self, kube: Kube, sight: Sight, namespace: str) -> None:
        self._kube, self._sight, self._namespace = kube, sight, namespace
        self._jobs: dict[str, Training] = {}
        self._pages: dict[str, asyncio.Server] = {}  # address -> its page
        self._blocked: set[str] = set()  # workers of which it was said that their image cannot be pulled

    def watch(self, job_uid: str, low: int) -> None:
        """From now on the job trains whenever `low` workers run."""
        self._jobs[job_uid] = Training(low=low)

    def trained(self, job_uid: str) -> float:
        """Seconds in which enough workers ran."""
        return self._jobs[job_uid].seconds

    def hang(self, job_uid: str) -> None:
        """No further step."""
        self._jobs[job_uid].hung = True

    async def run(self) -> None:
        """Never returns: the programs' own clock, and their pages."""
        before = time.monotonic()
        try:
            while True:
                await asyncio.sleep(TICK_SECONDS)
                now = time.monotonic()
                for uid, training in self._jobs.items():
                    self._train(uid, training, now - before)
                before = now
                await self._open_pages()
                self._sight.changes.notify()
        finally:
            for page in self._pages.values():
                page.close()

    def _train(self, uid: str, training: Training, seconds: float) -> None:
        members = frozenset(one.uid for one in self._sight.crowd.of(uid) if one.trains)
        if len(members) < training.low:
            return
        if members != training.members:
            training.members, training.generation = members, training.generation + 1
        if not training.hung:
            training.seconds += seconds

    async def end(self, worker: Worker, code: int, reason: str) -> bool:
        """The worker's program ends with this code; False when somebody had asked the worker to leave before, so that nobody can
        tell which came first."""
        now = time.time()
        # A second here is three minutes of the week.
        ended = {"exitCode": code, "reason": reason, "startedAt": stamp(now - LIVED_SECONDS), "finishedAt": stamp(now)}
        phase = "Failed" if code else "Succeeded"
        return await self._write(worker, {"phase": phase, "containerStatuses": [_container({"terminated": ended}, ready=False)]})

    async def block(self, worker: Worker) -> None:
        """A kubelet's words for an image that cannot be pulled, once per pod."""
        if worker.uid not in self._blocked:
            self._blocked.add(worker.uid)
            waiting = {"reason": "ImagePullBackOff", "message": 'Back-off pulling image "registry.example/trainer:1"'}
            await self._write(worker, {"containerStatuses": [_container({"waiting": waiting}, ready=False)]})

    async def _write(self, worker: Worker, status: Object) -> bool:
        body = {"metadata": {"uid": worker.uid}, "status": status}
        try:
            written = await self._kube.patch(PODS, self._namespace, worker.name, body, subresource="status", kind=MERGE)
        except (NotFound, Conflict):  # it is gone, or another pod has its name
            return False
        return "deletionTimestamp" not in written["metadata"]

    async def _open_pages(self) -> None:
        """An address goes from a pod that is gone to a later one: a page is asked for whom it speaks when it is read."""
        wanted = {one.address for one in self._sight.crowd.workers.values() if one.running and one.address}
        for address in [address for address in self._pages if address not in wanted]:
            self._pages.pop(address).close()
        for address in wanted - set(self._pages):
            self._pages[address] = await asyncio.start_server(self._answer, address, contract.METRICS_PORT)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            page = self._page(writer.get_extra_info("sockname")[0]).encode()
            head = f"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {len(page)}\r\nConnection: close\r\n\r\n"
            writer.write(head.encode() + page)
            await writer.drain()
        writer.close()

    def _page(self, address: str) -> str:
        one = next((one for one in self._sight.crowd.workers.values() if one.address == address and one.running), None)
        training = self._jobs.get(one.job_uid) if one else None
        if training is None:
            return ""
        figures = {
            contract.METRIC_STEP: training.step,
            contract.METRIC_GENERATION: training.generation,
            contract.METRIC_WORLD_SIZE: len(training.members),
            contract.METRIC_CHECKPOINT_STEP: training.step,
            contract.METRIC_LOSS: 1.0 / (1 + training.step),
        }
        return "".join(f"{name} {value}\n" for name, value in figures.items())


def _container(state: Object, *, ready: bool) -> Object:
    return {
        "name": contract.WORKER_CONTAINER, "image": "registry.example/trainer:1", "imageID": "", "ready": ready, "started": ready,
        "restartCount": 0, "state": state,
    }  # fmt: skip
