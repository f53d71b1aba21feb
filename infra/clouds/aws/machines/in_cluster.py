"""Programs that must run in an EKS cluster: cluster-autoscaler with its identity, and the device plugins that the AMIs lack.

    helpers = in_cluster.helpers(part, "ebb-dev", control, settings, groups)

The records say which program runs with which arguments; workloads makes Deployments and DaemonSets of them. Every flag is
from the autoscaler's source at tag cluster-autoscaler-1.35.2 (config/flags/flags.go). What the autoscaler may do in AWS is in
iam/rights.py.
"""

from collections.abc import Iterable, Sequence

import pulumi
from pulumi_aws import cloudwatch

from infra.clouds.aws.control import pod_identity
from infra.clouds.aws.control.cluster import ControlPlane
from infra.clouds.aws.iam import identity
from infra.clouds.aws.machines import machine
from infra.clouds.aws.settings import Settings
from infra.image_lock import pinned
from infra.part import Part
from workloads.cluster import (
    CAPACITY_BLOCK,
    LABEL_NODE_GROUP,
    ON_DEMAND,
    SPOT,
    SYSTEM,
    Autoscaler,
    DevicePlugin,
    Helpers,
    NodeGroup,
)
from workloads.helpers import AUTOSCALER, PLUGIN_NAMESPACE
from workloads.logs import NAME, Destination

AUTOSCALER_IMAGE = "registry.k8s.io/autoscaling/cluster-autoscaler"
# The newest of https://github.com/NVIDIA/k8s-device-plugin (versions.mk, 2026-08-19).
NVIDIA_IMAGE = "nvcr.io/nvidia/k8s-device-plugin:v0.20.0"
# AWS publishes it in EKS's own registries alone (https://github.com/aws/eks-charts at 5239609242, 2026-08-03, appVersion of
# aws-efa-k8s-device-plugin); machines may pull from there with their role.
EFA_IMAGE = "602401143452.dkr.ecr.{region}.amazonaws.com/eks/aws-efa-k8s-device-plugin:v0.5.20"
# Where that account is the registry's; the newer regions have accounts of their own and pull from Oregon, as the chart does
# (https://docs.aws.amazon.com/eks/latest/userguide/add-ons-images.html, read 2026-11-21).
EFA_REGIONS = (
    *("ap-northeast-1", "ap-northeast-2", "ap-northeast-3", "ap-south-1", "ap-southeast-1", "ap-southeast-2"),
    *("ca-central-1", "eu-central-1", "eu-north-1", "eu-west-1", "eu-west-2", "eu-west-3"),
    *("sa-east-1", "us-east-1", "us-east-2", "us-west-1", "us-west-2"),
)
# What is paid for anyway, then what is cheap, then what is always there.
PRIORITIES = {CAPACITY_BLOCK: 60, SPOT: 50, ON_DEMAND: 10}
SECOND_TRY_MINUTES, LAST_TRY_MINUTES, FORGET_MINUTES = 2, 10, 30


def helpers(part: Part, name: str, control: ControlPlane, settings: Settings, groups: Sequence[NodeGroup]) -> Helpers:
    """`groups`: those for jobs."""
    own = settings.autoscaler.kind == "cluster-autoscaler"  # Karpenter is there before its machines are: karpenter.py
    scaler = _autoscaler(part, name, control, settings, groups) if own else None
    return Helpers(autoscaler=scaler, device_plugins=tuple(_plugins(settings, groups)), gpu_figures=True)


def _autoscaler(part: Part, name: str, control: ControlPlane, settings: Settings, groups: Sequence[NodeGroup]) -> Autoscaler:
    link = pod_identity.associate(part, control, SYSTEM, AUTOSCALER, identity.role(part, name, "autoscaler"))
    region = settings.region
    return Autoscaler(
        image=_autoscaler_image(settings),
        arguments=arguments(name, settings),
        environment={"AWS_REGION": link.association_id.apply(lambda _: region)},
        priorities=priorities(groups),
    )


def _autoscaler_image(settings: Settings) -> str:
    return pinned(f"{AUTOSCALER_IMAGE}:{settings.autoscaler.release}")


def images(settings: Settings, groups: Sequence[NodeGroup]) -> Iterable[str]:
    """The images of these programs. `groups`: those of the stack."""
    if settings.autoscaler.kind == "cluster-autoscaler":
        yield _autoscaler_image(settings)
    yield from (plugin.image for plugin in _plugins(settings, groups))


