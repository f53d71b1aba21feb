"""Lets one of several controllers act: a Lease that its holder renews, and a fence that stops one that could not.

    election = Election(api, "ebb-system", "ebb-controller", identity="pod-1", clock=time.time)
    await election.acquire()
    async with asyncio.TaskGroup() as tasks: tasks.create_task(election.hold()) ...
    election.check()        # before every write; raises LeadershipLost

A holder that did not renew for RENEW_SECONDS must not write any more, and another takes over DURATION_SECONDS after the last
renewal that it saw: the gap between the two is the fence. Each measures on its own monotonic clock: wall clocks may disagree.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Protocol

from workloads.clock import stamp
from workloads.kube import LEASES, Conflict, KubeError, NotFound, Resource

Object = dict[str, Any]

DURATION_SECONDS = 15  # client-go's defaults: a dead leader costs at most 15 s
RENEW_SECONDS = 10.0
RETRY_SECONDS = 2.0
log = logging.getLogger(__name__)


class LeadershipLost(Exception):
    """Somebody else may act by now: the process must end without another write."""


class Store(Protocol):
    """What an election needs of an API client."""

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

    @property
    def leads(self) -> bool:
        """Whether this process may write now."""
        return self._renewed is not None and _monotonic() - self._renewed < RENEW_SECONDS

    def check(self) -> None:
        """The fence. Raises LeadershipLost."""
        if not self.leads:
            raise LeadershipLost(f"the lease {self._namespace}/{self._name} was not renewed for {RENEW_SECONDS:g} s")

    async def acquire(self) -> None:
        """Wait until this process holds the lease; errors of the API are logged and retried."""
        while not await self._try():  # noqa: ASYNC110 - the lease is on another machine
            await asyncio.sleep(RETRY_SECONDS)
        log.info("%s leads", self._identity)

    async def hold(self) -> None:
        """Renew for ever. Raises LeadershipLost."""
        while True:
            await asyncio.sleep(RETRY_SECONDS)
            try:
                async with asyncio.timeout(RENEW_SECONDS):
                    await self._try()
            except TimeoutError:
                log.warning("renewing the lease took too long")
            self.check()

    async def release(self) -> None:
        """Let the next one take over at once; done on an orderly end."""
        if self._renewed is None:
            return
        self._renewed = None
        try:
            lease = await self._api.get(LEASES, self._namespace, self._name)
            if lease["spec"].get("holderIdentity") == self._identity:
                lease["spec"]["holderIdentity"] = ""
                await self._api.replace(LEASES, self._namespace, self._name, lease)
        except KubeError as error:
            log.warning("the lease was not released, the next controller waits for its end: %s", error)

    async def _try(self) -> bool:
        """One attempt to take or renew; whether it succeeded."""
        asked = _monotonic()  # the lease counts from before the request: the answer may be late
        try:
            await self._write()
        except _HeldByOther as held:
            log.debug("%s leads", held)
            self._renewed = None
            return False
        except KubeError as error:
            log.warning("lease %s/%s: %s", self._namespace, self._name, error)
            return False
        self._renewed = asked
        return True

    async def _write(self) -> None:
        try:
            lease = await self._api.get(LEASES, self._namespace, self._name)
        except NotFound:
            body = {
                "apiVersion": LEASES.api_version,
                "kind": LEASES.kind,
                "metadata": {"name": self._name},
                "spec": self._spec({}),
            }
            await self._api.create(LEASES, self._namespace, body)
            return
        spec = lease.get("spec") or {}
        self._refuse_if_held(spec)
        try:
            await self._api.replace(LEASES, self._namespace, self._name, {**lease, "spec": self._spec(spec)})
        except Conflict as error:
            raise _HeldByOther("somebody faster") from error

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
