"""The ElasticJob of a request without a platform: what `ebb submit --dry-run` can say where none answers.

    made = prepare_offline(request, None, code)
    made.body, made.missing         # the manifest without what only a platform knows; a sentence for each thing that it lacks

It cannot be applied as it is: nothing stands in place of what is not known.
"""

from dataclasses import dataclass
from pathlib import PurePosixPath

from ebb.api.buckets import is_url
from ebb.api.contract import GPU_RESOURCE, LABEL_CAPACITY, LABEL_GPU_TYPE, OUTPUT_ROOT
from ebb.api.platform import Copies, Platform, Volume
from ebb.client.staging.code import Code
from ebb.client.staging.delivery import place_of
from ebb.client.submission.fit import Fit
from ebb.client.submission.manifest import CODE_VOLUME, manifest
from ebb.client.submission.request import Request, check
from ebb.kube import Object

NO_NAMESPACE = "metadata.namespace: the platform's own for jobs"
_DATA_ROOT = "/mnt/data"


@dataclass(frozen=True, kw_only=True)
class Offline:
    """The part of a job that is known before its platform is. `missing`: what the platform fills in, a line each."""

    body: Object
    missing: tuple[str, ...]


def prepare_offline(request: Request, namespace: str | None, code: Code | None) -> Offline:
    """Raises BadRequest for what no platform could run."""
    check(request)
    platform = _stand_in(request)
    place = place_of(code, request.name, platform) if code else None
    body = manifest(request, _fit(request), platform, namespace or "", place)
    missing = _clear(request, body)
    if not namespace:
        del body["metadata"]["namespace"]
        missing.insert(0, NO_NAMESPACE)
    return Offline(body=body, missing=tuple(missing))


def _stand_in(request: Request) -> Platform:
    """A platform with the usual volumes, and with that of the data wherever it is said to be."""
    roots = {"data": _DATA_ROOT, "output": OUTPUT_ROOT}
    if request.data and not is_url(request.data) and PurePosixPath(request.data).is_absolute():
        roots["named"] = request.data
    volumes = tuple(Volume(name=name, claim="", mount_path=root, read_only=False) for name, root in roots.items())
    return Platform(
        cloud="",
        region="",
        stack="",
        trainer_image="",
        jobs_namespace="",
        etcd_endpoint="",
        volumes=volumes,
        node_groups=(),
        copies=Copies(image="", selector={}),
    )


def _fit(request: Request) -> Fit:
    """As if each machine had one GPU."""
    return Fit(
        groups=(),
        gpu_type=request.gpu or "",
        capacity=request.capacity or "",
        gpus_per_worker=1,
        workers=request.gpus,
        min_workers=request.min_gpus or 1,
        max_workers=request.max_gpus or request.gpus,
        cpu_millis=0,
        memory_mib=0,
        shm_mib=0,
    )


def _clear(request: Request, body: Object) -> list[str]:
    """Take out what stands for something unknown; return what that is."""
    spec = body["spec"]
    pod = spec["replicaSpecs"]["Worker"]["template"]["spec"]
    (container,) = pod["containers"]
    missing = ["spec.rdzvEndpoint, spec.rdzvBackend: where the workers meet"]
    del spec["rdzvEndpoint"], spec["rdzvBackend"]
    for key, label, known in (("gpuType", LABEL_GPU_TYPE, request.gpu), ("capacity", LABEL_CAPACITY, request.capacity)):
        if not known:
            del spec["placement"][key]
            pod["nodeSelector"].pop(label, None)
            missing.append(f"spec.placement.{key} and its node selector: the platform's only or usual one")
    if not pod["nodeSelector"]:
        del pod["nodeSelector"]
    if request.gpus > 1:
        missing.append(f"the split of GPUs: {request.gpus} workers of 1 GPU here, fewer and larger ones on machines with several")
    if not request.image:
        del container["image"]
        missing.append("the image: the platform's trainer image")
    else:
        missing.append("the init container and the command that bring Ebb's launcher into the image")
    container["resources"] = {kind: {GPU_RESOURCE: amounts[GPU_RESOURCE]} for kind, amounts in container["resources"].items()}
    pod["volumes"] = [volume for volume in pod["volumes"] if volume["name"] in ("tmp", CODE_VOLUME) or "secret" in volume]
    names = {volume["name"] for volume in pod["volumes"]}
    container["volumeMounts"] = [mount for mount in container["volumeMounts"] if mount["name"] in names]
    del pod["tolerations"]
    missing.append("CPUs and memory, /dev/shm, the shared volumes and tolerations: by its machines and volumes")
    return missing
