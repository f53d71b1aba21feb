"""The cluster of the proof: an API server, Kueue, Ebb's controller with the rights of its manifests, and kubelets."""

import asyncio
import itertools
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml

from benchmarks.controller.processes import Process as Program
from devcluster import tools
from ebb.api import contract as names
from ebb.controller.reconciler.workload import condition, is_true
from ebb.kube import ELASTIC_JOBS, RESOURCE_FLAVORS, WORKLOADS, Object, Resource
from tests.apiserver.controller import Process
from tests.apiserver.machines import Machines, machines
from tests.apiserver.place import Job, article
from tests.apiserver.plane import Made, found, plane
from tests.apiserver.proxy import proxy
from tests.figures import report
from tests.kueue.manager import KINDS, KUEUE, NAMESPACE, cluster_queue, flavor, local_queue, manager, priority

GPU = {"resources": {"limits": {names.GPU_RESOURCE: "1"}}}
CLUSTER_QUEUES = Resource("kueue.x-k8s.io", "v1beta2", "clusterqueues", "ClusterQueue", namespaced=False)
SECONDS = 60.0  # for what Kueue and two controllers do one after the other, on a busy machine
_numbers = itertools.count(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All in the session's loop, and none without being asked for."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.proof)
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)


class Queued(Job):
    """A job in a queue of Kueue's, with its Workload as it is now."""

    workload: Object | None = None

    async def look(self) -> Object:
        """Its Workload, {} if there is none."""
        listed = await self.made.kube.list(WORKLOADS, self.namespace, labels=f"{names.LABEL_EBB_JOB}={self.name}")
        return listed[0] if listed else {}

    async def told(self, what: str, check: Callable[[Object], Any]) -> Object:
        """Wait until its Workload is like that."""
        end = time.monotonic() + SECONDS
        while not check(value := await self.look()):
            assert time.monotonic() < end, (
                f"{self.name}: {what}: {json.dumps(value.get('status'), indent=1)} {self.condition('Running')}"
            )
            await asyncio.sleep(0.1)
        return value

    async def is_told(self, kind: str) -> Object:
        """Wait until its Workload has this condition; returns that."""
        return condition(await self.told(kind, lambda value: bool(value) and is_true(value, kind)), kind)

    async def finishes(self) -> None:
        """All of its programs end well."""
        for index in self.running():
            await self.ends(index, code=0)

    async def trains(self, workers: int) -> None:
        """Wait until just so many workers run."""
        await self.made.seen.until(
            f"{self.name} has {workers} workers",
            lambda: len(self.running()) == workers == len(self.pods),
            SECONDS,
            lambda: f"{sorted(self.pods)} {self.condition('Running')} {self.events}",
        )


class Team:
    """A namespace with machines, and one queue of its own name."""

    def __init__(self, made: Made, ours: Machines) -> None:
        self.made, self.machines, self.name = made, ours, ours.namespace

    async def queue(self, gpus: int, *, cohort: str = "", borrow: int | None = None) -> None:
        await self.made.apply(cluster_queue(self.name, gpus, flavor="spot", cohort=cohort, borrow=borrow))
        await self.made.apply(local_queue(self.name, "gpus", self.name))

    async def submit(self, name: str, *, urgency: str = "", **job: Any) -> Queued:
        """A job with one GPU for each worker."""
        body = article(name, self.name, container=GPU, **job)
        body["metadata"]["labels"] = {names.LABEL_QUEUE: "gpus", **({names.LABEL_QUEUE_PRIORITY: urgency} if urgency else {})}
        await self.made.kube.create(ELASTIC_JOBS, self.name, body)
        one = Queued(self.made, self.machines, name)
        await self.made.seen.until(f"job {name} is there", lambda: one.value is not None)
        return one

    async def reserved(self) -> int:
        """GPUs that Kueue holds for its jobs."""
        status = (await self.made.kube.get(CLUSTER_QUEUES, None, self.name)).get("status") or {}
        usage = [one for item in status.get("flavorsReservation") or () for one in item["resources"]]
        return sum(int(one.get("total", 0)) for one in usage)

    async def until_reserved(self, gpus: int) -> None:
        end = time.monotonic() + SECONDS
        while (held := await self.reserved()) != gpus:
            assert time.monotonic() < end, f"{self.name}: {held} GPUs are reserved, not {gpus}"
            await asyncio.sleep(0.1)


class Cluster:
    """See the module's docstring. `figures`: what the proof says at its end."""

    def __init__(self, made: Made, opened: AsyncExitStack) -> None:
        self.made, self._opened = made, opened
        self.figures: Object = {}

    async def team(self) -> Team:
        """A new one."""
        name = f"team-{next(_numbers)}"
        await self.made.namespace(name)
        return Team(self.made, await self._opened.enter_async_context(machines(self.made, name)))


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    folder = tmp_path_factory.mktemp("kueue")
    tool = await tools.ensure(KUEUE)
    async with AsyncExitStack() as opened:
        made = await opened.enter_async_context(plane(folder))
        for kind in KINDS:
            await made.apply(yaml.safe_load((tool / Path(kind).name).read_text()))
        for resource in (WORKLOADS, RESOURCE_FLAVORS, CLUSTER_QUEUES):
            await found(lambda: made.kube.list(resource))  # noqa: B023 - awaited here
        await made.namespace(NAMESPACE)
        await made.apply(flavor("spot", **{names.LABEL_CAPACITY: "spot"}))
        for name, value in (("low", 10), ("high", 1000)):
            await made.apply(priority(name, value))
        process = await Program.start("kueue", manager(folder, tool, made), folder)
        opened.push_async_callback(process.stop)
        line = await opened.enter_async_context(proxy(made.processes.server, made.processes.trust()))
        controller = Process(folder, "ebb-controller-0", line.url, await made.token())
        await controller.start()
        opened.push_async_callback(controller.stop)
        one = Cluster(made, opened)
        yield one
        report(one.figures)
