"""The loop around the planner: look at a job, decide, act, write one status, tell people. `python -m workloads` runs it.

    controller = Controller(api, fence=election.check, fetch=fetch, clock=time.time, metrics=Metrics())
    await controller.run()

Everything here is plumbing: what is to be done is decided in reconcile.py and what is seen is gathered in world.py. Actions may
be done twice and may be interrupted; a failure of one ends the round, and the queue brings the job back.
"""

import asyncio
import logging
import uuid
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any, Protocol

from workloads import contract as names
from workloads.clock import stamp
from workloads.control.metrics import ERRORS, FAILURES, RECLAIMS, RECONCILE_SECONDS, REPLACEMENT_SECONDS, Metrics
from workloads.control.scraper import Fetch, Scraper
from workloads.control.workqueue import WorkQueue
from workloads.control.world import Object, Reader, World
from workloads.job.schema import decode, encode
from workloads.job.spec import Job, SpecError
from workloads.job.status import PROGRAM_FAILED, RECLAIMED, Status
from workloads.kube import (
    CONFIG_MAPS,
    ELASTIC_JOBS,
    EVENTS,
    PODS,
    SERVICES,
    Conflict,
    Denied,
    Invalid,
    KubeError,
    NotFound,
    Resource,
)
from workloads.kube.reflector import Key, Reflector
from workloads.plan.reconcile import plan, refused
from workloads.plan.values import Action, CreatePod, CreateRecord, CreateService, DeleteJob, DeletePod, DeleteService, Event, Plan

JOBS_AT_ONCE = 16  # looked at; each waits for the API server most of the time
WRITES_AT_ONCE = 50  # as JobSet; more makes an API server queue them
REFUSED_RETRY_SECONDS = 5.0  # for a quota or an admission rule: the world must change first
BUGS = (ValueError, LookupError, TypeError, AttributeError, AssertionError)
log = logging.getLogger(__name__)


class Api(Reader, Protocol):
    """What the controller needs of an API client: workloads.kube.Kube, and the fake of the tests."""

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


