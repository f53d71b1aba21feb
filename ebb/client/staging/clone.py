"""A job once more: settings, code and, if wanted, the newest checkpoint of one that is there, here or on another platform.

    made = await clone(source, "digits", target)                 # what it was submitted with, as a job file would say it
    request = request_of({**made.settings, **file}, flags, (), "ab12")
    prepared = prepare(target, replace(request, resume_from=made.resume_from), made.code)
    await made.bring(note)                                       # the checkpoint, where it is on another platform

A clone on the same platform begins anew, unless `resume` says otherwise; on another platform it goes on from the newest
checkpoint, if there is one. Not carried over: the name, the deadline, and to another platform also the zone and the image of the
platform. Only jobs of `ebb submit` can be read so: who wrote an ElasticJob sends that file again.
"""

import base64
import binascii
import re
import tempfile
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from shutil import rmtree
from typing import Any

from ebb.api.contract import ANNOTATION_CODE, ENV_PROGRESS_REGEX, LABEL_QUEUE, WORKER_CONTAINER
from ebb.api.platform import Platform
from ebb.client.errors import BadRequest, ClientError, Missing, NoPlatform
from ebb.client.files.transfer import gateway
from ebb.client.jobs.view import gpus_per_worker, worker_spec
from ebb.client.jobs.watch import ignore
from ebb.client.logs.sources import job_folder
from ebb.client.platform.connection import Ebb, read_job
from ebb.client.secrets.uses import PREFIX, uses_of, words_of
from ebb.client.staging import checkpoints
from ebb.client.staging.checkpoints import Checkpoint
from ebb.client.staging.code import Code, digest
from ebb.client.staging.delivery import FILE, output_root, volume_path
from ebb.client.submission import own_image
from ebb.client.submission.request import PRIORITIES
from ebb.kube import CONFIG_MAPS, NotFound, Object

_OURS = frozenset({"PYTHONUNBUFFERED", "HOME"})
_VOLUMES = frozenset({"shm", "tmp", "ebb-code", own_image.VOLUME})
_SUFFIX = re.compile(r"-[0-9a-f]{4}$")


@dataclass(frozen=True, kw_only=True)
class Clone:
    """Settings that a job was submitted with. `settings` are keys of a job file; `code` None: none travelled with it."""

    source: Ebb
    target: Ebb
    name: str  # of the job that is cloned
    settings: Mapping[str, Any]
    code: Code | None
    checkpoint: Checkpoint | None
    resume_from: str | None

    async def bring(self, note: Callable[[str], None] = ignore) -> None:
        """The checkpoint to the other platform, before the job is made."""
        if self.checkpoint is not None and not same(self.source, self.target):
            async with gateway(self.source) as there, gateway(self.target) as here:
                await checkpoints.carry(self.checkpoint, there, here, output_root(self.target.platform), note)


async def clone(
    source: Ebb, name: str, target: Ebb, *, resume: bool | None = None, code: bool = True, note: Callable[[str], None] = ignore
) -> Clone:
    """Read it. `resume` None: on another platform only, and there if it has a checkpoint. `code`: whether its code is wanted.

    Raises Missing, BadRequest for a job that `ebb submit` did not make, ClientError, KubeError.
    """
    job = await read_job(source.kube, source.namespace, name)
    settings = settings_of(job, source.platform)
    if not same(source, target):
        settings = _elsewhere(settings, target.platform)
    found = await _checkpoint(source, job, resume, elsewhere=not same(source, target), note=note)
    return Clone(
        source=source,
        target=target,
        name=name,
        settings=settings,
        code=await _code(source, job, target) if code else None,
        checkpoint=found,
        resume_from=_resume_from(source, job, target, found) if found or (resume and same(source, target)) else None,
    )


def same(one: Ebb, other: Ebb) -> bool:
    """Return whether both are one platform."""
    return (one.kube.server, one.platform.stack) == (other.kube.server, other.platform.stack)


