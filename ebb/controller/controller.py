"""The loop around the planner: look at a job, decide, act, write one status, tell people. `python -m ebb.controller` runs it.

    controller = Controller(api, fence=election.check, fetch=fetch, fetch_launcher=fetch_launcher, send=send, ...)
    tasks.create_task(controller.watch())        # from the beginning, also of one that only follows: it writes nothing
    await election.acquire()
    tasks.create_task(controller.act())          # at once: it has seen everything already

Everything here is plumbing: reconcile.py decides what is to be done, cluster_cache.py gathers what is seen. Actions may
be done twice and may be interrupted; a failure of one ends the round, and the queue brings the job back.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from ebb.api import contract as names
from ebb.api.json_logs import about
from ebb.api.schema import decode, encode
from ebb.api.spec import Job, SpecError
from ebb.api.status import PROGRAM_FAILED, RECLAIMED, Status
from ebb.controller.claims import BUGS
from ebb.controller.cluster_cache import ClusterCache, Object
from ebb.controller.dependents import Dependents
from ebb.controller.etcd.legacy import Runs, Send
from ebb.controller.executor import Api, Executor
from ebb.controller.launchers import Launchers
from ebb.controller.metrics import ERRORS, FAILURES, QUEUE_DEPTH, RECLAIMS, RECONCILE_SECONDS, WATCH_AGE, Metrics, Recovery
from ebb.controller.notifier import Notifier, Receiver
from ebb.controller.rate_limits import Refusals, Retries, WriteLimit, as_before, only_figures, without_creations
from ebb.controller.reconciler.reconcile import failing, plan, refused
from ebb.controller.reconciler.records import DELETED, record
from ebb.controller.reconciler.types import Event, Observed, Plan
from ebb.controller.reconciler.worker_state import is_unknown
from ebb.controller.record_retention import KEPT_DAYS, RecordRetention
from ebb.controller.scraper import Fetch, Scraper
from ebb.controller.usage.accounts import Aside
from ebb.controller.usage.recorder import UsageRecorder
from ebb.controller.workqueue import WorkQueue
from ebb.kube import CONFIG_MAPS, Conflict, Denied, Invalid, KubeError, NotFound
from ebb.kube.reflector import Key

# For how long one that follows remembers a job that was deleted: the one that leads writes its record in that time, or is gone.
FORGET_SECONDS = 300.0
JOBS_AT_ONCE = 16  # looked at; each waits for the API server most of the time
log = logging.getLogger(__name__)


class Controller:
    """`fence` raises when this process must not write any more; its exception ends `run`. `clock` is wall time. `fetch` and
    `fetch_launcher` read the pages of workers and of their launchers. `send` speaks to the etcds of torch's own rendezvous.
    `silent_after`: seconds without a sign of life after which a machine may be given up.
    `record_days`: how long the record of a job is kept. `receiver` takes notifications. `aside` does what would hold up the
    loop."""

    def __init__(
        self,
        api: Api,
        *,
        fence: Callable[[], None],
        fetch: Fetch,
        fetch_launcher: Fetch,
        send: Send,
        clock: Callable[[], float],
        metrics: Metrics,
        receiver: Receiver,
        silent_after: float | None = None,
        record_days: float = KEPT_DAYS,
        aside: Aside = asyncio.to_thread,
    ) -> None:
        self._clock, self._fetch, self.metrics = clock, fetch, metrics
        self._watches, self._acts = asyncio.Event(), False
        self._queue: WorkQueue[Key] = WorkQueue()
        self.cluster = ClusterCache(api, self._queue, clock, silent_after)
        self._scraper = Scraper(fetch, self.cluster, self._queue.add, clock=clock)
        self._launchers = Launchers(fetch_launcher, self.cluster, self._queue.add, clock=clock)
        self._write_limit, self._refusals, self._retries = WriteLimit(), Refusals(), Retries()
        self._recovery = Recovery(metrics)
        self._runs = Runs(send, jobs=self.unfinished)
        self._executor = Executor(api, self.cluster, self._recovery, fence=fence, clock=clock, make_run=self._runs.create)
        self._notifier = Notifier(receiver, changed=self._queue.add, clock=clock, metrics=metrics)
        self._usage = UsageRecorder(api, self.cluster, fence=fence, clock=clock, record_days=record_days, aside=aside)
        self._retention = RecordRetention(api, fence=fence, clock=clock, days=record_days, namespaces=self.cluster.namespaces)
        self._dependents = Dependents(api, self.cluster, fence=fence)
        metrics.gauge(QUEUE_DEPTH, "Jobs that wait to be looked at.", lambda: {"": len(self._queue)})
        metrics.gauge(WATCH_AGE, "Since when nothing came from the API server, by kind.", self.ages)

    async def run(self) -> None:
        """Watch and act. Never returns; raises what the fence raises."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.watch())
            tasks.create_task(self.act())

    async def watch(self) -> None:
        """Keep the copy of the cluster, and the queue of jobs to look at, as they are; write nothing. Never returns."""
        async with asyncio.TaskGroup() as tasks:
            for reflector in self.cluster.reflectors:
                tasks.create_task(reflector.run())
            await self.cluster.synced()
            log.info("watching %d jobs", len(self.cluster.jobs.objects))
            tasks.create_task(self.cluster.machines.watch_heartbeats())
            self._watches.set()
            while True:
                await asyncio.sleep(FORGET_SECONDS)
                if not self._acts:
                    self.cluster.forget_departed(self._clock() - FORGET_SECONDS)

    async def act(self) -> None:
        """Do what is to be done, once everything was seen. Never returns; raises what the fence raises."""
        await self._watches.wait()
        self._acts = True
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._scraper.run())
            tasks.create_task(self._launchers.run())
            tasks.create_task(self._executor.send_events())
            tasks.create_task(self._runs.run())
            tasks.create_task(self._usage.run())
            tasks.create_task(self._notifier.run())
            tasks.create_task(self._retention.run())
            tasks.create_task(self._dependents.run())
            for _ in range(JOBS_AT_ONCE):
                tasks.create_task(self._work())

    def ages(self) -> dict[str, float]:
        """Seconds since the last word from the API server, by kind, as Prometheus labels."""
        return {f'kind="{item.name}"': item.age_seconds for item in self.cluster.reflectors if not item.refused}

    def unfinished(self) -> list[Object]:
        """The jobs that run or mean to: not at their end, not suspended."""
        idle = (names.SUSPENDED, names.SUCCEEDED, names.FAILED)
        return [job for job in self.cluster.jobs.objects.values() if (job.get("status") or {}).get("state") not in idle]

    async def emit_events(self, value: Object, events: tuple[Event, ...]) -> None:
        """Send events about a job, best effort."""
        self._executor.emit_events(value, events)

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            key = await self._queue.take()
            started = loop.time()
            with about(*key):
                try:
                    again_after = await self._reconcile(key)
                except (KubeError, TimeoutError) as error:
                    if not isinstance(error, Conflict):
                        await self._tell(key, str(error) or "no answer in time")
                    wait = self._queue.failed(key, error.retry_seconds if isinstance(error, KubeError) else 0.0)
                    # A lost race is ordinary: the copy was a moment behind.
                    level = logging.DEBUG if isinstance(error, Conflict) else logging.WARNING
                    log.log(level, "%s/%s: %s; again in %.2f s", *key, error, wait)
                    self.metrics.count(ERRORS)
                except BUGS:
                    # One job that breaks the planner must not stop the others; the traceback is for us.
                    wait = self._queue.failed(key)
                    log.exception("%s/%s: the controller cannot handle this job; again in %.1f s", *key, wait)
                    self.metrics.count(ERRORS)
                else:
                    if self._retries.words(key):
                        self._queue.add(key)  # the condition still says what is over
                    self._retries.forget(key)
                    self._queue.done(key, again_after=again_after)
            self.metrics.observe(RECONCILE_SECONDS, loop.time() - started)

    async def _tell(self, key: Key, error: str) -> None:
        """Say in the job's condition and by an event that a round for it failed, once it did so several times in a row."""
        words, value = self._retries.failed(key, error), self.cluster.jobs.objects.get(key)
        if not words or value is None:
            return
        # Where it is the status that cannot be written, the log has to do.
        with suppress(SpecError, KubeError, TimeoutError):
            job = self.cluster.claims.job(key)
            status, event = failing(job.status, words, self._clock())
            if status != job.status:
                await self._executor.write(value, encode(status), (event,), matters=False)

    async def _reconcile(self, key: Key) -> float | None:
        """One round for one job; returns seconds until the next is due. Raises KubeError."""
        unwritten = await self._finalize_deleted(key)
        value = self.cluster.jobs.objects.get(key)
        # A job of the same name need not wait for its predecessor's record.
        again_after = await self._reconcile_job(key, value) if value else None
        if unwritten:
            raise unwritten
        return again_after

    async def _reconcile_job(self, key: Key, value: Object) -> float | None:
        """Read, decide, act, write, and do what had to be written first. Nothing that is created is waited for: its news bring
        the job back."""
        try:
            job = self.cluster.claims.job(key)
        except SpecError as error:
            if (value.get("spec") or {}).get("managedBy", names.MANAGER) != names.MANAGER:
                return None
            await self._executor.write(value, _unusable(value, str(error), self._clock()), ())
            return None
        now = self._clock()
        observed = await self.cluster.observe(job, now, self._scraper.latest.get(key))
        crashes = await self._launchers.crashes(key, job, observed.pods)
        observed = replace(observed, crashes=crashes, gpus=self._launchers.gpus(key, observed.pods))
        decided = plan(job, await self._ask_workers(observed), now)
        # Before anything is awaited: a job that is looked at meanwhile must not count on the same machines.
        self.cluster.decided(key, decided.status)
        words = self._retries.words(key)
        if words and decided.once_written:
            # It may be these that fail: the condition is not to change to and fro with each attempt.
            decided = as_before(job.status, replace(decided, status=failing(decided.status, words, now)[0]))
        decided = replace(decided, status=self._notifier.note(key, job, decided.status, now))
        self._recovery.noticed(key, decided, now)
        if job.status.observed_generation != job.generation:
            self._refusals.forget(key)  # other pods are asked for now
        decided, refused_until = await self._act(key, job, decided)
        pause = await self._write_status(key, value, job, decided)
        problems = await self._executor.do_all(job, decided.once_written)
        if problems:
            raise KubeError(problems[0])
        due = [seconds for seconds in (refused_until, pause) if seconds]
        if decided.wake_at is not None:
            due.append(decided.wake_at - self._clock())
        return min(due, default=None)

    async def _ask_workers(self, observed: Observed) -> Observed:
        """Ask the workers of machines that look lost for their metrics. One that answers is well, whatever its kubelet does."""
        if observed.doubt:
            return observed  # nothing is given up in any case
        lost = observed.silent | {name for name, node in observed.nodes.items() if is_unknown(node)}
        asked = {
            pod["spec"]["nodeName"]: pod["status"]["podIP"]
            for pod in observed.pods
            if pod["spec"].get("nodeName") in lost and (pod.get("status") or {}).get("podIP")
        }
        answers = await asyncio.gather(*(self._fetch(address) for address in asked.values()))
        answering = frozenset(node for node, text in zip(asked, answers, strict=True) if text is not None)
        return replace(observed, answering=answering)

    async def _write_status(self, key: Key, value: Object, job: Job, decided: Plan) -> float:
        """Write the status if it changed and tell the events; returns seconds after which to write it, if that can wait."""
        now = asyncio.get_running_loop().time()
        if decided.status != job.status:
            pause = self._write_limit.wait(key, job.status, decided, now)
            if pause:
                return pause
            matters = not only_figures(job.status, decided)
            await self._executor.write(value, encode(decided.status), decided.events, matters=matters)
            self._write_limit.wrote(key, now)
        else:
            self._executor.emit_events(value, decided.events)
        for entry in decided.happened:
            if entry.what == RECLAIMED:
                self.metrics.count(RECLAIMS, f'cause="{entry.cause}"')
            elif entry.what == PROGRAM_FAILED:
                self.metrics.count(FAILURES)
        self._recovery.written(key, job.status, decided.status, self._clock())
        return 0.0

    async def _finalize_deleted(self, key: Key) -> KubeError | TimeoutError | None:
        """Forget jobs of this name that were deleted; what those cost that had not ended is written down. Returns why that is to
        be tried again."""
        waiting = self.cluster.departed.pop(key, [])
        if waiting:
            for memory in (
                self._scraper,
                self._launchers,
                self._recovery,
                self._write_limit,
                self._refusals,
                self._retries,
                self._notifier,
            ):
                memory.forget(key)
        while waiting:
            try:
                await self._record(*waiting[0])
            except (Denied, Invalid, NotFound) as error:  # the namespace may be going too
                log.warning("what %s/%s cost was not recorded: %s", *key, error)
            except (KubeError, TimeoutError) as error:
                self.cluster.departed[key] = waiting + self.cluster.departed.get(key, [])
                return error
            del waiting[0]
        return None

    async def _record(self, value: Object, departed: float) -> None:
        """Record the cost of a job until it was deleted. Raises KubeError."""
        try:
            job = Job.of(value)
        except SpecError:
            return
        # One that never had a machine cost nothing, and that of an ended job is written already.
        if job.status.recorded or not (job.status.cost or job.status.start_time) or job.spec.managed_by != names.MANAGER:
            return
        await self._executor.create(CONFIG_MAPS, None, record(job, job.status, departed, reason=DELETED))

    async def _act(self, key: Key, job: Job, decided: Plan) -> tuple[Plan, float]:
        """Do what was decided, but create nothing for a while after the API server refused to; returns what came of it, and the
        seconds until creations are tried again."""
        now = asyncio.get_running_loop().time()
        wait, problems = self._refusals.resting(key, now)
        stripped = without_creations(decided)
        if not wait or stripped.actions == decided.actions:
            problems = tuple(await self._executor.do_all(job, decided.at_once))
            if not problems:
                self._refusals.forget(key)
                return decided, 0.0
        else:
            await self._executor.do_all(job, stripped.at_once)
        decided = refused(job, stripped, problems, self._clock())
        if self._refusals.repeats(key, problems):
            decided = replace(decided, events=stripped.events)
        return as_before(job.status, decided), wait or self._refusals.refused(key, problems, now)


def _unusable(value: Object, message: str, now: float) -> Object:
    """The status of a job that cannot be understood."""
    status = decode(Status, value.get("status") or {})
    status = status.with_condition(names.RUNNING, False, names.REASON_SPEC_INVALID, message, now)
    return encode(replace(status, observed_generation=value["metadata"].get("generation")))
