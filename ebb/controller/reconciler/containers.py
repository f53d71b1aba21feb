"""Environment, volumes and memory of the training container, and the rendezvous that its workers meet at. Pure.

    container = worker_container(spec["containers"])
    met = rendezvous(job, container, platform)          # Rendezvous(backend="etcd3", endpoint="etcd-service:2379")
    mount(spec, container, volumes=seat.volumes, share_bytes=seat.memory_bytes)
    connect(spec, container, seat.network)
    certify(spec, container)                            # if met.certified
    inject(container, job, index=2, attempt=0, met=met, planned=4)

`mount`, `connect`, `certify` and `inject` change what they are given. Other containers are left alone, and what the author set
stays. What a ConfigMap or Secret sets as a whole (envFrom) is not seen here, so a variable of ours wins over one from there.

For the rendezvous, what the author told the launcher counts first, then spec.rdzvBackend, then what is usual on the stack. An
etcd of the author's own is used as it is written. On a cluster that no stack of ours describes, nothing is known of any etcd.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from ebb.api import contract as names
from ebb.api.parts import IN_PLACE_TIMES, RESTART_IN_PLACE
from ebb.api.platform import NAMESPACE as SYSTEM
from ebb.api.platform import Network, Platform, Volume
from ebb.api.quantities import quantity
from ebb.api.spec import Job

Object = dict[str, Any]

SHARED_MEMORY = "/dev/shm"  # noqa: S108 - a mount point in the pod; containers get 64 MiB otherwise
NETWORK_CLAIM = "ebb-network"  # its name in the pod
ENV_PROCESSES = "PET_NPROC_PER_NODE"
ENV_THREADS = "OMP_NUM_THREADS"
# torch's own rendezvous is for programs whose exit codes do not tell a lost peer from a bug, and torchrun's default is to end
# with the first: each reclaim of a machine would spend one of backoffLimit. Three was torchelastic's default as a package.
ENV_RESTARTS, RESTARTS = "PET_MAX_RESTARTS", "3"

INTERFACES: Mapping[str, str] = {
    # What NCCL does by itself, made firm: without it NCCL falls back to the loopback when it finds nothing else, and waits for
    # peers that cannot come. To name one interface would shut out the fast ones that some pods have beside the first.
    "NCCL_SOCKET_IFNAME": "^lo,docker",
    # Gloo takes names only, and ends if there is none of that name. Without one it resolves the host name, and where that does
    # not work it takes the loopback, silently. Every runtime calls a pod's first interface so (containerd: defaultIfName; CRI-O
    # counts eth%d from 0), whatever the cloud; a machine's own network may differ, but templates that share it are refused.
    "GLOO_SOCKET_IFNAME": "eth0",
}
PREFIX, ENV_RDZV_CONF = "/torchelastic/p2p", "PET_RDZV_CONF"  # torch's own, and how it is told of another
NEED_V2 = frozenset({names.BACKEND_ETCD, "etcd-v2"})  # torch's two: they speak the API that etcd 3.6 no longer has


@dataclass(frozen=True, kw_only=True)
class Rendezvous:
    """`problem`: why workers could not meet there, and what to do; "" if they can. `prefix`: under it torch would make a folder
    for the run that ends after two hours; the controller makes it first, without an end (etcd/legacy.py). "": it need not.
    `certified`: that etcd asks for a certificate, which is in a Secret of the job's namespace."""

    backend: str
    endpoint: str
    problem: str = ""
    prefix: str = ""
    certified: bool = False

    def folder(self, meeting: str) -> str:
        """Of the run with that id."""
        return f"{self.prefix}/run_{meeting}"


def rendezvous(job: Job, container: Mapping[str, Any], platform: Platform | None) -> Rendezvous:
    """`container`: the one of the job's template that trains."""
    said, written = flags(container), variables(container)
    asked = said.get("rdzv_backend") or written.get(names.ENV_RDZV_BACKEND) or job.spec.rdzv_backend
    usual = platform.usual_backend(str(container.get("image", ""))) if platform else names.BACKEND_ETCD3
    backend, endpoint = asked or usual, job.spec.rdzv_endpoint
    written_endpoint = said.get("rdzv_endpoint") or written.get(names.ENV_RDZV_ENDPOINT)
    if backend not in NEED_V2:
        certified = backend == names.BACKEND_ETCD3 and _is_ours(written_endpoint or endpoint, job.namespace)
        return Rendezvous(backend=backend, endpoint=endpoint, certified=certified)
    if "rdzv_endpoint" in said or names.ENV_RDZV_ENDPOINT in written:
        return Rendezvous(backend=backend, endpoint=endpoint)
    older = platform.legacy_etcd_endpoint if platform else names.LEGACY_ETCD
    if platform and platform.is_etcd(endpoint):
        if not older:
            return Rendezvous(backend=backend, endpoint=endpoint, problem=_missing(backend))
        endpoint = older
    kept = backend == names.BACKEND_ETCD and endpoint == older  # what etcd-v2 keeps there lives as long as its members
    settings = said.get("rdzv_conf") or written.get(ENV_RDZV_CONF) or ""
    return Rendezvous(backend=backend, endpoint=endpoint, prefix=_prefix(settings) if kept else "")


