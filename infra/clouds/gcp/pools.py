"""A node group: a node pool in one zone, from zero machines.

    pools.declare(part, group, control, settings)

A changed `min` or `max` updates the pool in place and nothing else. Another machine type, disk or label is an update that GKE
rolls through the pool; another GPU, capacity type or zone is another pool (the provider's ForceNew fields:
testing/pulumi/mocks/tables/gcp.py). The autoscaler owns the number of machines, so none is said, but for the manager's one.

Taints: GKE adds nvidia.com/gpu=present:NoSchedule to GPU pools by itself; ours is the same, so that it is there in any case. Of
taints that GKE adds beside those named here the provider reports no difference: it keeps them apart, in effectiveTaints
(terraform-provider-google, node_config.go, flattenTaints, read at e03b7622a26c).
"""

from collections.abc import Sequence

import pulumi
from pulumi_gcp import container
from pulumi_gcp.container._inputs import (
    NodePoolAutoscalingArgsDict,
    NodePoolNodeConfigArgsDict,
    NodePoolNodeConfigGuestAcceleratorArgsDict,
)

from infra import catalog
from infra.clouds.gcp.catalog import GcpInstance
from infra.clouds.gcp.checks import LONG_GRACE, version_of
from infra.clouds.gcp.cluster import SCOPE, ControlPlane
from infra.clouds.gcp.settings import GroupSettings, Settings
from infra.part import Part
from workloads.cluster import FLEX_START, ON_DEMAND, SPOT, NodeGroup

EFFECTS = {"NoSchedule": "NO_SCHEDULE", "NoExecute": "NO_EXECUTE", "PreferNoSchedule": "PREFER_NO_SCHEDULE"}
# Half of the least grace; the rest of a longer one is the jobs'
# (https://docs.cloud.google.com/kubernetes-engine/docs/concepts/spot-vms, a stored copy, read 2026-11-22).
CRITICAL_SECONDS = 15
# Compute Engine's API takes hyperdisk-balanced for the fourth generation and A3 where none is named (its description of
# AttachedDiskInitializeParams.diskType, read 2026-11-22). That these have nothing else is Google's word for N4 and A3 Ultra as
# others quote it, and an assumption for A4 and G4.
HYPERDISK_ONLY = ("a3-ultragpu", "a4", "g4", "n4")
# NVIDIA's branch 580 is the last for GPUs before Turing (its Unix deprecation schedule, as the press quotes it, read 2026-11-22),
# and `latest` may be newer.
TURING = (7, 5)
_TIMEOUTS = pulumi.CustomTimeouts(create="45m", update="3h", delete="1h")


def notice_seconds(settings: Settings) -> int:
    """The notice of a reclaim that pods get: Google warns 30 s before, or as long as the kubelet holds up the shutdown; the last
    15 s are the system's."""
    return settings.nodes.shutdown_grace_seconds - CRITICAL_SECONDS


def declare(  # noqa: PLR0917 - one of each thing that exists before a pool
    part: Part,
    group: NodeGroup,
    control: ControlPlane,
    settings: Settings,
    stack_labels: dict[str, str],
    rights: Sequence[pulumi.Resource] = (),
) -> pulumi.Resource:
    """A pool that exists once machines can join the cluster; deleting it drains and ends them. `rights`: what GKE must be allowed
    before, for it."""
    own, manager = own_settings(group), group.is_manager
    return container.NodePool(
        group.name,
        cluster=pulumi.Output.all(control.name, control.version).apply(lambda both: able(group.name, *both))
        if is_held_up(group, settings)
        else control.name,
        location=settings.region,
        node_locations=[group.zone],
        node_count=1 if manager else None,
        initial_node_count=None if manager else group.min,
        autoscaling=None if manager else _scaling(group),
        node_config=_machine(group, own, control, settings, stack_labels),
        placement_policy={"type": "COMPACT"} if own.compact_placement else None,
        # GKE makes the networks of the fast interfaces, and removes them with the pool.
        network_config={"accelerator_network_profile": "auto"} if group.network else None,
        # Upgrades come with the channel and cannot be turned off. One machine at a time, and no further one, for which GPUs
        # seldom are there.
        upgrade_settings={"strategy": "SURGE", "max_surge": 1 if manager else 0, "max_unavailable": 0 if manager else 1},
        # A machine of flex-start cannot be had again (.../concepts/dws): GKE refuses repair there.
        management={"auto_repair": settings.nodes.repair and group.capacity_type != FLEX_START, "auto_upgrade": True},
        opts=part.child(
            depends_on=[*control.ready, *rights],
            custom_timeouts=_TIMEOUTS,
            # `min` is where a new pool begins; a later one is the autoscaler's affair, and here it would replace the pool.
            ignore_changes=["initialNodeCount"],
        ),
    )


