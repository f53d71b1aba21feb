"""The ElasticJob that `ebb submit` sends, as a pure function; `--dry-run` prints exactly this.

The pod passes Pod Security `restricted`. What the controller adds later (rendezvous arguments, EBB_* environment, threads, the
zone, the time to leave, which is the machine's) is not here, so that the job can move; see plan/pods.py and plan/containers.py.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import PurePosixPath

from ebb.api.buckets import BucketUrl, UrlError, folder_of, is_url, parse_url
from ebb.api.contract import (
    ANNOTATION_BILLED,
    ANNOTATION_CODE,
    ANNOTATION_OWNER,
    BACKEND_ETCD3,
    ENV_CODE_ARCHIVE,
    ENV_CODE_SHA256,
    ENV_PACKAGES,
    ENV_PROGRESS_REGEX,
    ENV_RESUME_FROM,
    ENV_WHEELS,
    GPU_RESOURCE,
    LABEL_CAPACITY,
    LABEL_GPU_TYPE,
    LABEL_QUEUE,
    LABEL_USER,
    WORKER_CONTAINER,
)
from ebb.api.parts import SPOT_THEN_ON_DEMAND
from ebb.api.platform import Platform, Taint, Volume
from ebb.client.errors import BadRequest
from ebb.client.secrets import uses
from ebb.client.staging.delivery import MOUNT, PACKAGES, CodePlace, find_output
from ebb.client.submission import own_image
from ebb.client.submission.fit import Fit
from ebb.client.submission.request import PRIORITIES, Request
from ebb.kube import ELASTIC_JOBS, Object

CODE_VOLUME = "ebb-code"


def manifest(
    request: Request, fit: Fit, platform: Platform, namespace: str, code: CodePlace | None = None, *, owner: str = ""
) -> Object:
    """The ElasticJob of a request that fits; `code`: where its pods will find what travels with it; `owner`: of a job in a team's
    namespace.

    Raises BadRequest if its data is on no volume, or the file of a secret on one.
    """
    request = replace(request, data=_named(request.data, platform))
    for place, name in request.secrets.items():
        if place.startswith("/"):
            uses.check_mounts(name, place, [volume.mount_path for volume in platform.volumes])
    brings = own_image.brings_launcher(request.image, platform)
    return {
        "apiVersion": ELASTIC_JOBS.api_version,
        "kind": ELASTIC_JOBS.kind,
        "metadata": _metadata(request, namespace, code, owner),
        "spec": {
            "rdzvEndpoint": platform.etcd_endpoint,
            "rdzvBackend": BACKEND_ETCD3 if brings else platform.usual_backend(_image(request, fit, platform)),
            "minReplicas": fit.min_workers,
            "maxReplicas": fit.max_workers,
            "placement": {"gpuType": fit.gpu_type, "capacity": fit.capacity, "zone": request.zone or "single"},
            **_limits(request),
            **_copied(request, platform),
            "replicaSpecs": {"Worker": _worker(request, fit, platform, code, owner)},
        },
    }


def label_safe(text: str) -> str:
    """As the value of a label: letters, digits, '-', '_' and '.', at most 63."""
    return re.sub(r"[^A-Za-z0-9_.-]", "-", text)[:63].strip("-_.")


def _metadata(request: Request, namespace: str, code: CodePlace | None, owner: str) -> Object:
    label = label_safe(request.user)
    labels = {**({LABEL_USER: label} if label else {}), **({LABEL_QUEUE: request.queue} if request.queue else {})}
    annotations = {
        **({ANNOTATION_OWNER: owner} if owner else {}),
        **({ANNOTATION_BILLED: request.user} if request.user else {}),  # named in the record that outlives the job
        **({ANNOTATION_CODE: code.code.sha256} if code else {}),
    }
    return {
        "name": request.name,
        "namespace": namespace,
        **({"labels": labels} if labels else {}),
        **({"annotations": annotations} if annotations else {}),
    }


def _limits(request: Request) -> Object:
    """Return what the controller keeps, whether or not a laptop is there."""
    return {
        **({"deadline": request.deadline} if request.deadline else {}),
        **({"budget": {"maxUSD": request.max_cost}} if request.max_cost else {}),
        **({"holdOnFailureSeconds": request.hold_on_failure} if request.hold_on_failure else {}),
        **({"burnInSeconds": request.burn_in} if request.burn_in else {}),
    }


def _copied(request: Request, platform: Platform) -> Object:
    """Return what the controller copies before workers exist."""
    if request.data is None or not is_url(request.data):
        return {}
    return {"data": {"url": str(_url(request.data)), "path": _data_path(request.data, platform)}}


def _worker(request: Request, fit: Fit, platform: Platform, code: CodePlace | None, owner: str) -> Object:
    return {
        "replicas": fit.workers,
        "restartPolicy": "OnFailure",
        "template": {"spec": _pod(request, fit, platform, code, owner)},
    }


def _pod(request: Request, fit: Fit, platform: Platform, code: CodePlace | None, owner: str) -> Object:
    # Where both kinds will do, the controller says which, and when to change.
    brings = own_image.brings_launcher(request.image, platform)
    kind = {} if fit.capacity == SPOT_THEN_ON_DEMAND else {LABEL_CAPACITY: fit.capacity}
    return {
        "restartPolicy": "Never",  # the controller replaces workers, so that it can tell a reclaim from a failure
        "priorityClassName": PRIORITIES[request.priority or _usual_priority(platform)],
        "enableServiceLinks": False,
        "automountServiceAccountToken": False,
        "nodeSelector": {LABEL_GPU_TYPE: fit.gpu_type, **kind},
        "tolerations": [_toleration(taint) for taint in _taints(fit)],
        "securityContext": {
            **own_image.pod_user(request.run_as),
            "fsGroup": own_image.USER,
            "fsGroupChangePolicy": "OnRootMismatch",  # a volume with a million files is not walked at every start
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        **({"imagePullSecrets": [{"name": uses.object_name(request.registry_secret, owner)}]} if request.registry_secret else {}),
        **({"initContainers": [own_image.init_container(platform)]} if brings else {}),
        "containers": [_container(request, fit, platform, code, owner)],
        "volumes": [
            {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": f"{fit.shm_mib}Mi"}},
            {"name": "tmp", "emptyDir": {}},
            *([{"name": own_image.VOLUME, "emptyDir": {}}] if brings else []),
            *({"name": volume.name, "persistentVolumeClaim": _claim(volume)} for volume in platform.volumes),
            *([{"name": CODE_VOLUME, "configMap": {"name": code.config_map}}] if code and code.config_map else []),
            *uses.volumes(request.secrets, owner),
        ],
    }


def _usual_priority(platform: Platform) -> str:
    """The team's, where the job is in one that has one."""
    team = platform.team_of(platform.jobs_namespace)
    return team.priority if team and team.priority in PRIORITIES else "job"


