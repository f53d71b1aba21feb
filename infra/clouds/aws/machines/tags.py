"""What a node group tells Kubernetes, the autoscaler and the bill: labels, taints, resources and tags, all of its one record.

    tags.labels(group), tags.taints(group)     # what its machines carry
    tags.template(group, settings)             # what a machine would carry: the autoscaler's tags of a group that has none yet

The autoscaler reads the template from tags of the Auto Scaling group, as node group tags do not reach it
(https://docs.aws.amazon.com/eks/latest/userguide/managed-node-groups.html), and its resources from tags of the node group too
(cluster-autoscaler-1.35.2, cloudprovider/aws/aws_manager.go). EKS itself sets k8s.io/cluster-autoscaler/enabled and /<cluster>,
by which it finds the group. Nothing here depends on `min` or `max`: a group may grow without a change of any tag.
"""

from infra.cloud import NodeGroup
from infra.clouds.aws.machines.machine import disk, efa_interfaces
from infra.clouds.aws.settings import Settings
from infra.config.checks import MANAGER

TEMPLATE = "k8s.io/cluster-autoscaler/node-template"
STACK, PROJECT, GROUP = "ebb.dev/stack", "ebb.dev/project", "ebb.dev/node-group"
# With it the autoscaler takes a machine for unready until its GPUs show; without it, it boots a second one meanwhile.
ACCELERATOR = "k8s.amazonaws.com/accelerator"
# The names that the autoscaler knows (aws_cloud_provider.go); of others it counts "not-listed", and all else works.
_ACCELERATORS = {
    "T4": "nvidia-tesla-t4",
    "V100": "nvidia-tesla-v100",
    "V100-32GB": "nvidia-tesla-v100",
    "A100": "nvidia-tesla-a100",
    "A100-80GB": "nvidia-tesla-a100",
    "A10G": "nvidia-a10g",
    "L4": "nvidia-l4",
    "L40S": "nvidia-l40s",
}
_EFFECTS = {"NoSchedule": "NO_SCHEDULE", "NoExecute": "NO_EXECUTE", "PreferNoSchedule": "PREFER_NO_SCHEDULE"}
# Machines with the EFA driver set aside 5128 pages of 2 MiB (https://docs.aws.amazon.com/eks/latest/userguide/node-efa.html, read
# 2026-11-21), which libfabric takes its buffers from.
HUGE_PAGES = "10256Mi"


def stack_tags(stack: str, settings: Settings) -> dict[str, str]:
    """What everything of a stack carries, so that it can be found and billed."""
    return {PROJECT: "ebb", STACK: stack, **settings.tags}


def machine_tags(stack: str, group: NodeGroup, settings: Settings) -> dict[str, str]:
    """What machines, their disks and network interfaces carry. The provider's default tags stop at the launch template."""
    return {**stack_tags(stack, settings), GROUP: group.name, "Name": f"ebb-{stack}-{group.name}"}


def labels(group: NodeGroup) -> dict[str, str]:
    """The labels of its nodes."""
    return {**group.labels, **({ACCELERATOR: accelerator(group.instance.gpu_type)} if group.instance.gpus else {})}


def accelerator(gpu_type: str) -> str:
    """The autoscaler's name of a GPU type."""
    return _ACCELERATORS.get(gpu_type, f"nvidia-{gpu_type.lower()}")


def taints(group: NodeGroup) -> list[dict[str, str]]:
    """The taints of its nodes, in EKS's words."""
    return [{**taint, "effect": _EFFECTS[taint["effect"]]} for taint in group.taints]


def resources(group: NodeGroup, settings: Settings) -> dict[str, str]:
    """What a machine offers pods beside CPU and memory, which the autoscaler knows by the instance type."""
    found = {"ephemeral-storage": f"{disk(group, settings).ephemeral_gib}Gi"}
    if group.instance.gpus:
        found["nvidia.com/gpu"] = str(group.instance.gpus)
    if efa_interfaces(group):
        found |= {"vpc.amazonaws.com/efa": str(efa_interfaces(group)), "hugepages-2Mi": HUGE_PAGES}
    return found


def template(group: NodeGroup, settings: Settings) -> dict[str, str]:
    """The autoscaler's tags. The manager group has none: it always has its one machine, which shows what it is."""
    if group.name == MANAGER:
        return {}
    return {
        **{f"{TEMPLATE}/label/{key}": value for key, value in labels(group).items()},
        **{f"{TEMPLATE}/taint/{taint['key']}": f"{taint['value']}:{taint['effect']}" for taint in group.taints},
        **{f"{TEMPLATE}/resources/{name}": amount for name, amount in resources(group, settings).items()},
        f"{TEMPLATE}/autoscaling-options/scaledownunneededtime": f"{settings.autoscaler.scale_down_minutes}m0s",
    }
