"""The machines of a platform as nodes tell them: kind, zone, age, GPUs."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ebb.api import contract as names
from ebb.kube import NODES, Denied, Kube, NotFound, Object

LABEL_INSTANCE_TYPE = "node.kubernetes.io/instance-type"


@dataclass(frozen=True, kw_only=True)
class MachineView:
    """One machine. Times are RFC 3339."""

    name: str
    instance_type: str
    zone: str
    capacity: str  # spot or on-demand
    group: str
    gpu_type: str
    gpus: int
    ready: bool
    leaving: bool  # the cloud takes it back, or it is drained: nothing new is put on it
    since: str


NO_MACHINE = MachineView(
    name="", instance_type="", zone="", capacity="", group="", gpu_type="", gpus=0, ready=False, leaving=False, since=""
)


@dataclass(frozen=True)
class Nodes:
    """The machines by name."""

    machines: Mapping[str, MachineView]
    gone: frozenset[str] = frozenset()  # asked for and not there

    @classmethod
    async def read(cls, kube: Kube) -> "Nodes":
        """All of them; none where one may not look at nodes, which costs columns and no answers."""
        try:
            return cls({node["metadata"]["name"]: machine_view(node) for node in await kube.list(NODES)})
        except (Denied, NotFound):
            return cls({})

    async def with_those_of(self, pods: Iterable[Object], kube: Kube) -> "Nodes":
        """The same, read again if a pod is on a machine that is not among them."""
        wanted = {str(pod["spec"]["nodeName"]) for pod in pods if pod["spec"].get("nodeName")}
        if wanted <= {*self.machines, *self.gone}:
            return self
        found = await Nodes.read(kube)
        return Nodes(found.machines, frozenset(wanted - set(found.machines)))

    def of(self, name: str) -> MachineView:
        """NO_MACHINE if it is gone, or was never known."""
        return self.machines.get(name, NO_MACHINE)

    @property
    def zones(self) -> dict[str, str]:
        return {name: machine.zone for name, machine in self.machines.items()}


def machine_view(node: Object) -> MachineView:
    """One machine out of its node."""
    metadata, status = node["metadata"], node.get("status") or {}
    labels = metadata.get("labels") or {}
    taints = {taint.get("key") for taint in (node.get("spec") or {}).get("taints") or []}
    ready = next((item["status"] for item in status.get("conditions") or [] if item["type"] == "Ready"), "")
    return MachineView(
        name=metadata["name"],
        instance_type=labels.get(LABEL_INSTANCE_TYPE, ""),
        zone=labels.get(names.LABEL_ZONE, ""),
        capacity=labels.get(names.LABEL_CAPACITY, ""),
        group=labels.get(names.LABEL_NODE_GROUP, ""),
        gpu_type=labels.get(names.LABEL_GPU_TYPE, ""),
        gpus=int((status.get("allocatable") or {}).get(names.GPU_RESOURCE) or 0),
        ready=ready == "True",
        leaving=bool((node.get("spec") or {}).get("unschedulable") or taints & names.TAINTS_RECLAIM),
        since=metadata.get("creationTimestamp") or "",
    )
