"""Requests of a worker to a machine, and of a job to the stack. Pure.

    needed = needs(job.worker.template)              # of one worker
    workers_per_machine(needed, group)               # 0: such machines are not for it
    wish = Wish.of(job)                              # all that decides where a job may go

Taints do not matter here: the stack's machines are for jobs, so workers are given what tolerates them.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ebb.api import contract as names
from ebb.api.platform import Network, NodeGroup, Sidecar
from ebb.api.quantities import counted
from ebb.api.spec import Job
from ebb.api.template import worker_container

Object = dict[str, Any]

MOST_PODS = 110  # on one machine: the kubelet's default
WELL_KNOWN = ("kubernetes.io/", "node.kubernetes.io/", "beta.kubernetes.io/")  # every machine has these, no platform record does


@dataclass(frozen=True, kw_only=True)
class Needs:
    """Resources that one worker asks of a machine."""

    gpus: int
    cpu: float
    memory_bytes: float
    selector: tuple[tuple[str, str], ...] = ()  # labels that its template asks for


@dataclass(frozen=True, kw_only=True)
class Wish:
    """Wishes of a job to the stack. Jobs of one sweep have equal ones, so that answers may be kept by them."""

    needs: Needs
    least: int  # minReplicas
    zone: str  # spec.placement, as the next two
    gpu_type: str | None
    capacity: str | None
    namespace: str
    claims: tuple[str, ...] = ()  # what its template mounts
    paths: tuple[str, ...] = ()  # where its training container has something mounted

    @classmethod
    def of(cls, job: Job) -> "Wish":
        asked, spec = job.spec.placement, job.worker.template["spec"]
        claims = [(volume.get("persistentVolumeClaim") or {}).get("claimName") for volume in spec.get("volumes") or ()]
        mounts = worker_container(spec["containers"]).get("volumeMounts") or ()
        return cls(
            needs=needs(job.worker.template),
            least=job.min_replicas,
            zone=asked.zone,
            gpu_type=asked.gpu_type,
            capacity=asked.capacity,
            namespace=job.namespace,
            claims=tuple(claim for claim in claims if claim),
            paths=tuple(mount.get("mountPath", "").rstrip("/") for mount in mounts),
        )


def needs(template: Object) -> Needs:
    """Resources that a pod of this template asks for; the sum over its containers and sidecars, as the scheduler counts."""
    spec = template["spec"]
    wanted: defaultdict[str, float] = defaultdict(float)
    beside = [one for one in spec.get("initContainers") or () if one.get("restartPolicy") == "Always"]
    for container in [*spec["containers"], *beside]:
        resources = container.get("resources") or {}
        for name, amount in {**(resources.get("limits") or {}), **(resources.get("requests") or {})}.items():
            wanted[name] += counted(amount)
    return Needs(
        gpus=int(wanted[names.GPU_RESOURCE]),
        cpu=wanted["cpu"],
        memory_bytes=wanted["memory"],
        selector=tuple(sorted((spec.get("nodeSelector") or {}).items())),
    )


def with_sidecars(needed: Needs, sidecars: Iterable[Sidecar]) -> Needs:
    """The same, and what the cloud adds to the pod once it is made."""
    for one in sidecars:
        needed = replace(needed, cpu=needed.cpu + one.cpu, memory_bytes=needed.memory_bytes + one.memory_gib * 2**30)
    return needed


def workers_per_machine(needed: Needs, group: NodeGroup) -> int:
    """Number of such workers that one machine of the group holds; 0 if none fits or none may run there."""
    if not _admits(needed, group):
        return 0
    limits = [
        (needed.gpus, group.gpus_per_node),
        (needed.cpu, group.cpu),
        (needed.memory_bytes, group.pod_memory_gib * 2**30),
    ]
    counts = [has // asks for asks, has in limits if asks]
    return int(min(MOST_PODS, *counts)) if counts else 1


def shared_network(gpus_per_worker: int, groups: Sequence[NodeGroup]) -> Network | None:
    """The fast network that workers on any machines of these groups would share; None: they use TCP.

    One worker has all interfaces of its machine, so it must have all its GPUs. NCCL needs the same network in all workers, and
    none of these networks goes from zone to zone.
    """
    first = groups[0].network if groups else None
    alike = all(group.network == first and group.gpus_per_node == gpus_per_worker for group in groups)
    return first if alike and len({group.zone for group in groups}) == 1 else None


def _admits(needed: Needs, group: NodeGroup) -> bool:
    """Return whether the pod's own node selector lets it onto the group's machines."""
    labels = {
        names.LABEL_ZONE: group.zone,
        names.LABEL_NODE_GROUP: group.name,
        names.LABEL_CAPACITY: group.capacity_type,
        "node.kubernetes.io/instance-type": group.instance_type,
        "beta.kubernetes.io/instance-type": group.instance_type,  # in upstream's examples
        **({names.LABEL_GPU_TYPE: group.gpu_type} if group.gpu_type else {}),
        **group.labels,
    }
    return all(labels.get(key, value if key.startswith(WELL_KNOWN) else None) == value for key, value in needed.selector)
