"""A node group: a launch template, an EKS managed node group in one zone's private subnet, and its tags for the autoscaler.

    machines = nodes.declare(part, "ebb-dev", group, control, network, settings, role)

A changed `min` or `max` updates the group in place and nothing else here. Another disk, AMI release or tag is a new version of
the launch template or of the AMI, which EKS rolls through the group machine by machine; another capacity type, instance type or
subnet is another node group. Nothing is looked up: AMI releases are pinned, so that no `up` replaces machines by itself.

The autoscaler owns the desired size, so it is ignored here. Two things follow, as the provider sends the whole scaling config
with the desired size of the stack's state (terraform-provider-aws, internal/service/eks/node_group.go): before a changed `min` or
`max` the state must be refreshed, or a group in use shrinks to what it was created with; and EKS refuses a `min` above the size
that the group has at that time.
"""

from collections.abc import Sequence

import pulumi
from pulumi_aws import autoscaling, ec2, eks, iam
from pulumi_aws.ec2._inputs import (
    LaunchTemplateBlockDeviceMappingArgsDict,
    LaunchTemplateNetworkInterfaceArgsDict,
    LaunchTemplateTagSpecificationArgsDict,
)
from pulumi_aws.eks._inputs import NodeGroupScalingConfigArgsDict, NodeGroupUpdateConfigArgsDict

from infra.clouds.aws.control.cluster import ControlPlane
from infra.clouds.aws.machines import machine
from infra.clouds.aws.network import Network
from infra.clouds.aws.settings import Settings
from infra.part import Part
from workloads.cluster import CAPACITY_BLOCK, ON_DEMAND, SPOT, NodeGroup

NOT_ACTIVE = "Nodegroup cannot be updated as it is currently not in Active State"  # EKS, as a ResourceInUseException
_CAPACITY = {SPOT: "SPOT", ON_DEMAND: "ON_DEMAND", CAPACITY_BLOCK: "CAPACITY_BLOCK"}
# Creation stalls where spot has no machine for a `min` above zero; an update drains each machine, up to 15 minutes.
_TIMEOUTS = pulumi.CustomTimeouts(create="30m", update="3h", delete="1h")


def declare(  # noqa: PLR0917 - one of each thing that exists before machines
    part: Part,
    name: str,
    group: NodeGroup,
    control: ControlPlane,
    network: Network,
    settings: Settings,
    role: iam.Role,
    *,
    after: Sequence[pulumi.Resource] = (),
) -> pulumi.Resource:
    """A node group that exists once machines can join the cluster, and after `after`; deleting it drains and ends them."""
    template = _launch_template(part, name.removeprefix("ebb-"), group, control, settings)
    block = group.capacity_type == CAPACITY_BLOCK
    found = machine.template(group, settings)
    machines = eks.NodeGroup(
        group.name,
        cluster_name=control.name,
        node_role_arn=role.arn,
        subnet_ids=[network.private[group.zone]],
        ami_type=_ami_type(group),
        version=settings.cluster.kubernetes_version,
        release_version=settings.nodes.releases[_ami_type(group)],
        capacity_type=_CAPACITY[group.capacity_type],
        instance_types=None if block else [one.name for one in machine.types(group)],
        launch_template={"id": template.id, "version": template.latest_version.apply(str)},
        scaling_config=_scaling(group),
        update_config=_update(group),
        node_repair_config={"enabled": settings.nodes.repair},
        labels=machine.labels(group),
        taints=[{"key": taint["key"], "value": taint["value"], "effect": taint["effect"]} for taint in machine.taints(group)],
        tags=found,
        opts=part.child(
            depends_on=[network.part, *control.ready, *after],
            custom_timeouts=_TIMEOUTS,
            ignore_changes=[] if group.is_manager else ["scalingConfig.desiredSize"],
            hooks=pulumi.ResourceHookBinding(on_error=[pulumi.ErrorHook(f"explain-{group.name}", _explain)]),
        ),
    )
    for key, value in found.items():
        _tag(machines, f"{group.name}/{key.removeprefix(machine.TEMPLATE + '/')}", key, value)
    for key, value in machine.stack_tags(name.removeprefix("ebb-"), settings).items():
        _tag(machines, f"{group.name}/{key}", key, value)
    return machines


