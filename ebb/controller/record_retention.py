"""Deletes the records of jobs that are older than they are kept, a few at a time.

    retention = RecordRetention(api, fence=election.check, clock=time.time, days=400, namespaces=cluster.namespaces)
    await retention.run()                    # a task of the leader

A record is a ConfigMap of some kilobytes, and a group that sweeps makes thousands a month: without an end they fill the store of
the API server and the namespace's quota. What it may not list it leaves alone: the right to is given namespace by namespace.
"""

import asyncio
import logging
from collections.abc import Callable, Collection
from contextlib import suppress

from ebb.api.clock import unix
from ebb.api.contract import LABEL_RECORD
from ebb.controller.executor import Api
from ebb.kube import CONFIG_MAPS, Conflict, Denied, KubeError, NotFound

KEPT_DAYS = 400  # a year's report, and a month to ask for it
DAY = 86400.0
EVERY_SECONDS = 6 * 3600.0
PAGE = 100  # records per answer: some 400 KB
PAUSE_SECONDS = 0.2  # between two deletions: nobody waits for them, and jobs need the API server
log = logging.getLogger(__name__)


class RecordRetention:
    """`fence` raises when this process must not write any more; `clock` is wall time; `namespaces`: where jobs may have ended."""

    def __init__(
        self,
        api: Api,
        *,
        fence: Callable[[], None],
        clock: Callable[[], float],
        days: float,
        namespaces: Callable[[], Collection[str]],
    ) -> None:
        self._api, self._fence, self._clock, self._namespaces = api, fence, clock, namespaces
        self._seconds = days * DAY
        self._refused: set[str] = set()  # namespaces of which that was said

    async def run(self) -> None:
        """Never returns; raises what the fence raises."""
        while True:
            for namespace in sorted(self._namespaces()):
                try:
                    await self._sweep(namespace)
                except Denied as error:
                    if namespace not in self._refused:
                        self._refused.add(namespace)
                        log.info("records of jobs in %s are kept for ever: %s", namespace, error)
                except (KubeError, TimeoutError) as error:
                    # The next round finds what is left.
                    log.warning("old records of jobs in %s were not all deleted: %s", namespace, error or "no answer")
            await asyncio.sleep(EVERY_SECONDS)

    async def _sweep(self, namespace: str) -> None:
        """Delete what is too old now. Raises KubeError."""
        deleted = 0
        for name, uid in await self._old(namespace):
            self._fence()
            with suppress(NotFound, Conflict):  # somebody else did, or it is another one now
                await self._api.delete(CONFIG_MAPS, namespace, name, uid=uid)
                deleted += 1
            await asyncio.sleep(PAUSE_SECONDS)
        if deleted:
            log.info("deleted %d records of jobs in %s: they were older than %g days", deleted, namespace, self._seconds / DAY)

    async def _old(self, namespace: str) -> list[tuple[str, str]]:
        """Names and UIDs, the oldest first. A record is made when its job ends."""
        before, token, found = self._clock() - self._seconds, "", []
        while True:
            page, _, token = await self._api.list_page(
                CONFIG_MAPS, namespace, labels=f"{LABEL_RECORD}=true", limit=PAGE, token=token
            )
            for item in page:
                made = unix(item["metadata"].get("creationTimestamp"))
                if made is not None and made < before:
                    found.append((made, item["metadata"]["name"], item["metadata"]["uid"]))
            if not token:
                return [(name, uid) for _, name, uid in sorted(found)]
