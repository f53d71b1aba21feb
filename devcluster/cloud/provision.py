"""Carries out the plans of volumes: makes the folders, writes and deletes the PersistentVolumes.

await provisioner.step(view.of(CLAIMS), view.of(VOLUMES), now)    # once per tick
"""

import asyncio
import logging
from collections.abc import Iterable
from pathlib import Path

from devcluster.cloud.attempts import Attempts
from devcluster.cloud.cluster import Cluster
from devcluster.cloud.records import Object
from devcluster.cloud.volumes import NewVolume, make_folder, plan_volumes
from ebb.kube import VOLUMES

log = logging.getLogger("box")


class Provisioner:
    """Volumes below `root`; `environment` is the folder of the training environment."""

    def __init__(self, cluster: Cluster, attempt: Attempts, root: Path, environment: Path) -> None:
        self._cluster, self._attempt, self._root, self._environment = cluster, attempt, root, environment
        self._told: dict[str, str] = {}

    async def step(self, claims: Iterable[Object], volumes: Iterable[Object], now: float) -> None:
        """Give every claim its volume and take back those whose claim is gone."""
        plan = plan_volumes(claims, volumes, self._root, self._environment)
        if plan.create_environment:
            await self._attempt("volume of the environment", self._cluster.create(VOLUMES, plan.create_environment))
        for new in plan.create:
            await self._attempt(f"claim {_name(new.claim)}", self._provision(new, now))
        for refusal in plan.refuse:
            await self._attempt(f"claim {_name(refusal.claim)}", self._fail(refusal.claim, refusal.message, now))
        for name in plan.free:
            await self._attempt(f"volume {name}", self._cluster.free_volume(name))
        for name in plan.delete:
            log.info("volume %s: deleted, its claim is gone (the folder stays)", name)
            await self._attempt(f"volume {name}", self._cluster.delete(VOLUMES, name))

    async def _provision(self, new: NewVolume, now: float) -> None:
        try:
            await asyncio.to_thread(make_folder, self._root, new.folder)
        except OSError as error:
            await self._fail(
                new.claim, f"cannot make folder {new.folder}: {error}: make room, fix its owner or remove the link", now
            )
            return
        await self._cluster.create(VOLUMES, new.body)
        log.info("claim %s: volume on %s", _name(new.claim), new.folder)
        await self._cluster.tell(new.claim, "ProvisioningSucceeded", f"Provisioned volume {new.body['metadata']['name']}", now)

    async def _fail(self, claim: Object, message: str, now: float) -> None:
        uid = claim["metadata"]["uid"]
        if self._told.get(uid) == message:
            return
        self._told[uid] = message
        log.warning("claim %s: no volume: %s", _name(claim), message)
        await self._cluster.tell(claim, "ProvisioningFailed", message, now, kind="Warning")


def _name(claim: Object) -> str:
    return f"{claim['metadata']['namespace']}/{claim['metadata']['name']}"