def _explain(refused: pulumi.ErrorHookArgs) -> bool:
    """Say what EKS's refusal of an update means and what to do. False: not tried again, as it may take hours."""
    if refused.failed_operation == "update" and any(NOT_ACTIVE in error for error in refused.errors):
        pulumi.log.error(
            f"node group {refused.name}: EKS updates only groups that are ACTIVE. Mostly it is DEGRADED: a machine could not be "
            "launched, for want of spot capacity too; the machines it has, and those to come, run jobs as before. `aws eks "
            "describe-nodegroup` names the status and its cause. UPDATING: wait, then run `pulumi up` again. DEGRADED: run "
            "`pulumi up` again once a machine of it has started; or undo the change of its line, of `releases`, disks or tags; "
            "or give its line another `name`, and `up` makes a new group in its place (docs/aws.md, Changing it)."
        )
    return False


def _tag(machines: eks.NodeGroup, logical: str, key: str, value: str) -> None:
    """A tag of the Auto Scaling group. Machines get theirs from the launch template."""
    autoscaling.Tag(
        logical,
        autoscaling_group_name=machines.resources[0].autoscaling_groups[0].name,
        tag={"key": key, "value": value, "propagate_at_launch": False},
        opts=pulumi.ResourceOptions(parent=machines),
    )


def _ami_type(group: NodeGroup) -> str:
    return machine.types(group)[0].ami_type


def _scaling(group: NodeGroup) -> NodeGroupScalingConfigArgsDict:
    return {"min_size": group.min, "max_size": group.max, "desired_size": group.min}


def _update(group: NodeGroup) -> NodeGroupUpdateConfigArgsDict:
    """One machine at a time. MINIMAL ends the old one first: the default boots further ones, for which GPUs seldom are there."""
    return {"max_unavailable": 1, **({"update_strategy": "MINIMAL"} if group.instance.gpus else {})}


def _launch_template(part: Part, stack: str, group: NodeGroup, control: ControlPlane, settings: Settings) -> ec2.LaunchTemplate:
    """No image, subnet or instance profile: EKS refuses or replaces them. Without network interfaces EKS adds the cluster's
    security group by itself; with them it does not."""
    block = group.capacity_type == CAPACITY_BLOCK
    reservation = machine.own_settings(group).capacity_reservation_id
    placement = None
    if machine.own_settings(group).placement_group:
        placement = ec2.PlacementGroup(group.name, strategy="cluster", opts=part.child())
    return ec2.LaunchTemplate(
        group.name,
        description=f"Machines of node group {group.name}",
        # One hop reaches programs on the machine and not those in pods: these get no credentials of the machine.
        metadata_options={
            "http_endpoint": "enabled",
            "http_tokens": "required",
            "http_put_response_hop_limit": 1,
            "instance_metadata_tags": "disabled",
        },
        block_device_mappings=[_root_disk(machine.disk(group, settings))],
        network_interfaces=_interfaces(machine.interfaces(group), control) or None,
        placement={"group_name": placement.name} if placement else None,
        # Capacity blocks alone want the instance type here, and then not in the node group
        # (https://docs.aws.amazon.com/eks/latest/userguide/capacity-blocks-mng.html, read 2026-11-21).
        instance_type=group.instance.name if block else None,
        instance_market_options={"market_type": "capacity-block"} if block else None,
        capacity_reservation_specification=(
            {"capacity_reservation_target": {"capacity_reservation_id": reservation}} if reservation else None
        ),
        tag_specifications=_tag_specifications(machine.machine_tags(stack, group, settings)),
        user_data=machine.user_data(group, settings),
        opts=part.child(),
    )


def _root_disk(disk: machine.Disk) -> LaunchTemplateBlockDeviceMappingArgsDict:
    return {
        "device_name": "/dev/xvda",
        "ebs": {
            "volume_type": "gp3",
            "volume_size": disk.gib,
            "throughput": disk.throughput_mib,
            "iops": disk.iops,
            "encrypted": "true",
            "delete_on_termination": "true",
        },
    }


def _interfaces(wanted: Sequence[machine.Interface], control: ControlPlane) -> list[LaunchTemplateNetworkInterfaceArgsDict]:
    """EC2 gives no public address to a machine with several interfaces, so these machines need a private subnet."""
    return [
        {
            "network_card_index": one.card,
            "device_index": one.device,
            "interface_type": one.kind,
            "security_groups": [control.security_group_id],
            "associate_public_ip_address": "false",
            "delete_on_termination": "true",
        }
        for one in wanted
    ]


def _tag_specifications(found: dict[str, str]) -> list[LaunchTemplateTagSpecificationArgsDict]:
    return [{"resource_type": kind, "tags": found} for kind in ("instance", "volume", "network-interface")]
