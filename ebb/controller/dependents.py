"""Deletes what belongs to a job that is gone, where Kubernetes' garbage collector has not.

    dependents = Dependents(api, cluster, fence=election.check)
    await dependents.run()                   # a task of the leader

The collector usually does so within a second. One that missed the deletion leaves workers on machines that somebody pays for, and
keeps their names from the next job of that name (seen: kube-controller-manager 1.35, after its API server was started again).
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress

from ebb.controller.cluster_cache import ClusterCache, Object
from ebb.controller.executor import Api
from ebb.controller.reconciler.pods import owner_of
from ebb.kube import ELASTIC_JOBS, PODS, SERVICES, WORKLOADS, Conflict, KubeError, NotFound

KINDS = {resource.kind: resource for resource in (PODS, SERVICES, WORKLOADS)}
LOOK_SECONDS = 5.0  # a set of the jobs' UIDs, and no question to the API server where nothing is left behind
PATIENCE_SECONDS = 10.0  # the collector's, which does it in one
log = logging.getLogger(__name__)


class Dependents:
    """`fence` raises when this process must not write any more."""

    def __init__(self, api: Api, cluster: ClusterCache, *, fence: Callable[[], None]) -> None:
        self._api, self._cluster, self._fence = api, cluster, fence
        self._since: dict[str, float] = {}  # UID of a job that is not there -> since when, on the monotonic clock

    async def run(self) -> None:
        """Never returns; raises what the fence raises."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            now, left = asyncio.get_running_loop().time(), self._cluster.left_behind()
            self._since = {uid: self._since.get(uid, now) for uid in left}
            for uid, dependents in left.items():
                owner, namespace = owner_of(dependents[0]), dependents[0]["metadata"]["namespace"]
                if owner is None or now - self._since[uid] < PATIENCE_SECONDS:
                    continue
                try:
                    await self._delete(namespace, owner, dependents)
                except (KubeError, TimeoutError) as error:
                    # The next look finds what is left.
                    job = f"{namespace}/{owner['name']}"
                    log.warning("%s: not all that this job left behind was deleted: %s", job, error or "no answer")

    async def _delete(self, namespace: str, owner: Object, dependents: list[Object]) -> None:
        """Delete exactly these objects, with the grace that they ask for. Raises KubeError."""
        # The copy of the jobs may be behind that of the pods: this may be a job that was just made.
        if not await self._is_gone(namespace, owner["name"], owner["uid"]):
            return
        for value in dependents:
            name, uid = value["metadata"]["name"], value["metadata"]["uid"]
            self._fence()
            with suppress(NotFound, Conflict):  # the collector did, or it is another one now
                await self._api.delete(KINDS[value["kind"]], namespace, name, uid=uid)
                log.info("deleted %s %s/%s: its job %s is gone", value["kind"], namespace, name, owner["name"])

    async def _is_gone(self, namespace: str, name: str, uid: str) -> bool:
        try:
            job = await self._api.get(ELASTIC_JOBS, namespace, name)
        except NotFound as error:
            if error.reason != "NotFound":  # a page that is not there says nothing about a job
                raise
            return True
        return bool(job["metadata"]["uid"] != uid)