class Controller:
    """`fence` raises when this process must not write any more; its exception ends `run`. `clock` is wall time."""

    def __init__(
        self, api: Api, *, fence: Callable[[], None], fetch: Fetch, clock: Callable[[], float], metrics: Metrics
    ) -> None:
        self._api, self._fence, self._clock, self.metrics = api, fence, clock, metrics
        self._queue: WorkQueue[Key] = WorkQueue()
        self.world = World(api, self._queue.add)
        self._scraper = Scraper(fetch, self.world.targets, self._queue.add, clock=clock)
        self._writes = asyncio.Semaphore(WRITES_AT_ONCE)
        self._lost: dict[Key, dict[int, float]] = {}  # job -> worker's index -> when its loss was noticed
        metrics.gauge("ebb_queue_depth", "Jobs that wait to be looked at.", lambda: {"": len(self._queue)})
        metrics.gauge("ebb_watch_age_seconds", "Since when nothing came from the API server, by kind.", self.ages)

    async def run(self) -> None:
        """Never returns; raises what the fence raises."""
        async with asyncio.TaskGroup() as tasks:
            for reflector in self.world.reflectors:
                tasks.create_task(reflector.run())
            await self.world.synced()
            log.info("watching %d jobs", len(self.world.jobs.objects))
            tasks.create_task(self._scraper.run())
            for _ in range(JOBS_AT_ONCE):
                tasks.create_task(self._work())

    def ages(self) -> dict[str, float]:
        """Seconds since the last word from the API server, by kind, as Prometheus labels."""
        return {f'kind="{item.resource.plural}"': item.age_seconds for item in self.world.reflectors}

    def unfinished(self) -> list[Object]:
        """The jobs that run or mean to: not at their end, not suspended."""
        idle = (names.SUSPENDED, names.SUCCEEDED, names.FAILED)
        return [job for job in self.world.jobs.objects.values() if (job.get("status") or {}).get("state") not in idle]

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            key = await self._queue.take()
            started = loop.time()
            try:
                again_after = await self._look(key)
            except (KubeError, TimeoutError) as error:
                self.metrics.count(ERRORS)
                wait = self._queue.failed(key)
                # A lost race is ordinary: the copy was a moment behind.
                log.log(logging.DEBUG if isinstance(error, Conflict) else logging.WARNING, "%s/%s: %s", *key, error)
                log.debug("%s/%s again in %.2f s", *key, wait)
            except BUGS:
                # One job that breaks the planner must not stop the others; the traceback is for us.
                self.metrics.count(ERRORS)
                log.exception("%s/%s: the controller cannot handle this job; again in %.1f s", *key, self._queue.failed(key))
            else:
                self._queue.done(key, again_after=again_after)
            self.metrics.observe(RECONCILE_SECONDS, loop.time() - started)

    async def _look(self, key: Key) -> float | None:
        """One round for one job; returns seconds until the next is due. Raises KubeError."""
        value = self.world.jobs.objects.get(key)
        if value is None:
            self._scraper.forget(key)
            self._lost.pop(key, None)
            return None
        try:
            job = Job.of(value)
        except SpecError as error:
            await self._write(value, _unusable(value, str(error), self._clock()), ())
            return None
        now = self._clock()
        decided = plan(job, await self.world.observe(job, now, self._scraper.latest.get(key)), now)
        for entry in decided.happened:
            if entry.what == RECLAIMED and entry.worker is not None:
                self._lost.setdefault(key, {}).setdefault(entry.worker, now)
        problems = await self._act(job, decided.actions)
        if problems:
            decided = refused(decided, problems, now)
        if decided.status != job.status:
            await self._write(value, encode(decided.status), decided.events)
        else:
            await self.tell(value, decided.events)
        self._count(decided)
        if problems:
            return REFUSED_RETRY_SECONDS
        return None if decided.wake_at is None else decided.wake_at - self._clock()

    async def _act(self, job: Job, actions: tuple[Action, ...]) -> list[str]:
        """Do all of it, in parallel; returns what the API server refused for good reasons, raises what may be tried again."""
        results = await asyncio.gather(*(self._do(job, action) for action in actions), return_exceptions=True)
        refusals = [error for error in results if isinstance(error, Denied | Invalid)]
        for error in results:
            if isinstance(error, BaseException) and error not in refusals:
                raise error
        return [str(error) for error in refusals]

    async def _do(self, job: Job, action: Action) -> None:
        async with self._writes:
            self._fence()
            match action:
                case CreatePod(body):
                    await self._create(PODS, self.world.pods, body)
                    self._replaced(job, int(body["metadata"]["labels"][names.LABEL_INDEX]))
                case CreateService(body):
                    await self._create(SERVICES, self.world.services, body)
                case DeletePod():
                    call = self._api.delete(PODS, job.namespace, action.name, uid=action.uid, grace_seconds=action.grace_seconds)
                    await _unless_gone(call)
                case DeleteJob():
                    await _unless_gone(self._api.delete(ELASTIC_JOBS, job.namespace, job.name, uid=job.uid))
                case CreateRecord(body):
                    await self._create(CONFIG_MAPS, None, body)
                case DeleteService():
                    await _unless_gone(self._api.delete(SERVICES, job.namespace, action.name, uid=action.uid))

    async def _create(self, resource: Resource, copy: Reflector | None, body: Object) -> None:
        try:
            created = await self._api.create(resource, body["metadata"]["namespace"], body)
            if copy is not None:
                copy.observe(created)
        except Conflict as error:
            if error.reason != "AlreadyExists":
                raise
            # Ours of an earlier round, which the watch will tell of; or somebody else's, which the next round sees is taken.
            log.debug("%s exists already", body["metadata"]["name"])

    async def _write(self, value: Object, status: Object, events: tuple[Event, ...]) -> None:
        """The one status write of a round. A Conflict means that the decision was about an old object: nothing is told then."""
        if value.get("status") == status:
            return
        self._fence()
        metadata = value["metadata"]
        written = await self._api.replace(
            ELASTIC_JOBS, metadata["namespace"], metadata["name"], {**value, "status": status}, subresource="status"
        )
        self.world.jobs.observe(written)
        await self.tell(value, events)

    async def tell(self, value: Object, events: tuple[Event, ...]) -> None:
        """Send events, best effort: they are for people, and lost ones are not worth a retry."""
        for event in events:
            self._fence()
            log.info("%s/%s %s: %s", value["metadata"]["namespace"], value["metadata"]["name"], event.reason, event.message)
            try:
                await self._api.create(EVENTS, value["metadata"]["namespace"], _event(value, event, self._clock()))
            except KubeError as error:
                log.warning("event %s was not sent: %s", event.reason, error)

    def _count(self, decided: Plan) -> None:
        """What was newly written down, for the metrics."""
        for entry in decided.happened:
            if entry.what == RECLAIMED:
                self.metrics.count(RECLAIMS, f'cause="{entry.cause}"')
            elif entry.what == PROGRAM_FAILED:
                self.metrics.count(FAILURES)

    def _replaced(self, job: Job, index: int) -> None:
        noticed = self._lost.get((job.namespace, job.name), {}).pop(index, None)
        if noticed is not None:
            self.metrics.observe(REPLACEMENT_SECONDS, self._clock() - noticed)


async def _unless_gone(call: Coroutine[Any, Any, None]) -> None:
    """A deletion of what is gone, or of what has meanwhile been replaced by another object of that name, is done."""
    try:
        await call
    except (NotFound, Conflict):
        return


def _unusable(value: Object, message: str, now: float) -> Object:
    """The status of a job that cannot be understood."""
    status = decode(Status, value.get("status") or {})
    status = status.with_condition(names.RUNNING, False, names.REASON_SPEC_INVALID, message, now)
    return encode(replace(status, observed_generation=value["metadata"].get("generation")))


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