def able(group: str, cluster: str, version: str) -> str:
    """The cluster's name, if machines of `group` can hold up their shutdown in it. Raises pulumi.RunError."""
    if version_of(version) < LONG_GRACE:
        raise pulumi.RunError(
            f"node group {group}: GKE has made control plane {cluster} with {version}, where pods get 15 s of notice: set "
            "gcp.nodes.shutdownGraceSeconds: 30, or gcp.cluster.channel: RAPID, or wait until the channel has 1.35.0-gke.1171000"
        )
    return cluster


def is_held_up(group: NodeGroup, settings: Settings) -> bool:
    """True if the kubelet lengthens the notice of a reclaim."""
    long = settings.nodes.shutdown_grace_seconds > 2 * CRITICAL_SECONDS
    return long and group.capacity_type == SPOT and not own_settings(group).preemptible


def own_settings(group: NodeGroup) -> GroupSettings:
    """Section `gcp` of the group, or its defaults."""
    settings = group.settings if group.settings is not None else GroupSettings()
    assert isinstance(settings, GroupSettings), f"{group.name}: settings of another cloud"
    return settings


def instance(group: NodeGroup) -> GcpInstance:
    assert isinstance(group.instance, GcpInstance), f"{group.name}: a type of another cloud's catalog"
    return group.instance


def disk(group: NodeGroup, settings: Settings) -> tuple[int, str]:
    """GiB and kind of the system disk."""
    size = settings.nodes.manager_disk_gib if group.is_manager else settings.nodes.disk_gib
    return own_settings(group).disk_gib or size, disk_type(instance(group), settings.nodes.disk_type)


def disk_type(machine: GcpInstance, wanted: str) -> str:
    """The kind of disk that a machine can attach."""
    return "hyperdisk-balanced" if machine.machine_type.startswith(HYPERDISK_ONLY) else wanted


def etcd_disk_type(manager: NodeGroup) -> str:
    """The kind of etcd's disk."""
    return disk_type(instance(manager), "pd-balanced")


def driver(group: NodeGroup) -> str:
    """The driver of NVIDIA that GKE shall install, in GKE's words."""
    asked = own_settings(group).driver
    if asked == "disabled":
        return "INSTALLATION_DISABLED"
    major, _, minor = catalog.GPUS[group.instance.gpu_type].capability.partition(".")
    return (asked or ("latest" if (int(major), int(minor)) >= TURING else "default")).upper()


def _scaling(group: NodeGroup) -> NodePoolAutoscalingArgsDict:
    """ANY: of what the zone has, without an order. With one zone a pool, the two policies differ in how long they try."""
    policy = "BALANCED" if group.capacity_type == ON_DEMAND else "ANY"
    return {"min_node_count": group.min, "max_node_count": group.max, "location_policy": policy}


def _machine(
    group: NodeGroup, own: GroupSettings, control: ControlPlane, settings: Settings, stack_labels: dict[str, str]
) -> NodePoolNodeConfigArgsDict:
    machine, (disk_gib, disk_type), spot = instance(group), disk(group, settings), group.capacity_type == SPOT
    config: NodePoolNodeConfigArgsDict = {
        "machine_type": machine.machine_type,
        "disk_size_gb": disk_gib,
        "disk_type": disk_type,
        "image_type": "COS_CONTAINERD",
        "service_account": control.account,
        "oauth_scopes": [SCOPE],
        "workload_metadata_config": {"mode": "GKE_METADATA"},  # pods cannot ask for the machine's identity
        "metadata": {"disable-legacy-endpoints": "true"},
        "shielded_instance_config": {"enable_secure_boot": not machine.gpus, "enable_integrity_monitoring": True},
        "gvnic": {"enabled": True},
        "labels": group.labels,
        "resource_labels": {**stack_labels, "ebb-node-group": group.name},
        "taints": [{"key": one["key"], "value": one["value"], "effect": EFFECTS[one["effect"]]} for one in group.taints],
    }
    if machine.gpus:
        config["guest_accelerators"] = [_accelerator(group)]
        # An image with torch starts while it is still being fetched, from this project's registry alone.
        config["gcfs_config"] = {"enabled": settings.images.build != "none"}
    if machine.local_ssds:
        config["ephemeral_storage_local_ssd_config"] = {"local_ssd_count": machine.local_ssds}
    if spot:
        config["preemptible" if own.preemptible else "spot"] = True
    if is_held_up(group, settings):
        config["kubelet_config"] = {
            "shutdown_grace_period_seconds": settings.nodes.shutdown_grace_seconds,
            "shutdown_grace_period_critical_pods_seconds": CRITICAL_SECONDS,
        }
    if group.capacity_type == FLEX_START:
        config["flex_start"] = True
        config["max_run_duration"] = f"{group.max_age_seconds}s"
        config["reservation_affinity"] = {"consume_reservation_type": "NO_RESERVATION"}
    return config


def _accelerator(group: NodeGroup) -> NodePoolNodeConfigGuestAcceleratorArgsDict:
    """Also of machines whose type says it already: the driver is asked for here."""
    machine = instance(group)
    return {
        "type": machine.accelerator,
        "count": machine.gpus,
        "gpu_driver_installation_config": {"gpu_driver_version": driver(group)},
    }
