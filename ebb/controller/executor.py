"""Carries out what was decided, on the API server: pods, Services and records, the status of a job, events about it.

    refusals = await executor.do_all(job, decided.actions);  await executor.write(value, status, events)

Everything may be done twice: what exists already or is gone already is as good. Each write asks the fence first.
"""

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Protocol

from ebb.api import contract as names
from ebb.api.clock import stamp
from ebb.api.spec import Job
from ebb.controller.cluster_cache import ClusterCache, Object
from ebb.controller.etcd.legacy import RunError
from ebb.controller.kueue import write_workload
from ebb.controller.machines import Reader
from ebb.controller.metrics import Recovery
from ebb.controller.reconciler.pods import owner_of
from ebb.controller.reconciler.types import (
    Action,
    CreatePod,
    CreateRecord,
    CreateRun,
    CreateService,
    CreateWorkload,
    DeleteJob,
    DeletePod,
    DeleteService,
    DeleteWorkload,
    Event,
    OfWorkload,
    ReplaceWorkload,
    WriteWorkloadStatus,
)
from ebb.kube import (
    CONFIG_MAPS,
    ELASTIC_JOBS,
    EVENTS,
    PODS,
    SERVICES,
    WORKLOADS,
    Conflict,
    Denied,
    Invalid,
    KubeError,
    NotFound,
    Resource,
)
from ebb.kube.reflector import Reflector

WRITES_AT_ONCE = 50  # as JobSet; more makes an API server queue them
SENDERS, MAX_QUEUED_EVENTS = 8, 1000  # of events, and how many may wait for each
MakeRun = Callable[[str, str], Awaitable[None]]
"""Endpoint of an etcd, folder."""
log = logging.getLogger(__name__)


class Api(Reader, Protocol):
    """The calls that the controller needs of an API client: ebb.kube.Kube, and the fake of the tests."""

    async def create(self, resource: Resource, namespace: str | None, body: Object) -> Object: ...
    async def replace(
        self, resource: Resource, namespace: str | None, name: str, body: Object, subresource: str | None = None
    ) -> Object: ...
    async def delete(
        self,
        resource: Resource,
        namespace: str | None,
        name: str,
        *,
        grace_seconds: int | None = None,
        uid: str | None = None,
    ) -> None: ...