def settings_of(job: Object, platform: Platform) -> dict[str, Any]:
    """The job file of a job that `ebb submit` made. Raises BadRequest for others."""
    pod = ((worker_spec(job).get("template") or {}).get("spec")) or {}
    container, used = _container(job, pod, platform), uses_of(pod)
    python = own_image.interpreter_in(container.get("command") or [])
    spec, size = job["spec"], gpus_per_worker(job)
    replicas = int(worker_spec(job).get("replicas") or 1)
    placement = spec.get("placement") or {}
    priority = {value: key for key, value in PRIORITIES.items()}.get(pod.get("priorityClassName", ""))
    found = {
        "gpus": replicas * size,
        "min": int(spec.get("minReplicas") or replicas) * size,
        "max": int(spec.get("maxReplicas") or replicas) * size,
        "gpu": placement.get("gpuType"),
        "zone": placement.get("zone") if placement.get("zone") not in ("single", "any") else None,
        "capacity": placement.get("capacity"),
        "image": container["image"] if container["image"] not in _images(platform) else None,
        "run-as": own_image.run_as_of(pod),
        "writable-root": (container.get("securityContext") or {}).get("readOnlyRootFilesystem") is False or None,
        "shm": _shm(pod, container),
        "priority": priority if priority != "job" else None,
        "queue": (job["metadata"].get("labels") or {}).get(LABEL_QUEUE),
        "max-cost": (spec.get("budget") or {}).get("maxUSD"),
        "hold-on-failure": spec.get("holdOnFailureSeconds"),
        "burn-in": spec.get("burnInSeconds"),
        "progress-regex": _values(container).get(ENV_PROGRESS_REGEX),
        "env": _env(container),
        "secret": words_of({use.variable or use.path: use.name for use in used if use.variable or use.path}),
        "registry-secret": next((use.name for use in used if not use.variable and not use.path), None),
        **_program(container, spec.get("data"), python),
    }
    return {key: value for key, value in found.items() if value not in (None, {}, [])}


def stem_of(name: str) -> str:
    """Return what a clone's name begins with: digits, digits-1a2b -> digits."""
    return _SUFFIX.sub("", name)[:40].rstrip("-")


def fitting(settings: Mapping[str, Any], told: Mapping[str, Any]) -> dict[str, Any]:
    """The settings without those that what is told now makes senseless: bounds that no longer hold, the zone of another GPU."""
    kept = dict(settings)
    gpus = told.get("gpus")
    if isinstance(gpus, int) and not isinstance(gpus, bool):
        if gpus < kept.get("min", gpus):
            del kept["min"]
        if gpus > kept.get("max", gpus):
            del kept["max"]
    for key, dropped in (("gpu", ("zone", "shm", "capacity")), ("capacity", ("zone",))):
        if told.get(key) is not None:
            kept = {name: value for name, value in kept.items() if name not in dropped}
    return kept


def _container(job: Object, pod: Object, platform: Platform) -> Object:
    containers: list[Object] = pod.get("containers") or []
    volumes = {volume["name"] for volume in pod.get("volumes") or []} - {volume.name for volume in platform.volumes}
    volumes = {name for name in volumes if not name.startswith(PREFIX)}
    known = len(uses_of({"containers": [{"env": _variables(containers)}]}))
    foreign = sum("value" not in variable for variable in _variables(containers)) != known
    words = containers[0].get("command") or [] if containers else []
    whole = len(containers) == 1 and containers[0]["name"] == WORKER_CONTAINER and (not words or own_image.is_ours(words))
    brought = [each["name"] for each in pod.get("initContainers") or []]
    if not whole or not volumes <= _VOLUMES or brought not in ([], [own_image.VOLUME]) or foreign:
        raise BadRequest(
            f"from {job['metadata']['name']!r}: this job was not made by `ebb submit`, so its settings cannot be read back. "
            "Send its file again, with another metadata.name."
        )
    return containers[0]


def _program(container: Object, data: Object | None, python: str | None) -> dict[str, Any]:
    """The command, with the interpreter of an image of one's own, and the bucket that its last words name the copy of."""
    command = [*([python] if python else []), *(container.get("args") or [])]
    if data is None or command[-2:] != ["--data", data["path"]]:
        return {"command": command}
    return {"command": command[:-2], "data": data["url"]}


def _variables(containers: list[Object]) -> list[Object]:
    return [variable for container in containers for variable in container.get("env") or []]


def _env(container: Object) -> dict[str, str]:
    ours = own_image.ENVIRONMENT.items() if container.get("command") else ()
    values = {key: value for key, value in _values(container).items() if (key, value) not in ours}
    return {key: value for key, value in values.items() if key not in _OURS and not key.startswith("EBB_")}


def _values(container: Object) -> dict[str, str]:
    """Of its variables, but for secrets."""
    return {item["name"]: item["value"] for item in container.get("env") or [] if "value" in item}


