"""The ElasticJob that `ebb submit` sends, as a pure function; `--dry-run` prints exactly this.

The pod passes Pod Security `restricted`. What the controller adds later (rendezvous arguments, EBB_* environment, threads, the
zone, the time to leave, which is the machine's) is not here, so that the job can move; see plan/pods.py and plan/containers.py.
"""

from collections.abc import Mapping
from pathlib import PurePosixPath

from workloads.client.errors import BadRequest
from workloads.client.fit import Fit
from workloads.client.request import Request
from workloads.contract import GPU_RESOURCE, LABEL_CAPACITY, LABEL_GPU_TYPE, WORKER_CONTAINER
from workloads.kube import ELASTIC_JOBS, Object
from workloads.platform import Platform, Taint, Volume

PRIORITY_CLASS = "ebb-job"
USER = 1000  # the trainer image's, and the owner of the shared volumes


def manifest(request: Request, fit: Fit, platform: Platform, namespace: str) -> Object:
    """The ElasticJob of a request that fits. Raises BadRequest if its data is on no volume."""
    return {
        "apiVersion": ELASTIC_JOBS.api_version,
        "kind": ELASTIC_JOBS.kind,
        "metadata": {"name": request.name, "namespace": namespace},
        "spec": {
            "rdzvEndpoint": platform.etcd_endpoint,
            "rdzvBackend": platform.usual_backend(_image(request, fit, platform)),
            "minReplicas": fit.min_workers,
            "maxReplicas": fit.max_workers,
            "placement": {"gpuType": fit.gpu_type, "capacity": fit.capacity, "zone": request.zone or "single"},
            "replicaSpecs": {"Worker": _worker(request, fit, platform)},
        },
    }


def _worker(request: Request, fit: Fit, platform: Platform) -> Object:
    return {"replicas": fit.workers, "restartPolicy": "OnFailure", "template": {"spec": _pod(request, fit, platform)}}


def _pod(request: Request, fit: Fit, platform: Platform) -> Object:
    return {
        "restartPolicy": "Never",  # the controller replaces workers, so that it can tell a reclaim from a failure
        "priorityClassName": PRIORITY_CLASS,
        "enableServiceLinks": False,
        "automountServiceAccountToken": False,
        "nodeSelector": {LABEL_GPU_TYPE: fit.gpu_type, LABEL_CAPACITY: fit.capacity},
        "tolerations": [_toleration(taint) for taint in _taints(fit)],
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": USER,
            "fsGroup": USER,
            "fsGroupChangePolicy": "OnRootMismatch",  # a volume with a million files is not walked at every start
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [_container(request, fit, platform)],
        "volumes": [
            {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": f"{fit.shm_mib}Mi"}},
            {"name": "tmp", "emptyDir": {}},
            *({"name": volume.name, "persistentVolumeClaim": _claim(volume)} for volume in platform.volumes),
        ],
    }


def _container(request: Request, fit: Fit, platform: Platform) -> Object:
    memory, gpus = f"{fit.memory_mib}Mi", str(fit.gpus_per_worker)
    return {
        "name": WORKER_CONTAINER,
        "image": _image(request, fit, platform),
        "imagePullPolicy": "IfNotPresent",
        "args": _arguments(request, platform),
        "env": [{"name": key, "value": value} for key, value in _environment(request).items()],
        # No limit on CPU: loader workers may use what the machine has idle, and throttling would slow every rank down to one.
        "resources": {
            "requests": {"cpu": f"{fit.cpu_millis}m", "memory": memory, GPU_RESOURCE: gpus},
            "limits": {"memory": memory, GPU_RESOURCE: gpus},
        },
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108 - a mount point in the pod
            {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108
            *(_mount(volume) for volume in platform.volumes),
        ],
    }


def _image(request: Request, fit: Fit, platform: Platform) -> str:
    return request.image or fit.groups[0].trainer_image or platform.trainer_image


def _arguments(request: Request, platform: Platform) -> list[str]:
    """What the user typed; --data goes on to the program. Processes per worker and the rendezvous are the controller's to add."""
    data = [] if request.data is None else ["--data", _data_path(request.data, platform)]
    return [*request.arguments, *data]


def _environment(request: Request) -> Mapping[str, str]:
    return {
        "PYTHONUNBUFFERED": "1",  # or `ebb logs -f` shows a script's prints minutes late
        "HOME": "/tmp",  # noqa: S108 - the root file system is read-only, and libraries keep caches in the home folder
        **request.env,
    }


def _data_path(data: str, platform: Platform) -> str:
    """An absolute path on one of the volumes; a relative one is meant on the data volume."""
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
