"""Shared volumes: a folder for every claim of StorageClass ebb-shared, and one volume over the training environment.

    plan = plan_volumes(claims, volumes, folder, environment)    # pure; API objects in, what to create, free and delete out
    await Provisioner(...).step(view.of(CLAIMS), view.of(VOLUMES), now)          # carries it out, once per tick

What a file share does in a cloud, a folder does here: every machine sees it, and it outlives its claim. The folder is named after
namespace and claim, so a claim that comes back finds its data (`python -m devcluster down` removes them all). A claim may name
another one by annotation box.ebb.dev/folder, e.g. `shared/data`; a claim on `shared` then sees it in there, as the root of a
share would. It does not limit sizes: the capacity of a claim is only repeated.
"""

import asyncio
import logging
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from devcluster.cloud.cluster import Attempts, ClusterWriter
from devcluster.cloud.records import Object
from ebb.kube import VOLUMES

STORAGE_CLASS = "ebb-shared"
PROVISIONER = "box.ebb.dev/shared"
PROVISIONED_BY = "pv.kubernetes.io/provisioned-by"
ENVIRONMENT = "ebb-environment"
FOLDER = "box.ebb.dev/folder"
FOLDER_NAME = re.compile(r"[a-z0-9][a-z0-9.-]{0,62}(/[a-z0-9][a-z0-9.-]{0,62}){0,3}")  # so never absolute, never with ..
TRAINER_UID = 1000  # the images' user
FOLDER_MODE = 0o775


@dataclass(frozen=True)
class NewVolume:
    """A volume to create for a claim, on this folder."""

    claim: Object
    folder: Path
    body: Object


@dataclass(frozen=True)
class Refusal:
    """A claim that gets no volume, and the sentence that says why."""

    claim: Object
    message: str


@dataclass(frozen=True, kw_only=True)
class VolumePlan:
    """`create` for claims, `create_environment` once, `delete` by name, `free` by name: their claim went, another may bind."""

    create: tuple[NewVolume, ...] = ()
    refuse: tuple[Refusal, ...] = ()
    create_environment: Object | None = None
    free: tuple[str, ...] = ()
    delete: tuple[str, ...] = ()


def plan_volumes(claims: Iterable[Object], volumes: Iterable[Object], root: Path, environment: Path) -> VolumePlan:
    """Steps after which every claim of the class has its volume, and no volume of ours is left without its claim."""
    claims, volumes = list(claims), list(volumes)
    ours = [one for one in volumes if _annotation(one, PROVISIONED_BY) == PROVISIONER and not _going(one)]
    uids = {claim["metadata"]["uid"] for claim in claims}
    stale = [one for one in ours if _claim_uid(one) not in uids]
    served = {_claim_uid(one) for one in ours}
    folders = {one["spec"]["hostPath"]["path"]: one["spec"]["claimRef"] for one in ours if one not in stale}
    create, refuse = [], []
    for claim in claims:
        if not _wants_volume(claim) or claim["metadata"]["uid"] in served:
            continue
        name = _folder_name(claim)
        folder = root / name
        problem = _bad_name(claim) or _taken(name, folders.get(str(folder)))
        if problem:
            refuse.append(Refusal(claim, problem))
            continue
        body = _volume(claim, folder)
        folders[str(folder)] = body["spec"]["claimRef"]
        create.append(NewVolume(claim, folder, body))
    fixed = next((one for one in volumes if one["metadata"]["name"] == ENVIRONMENT), None)
    return VolumePlan(
        create=tuple(create),
        refuse=tuple(refuse),
        create_environment=environment_volume(environment) if fixed is None else None,
        free=(ENVIRONMENT,) if fixed is not None and (fixed.get("status") or {}).get("phase") == "Released" else (),
        delete=tuple(one["metadata"]["name"] for one in stale),
    )


def make_folder(root: Path, folder: Path) -> None:
    """Make the folder of a volume for the images' user; what is in it already stays as it is. Raises OSError, also where a link
    would lead out of `root`: pods write into folders that others are made in."""
    if folder.resolve() != root.resolve() / folder.relative_to(root):
        raise OSError(f"a link on the way leads to {folder.resolve()}")
    folder.mkdir(parents=True, exist_ok=True)
    os.chown(folder, TRAINER_UID, TRAINER_UID)
    folder.chmod(FOLDER_MODE)


def storage_class() -> dict[str, Any]:
    """StorageClass ebb-shared. Immediate: the folders are in every zone, so there is no pod to wait for."""
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": STORAGE_CLASS},
        "provisioner": PROVISIONER,
        "reclaimPolicy": "Retain",
        "volumeBindingMode": "Immediate",
    }


def environment_volume(folder: Path) -> dict[str, Any]:
    """The volume over the training environment; a claim binds to it by volumeName and class "".

    `folder` is a link that `up` points at the current environment: the path of a volume can never change.
    """
    spec = {
        "capacity": {"storage": "20Gi"},
        "accessModes": ["ReadOnlyMany", "ReadWriteMany"],
        "persistentVolumeReclaimPolicy": "Retain",
        "storageClassName": "",
        "hostPath": {"path": str(folder), "type": "Directory"},
    }
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": ENVIRONMENT}, "spec": spec}


def _volume(claim: Object, folder: Path) -> dict[str, Any]:
    meta, spec = claim["metadata"], claim["spec"]
    reference = {"apiVersion": "v1", "kind": "PersistentVolumeClaim"} | {key: meta[key] for key in ("namespace", "name", "uid")}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": f"pvc-{meta['uid']}", "annotations": {PROVISIONED_BY: PROVISIONER}},
        "spec": {
            "capacity": {"storage": spec["resources"]["requests"]["storage"]},
            "accessModes": list(spec["accessModes"]),
            # Retain, so that only the daemon deletes the object; the folder stays in any case.
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": STORAGE_CLASS,
            "hostPath": {"path": str(folder), "type": "Directory"},
            "claimRef": reference,
        },
    }


def _wants_volume(claim: Object) -> bool:
    spec, bound = claim["spec"], claim["spec"].get("volumeName")
    return spec.get("storageClassName") == STORAGE_CLASS and not bound and not _going(claim)


def _folder_name(claim: Object) -> str:
    named = _annotation(claim, FOLDER)
    return f"{claim['metadata']['namespace']}-{claim['metadata']['name']}" if named is None else named


def _bad_name(claim: Object) -> str:
    named = _annotation(claim, FOLDER)
    if named is None or FOLDER_NAME.fullmatch(named):
        return ""
    return (
        f"annotation {FOLDER} is {named!r}: it names a folder of the shared volumes by 1 to 4 names of a-z, 0-9, '.' and '-' "
        "with '/' between them, for example shared/data: create the claim anew with such a one."
    )


def _taken(name: str, other: Object | None) -> str:
    if other is None:
        return ""
    return (
        f"folder {name} belongs to claim {other['namespace']}/{other['name']} already (folders are named "
        f"<namespace>-<claim>, or by annotation {FOLDER}): give this claim another name or folder."
    )


def _claim_uid(volume: Object) -> str:
    return str((volume["spec"].get("claimRef") or {}).get("uid", ""))


def _annotation(item: Object, key: str) -> str | None:
    value = (item["metadata"].get("annotations") or {}).get(key)
    return None if value is None else str(value)


def _going(item: Object) -> bool:
    return "deletionTimestamp" in item["metadata"]


log = logging.getLogger("box")


class Provisioner:
    """Volumes below `root`; `environment` is the folder of the training environment."""

    def __init__(self, cluster: ClusterWriter, attempt: Attempts, root: Path, environment: Path) -> None:
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