def _is_ours(endpoint: str, namespace: str) -> bool:
    """True for the etcd that Ebb runs for the jobs of a namespace, under any of its names."""
    if namespace == names.JOBS_NAMESPACE:
        etcd = names.ETCD
    elif namespace.startswith(names.TEAM_PREFIX):
        etcd = names.TEAM_ETCD + namespace.removeprefix(names.TEAM_PREFIX)
    else:
        return False
    place = endpoint.removeprefix("https://").rstrip("/").partition(":")[0]
    name, _, within = place.partition(".")
    within = within.partition(".")[0]
    return (name == names.ETCD_ALIAS and within in ("", namespace)) or (name == etcd and within == SYSTEM)


def run_id(container: Mapping[str, Any], usual: str) -> str:
    """The author's, or else the usual one."""
    return flags(container).get("rdzv_id") or variables(container).get(names.ENV_RDZV_ID) or usual


def _missing(backend: str) -> str:
    return (
        f"the job asks for torch's {backend!r} rendezvous, whose API the stack's etcd no longer has. If its image has Ebb's "
        f"trainer, ask for {names.BACKEND_ETCD3!r} (spec.rdzvBackend, or --rdzv_backend in args); if not, set "
        "ebb:legacyRendezvous to true in the stack and run `pulumi up`: that brings an etcd 3.5 beside the other."
    )


def _prefix(settings: str) -> str:
    """The path under which torch makes the folders of runs; `settings` as of --rdzv_conf: a=b,c=d."""
    found = dict(pair.partition("=")[::2] for pair in settings.split(","))
    return f"/{found.get('etcd_prefix', PREFIX).strip('/')}"


def flags(container: Mapping[str, Any]) -> dict[str, str]:
    """Flags that the author wrote, and what follows them."""
    words = [str(word) for word in (*(container.get("command") or []), *(container.get("args") or []))]
    found = {}
    for word, following in zip_longest(words, words[1:], fillvalue=""):
        if word.startswith("--"):
            name, _, value = word.removeprefix("--").partition("=")
            found[name.replace("-", "_")] = value or following
    return found


def variables(container: Mapping[str, Any]) -> dict[str, str]:
    """Variables that the author wrote; those whose value comes from elsewhere are empty."""
    return {variable["name"]: variable.get("value") or "" for variable in container.get("env") or []}


def container_gpus(container: Object) -> int:
    """GPUs that a container may use."""
    return int(_amount(container, names.GPU_RESOURCE, "limits") or 0)


def rendezvous_id(job: Job, attempt: int) -> str:
    """The rendezvous id of one attempt. A failed program closes its rendezvous for good, so each attempt has its own."""
    return f"{job.name}-{job.short_uid}" + (f"-r{attempt}" if attempt else "")


def output_dir(job: Job) -> str:
    """The job's own folder on the shared output volume; all attempts share it, as it holds the checkpoints."""
    return f"{names.OUTPUT_ROOT}/{job.namespace}/{job.name}-{job.short_uid}"


def mount(spec: Object, container: Object, *, volumes: Sequence[Volume], share_bytes: float) -> None:
    """Give the container shared memory for its loader workers, and the platform's volumes where upstream's job files expect data
    and output, unless something is mounted there. `share_bytes`: what one worker may use of its machine's memory, 0: unknown."""
    mounts, names_taken = list(container.get("volumeMounts") or []), {item["name"] for item in spec.get("volumes") or []}
    paths = {item["mountPath"].rstrip("/") for item in mounts}
    wanted: list[tuple[str, str, Object, bool]] = []
    if SHARED_MEMORY not in paths:
        wanted.append(("shm", SHARED_MEMORY, {"emptyDir": _shared_memory(container, share_bytes)}, False))
    for volume in volumes:
        if volume.mount_path.rstrip("/") not in paths:
            claim = {"claimName": volume.claim, **({"readOnly": True} if volume.read_only else {})}
            wanted.append((volume.name, volume.mount_path, {"persistentVolumeClaim": claim}, volume.read_only))
    sources: list[Object] = []
    for name, path, source, read_only in wanted:
        free = name if name not in names_taken else f"ebb-{name}"
        sources.append({"name": free, **source})
        mounts.append({"name": free, "mountPath": path, **({"readOnly": True} if read_only else {})})
    if sources:
        spec["volumes"] = [*(spec.get("volumes") or []), *sources]
        container["volumeMounts"] = mounts


