"""Facts that follow from a node group's record: disks, network interfaces, user data, labels, taints and tags. No SDK.

    machine.disk(group, settings)            # for the launch template (nodes.py) and the cost table
    machine.user_data(group, settings)       # base64, or None where the AMI's defaults do
    machine.template(group, settings)        # the autoscaler's tags of a group that has no node yet

The AMI, the instance profile and the node's registration are EKS's: the launch template names no image.

The autoscaler reads the template from tags of the Auto Scaling group, as node group tags do not reach it
(https://docs.aws.amazon.com/eks/latest/userguide/managed-node-groups.html), and its resources from tags of the node group too
(cluster-autoscaler-1.35.2, cloudprovider/aws/aws_manager.go). EKS itself sets k8s.io/cluster-autoscaler/enabled and /<cluster>,
by which it finds the group. No tag depends on `min` or `max`: a group may grow without a change of any tag.
"""

import base64
from collections.abc import Sequence
from dataclasses import dataclass

import yaml

from infra.clouds.aws.catalog import HUGE_PAGES_MIB, AwsInstance
from infra.clouds.aws.settings import GroupSettings, Settings
from workloads.cluster import NodeGroup

# Everything of size is on a machine's own NVMe disks where it has any. The NVIDIA AMI's snapshot takes 20 GiB
# (https://docs.aws.amazon.com/eks/latest/userguide/ml-eks-optimized-ami.html, read 2026-11-21); logs and caches grow.
SYSTEM_DISK_GIB = 50
# gp3: 3000 IOPS and 125 MiB/s are in the price; each 0.25 MiB/s wants one IOPS
# (https://docs.aws.amazon.com/ebs/latest/userguide/general-purpose.html, read 2026-11-21).
BASE_IOPS, BASE_THROUGHPUT_MIB, IOPS_PER_MIB = 3000, 125, 4
# The kubelet keeps 10 % of the disk (evictionHard nodefs.available) and nodeadm 1 GiB; file systems take 1 to 2 %. A tag that
# promises more than the machine has would make the autoscaler boot machines for a pod that fits none of them.
USABLE = 0.85
GIB_PER_GB = 1e9 / 2**30  # instance stores are sold in GB
# Pulling in parallel wants a 2xlarge, and a disk of 600 MiB/s or its own NVMe, or it is slower than without
# (https://github.com/awslabs/amazon-eks-ami at 81fec2e895, nodeadm/doc/examples.md, "Enabling fast image pull").
FAST_PULL_CPU, FAST_PULL_THROUGHPUT_MIB = 8, 600
# libfabric pins its buffers. A container may pin the 8 MiB that systemd grants containerd; the capability IPC_LOCK is no help to
# the images' user, who is not root (https://github.com/NVIDIA/nvidia-container-toolkit/issues/2037, read 2026-11-21). nodeadm
# puts this list in the place of the AMI's own, whose NOFILE it repeats, and reads numbers as floats, which know no "unlimited"
# (https://github.com/awslabs/amazon-eks-ami at 81fec2e895, nodeadm/internal/containerd/base-runtime-spec.json, util/merge.go).
RLIMITS = (("RLIMIT_NOFILE", 65536, 1048576), ("RLIMIT_MEMLOCK", 2**50, 2**50))
_BOUNDARY = "ebb"
TEMPLATE = "k8s.io/cluster-autoscaler/node-template"
STACK, PROJECT, GROUP = "ebb.dev/stack", "ebb.dev/project", "ebb.dev/node-group"
BACKED_UP = "ebb.dev/backup"  # on disks that have snapshots every night
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


@dataclass(frozen=True, kw_only=True)
class Disk:
    """The root disk, gp3. `local_gib`: NVMe disks of the machine, joined into one, that hold images and pods instead; 0: none."""

    gib: int
    throughput_mib: int
    iops: int
    local_gib: int = 0

    @property
    def ephemeral_gib(self) -> int:
        """GiB that pods may use: never more than the kubelet will report."""
        return int((self.local_gib or self.gib) * USABLE)


@dataclass(frozen=True, kw_only=True)
class Interface:
    """A network interface by its place, and what it speaks: IP alone, EFA alone, or both ("efa")."""

    card: int
    device: int
    kind: str


def types(group: NodeGroup) -> tuple[AwsInstance, ...]:
    """The group's instance types; the first is the one that the autoscaler judges it by."""
    found = tuple(one for one in (group.instance, *group.others) if isinstance(one, AwsInstance))
    assert len(found) == 1 + len(group.others), f"{group.name}: types of another cloud's catalog"
    return found


def own_settings(group: NodeGroup) -> GroupSettings:
    """Section `aws` of the group, or its defaults."""
    settings = group.settings if group.settings is not None else GroupSettings()
    assert isinstance(settings, GroupSettings), f"{group.name}: settings of another cloud"
    return settings


def efa_interfaces(group: NodeGroup) -> int:
    """The number of EFA interfaces of each machine."""
    return types(group)[0].efa if own_settings(group).efa else 0


