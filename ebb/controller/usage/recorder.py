"""Keep the machine usage record: takes the time of every machine, and writes ConfigMap `ebb-system/ebb-machines`.

    recorder = UsageRecorder(api, world, fence=election.check, clock=time.time)
    await recorder.run()                    # a task of the leader, once the world is synced

What is written carries the moment until which it counts, so a controller that comes after goes on from there. It is written soon
after a machine or who is on it changed, less often when it is long, and each minute; who replaced it in between is believed.
Without the right to do so the controller goes on without a record.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any, Protocol

from ebb.api import queue
from ebb.api.clock import stamp, unix
from ebb.api.costs import group_of
from ebb.api.spec import user_of
from ebb.api.usage import LONGEST_USER, NAME, NAMESPACE, MachineUsage, MachineUsageError, Who, read, write
from ebb.controller.claims import BUGS
from ebb.controller.cluster_cache import ClusterCache
from ebb.controller.machines import Reader
from ebb.controller.reconciler.pods import owner_of
from ebb.controller.usage.machine_time import Meter, Sight, resume, standing
from ebb.kube import CONFIG_MAPS, Conflict, Denied, Invalid, KubeError, NotFound, Resource

Object = dict[str, Any]

GATHER_SECONDS = 2.0  # changes come in bursts; what a controller that is killed has not written counts as it stood before
CHARACTERS_PER_SECOND = 20_000  # that are written on and on, while machines and jobs come and go
EVERY_SECONDS = 60.0
REFUSED_SECONDS = 300.0
TRUNCATED_SECONDS = 1.5  # times of creation have no fractions: a Node that is so young was made just now
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
    ) -> None:
        self._api, self._cluster, self._fence, self._clock = api, cluster, fence, clock
        self._record_days = record_days
        self._meter: Meter | None = None
        self._version = ""  # of the ConfigMap as last read or written; "": there is none
        self._sent: set[str] = set()  # how far each record counted that was written, or may have been
        self._doubt = False  # somebody else may have written
        self._had = False  # machines, when it was last written
        self._size = 0  # in characters, when it was last written
        self._who: dict[str, Who] = {}  # the jobs that were seen on machines
        self._news = asyncio.Event()
        cluster.moved = self._moved

    async def run(self) -> None:
        """Never returns; raises what the fence raises."""
        while True:
            self._news.clear()
            pause = await self._round()
            if self._meter is not None:
                self._cluster.claims.used(self._meter.usage.owners)
            # Where the record cannot be kept, nobody waits for it.
            self._cluster.spent = self._meter.usage.spent_in(stamp(self._clock())[:7]) if self._meter is not None else {}
            if not pause:
                with suppress(TimeoutError):
                    async with asyncio.timeout(EVERY_SECONDS):
                        await self._news.wait()
            await asyncio.sleep(max(pause, GATHER_SECONDS, self._size / CHARACTERS_PER_SECOND))

    async def _round(self) -> float:
        """Write them; returns seconds after which to try again, if that failed."""
        try:
            if self._meter is None or self._doubt:
                self._meter = await self._make_sure(self._meter)
            await self._write(self._meter)
        except Conflict as error:
            # Somebody else wrote it, or an answer was lost. What is read next time says which.
            log.info("machine usage record: %s; reading it again", error)
            self._doubt = True
            return GATHER_SECONDS
        except NotFound:
            self._version = ""  # somebody deleted it: what is known is written anew
            return GATHER_SECONDS
        except MachineUsageError as error:
            self._meter = None
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
        return read(value.get("data") or {})

    def _go_on(self, usage: MachineUsage | None) -> Meter:
        now = self._clock()
        there = self._cluster.machines.nodes.objects
        sights = {name: self._sight(node, now) for (_, name), node in there.items()}
        if usage is None:
            log.info("machine usage record: begun")
        else:
            self._had = bool(usage.open)
        known = {name: sight for name, sight in sights.items() if sight is not None}
        return resume(usage or MachineUsage(begun=now, until=now), known, now)

    async def _make_sure(self, meter: Meter | None) -> Meter:
        """After a Conflict. What another controller counted is later than what this one knows, and is gone on from; who put an
        annotation on it changed no figure, nor did a write of our own whose answer was lost."""
        usage = await self._read()
        self._doubt = False
        ours = usage is not None and stamp(usage.until, digits=3) in self._sent
        return meter if meter is not None and ours else self._go_on(usage)

    async def _write(self, meter: Meter) -> None:
        """Nothing as long as there is no machine of a stack, and nobody waits for one."""
        meter.usage.record_days = self._record_days
        meter.usage.who |= self._who
        meter.settle(self._clock())
        self._who.clear()
        waiting = self._cluster.claims.line(self._cluster.platform)
        if not meter.usage.open and not self._had and not waiting:
            return
        until = stamp(meter.usage.until, digits=3)
        version = {"resourceVersion": self._version} if self._version else {}
        metadata = {"name": NAME, "namespace": NAMESPACE, **version}
        data = {**write(meter.usage), queue.KEY: queue.write(waiting, meter.usage.until)}
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}
        self._fence()
        self._sent.add(until)
        self._size = sum(map(len, data.values()))
        if self._version:
            value = await self._api.replace(CONFIG_MAPS, NAMESPACE, NAME, body)
        else:
            value = await self._api.create(CONFIG_MAPS, NAMESPACE, body)
        self._version, self._sent, self._had = value["metadata"]["resourceVersion"], {until}, bool(meter.usage.open or waiting)

    def _moved(self, machine: str) -> None:
        """A machine, or who is on it, changed. This is called by the watch: what we do not understand must not end it."""
        try:
            if self._meter is not None and self._take_in(self._meter, machine):
                self._news.set()
        except BUGS:
            log.exception("machine usage record: %s: the controller cannot tell how it stands", machine)

    def _take_in(self, meter: Meter, machine: str) -> bool:
        """Return whether it is news."""
        node, now = self._cluster.machines.nodes.objects.get(("", machine)), self._clock()
        sight = self._sight(node, now) if node is not None else None
        meter.usage.who |= self._who  # who is charged is known before the time is counted
        known = machine in meter.usage.open
        if sight is not None and not known and sight.created < now:
            meter.find(machine, sight, now)
            return True
        return bool(sight or known) and meter.stand(machine, sight.standing if sight else None, now)

    def _sight(self, node: Object, now: float) -> Sight | None:
        """None for a machine of no node group. While the platform cannot be read, a machine stands as it stood."""
        name, platform = node["metadata"]["name"], self._cluster.platform
        before = self._meter.usage.open.get(name) if self._meter else None
        group = group_of(node, platform)
        if group is None:
            return Sight(standing=before, created=now) if before else None
        workers = self._cluster.charged(name)
        self._who |= dict(self._names(workers))
        created = unix(node["metadata"].get("creationTimestamp")) or now
        return Sight(
            standing=standing(node, workers, group, before),
            created=now if now - TRUNCATED_SECONDS < created else created,
        )

    def _names(self, workers: Iterable[Object]) -> Iterator[tuple[str, Who]]:
        """The jobs of workers that are charged for it."""
        for pod in workers:
            owner, namespace = owner_of(pod), pod["metadata"]["namespace"]
            job = self._cluster.jobs.objects.get((namespace, owner["name"])) if owner else None
            if owner and job:
                user = user_of(job["metadata"])[:LONGEST_USER]
                yield owner["uid"][:8], Who(namespace=namespace, job=owner["name"], user=user)
