"""The platform as the page shows it: read once for all who watch, at most every two seconds, and not while nobody does.

    live = Live(ebb)
    async with live.watching():          # reads go on until the last one leaves
        bell = live.bell                 # taken before anything is shown, so that nothing is missed
        show(live.snapshot, live.trouble)
        await bell.wait()

A platform that does not answer leaves the last snapshot there, and why it is old; it is asked again and again.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import cached_property

from ebb.api.platform import Platform
from ebb.api.usage import MachineUsage
from ebb.cli.errors import EXPECTED, classify
from ebb.cli.ui.feed import JobFeed, OpenFiles
from ebb.client.files.transfer import gateway
from ebb.client.gpus import GpuReport, gpu_report, list_nodes, machine_usage
from ebb.client.jobs.nodes import Nodes, machine_view
from ebb.client.jobs.view import OVER, JobView, view
from ebb.client.jobs.watch import JobStatus, see
from ebb.client.platform.connection import Ebb
from ebb.client.sweep import LABEL_SWEEP, SweepView
from ebb.client.sweep.view import sweep_view
from ebb.kube import ELASTIC_JOBS, PODS, Object

READ_SECONDS = 2.0
RETRY_SECONDS = 5.0  # a restarting API server is back in 5 to 20 s


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """The platform at one moment; each view is made when it is first asked for."""

    at: float  # unix seconds
    namespace: str
    platform: Platform
    objects: tuple[Object, ...]  # ElasticJobs
    pods: tuple[Object, ...]
    machines: tuple[Object, ...] | None  # None: one may not look at them
    usage: MachineUsage | None = None

    @cached_property
    def jobs(self) -> tuple[JobView, ...]:
        """As `ebb list` has them, but for those that are over, which come last."""
        newest = sorted((view(job, self.at) for job in self.objects), key=lambda job: job.created, reverse=True)
        return tuple(sorted(newest, key=lambda job: job.state in OVER))

    @cached_property
    def gpus(self) -> GpuReport:
        return gpu_report(self.platform, self.machines, self.pods, self.objects, usage=self.usage, now=self.at)

    @cached_property
    def nodes(self) -> Nodes:
        return Nodes({node["metadata"]["name"]: machine_view(node) for node in self.machines or ()})

    @cached_property
    def sweeps(self) -> tuple[SweepView, ...]:
        """By name."""
        runs: dict[str, list[Object]] = {}
        for job in self.objects:
            if name := (job["metadata"].get("labels") or {}).get(LABEL_SWEEP):
                runs.setdefault(name, []).append(job)
        return tuple(sweep_view(name, self.namespace, jobs, now=self.at) for name, jobs in sorted(runs.items()))

    def job(self, name: str) -> Object | None:
        return next((job for job in self.objects if job["metadata"]["name"] == name), None)

    def status(self, job: Object) -> JobStatus:
        """As `ebb status` has it."""
        found = see(job, self.pods, self.nodes)
        return replace(found, dashboards=self.platform.dashboards_of(self.namespace, found.job.name))

    def sweep(self, name: str) -> SweepView | None:
        return next((sweep for sweep in self.sweeps if sweep.name == name), None)


async def read_snapshot(ebb: Ebb) -> Snapshot:
    """Four lists. Raises KubeError."""
    jobs, pods, machines, usage = await asyncio.gather(
        ebb.kube.list(ELASTIC_JOBS, ebb.namespace), ebb.kube.list(PODS, ebb.namespace), list_nodes(ebb), machine_usage(ebb)
    )
    return Snapshot(
        at=time.time(),
        namespace=ebb.namespace,
        platform=ebb.platform,
        objects=tuple(jobs),
        pods=tuple(pods),
        machines=None if machines is None else tuple(machines),
        usage=usage,
    )


class Live:
    """See the module's docstring. `version` grows with all that a page shows, the lines of logs apart."""

    def __init__(
        self,
        ebb: Ebb,
        *,
        every: float = READ_SECONDS,
        retry: float = RETRY_SECONDS,
        read: Callable[[Ebb], Awaitable[Snapshot]] = read_snapshot,
        open_files: OpenFiles = gateway,
    ) -> None:
        self.ebb = ebb
        self.snapshot: Snapshot | None = None
        self.trouble = ""  # why the snapshot is old; "" while the API server answers
        self.version = 0
        self.bell = asyncio.Event()
        self.closed = False
        self._every, self._retry, self._read_platform, self._open_files = every, retry, read, open_files
        self._read_at = float("-inf")
        self._turn = asyncio.Lock()
        self._watchers = 0
        self._reading: asyncio.Task[None] | None = None
        self._feeds: dict[str, tuple[JobFeed, int]] = {}  # by the job's uid, and how many watch it

    async def fresh(self) -> Snapshot | None:
        """The newest snapshot, read now unless that was done a moment ago; None where there never was any."""
        async with self._turn:
            if self._age() >= self._every:
                self._read_at = asyncio.get_running_loop().time()
                await self._read()
        return self.snapshot

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """Keep the snapshot new."""
        self._watchers += 1
        if self._reading is None:
            self._reading = asyncio.create_task(self._keep_reading())
        try:
            yield
        finally:
            self._watchers -= 1
            if not self._watchers:
                reading, self._reading = self._reading, None
                reading.cancel()
                await asyncio.gather(reading, return_exceptions=True)

    @asynccontextmanager
    async def feeding(self, job: Object) -> AsyncIterator[JobFeed]:
        """Open the feed of a job's page, one for all who watch it."""
        uid = str(job["metadata"]["uid"])
        feed, count = self._feeds.get(uid) or (None, 0)
        if feed is None:
            feed = JobFeed(self.ebb, job, self._changed, every=self._every, open_files=self._open_files)
        self._feeds[uid] = feed, count + 1
        try:
            yield feed
        finally:
            feed, count = self._feeds[uid]
            self._feeds[uid] = feed, count - 1
            if count == 1:
                del self._feeds[uid]
                await feed.close()

    def feed(self, job: Object) -> JobFeed | None:
        """The one that somebody watches now."""
        return self._feeds.get(str(job["metadata"]["uid"]), (None, 0))[0]

    def check(self) -> None:
        """Raise what nobody expected."""
        if self._reading is not None and self._reading.done():
            self._reading.result()

    def close(self) -> None:
        """Let all who watch go."""
        self.closed = True
        self._ring()

    async def _keep_reading(self) -> None:
        try:
            while True:
                await self.fresh()
                pause = self._retry if self.trouble else self._every
                await asyncio.sleep(max(0.0, pause - self._age()))
        finally:
            self._ring()  # whoever watches finds out

    async def _read(self) -> None:
        try:
            self.snapshot = await self._read_platform(self.ebb)
            self.trouble = ""
        except EXPECTED as error:
            self.trouble = classify(error)[1]
        for feed, _ in self._feeds.values():
            feed.follow(self.snapshot.objects if self.snapshot else ())
        self._changed(page=True)

    def _age(self) -> float:
        return asyncio.get_running_loop().time() - self._read_at

    def _changed(self, *, page: bool) -> None:
        self.version += page
        self._ring()

    def _ring(self) -> None:
        self.bell.set()
        self.bell = asyncio.Event()
