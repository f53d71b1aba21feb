"""Lets one of several controllers act: a Lease that its holder renews, and a fence that stops one that could not.

    election = Election(api, "ebb-system", "ebb-controller", identity="pod-1", clock=time.time)
    await election.acquire()
    async with asyncio.TaskGroup() as tasks: tasks.create_task(election.hold()) ...
    election.check()        # before every write; raises LeadershipLost

A holder that did not renew for RENEW_SECONDS must not write any more, and another takes over DURATION_SECONDS after the last
renewal that it saw: the gap between the two is the fence. Each measures on its own monotonic clock, the holder from before it
asked, the other from after it saw the answer: wall clocks may disagree by hours. The gap is also what monotonic clocks may drift
apart in that time, and what a write that passed the fence may still be on its way; one that is later meets what makes it harmless
(names, UIDs and resource versions in every write).
"""

import asyncio
import logging
import random
from collections.abc import Callable
from typing import Any, Protocol

from ebb.api.clock import stamp
from ebb.kube import LEASES, Conflict, KubeError, NotFound, Resource

Object = dict[str, Any]

DURATION_SECONDS = 15  # client-go's defaults: a dead leader costs at most 15 s
RENEW_SECONDS = 10.0
RETRY_SECONDS = 2.0
ATTEMPT_SECONDS = 5.0  # a connection that died silently must not use up the whole of RENEW_SECONDS: half of it, as client-go
JITTER = 0.2  # candidates that wait for one lease do not all ask in the same moment
log = logging.getLogger(__name__)


class LeadershipLost(Exception):
    """Somebody else may act by now: the process must end without another write."""


class Store(Protocol):
    """The calls that an election needs of an API client."""

    async def get(self, resource: Resource, namespace: str | None, name: str) -> Object: ...
    async def create(self, resource: Resource, namespace: str | None, body: Object) -> Object: ...
    async def replace(self, resource: Resource, namespace: str | None, name: str, body: Object) -> Object: ...


class Election:
    """`identity` must differ between processes that may live at the same time; `clock` is wall time, for people to read."""

    def __init__(self, api: Store, namespace: str, name: str, *, identity: str, clock: Callable[[], float]) -> None:
        self._api, self._namespace, self._name = api, namespace, name
        self._identity, self._clock = identity, clock
        self._seen: tuple[Object, float] | None = None  # the foreign lease's spec, and when it was first seen so
        self._renewed: float | None = None
        self._heard = _monotonic()

    @property
    def leads(self) -> bool:
        """Return whether this process may write now."""
        return self._left() > 0

    @property
    def unheard_seconds(self) -> float:
        """Since when the API server said nothing about the lease."""
        return _monotonic() - self._heard

    def check(self) -> None:
        """The fence. Raises LeadershipLost."""
        if not self.leads:
            raise LeadershipLost(f"the lease {self._namespace}/{self._name} was not renewed for {RENEW_SECONDS:g} s")

    async def acquire(self) -> None:
        """Wait until this process holds the lease; errors of the API are logged and retried."""
        while not await self._attempt(ATTEMPT_SECONDS):  # noqa: ASYNC110 - the lease is on another machine
            await asyncio.sleep(RETRY_SECONDS * random.uniform(1 - JITTER, 1 + JITTER))  # noqa: S311 - guards nothing
        log.info("%s leads", self._identity)

    async def hold(self) -> None:
        """Renew for ever. Raises LeadershipLost, no later than the fence falls."""
        began = _monotonic()
        while True:
            self.check()
            await asyncio.sleep(min(max(0.0, began + RETRY_SECONDS - _monotonic()), self._left()))
            self.check()
            began = _monotonic()
            await self._attempt(min(ATTEMPT_SECONDS, self._left()))

    async def release(self) -> None:
        """Let the next one take over at once; done on an orderly end, when nothing here writes any more."""
        if self._renewed is None:
            return
        self._renewed = None
        try:
            async with asyncio.timeout(ATTEMPT_SECONDS):
                lease = await self._api.get(LEASES, self._namespace, self._name)
                if lease["spec"].get("holderIdentity") == self._identity:
                    lease["spec"]["holderIdentity"] = ""
                    await self._api.replace(LEASES, self._namespace, self._name, lease)
        except (KubeError, TimeoutError) as error:
            log.warning("the lease was not released, the next controller waits for its end: %s", error or "no answer")

    def _left(self) -> float:
        """Seconds until the fence falls."""
        return 0.0 if self._renewed is None else max(0.0, self._renewed + RENEW_SECONDS - _monotonic())

    async def _attempt(self, seconds: float) -> bool:
        """One attempt to take or renew; whether it succeeded. A failed one costs a holder nothing until the fence falls."""
        asked = _monotonic()  # the lease counts from before the request: the answer may be late
        try:
            async with asyncio.timeout(seconds):
                await self._write()
        except _HeldByOther as held:
            log.debug("%s leads", held)
            self._renewed = None
            return False
        except TimeoutError:
            log.warning("lease %s/%s: no answer for %.0f s", self._namespace, self._name, seconds)
            return False
        except Conflict as error:
            # Somebody wrote it in between: another candidate, or whoever put an annotation on it. The next attempt sees which.
            log.info("lease %s/%s: %s", self._namespace, self._name, error)
            return False
        except KubeError as error:
            log.warning("lease %s/%s: %s", self._namespace, self._name, error)
            return False
        self._renewed, self._seen = asked, None
        return True

    async def _write(self) -> None:
        try:
            lease = await self._api.get(LEASES, self._namespace, self._name)
        except NotFound:
            if self._seen is not None:
                # Somebody deleted it. Its holder may not know yet, and may have renewed it a moment ago.
                self._refuse_if_held({**self._seen[0], "deleted": True})
            await self._create()
            return
        self._heard = _monotonic()
        spec = lease.get("spec") or {}
        self._refuse_if_held(spec)
        await self._api.replace(LEASES, self._namespace, self._name, {**lease, "spec": self._spec(spec)})

    async def _create(self) -> None:
        meta = {"apiVersion": LEASES.api_version, "kind": LEASES.kind, "metadata": {"name": self._name}}
        await self._api.create(LEASES, self._namespace, {**meta, "spec": self._spec({})})
        self._heard = _monotonic()

    def _refuse_if_held(self, spec: Object) -> None:
        holder = spec.get("holderIdentity") or ""
        if holder in ("", self._identity):
            return
        if self._seen is None or self._seen[0] != spec:
            self._seen = (spec, _monotonic())
        if _monotonic() - self._seen[1] < (spec.get("leaseDurationSeconds") or DURATION_SECONDS):
            raise _HeldByOther(holder)

    def _spec(self, old: Object) -> Object:
        now, mine = stamp(self._clock(), digits=6), old.get("holderIdentity") == self._identity
        return {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": DURATION_SECONDS,
            "acquireTime": old.get("acquireTime", now) if mine else now,
            "renewTime": now,
            "leaseTransitions": (old.get("leaseTransitions") or 0) + (0 if mine else 1),
        }


class _HeldByOther(Exception):
    pass


def _monotonic() -> float:
    return asyncio.get_running_loop().time()