def _container(request: Request, fit: Fit, platform: Platform, code: CodePlace | None, owner: str) -> Object:
    brings = own_image.brings_launcher(request.image, platform)
    memory, gpus = f"{fit.memory_mib}Mi", str(fit.gpus_per_worker)
    return {
        "name": WORKER_CONTAINER,
        "image": _image(request, fit, platform),
        "imagePullPolicy": "IfNotPresent",
        **({"command": own_image.command(request.interpreter)} if brings else {}),
        "args": _arguments(request, platform),
        "env": [
            *({"name": key, "value": value} for key, value in _environment(request, platform, code).items()),
            *uses.variables(request.secrets, owner),
        ],
        # No limit on CPU: loader workers may use what the machine has idle, and throttling would slow every rank down to one.
        "resources": {
            "requests": {"cpu": f"{fit.cpu_millis}m", "memory": memory, GPU_RESOURCE: gpus},
            "limits": {"memory": memory, GPU_RESOURCE: gpus},
        },
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": not request.writable_root,
            **own_image.worker_user(request.run_as),
        },
        "volumeMounts": [
            {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108 - a mount point in the pod
            {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108
            *([{"name": own_image.VOLUME, "mountPath": own_image.MOUNT, "readOnly": True}] if brings else []),
            *(_mount(volume) for volume in platform.volumes),
            *([{"name": CODE_VOLUME, "mountPath": MOUNT, "readOnly": True}] if code and code.config_map else []),
            *uses.mounts(request.secrets),
        ],
    }


def _image(request: Request, fit: Fit, platform: Platform) -> str:
    return request.image or next((group.trainer_image for group in fit.groups[:1]), "") or platform.trainer_image


def _arguments(request: Request, platform: Platform) -> list[str]:
    """Return what the user typed; --data goes on to the program. The controller adds processes per worker and the rendezvous."""
    data = [] if request.data is None else ["--data", _data_path(request.data, platform)]
    return [*request.arguments, *data]


def _environment(request: Request, platform: Platform, code: CodePlace | None) -> Mapping[str, str]:
    brings = own_image.brings_launcher(request.image, platform)
    return {
        "PYTHONUNBUFFERED": "1",  # or `ebb logs -f` shows a script's prints minutes late
        "HOME": "/tmp",  # noqa: S108 - the root file system is read-only, and libraries keep caches in the home folder
        **(own_image.ENVIRONMENT if brings else {}),
        **request.env,
        **(_code(platform, code) if code else {}),
        **({ENV_PROGRESS_REGEX: request.progress_regex} if request.progress_regex else {}),
        **({ENV_RESUME_FROM: request.resume_from} if request.resume_from else {}),
    }


def _code(platform: Platform, code: CodePlace) -> Mapping[str, str]:
    """Return what the launcher is told of it (ebb/elastic/launch/code.py)."""
    output = find_output(platform)
    packages = {ENV_PACKAGES: f"{output}/{PACKAGES}"} if output else {}  # without: each worker installs its own
    if output and code.wheels:
        packages[ENV_WHEELS] = code.wheels.place(output)
    return {ENV_CODE_ARCHIVE: code.archive, ENV_CODE_SHA256: code.code.sha256, **packages}


def _named(data: str | None, platform: Platform) -> str | None:
    """The address of a bucket that the stack has a name for, or of a folder of it; unless it is mounted under that name. Raises
    BadRequest for one that is for others."""
    name, _, below = (data or "").partition("/")
    if name in platform.closed_buckets:
        raise BadRequest(
            f"data {data!r}: bucket {name} of this stack is for others: ask for your team in its `teams` in the stack's file, "
            f"name the bucket's address and bring credentials (--secret), or write /mnt/data/{data} for a folder of that name."
        )
    if name not in platform.buckets or any(volume.name == name for volume in platform.volumes):
        return data
    return f"{platform.buckets[name]}/{below}".rstrip("/")


def _url(data: str) -> BucketUrl:
    try:
        return parse_url(data)
    except UrlError as error:
        raise BadRequest(f"data {error}") from error


def _data_path(data: str, platform: Platform) -> str:
    """An absolute path on one of the volumes. A relative one begins with the name of a mounted bucket or of another volume beside
    data and output, or is meant on the data volume, as is the copy of a bucket."""
    if is_url(data):
        if platform.copies is None:
            raise BadRequest(
                f"data {data!r}: this platform copies no buckets: run `pulumi up` with this version of Ebb, or put a copy there "
                "with `ebb data put`."
            )
        data = folder_of(_url(data))
    name, _, below = data.partition("/")
    beside = {volume.name: volume.mount_path for volume in platform.volumes if volume.name not in ("data", "output")}
    data = f"{beside[name]}/{below}" if name in beside else data
    paths = [volume.mount_path for volume in platform.volumes]
    folder = next((volume.mount_path for volume in platform.volumes if volume.name == "data"), "/")
    path = PurePosixPath(folder, data)
    if ".." in path.parts or not any(path.is_relative_to(mount) for mount in paths):
        raise BadRequest(f"data {data!r} is on no volume of this platform: use a path under {' or '.join(paths)}.")
    return str(path)


def _taints(fit: Fit) -> list[Taint]:
    return list(dict.fromkeys(taint for group in fit.groups for taint in group.taints))


def _toleration(taint: Taint) -> Object:
    if not taint.value:
        return {"key": taint.key, "operator": "Exists", "effect": taint.effect}
    return {"key": taint.key, "operator": "Equal", "value": taint.value, "effect": taint.effect}


def _claim(volume: Volume) -> Object:
    return {"claimName": volume.claim, **({"readOnly": True} if volume.read_only else {})}


def _mount(volume: Volume) -> Object:
    return {"name": volume.name, "mountPath": volume.mount_path, **({"readOnly": True} if volume.read_only else {})}