def certify(spec: Object, container: Object) -> None:
    """Give the container what opens its namespace's etcd. The pod waits until the Secret has all of it. What the author
    has mounted there stays."""
    if any(one["mountPath"].rstrip("/") == names.ETCD_FOLDER for one in container.get("volumeMounts") or []):
        return
    keys = [{"key": key, "path": key} for key in ("ca.crt", "tls.crt", "tls.key")]
    source = {"secretName": names.ETCD_SECRET, "items": keys}
    spec["volumes"] = [*(spec.get("volumes") or []), {"name": names.ETCD_SECRET, "secret": source}]
    mounted = {"name": names.ETCD_SECRET, "mountPath": names.ETCD_FOLDER, "readOnly": True}
    container["volumeMounts"] = [*(container.get("volumeMounts") or []), mounted]


def sidecar_annotations(spec: Object, volumes: Sequence[Volume]) -> dict[str, str]:
    """The annotations by which the cloud adds what serves those of the platform's volumes that the pod mounts."""
    claims = {(volume.get("persistentVolumeClaim") or {}).get("claimName") for volume in spec.get("volumes") or ()}
    wanted = [volume.sidecar for volume in volumes if volume.sidecar and volume.claim in claims]
    return {name: value for sidecar in wanted for name, value in sidecar.annotations}


def connect(spec: Object, container: Object, network: Network) -> None:
    """Give the container the interfaces of its machine's fast network, and tell NCCL's plugin to use them."""
    spec["nodeSelector"] = {**network.selector, **(spec.get("nodeSelector") or {})}
    resources = container.get("resources") or {}
    # Kubernetes takes limits of devices and huge pages for requests too.
    limits = {**network.resources, **(resources.get("requests") or {}), **(resources.get("limits") or {})}
    asked = {name: amount for name, amount in limits.items() if name in network.resources}
    container["resources"] = {**resources, "limits": {**(resources.get("limits") or {}), **asked}}
    claims = spec.get("resourceClaims") or []
    if network.claim and network.claim not in [claim.get("resourceClaimTemplateName") for claim in claims]:
        spec["resourceClaims"] = [*claims, {"name": NETWORK_CLAIM, "resourceClaimTemplateName": network.claim}]
        container["resources"]["claims"] = [*(resources.get("claims") or []), {"name": NETWORK_CLAIM}]
    written = variables(container)
    ours = [{"name": name, "value": value} for name, value in network.environment.items() if name not in written]
    container["env"] = [*ours, *(container.get("env") or [])]


def inject(container: Object, job: Job, *, index: int, attempt: int, met: Rendezvous, planned: int) -> None:
    """Tell the launcher where to meet: by arguments as upstream does, and by variables for programs that read those. `planned`:
    how many workers to wait for at a first start."""
    given, env, written = flags(container), container.get("env") or [], variables(container)
    said = given.get("nproc_per_node") or written.get(ENV_PROCESSES, "")
    processes = int(said) if said.isdigit() else job.spec.nproc_per_node or container_gpus(container)
    launch = _launch(job, met, rendezvous_id(job, attempt), processes)
    arguments = [f"--{flag}={value}" for flag, (name, value) in launch.items() if flag not in given and name not in written]
    container["args"] = [*arguments, *(container.get("args") or [])]
    # A program's last words end up in the pod's status, and so in the job's: by then its log is often gone with the pod.
    container.setdefault("terminationMessagePolicy", "FallbackToLogsOnError")
    # `auto` and the like without GPUs are one process for each core, and threads are the launcher's business then.
    threads = _threads(container, processes or 1) if processes or not said else {}
    restarts = {ENV_RESTARTS: RESTARTS} if met.backend in NEED_V2 else {}
    held = job.spec.hold_on_failure_seconds
    page = {names.ENV_LAUNCHER_PORT: str(names.LAUNCHER_PORT)} if held or container_gpus(container) else {}
    hold = {names.ENV_HOLD_SECONDS: str(held)} if held else {}
    tested = job.spec.burn_in_seconds
    burn_in = {names.ENV_BURN_IN_SECONDS: str(tested)} if tested else {}
    rules = _restart_rules(job)
    again = {names.ENV_RESTART_RULES: rules} if rules else {}
    tls = {names.ENV_ETCD_TLS: names.ETCD_FOLDER} if met.certified else {}
    asked = {**restarts, **page, **hold, **burn_in, **again, **tls}
    told = {**_about(job, index), names.ENV_PLANNED_WORKERS: str(planned), **asked}
    values = {**dict(launch.values()), **told, **INTERFACES, **threads}
    ours: list[Object] = [{"name": name, "value": value} for name, value in values.items()]
    node = [(names.ENV_NODE_NAME, "spec.nodeName")] if tested else []
    for name, path in ((names.ENV_LOCAL_ADDR, "status.podIP"), (names.ENV_POD_UID, "metadata.uid"), *node):
        ours.append({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}})
    # A program that reads it off its cgroup must know which formula the container runtime has (runc has changed it).
    request = {"resource": "requests.cpu", "divisor": "1m"}
    ours.append({"name": names.ENV_CPU_REQUEST, "valueFrom": {"resourceFieldRef": request}})
    container["env"] = [variable for variable in ours if variable["name"] not in written] + env