class Executor:
    """`fence` raises when this process must not write any more. `clock` is wall time. `make_run` makes a folder in an etcd and
    raises RunError."""

    def __init__(
        self,
        api: Api,
        cluster: ClusterCache,
        recovery: Recovery,
        *,
        fence: Callable[[], None],
        clock: Callable[[], float],
        make_run: MakeRun,
    ) -> None:
        self._api, self._cluster, self._recovery, self._fence, self._clock = api, cluster, recovery, fence, clock
        self._make_run = make_run
        self._told_of_services: set[str] = set()  # UIDs of jobs
        self._writes = asyncio.Semaphore(WRITES_AT_ONCE)
        self._event_queues: list[asyncio.Queue[Object]] = [asyncio.Queue(MAX_QUEUED_EVENTS) for _ in range(SENDERS)]

    async def do_all(self, job: Job, actions: tuple[Action, ...]) -> list[str]:
        """Do all of it, in parallel; returns what was refused for good reasons, raises what may be tried again. Without the
        folder where they meet, no pods are created: torch would make one that ends."""
        unmet = []
        try:
            for action in actions:
                if isinstance(action, CreateRun):
                    self._fence()
                    await self._make_run(action.endpoint, action.folder)
        except RunError as refused:
            unmet.append(str(refused))
        possible = (item for item in actions if not isinstance(item, CreateRun) and not (unmet and isinstance(item, CreatePod)))
        results = await asyncio.gather(*(self._do(job, action) for action in possible), return_exceptions=True)
        refusals = [error for error in results if isinstance(error, Denied | Invalid)]
        for error in results:
            if isinstance(error, BaseException) and error not in refusals:
                raise error
        return [*unmet, *(str(error) for error in refusals)]

    async def _do(self, job: Job, action: Action) -> None:
        async with self._writes:
            self._fence()
            match action:
                case CreatePod(body):
                    await self.create(PODS, self._cluster.pods, body)
                    index = body["metadata"]["labels"].get(names.LABEL_INDEX)
                    if index is not None:  # a worker, not the pod that copies the job's data
                        self._recovery.replaced((job.namespace, job.name), int(index), self._clock())
                case CreateService(body):
                    if not await self.create(SERVICES, self._cluster.services, body):
                        await self._check_owner(job, body["metadata"]["name"])
                case CreateRecord(body):
                    await self.create(CONFIG_MAPS, None, body)
                case DeletePod(name=name, uid=uid, grace_seconds=grace_seconds):
                    await self._delete(PODS, job.namespace, name, uid, grace_seconds)
                case DeleteService(name=name, uid=uid):
                    await self._delete(SERVICES, job.namespace, name, uid)
                case DeleteJob():
                    await self._delete(ELASTIC_JOBS, job.namespace, job.name, job.uid)
                case CreateWorkload() | ReplaceWorkload() | WriteWorkloadStatus() | DeleteWorkload():
                    await self._tell_kueue(job, action)

    async def _delete(self, resource: Resource, namespace: str, name: str, uid: str, grace_seconds: int | None = None) -> None:
        """Delete exactly this object. One that is gone, or was replaced by another of that name, is deleted."""
        with suppress(NotFound, Conflict):
            await self._api.delete(resource, namespace, name, uid=uid, grace_seconds=grace_seconds)

    async def _tell_kueue(self, job: Job, action: OfWorkload) -> None:
        match action:
            case CreateWorkload(body):
                await self.create(WORKLOADS, self._cluster.workloads, body)
            case ReplaceWorkload(body):
                await write_workload(self._api, self._cluster.workloads, body)
            case WriteWorkloadStatus(body):
                await write_workload(self._api, self._cluster.workloads, body, "status")
            case DeleteWorkload(name=name, uid=uid):
                await self._delete(WORKLOADS, job.namespace, name, uid)

    async def _check_owner(self, job: Job, name: str) -> None:
        """Tell people, once, of a Service of that name that is somebody else's. An earlier job's goes away by itself."""
        value = self._cluster.jobs.objects.get((job.namespace, job.name))
        if job.uid in self._told_of_services or value is None:
            return
        for service in (await self._api.list_page(SERVICES, job.namespace, fields=f"metadata.name={name}"))[0]:
            owner = owner_of(service)
            if owner and (owner["uid"] == job.uid or owner["name"] == job.name):
                return
            owners = [f"{item['kind']} {item['name']}" for item in service["metadata"].get("ownerReferences") or ()]
            message = (
                f"Service {name} is not this job's: it belongs to {' and '.join(owners) or 'no other object'}. The names of the "
                "workers may lead nowhere or to other pods; Ebb's own rendezvous needs none. If the program does, delete that "
                "Service, or submit the job under another name."
            )
            self._told_of_services.add(job.uid)
            self.emit_events(value, (Event(names.REASON_SERVICE_TAKEN, message, True),))

    async def create(self, resource: Resource, copy: Reflector | None, body: Object) -> bool:
        """Create an object that may exist already; returns whether it did not. Raises KubeError."""
        self._fence()
        try:
            created = await self._api.create(resource, body["metadata"]["namespace"], body)
            if copy is not None:
                copy.observe(created)
        except Conflict as error:
            if error.reason != "AlreadyExists":
                raise
            # Ours of an earlier round, which the watch will tell of; or somebody else's, which the next round sees is taken.
            log.debug("%s exists already", body["metadata"]["name"])
            return False
        return True

    async def write(self, value: Object, status: Object, events: tuple[Event, ...], *, matters: bool = True) -> None:
        """The one status write of a round. A Conflict means that the decision was about an old object: nothing is told then.
        Unless it `matters`, there is nothing in it to act upon."""
        if value.get("status") == status:
            return
        self._fence()
        # Of the object only its identity: the server takes nothing else from a write of the status.
        metadata = {name: value["metadata"][name] for name in ("name", "namespace", "uid", "resourceVersion")}
        body = {"apiVersion": names.API_VERSION, "kind": names.KIND, "metadata": metadata, "status": status}
        written = await self._api.replace(ELASTIC_JOBS, metadata["namespace"], metadata["name"], body, subresource="status")
        self._cluster.wrote(written, matters=matters)
        self.emit_events(value, events)

    def emit_events(self, value: Object, events: tuple[Event, ...]) -> None:
        """Send events soon, best effort: they are for people. A lost one is not worth a retry, nor is one worth a job's time."""
        for event in events:
            log.info("%s/%s %s: %s", value["metadata"]["namespace"], value["metadata"]["name"], event.reason, event.message)
            queue = self._event_queues[hash(value["metadata"]["uid"]) % SENDERS]  # those about one job stay in their order
            if queue.full():
                log.warning("event %s was not sent: too many wait", event.reason)
            else:
                queue.put_nowait(_event(value, event, self._clock()))

    async def send_events(self) -> None:
        """Never returns; raises what the fence raises."""
        async with asyncio.TaskGroup() as tasks:
            for queue in self._event_queues:
                tasks.create_task(self._send(queue))

    async def _send(self, queue: asyncio.Queue[Object]) -> None:
        while True:
            body = await queue.get()
            self._fence()
            try:
                await self._api.create(EVENTS, body["metadata"]["namespace"], body)
            except KubeError as error:
                log.warning("event %s was not sent: %s", body["reason"], error)
                await asyncio.sleep(error.retry_seconds)


def _event(value: Object, event: Event, now: float) -> Object:
    metadata, at = value["metadata"], stamp(now)
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{metadata['name']}.{uuid.uuid4().hex[:16]}", "namespace": metadata["namespace"]},
        "involvedObject": {
            "apiVersion": names.API_VERSION,
            "kind": names.KIND,
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "uid": metadata["uid"],
            "resourceVersion": metadata["resourceVersion"],
        },
        "type": "Warning" if event.warning else "Normal",
        "reason": event.reason,
        "message": event.message[:1024],
        "source": {"component": "elasticjob-controller"},
        "reportingComponent": "elasticjob-controller",
        "firstTimestamp": at,
        "lastTimestamp": at,
        "count": 1,
    }