def _shm(pod: Object, container: Object) -> str | None:
    """The size that was asked for; None for a quarter of the memory, which is what nobody asked for."""
    limits = (volume["emptyDir"].get("sizeLimit") for volume in pod.get("volumes") or [] if volume["name"] == "shm")
    found, memory = next(limits, None), str(container["resources"]["limits"]["memory"])
    usual = f"{int(memory.removesuffix('Mi')) // 4}Mi" if memory.endswith("Mi") else ""
    return found if found != usual else None


def _images(platform: Platform) -> set[str]:
    return {platform.trainer_image, *(group.trainer_image for group in platform.node_groups if group.trainer_image)}


def _elsewhere(settings: dict[str, Any], target: Platform) -> dict[str, Any]:
    """Return what makes sense there: sizes of machines and zones are of the platform, and so is how they are bought."""
    kinds = {group.capacity_type for group in target.gpu_groups(gpu_type=settings.get("gpu"))}
    dropped = {"zone", "shm"} | ({"capacity"} if not set(str(settings.get("capacity")).split("-then-")) <= kinds else set())
    return {key: value for key, value in settings.items() if key not in dropped}


async def _checkpoint(
    source: Ebb, job: Object, resume: bool | None, *, elsewhere: bool, note: Callable[[str], None]
) -> Checkpoint | None:
    """None where none is wanted, or none is there and nobody insists."""
    if resume is False or (resume is None and not elsewhere):
        return None
    name = job["metadata"]["name"]
    try:
        async with gateway(source) as files:
            found = await checkpoints.newest(files, job_folder(job))
    except NoPlatform as error:
        if elsewhere:
            raise
        note(f"whether {name} has a checkpoint is not known: {error}")
        return None
    if found is None and resume:
        raise ClientError(f"{name} has no checkpoint to resume from: leave --resume-from-checkpoint out to start fresh.")
    if found is None:
        note(f"{name} has no checkpoint yet: the new job starts fresh.")
    return found


def _resume_from(source: Ebb, job: Object, target: Ebb, found: Checkpoint | None) -> str:
    """On the same platform the job's own folder, where later ones are seen too; elsewhere where bring() puts it."""
    if found is None or same(source, target):
        return job_folder(job)
    return checkpoints.place_of(found, output_root(target.platform))


async def _code(source: Ebb, job: Object, target: Ebb) -> Code | None:
    metadata = job["metadata"]
    sha256 = (metadata.get("annotations") or {}).get(ANNOTATION_CODE)
    if not sha256:
        return None
    folder = f"that of {metadata['name']}"
    config_map = _config_map(job)
    if not config_map and same(source, target):
        return Code(folder=folder, archive=Path(), sha256=sha256, size_bytes=0, files=0, unpacked_bytes=0, on_volume=True)
    place = tempfile.mkdtemp(prefix="ebb-code-")
    archive = Path(place) / FILE
    try:
        await (_from_config_map(source, job, config_map, archive) if config_map else _from_volume(source, sha256, archive))
        _check_version(metadata["name"], archive, sha256)
    except BaseException:
        rmtree(place, ignore_errors=True)
        raise
    code = Code(folder=folder, archive=archive, sha256=sha256, size_bytes=archive.stat().st_size, files=0, unpacked_bytes=0)
    weakref.finalize(code, rmtree, place, ignore_errors=True)
    return code


def _config_map(job: Object) -> str:
    """Of a job's code, "" where it is on the volume."""
    pod = ((worker_spec(job).get("template") or {}).get("spec")) or {}
    names = (volume["configMap"]["name"] for volume in pod.get("volumes") or [] if volume["name"] == "ebb-code")
    return str(next(names, ""))


async def _from_config_map(source: Ebb, job: Object, name: str, archive: Path) -> None:
    try:
        found = await source.kube.get(CONFIG_MAPS, job["metadata"]["namespace"], name)
        archive.write_bytes(base64.b64decode(found["binaryData"][FILE], validate=True))
    except (NotFound, KeyError, binascii.Error) as error:
        raise Missing(
            f"the code of {job['metadata']['name']} is gone: its ConfigMap {name} does not hold it. Name the folder with --code."
        ) from error


async def _from_volume(source: Ebb, sha256: str, archive: Path) -> None:
    async with gateway(source) as files:
        await files.get(volume_path(source.platform, sha256), archive)


def _check_version(name: str, archive: Path, sha256: str) -> None:
    if (found := digest(archive)) != sha256:
        raise ClientError(
            f"the code of {name} is not what it was submitted with (sha256 {found[:12]}… instead of {sha256[:12]}…): somebody "
            "has changed it. Name the folder with --code."
        )
