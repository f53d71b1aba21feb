"""Delivery of packed code to a job's pods: small ones in a ConfigMap of the job, large ones on the output volume.

    place = place_of(code, "exp1", platform)                    # where the pods will find it; nothing is sent
    delivery = await deliver(ebb.kube, namespace, place, files) # before the job is made
    await delivery.belongs_to(job)                              # or delivery.undo(), where the job could not be made

A ConfigMap is there before the job, or its first pods would wait for it, and so cannot name it as its owner at first. On the
volume the archive is named by its content: it is sent once, and stays for later jobs with the same.
"""

import base64
import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Protocol

from ebb.api.contract import ANNOTATION_CODE, ANNOTATION_OWNER, LABEL_EBB_JOB, OUTPUT_ROOT
from ebb.api.platform import Platform
from ebb.client.errors import BadRequest, ClientError
from ebb.client.jobs.watch import ignore
from ebb.client.staging.code import Code, Tally, amount
from ebb.client.staging.wheels import Wheels
from ebb.kube import CONFIG_MAPS, ELASTIC_JOBS, Conflict, Kube, KubeError, NotFound, Object

MOUNT = "/ebb/code"
FILE = "code.tar.gz"
FOLDER = ".ebb/code"  # on the output volume
PACKAGES = ".ebb/packages"
_AT_WORK = timedelta(minutes=5)  # between its ConfigMap and its job `ebb submit` takes a second


class DeliveryFiles(Protocol):
    """The part of `DeliveryFiles` that delivery needs: paths are those that workers see."""

    async def put(self, path: str, file: Path, *, moved: Callable[[int], None]) -> object:
        """Write a file, whole or not at all; one with the same content is not sent again."""


@dataclass(frozen=True, kw_only=True)
class CodePlace:
    """The place where a job's pods find its code. `config_map`: "" where it is on the volume."""

    code: Code
    archive: str  # the path in the pod
    config_map: str
    wheels: Wheels | None = None  # of its requirements.txt, where they travel with it


@dataclass(frozen=True, kw_only=True)
class Delivery:
    """Code that is where the pods will look for it."""

    kube: Kube
    namespace: str
    config_map: str
    uid: str = ""
    note: Callable[[str], None] = ignore

    async def belongs_to(self, job: Object) -> None:
        """From now on the ConfigMap goes with the job."""
        if not self.config_map:
            return
        owner = {
            "apiVersion": ELASTIC_JOBS.api_version,
            "kind": ELASTIC_JOBS.kind,
            "name": job["metadata"]["name"],
            "uid": job["metadata"]["uid"],
        }
        try:
            await self.kube.patch(CONFIG_MAPS, self.namespace, self.config_map, {"metadata": {"ownerReferences": [owner]}})
        except KubeError as error:
            self.note(f"ConfigMap {self.config_map} will outlive the job, as it could not be made its own: {error}")

    async def undo(self) -> None:
        """Leave nothing of it; what is on the volume serves a second try."""
        if self.config_map:
            with contextlib.suppress(KubeError):
                await self.kube.delete(CONFIG_MAPS, self.namespace, self.config_map, uid=self.uid)


def place_of(code: Code, job: str, platform: Platform) -> CodePlace:
    """Return where a job's code will be."""
    if code.small:
        return CodePlace(code=code, archive=f"{MOUNT}/{FILE}", config_map=f"{job}-code")
    return CodePlace(code=code, archive=volume_path(platform, code.sha256), config_map="")


def volume_path(platform: Platform, sha256: str) -> str:
    """The archive's path on the output volume. Raises BadRequest where the platform has none."""
    return f"{output_root(platform)}/{FOLDER}/{sha256}.tar.gz"


def output_root(platform: Platform) -> str:
    """Return where workers see the output volume. Raises BadRequest where there is none."""
    found = find_output(platform)
    if not found:
        raise BadRequest(
            "this platform has no output volume, and what travels with a job beside small code goes there: "
            "leave it out, or add the volume to the stack and run `pulumi up`."
        )
    return found


def find_output(platform: Platform) -> str:
    """The same, "" where there is none."""
    roots = (volume for volume in platform.volumes if volume.name == "output" or volume.mount_path.rstrip("/") == OUTPUT_ROOT)
    return next((volume.mount_path.rstrip("/") for volume in roots), "")


async def deliver(
    kube: Kube,
    namespace: str,
    place: CodePlace,
    files: DeliveryFiles | None,
    note: Callable[[str], None] = ignore,
    *,
    owner: str = "",
) -> Delivery:
    """Bring the code there. `files` is needed where it is not small. Raises ClientError, KubeError."""
    if place.config_map:
        made = await _create(kube, namespace, config_map(place, namespace, owner))
        return Delivery(kube=kube, namespace=namespace, config_map=place.config_map, uid=made["metadata"]["uid"], note=note)
    if place.code.on_volume:
        return Delivery(kube=kube, namespace=namespace, config_map="", note=note)
    assert files is not None, place
    note(f"sending the code, {amount(place.code.size_bytes)}, to the output volume")
    await files.put(place.archive, place.code.archive, moved=Tally("sent", place.code.size_bytes, note))
    return Delivery(kube=kube, namespace=namespace, config_map="", note=note)


def config_map(place: CodePlace, namespace: str, owner: str = "") -> Object:
    """The ConfigMap with the archive. Nobody changes it: it is the job's version of the code."""
    return {
        "apiVersion": CONFIG_MAPS.api_version,
        "kind": CONFIG_MAPS.kind,
        "metadata": {
            "name": place.config_map,
            "namespace": namespace,
            "labels": {LABEL_EBB_JOB: place.config_map.removesuffix("-code")},
            "annotations": {ANNOTATION_CODE: place.code.sha256, **({ANNOTATION_OWNER: owner} if owner else {})},
        },
        "immutable": True,
        "binaryData": {FILE: base64.b64encode(place.code.archive.read_bytes()).decode()},
    }


async def _create(kube: Kube, namespace: str, body: Object) -> Object:
    """Over what an interrupted `ebb submit` left. Raises ClientError where a job has it: then the name is taken."""
    name = body["metadata"]["name"]
    try:
        return await kube.create(CONFIG_MAPS, namespace, body)
    except Conflict:
        await _clear(kube, namespace, name)
        return await kube.create(CONFIG_MAPS, namespace, body)


async def _clear(kube: Kube, namespace: str, name: str) -> None:
    """Remove what a killed `ebb submit` left, but not what one that is at work right now has just made."""
    job = name.removesuffix("-code")
    with contextlib.suppress(NotFound):
        found = (await kube.get(CONFIG_MAPS, namespace, name))["metadata"]
        age = datetime.now(UTC) - datetime.fromisoformat(found["creationTimestamp"])
        if age < _AT_WORK or await _is_there(kube, namespace, job):
            raise ClientError(f"name {job!r} is taken: choose another --name, or remove that job with `ebb delete {job}`.")
        await kube.delete(CONFIG_MAPS, namespace, name, uid=found["uid"])


async def _is_there(kube: Kube, namespace: str, job: str) -> bool:
    try:
        await kube.get(ELASTIC_JOBS, namespace, job)
    except NotFound:
        return False
    return True
