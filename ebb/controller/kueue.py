"""Copies of what Kueue keeps for a whole cluster: flavors of machines, classes of priority. Workloads are in cluster_cache.py.

copies = KueueCopies(api, changed=look_at_jobs_in_queues)
copies.flavors["spot-t4"]; copies.priorities["urgent"]; copies.known
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol

from ebb.api.spec import Job
from ebb.controller.machines import Reader
from ebb.controller.reconciler.types import Kueue
from ebb.kube import RESOURCE_FLAVORS, WORKLOAD_PRIORITIES, WORKLOADS, NotFound, Resource
from ebb.kube.reflector import Habits, Reflector

Object = dict[str, Any]


class WorkloadApi(Protocol):
    """The one call of an API client that writes here."""

    async def replace(
        self, resource: Resource, namespace: str | None, name: str, body: Object, subresource: str | None = None
    ) -> Object: ...


async def write_workload(api: WorkloadApi, workloads: Reflector, body: Object, subresource: str | None = None) -> None:
    """Kueue writes it too: a Conflict means that what was decided upon is old, and the next round decides again."""
    metadata = body["metadata"]
    with suppress(NotFound):
        written = await api.replace(WORKLOADS, metadata["namespace"], metadata["name"], body, subresource=subresource)
        workloads.observe(written)


class KueueCopies:
    """See the module's docstring. `changed` is called when something here did."""

    def __init__(self, api: Reader, changed: Callable[[], None]) -> None:
        self._changed = changed
        self._flavors: dict[str, Object] = {}
        self._priorities: dict[str, int] = {}
        habits = Habits(optional=True)
        self.reflectors = (
            Reflector(api, RESOURCE_FLAVORS, on_change=self._flavor_changed, habits=habits),
            Reflector(api, WORKLOAD_PRIORITIES, on_change=self._class_changed, habits=habits),
        )

    def of(self, job: Job, workload: Object | None, workloads: Reflector) -> Kueue:
        """Kueue's objects, as far as they are about the job. A job that has left Kueue's queue still has its Workload."""
        if not job.queue and workload is None:
            return Kueue()
        known = all(one.synced.is_set() and not one.refused for one in (workloads, *self.reflectors))
        return Kueue(known=known, workload=workload, flavors=self._flavors, priorities=self._priorities)

    def _flavor_changed(self, old: Object | None, new: Object | None) -> None:
        if old is not None:
            self._flavors.pop(old["metadata"]["name"], None)
        if new is not None:
            self._flavors[new["metadata"]["name"]] = new
        self._changed()

    def _class_changed(self, old: Object | None, new: Object | None) -> None:
        if old is not None:
            self._priorities.pop(old["metadata"]["name"], None)
        if new is not None:
            self._priorities[new["metadata"]["name"]] = int(new.get("value", 0))
        self._changed()