def _restart_rules(job: Job) -> str:
    """The rules of spec.failurePolicy up to the last that restarts in place, as the launcher reads them
    (ebb/elastic/launch/restart_rules.py); "" if there is none. Those before it count first."""
    known = [
        {
            "rule": number,
            "times": (rule.times or IN_PLACE_TIMES) if rule.action == RESTART_IN_PLACE else 0,
            "codes": rule.on_exit_codes,
            "words": rule.on_message or "",
        }
        for number, rule in enumerate(job.spec.failure_policy.rules if job.spec.failure_policy else (), 1)
        if not rule.on_reasons  # Kubernetes' words for the end of a container: inside it nobody knows them
    ]
    last = max((number for number, rule in enumerate(known, 1) if rule["times"]), default=0)
    return json.dumps(known[:last], separators=(",", ":")) if last else ""


def _shared_memory(container: Object, share_bytes: float) -> Object:
    """A volume in memory. What is written to it counts as the container's memory (the kernel charges it there), so its size is a
    part of what the container asked for; one that asked for nothing is made to ask for the volume."""
    held = _amount(container, "memory", "limits", "requests")  # the limit first: it is what ends the container
    if held is None and share_bytes:
        size = _mebibytes(share_bytes / 4)  # as `ebb submit` does: loaders need little, the program the rest
        resources = container.get("resources") or {}
        container["resources"] = {**resources, "requests": {**(resources.get("requests") or {}), "memory": size}}
        return {"medium": "Memory", "sizeLimit": size}
    return {"medium": "Memory", **({"sizeLimit": _mebibytes(held / 2)} if held else {})}


def _mebibytes(size: float) -> str:
    return f"{max(1, int(size / 2**20))}Mi"


def _amount(container: Object, resource: str, *kinds: str) -> float | None:
    """The amount that the container asks for, in the first of `kinds` (requests, limits) that says. None: unreadable; what is
    no quantity is for the API server to refuse, in its words."""
    resources = container.get("resources") or {}
    try:
        return next((quantity(resources[kind][resource]) for kind in kinds if resource in (resources.get(kind) or {})), None)
    except ValueError:
        return None


def _launch(job: Job, met: Rendezvous, meeting: str, processes: int) -> dict[str, tuple[str, str]]:
    """Flags of the launcher, each with the variable that says the same."""
    return {
        "rdzv_backend": (names.ENV_RDZV_BACKEND, met.backend),
        "rdzv_endpoint": (names.ENV_RDZV_ENDPOINT, met.endpoint),
        "rdzv_id": (names.ENV_RDZV_ID, meeting),
        "nnodes": (names.ENV_NNODES, f"{job.min_replicas}:{job.max_replicas}"),
        **({"nproc_per_node": (ENV_PROCESSES, str(processes))} if processes else {}),
    }


def _about(job: Job, index: int) -> dict[str, str]:
    return {
        names.ENV_JOB: job.name,
        names.ENV_JOB_UID: job.uid,
        names.ENV_NAMESPACE: job.namespace,
        names.ENV_WORKER_INDEX: str(index),
        names.ENV_OUTPUT_DIR: output_dir(job),
        names.ENV_METRICS_PORT: str(names.METRICS_PORT),
    }


def _threads(container: Object, processes: int) -> dict[str, str]:
    """Threads of each process: its share of the CPUs. torchrun would say 1, and a library without torchrun all that it sees."""
    cpus = _amount(container, "cpu", "requests", "limits")
    return {ENV_THREADS: str(max(1, int(cpus // processes)))} if cpus else {}