def disk(group: NodeGroup, settings: Settings) -> Disk:
    """The machine's disks. Big and fast EBS volumes cost as much as a fifth of a small spot machine, so they are small and slow
    where the machine brings NVMe disks."""
    nodes, asked = settings.nodes, own_settings(group).disk_gib
    if group.is_manager:
        return Disk(gib=asked or nodes.manager_disk_gib, throughput_mib=BASE_THROUGHPUT_MIB, iops=BASE_IOPS)
    local = min(int(one.local_disk_gib * GIB_PER_GB) for one in types(group))
    if local:
        return Disk(gib=asked or SYSTEM_DISK_GIB, throughput_mib=BASE_THROUGHPUT_MIB, iops=BASE_IOPS, local_gib=local)
    throughput = nodes.disk_throughput_mib
    return Disk(gib=asked or nodes.disk_gib, throughput_mib=throughput, iops=max(BASE_IOPS, IOPS_PER_MIB * throughput))


def interfaces(group: NodeGroup) -> tuple[Interface, ...]:
    """Empty without EFA: then EKS makes the one interface. With EFA each network card gets one, the first with IP as well.

    Placed as eksctl, terraform-aws-eks and pulumi-eks place them in managed node groups. A machine with one card more than EFA
    interfaces has IP alone on card 0, and its other cards count from device 0: AWS's own words for P6-B300
    (https://github.com/aws/aws-parallelcluster/issues/7143, read 2026-11-21).
    """
    count, cards = efa_interfaces(group), types(group)[0].network_cards
    if not count:
        return ()
    if cards > count:
        others = tuple(Interface(card=card, device=0, kind="efa-only") for card in range(1, count + 1))
        return (Interface(card=0, device=0, kind="interface"), *others)
    others = tuple(Interface(card=card, device=1, kind="efa-only") for card in range(1, count))
    return (Interface(card=0, device=0, kind="efa"), *others)


def fast_pulls(group: NodeGroup, settings: Settings) -> bool:
    """True if images are pulled and unpacked in parallel, which pays on machines with the cores and the disk for it alone."""
    found = disk(group, settings)
    quick = found.local_gib > 0 or found.throughput_mib >= FAST_PULL_THROUGHPUT_MIB
    return not group.is_manager and quick and all(one.cpu >= FAST_PULL_CPU for one in types(group))


def user_data(group: NodeGroup, settings: Settings) -> str | None:
    """Base64 of `boot_settings`, as a launch template has it."""
    found = boot_settings(group, settings)
    return None if found is None else base64.b64encode(found.encode()).decode()


def boot_settings(group: NodeGroup, settings: Settings) -> str | None:
    """Settings for nodeadm, the AMI's boot program, which merges them with the part that EKS, or Karpenter, adds. MIME."""
    spec: dict[str, object] = {}
    if disk(group, settings).local_gib:
        spec["instance"] = {"localStorage": {"strategy": "RAID0"}}
    if efa_interfaces(group):
        limits = [{"type": kind, "soft": soft, "hard": hard} for kind, soft, hard in RLIMITS]
        spec["containerd"] = {"baseRuntimeSpec": {"process": {"rlimits": limits}}}
    if fast_pulls(group, settings):
        spec["featureGates"] = {"FastImagePull": True}
    if not spec:
        return None
    config = yaml.safe_dump({"apiVersion": "node.eks.aws/v1alpha1", "kind": "NodeConfig", "spec": spec}, sort_keys=False)
    return _mime(config)


def _mime(config: str) -> str:
    """The form that EKS asks for where there is a launch template
    (https://docs.aws.amazon.com/eks/latest/userguide/launch-templates.html#launch-template-user-data, read 2026-11-21)."""
    lines: Sequence[str] = (
        "MIME-Version: 1.0",
        f'Content-Type: multipart/mixed; boundary="{_BOUNDARY}"',
        "",
        f"--{_BOUNDARY}",
        "Content-Type: application/node.eks.aws",
        "",
        config,
        f"--{_BOUNDARY}--",
        "",
    )
    return "\n".join(lines)


# ---------------------------------------------------------------------------------------------------------- labels, taints, tags


def stack_tags(stack: str, settings: Settings) -> dict[str, str]:
    """Tags of everything in a stack, so that it can be found and billed."""
    return {PROJECT: "ebb", STACK: stack, **settings.tags}


def machine_tags(stack: str, group: NodeGroup, settings: Settings) -> dict[str, str]:
    """Tags of instances, their disks and network interfaces. The provider's default tags stop at the launch template."""
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
    """Resources that a machine offers pods beside CPU and memory, which the autoscaler knows by the instance type."""
    found = {"ephemeral-storage": f"{disk(group, settings).ephemeral_gib}Gi"}
    if group.instance.gpus:
        found["nvidia.com/gpu"] = str(group.instance.gpus)
    if efa_interfaces(group):
        found |= {"vpc.amazonaws.com/efa": str(efa_interfaces(group)), "hugepages-2Mi": f"{HUGE_PAGES_MIB}Mi"}
    return found


def template(group: NodeGroup, settings: Settings) -> dict[str, str]:
    """The autoscaler's tags. A manager's group has none: it always has its one machine, which shows what it is."""
    if group.is_manager:
        return {}
    return {
        **{f"{TEMPLATE}/label/{key}": value for key, value in labels(group).items()},
        **{f"{TEMPLATE}/taint/{taint['key']}": f"{taint['value']}:{taint['effect']}" for taint in group.taints},
        **{f"{TEMPLATE}/resources/{name}": amount for name, amount in resources(group, settings).items()},
        f"{TEMPLATE}/autoscaling-options/scaledownunneededtime": f"{settings.autoscaler.scale_down_minutes}m0s",
    }
