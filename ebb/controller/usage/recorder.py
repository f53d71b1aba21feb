"""Keep the machine usage record: takes the time of every machine, and writes ConfigMap `ebb-system/ebb-machines`.

    recorder = UsageRecorder(api, world, fence=election.check, clock=time.time)
    await recorder.run()                    # a task of the leader, once the world is synced

What is written carries the moment until which it counts, so a controller that comes after goes on from there. It is written soon
after a machine or who is on it changed, less often when it is long, and each minute; who replaced it in between is believed.
Without the right to do so the controller goes on without a record. The leader's loop only notes a machine as it is when that
changes; the counting is done in a thread (accounts.py).
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any, Protocol

from ebb.api.clock import stamp
from ebb.api.spec import user_of
from ebb.api.usage import LONGEST_USER, NAME, NAMESPACE, MachineUsage, MachineUsageError, Who
from ebb.controller.claims import BUGS
from ebb.controller.cluster_cache import ClusterCache
from ebb.controller.machines import Reader
from ebb.controller.reconciler.pods import owner_of
from ebb.controller.usage.accounts import Accounts, Aside, Sighting, Written
from ebb.kube import CONFIG_MAPS, Conflict, Denied, Invalid, KubeError, NotFound, Resource

Object = dict[str, Any]

GATHER_SECONDS = 2.0  # changes come in bursts; what a controller that is killed has not written counts as it stood before
CHARACTERS_PER_SECOND = 20_000  # that are written on and on, while machines and jobs come and go
EVERY_SECONDS = 60.0
REFUSED_SECONDS = 300.0
log = logging.getLogger(__name__)


class UsageApi(Reader, Protocol):
    """The calls needed of an API client."""

    async def create(self, resource: Resource, namespace: str | None, body: Object) -> Object: ...
    async def replace(
        self, resource: Resource, namespace: str | None, name: str, body: Object, subresource: str | None = None
    ) -> Object: ...


class UsageRecorder:
    """`fence` raises when this process must not write any more; `clock` is wall time; `record_days`: for readers."""

    def __init__(
        self,
        api: UsageApi,
        cluster: ClusterCache,
        *,
        fence: Callable[[], None],
        clock: Callable[[], float],
        record_days: float,
        aside: Aside = asyncio.to_thread,
    ) -> None:
        self._api, self._cluster, self._fence, self._clock = api, cluster, fence, clock
        self._record_days = record_days
        self._accounts = Accounts(aside)
        self._version = ""  # of the ConfigMap as last read or written; "": there is none
        self._sent: set[str] = set()  # how far each record counted that was written, or may have been
        self._doubt = False  # somebody else may have written
        self._had = False  # machines, when it was last written
        self._size = 0  # in characters, when it was last written
        self._notes = False  # what changes
        self._sightings: list[Sighting] = []  # that are not counted yet
        self._news = asyncio.Event()
        cluster.moved = self._moved

    async def run(self) -> None:
        """Never returns; raises what the fence raises."""
        while True:
            self._news.clear()
            pause = await self._round()
            if not self._accounts.have_begun:
                self._cluster.spent = {}  # where the record cannot be kept, nobody waits for it
            if not pause:
                await self._until_news()
            await self._gather(max(pause, GATHER_SECONDS, self._size / CHARACTERS_PER_SECOND))

    async def _until_news(self) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + EVERY_SECONDS
        while loop.time() < until and not await self._accounts.take_in(self._noted()):
            with suppress(TimeoutError):
                async with asyncio.timeout_at(until):
                    await self._news.wait()
            self._news.clear()

    async def _gather(self, seconds: float) -> None:
        """Let time pass. What is seen meanwhile does not pile up."""
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        while (left := until - loop.time()) > 0:
            await asyncio.sleep(min(left, GATHER_SECONDS))
            await self._accounts.take_in(self._noted())

    def _noted(self) -> list[Sighting]:
        noted, self._sightings = self._sightings, []
        return noted

    async def _round(self) -> float:
        """Write it; returns seconds after which to try again, if that failed."""
        try:
            if not self._accounts.have_begun or self._doubt:
                await self._make_sure()
            await self._write()
        except Conflict as error:
            # Somebody else wrote it, or an answer was lost. What is read next time says which.
            log.info("machine usage record: %s; reading it again", error)
            self._doubt = True
            return GATHER_SECONDS
        except NotFound:
            self._version = ""  # somebody deleted it: what is known is written anew
            return GATHER_SECONDS
        except MachineUsageError as error:
            self._accounts.forget()
            self._notes = False
            log.error("machine usage record: %s", error)
            return REFUSED_SECONDS
        except (KubeError, TimeoutError) as error:
            log.warning("machine usage record: %s", error or "no answer")
            asked = error.retry_seconds if isinstance(error, KubeError) else 0.0
            return REFUSED_SECONDS if isinstance(error, Denied | Invalid) else max(GATHER_SECONDS, asked)
        except BUGS:
            log.exception("machine usage record: the controller cannot keep it; again in %.0f s", REFUSED_SECONDS)
            return REFUSED_SECONDS
        return 0.0

    async def _read(self) -> MachineUsage | None:
        """The record as last written; None: there is none. Raises MachineUsageError for one that must be left alone."""
        try:
            value = await self._api.get(CONFIG_MAPS, NAMESPACE, NAME)
        except NotFound:
            self._version = ""
            return None
        self._version = value["metadata"]["resourceVersion"]
        return await self._accounts.read(value.get("data") or {})

    async def _make_sure(self) -> None:
        """After a Conflict. What another controller counted is later than what this one knows, and is gone on from; who put an
        annotation on it changed no figure, nor did a write of our own whose answer was lost."""
        usage = await self._read()
        self._doubt = False
        ours = usage is not None and stamp(usage.until, digits=3) in self._sent
        if self._accounts.have_begun and ours:
            return
        if usage is not None:
            self._had = bool(usage.open)
        now, self._notes = self._clock(), True
        self._noted()  # all machines are looked at anew
        there = [self._sighting(name, now) for _, name in self._cluster.machines.nodes.objects]
        await self._accounts.begin(usage, there, now)

    async def _write(self) -> None:
        """Nothing as long as there is no machine of a stack, and nobody waits for one."""
        written = await self._accounts.settle(
            self._clock(),
            line=self._cluster.claims.standing(),
            platform=self._cluster.platform,
            record_days=self._record_days,
            sightings=self._noted(),
        )
        self._cluster.claims.used(written.owners)
        self._cluster.spent = written.spent
        if not written.is_empty or self._had:
            await self._send(written)

    async def _send(self, written: Written) -> None:
        version = {"resourceVersion": self._version} if self._version else {}
        metadata = {"name": NAME, "namespace": NAMESPACE, **version}
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": written.data}
        self._fence()
        self._sent.add(written.until)
        self._size = sum(map(len, written.data.values()))
        if self._version:
            value = await self._api.replace(CONFIG_MAPS, NAMESPACE, NAME, body)
        else:
            value = await self._api.create(CONFIG_MAPS, NAMESPACE, body)
        self._version, self._sent, self._had = value["metadata"]["resourceVersion"], {written.until}, not written.is_empty

    def _moved(self, machine: str) -> None:
        """A machine, or who is on it, changed. This is called by the watch, for each change of thousands of pods: the machine is
        noted as it is now, and looked into later. What we do not understand must not end the watch."""
        if not self._notes:
            return
        try:
            self._sightings.append(self._sighting(machine, self._clock()))
        except BUGS:
            log.exception("machine usage record: %s: the controller cannot tell how it stands", machine)
        self._news.set()

    def _sighting(self, machine: str, now: float) -> Sighting:
        node, platform = self._cluster.machines.nodes.objects.get(("", machine)), self._cluster.platform
        workers = self._cluster.charged(machine) if node is not None else []
        return Sighting(machine=machine, at=now, node=node, workers=workers, who=dict(self._names(workers)), platform=platform)

    def _names(self, workers: Iterable[Object]) -> Iterator[tuple[str, Who]]:
        """The jobs of workers that are charged for it."""
        for pod in workers:
            owner, namespace = owner_of(pod), pod["metadata"]["namespace"]
            job = self._cluster.jobs.objects.get((namespace, owner["name"])) if owner else None
            if owner and job:
                user = user_of(job["metadata"])[:LONGEST_USER]
                yield owner["uid"][:8], Who(namespace=namespace, job=owner["name"], user=user)