def arguments(name: str, settings: Settings) -> list[str]:
    """The autoscaler's arguments: the groups that it finds, and how soon it acts."""
    own = settings.autoscaler
    return [
        "--cloud-provider=aws",
        # Both tags are EKS's own work on the Auto Scaling groups of this cluster's node groups.
        f"--node-group-auto-discovery=asg:tag=k8s.io/cluster-autoscaler/enabled,k8s.io/cluster-autoscaler/{name}",
        "--expander=priority,least-waste",
        # Similar groups differ by zone. Balancing would spread a job over zones, which it must not be.
        "--balance-similar-node-groups=false",
        # Spot that is not served shows as a machine that does not come; then the next group gets its turn.
        f"--max-node-provision-time={own.provision_minutes}m",
        # The first group is the cheapest, so it is tried again soon: the default, half an hour, is long at twice the price.
        f"--initial-node-group-backoff-duration={SECOND_TRY_MINUTES}m",
        f"--max-node-group-backoff-duration={LAST_TRY_MINUTES}m",
        f"--node-group-backoff-reset-timeout={FORGET_MINUTES}m",
        f"--scale-down-unneeded-time={own.scale_down_minutes}m",
        f"--scale-down-delay-after-add={own.scale_down_minutes}m",
        # A machine that comes in one group is no reason to keep idle ones in another.
        "--scale-down-delay-type-local=true",
        # A reclaim may take most machines at once; the autoscaler shall make new ones then, and not halt.
        "--max-total-unready-percentage=100",
        # Workers that must not move say so (safe-to-evict: false). Of the rest none shall keep a GPU machine running: not a pod
        # of kube-system, and not one with an emptyDir, which every worker has for its shared memory.
        "--skip-nodes-with-system-pods=false",
        "--skip-nodes-with-local-storage=false",
        "--emit-per-nodegroup-metrics=true",
        *(["--aws-use-static-instance-list=true"] if cut_off(settings) else []),
        "--v=2",
    ]


def cut_off(settings: Settings) -> bool:
    """True if EC2's API is out of reach, so that the list of instance types must be the one built into the autoscaler. An own
    VPC has NAT; an existing one without public subnets may have no way out but its endpoints."""
    return settings.network.vpc_id is not None and not settings.network.public_subnets


def priorities(groups: Sequence[NodeGroup]) -> dict[int, list[str]]:
    """A higher number is tried first. The expander knows groups by the names of their Auto Scaling groups, which EKS calls
    eks-<node group>-<UUID>; behind a node group's name here Pulumi puts seven hexadecimal digits."""
    found: dict[int, list[str]] = {}
    for group in groups:
        found.setdefault(PRIORITIES[group.capacity_type], []).append(f"^eks-{group.name}-[0-9a-f]{{7}}-[0-9a-f]{{8}}-")
    return dict(sorted(found.items(), reverse=True))


def _plugins(settings: Settings, groups: Sequence[NodeGroup]) -> Iterable[DevicePlugin]:
    """EKS's NVIDIA AMI has driver, container toolkit and the kernel's part of EFA, but neither plugin
    (https://docs.aws.amazon.com/eks/latest/userguide/ml-eks-optimized-ami.html, read 2026-11-21)."""
    yield from DevicePlugin.nvidia(pinned(NVIDIA_IMAGE), groups)
    with_efa = sorted(group.name for group in groups if machine.efa_interfaces(group))
    if with_efa:
        region = settings.region if settings.region in EFA_REGIONS else "us-west-2"
        yield DevicePlugin(
            name="efa-device-plugin",
            image=pinned(EFA_IMAGE.format(region=region)),
            label=LABEL_NODE_GROUP,
            values=with_efa,
            privileged=True,  # it opens /dev/infiniband and asks the metadata address for the instance type, as its chart does
        )


def log_group(name: str) -> str:
    """Its name, for the stack ebb-<stack>."""
    return f"/{name}/pods"


def logs(part: Part, name: str, control: ControlPlane, settings: Settings, keep_days: int) -> Destination:
    """Fluent Bit waits for its credentials, and for the group: it makes none. It takes credentials of Pod Identity from 4.0 on
    (https://github.com/fluent/fluent-bit/pull/10115, read 2026-11-28)."""
    region = settings.region
    group = cloudwatch.LogGroup(f"{name}-pods", name=log_group(name), retention_in_days=keep_days, opts=part.child())
    link = pod_identity.associate(part, control, PLUGIN_NAMESPACE, NAME, identity.role(part, name, "logs"))
    output = {
        "name": "cloudwatch_logs",
        "region": region,
        "log_group_name": log_group(name),
        # One stream for each container; the second is of a line from which no name could be made.
        "log_stream_template": "$namespace.$pod.$container",
        "log_stream_prefix": "other.",
        "auto_create_group": False,
    }
    console = f"https://{region}.console.aws.amazon.com/cloudwatch/home?region={region}"
    return Destination(
        output=output,
        environment={"AWS_REGION": pulumi.Output.all(link.association_id, group.arn).apply(lambda _: region)},
        links={"logs": f"{console}#logsV2:log-groups/log-group/{log_group(name).replace('/', '$252F')}"},
    )
