"""Node groups for tests: one by name, or many by chance."""

import random
from types import SimpleNamespace
from typing import Any, cast

import pulumi
from pulumi_aws import ec2, eks

from infra.clouds.aws.catalog import AMI_CPU, AMI_GPU, TYPES, AwsInstance
from infra.clouds.aws.control.cluster import ControlPlane
from infra.clouds.aws.iam import identity
from infra.clouds.aws.machines import nodes
from infra.clouds.aws.network import Network
from infra.clouds.aws.settings import GroupSettings, Settings
from infra.part import Part
from tests.infra.declared import Declared, declared
from workloads.cluster import CAPACITY_BLOCK, ON_DEMAND, SPOT, NodeGroup

ZONES = ("us-west-2a", "us-west-2b", "us-west-2c", "us-west-2d")
RELEASE = "1.35.0-20260714"
BLOCK = "cr-0123456789abcdef0"
USABLE = [one for one in TYPES if not one.refused]


def instance(name: str) -> AwsInstance:
    return next(one for one in TYPES if one.name == name)


def group(
    name: str = "spot-t4-us-west-2a", *types: str, capacity: str = SPOT, least: int = 0, most: int = 8, **own: Any
) -> NodeGroup:
    """`own`: section `aws` of the group."""
    first, *others = [instance(one) for one in types or ("g4dn.xlarge",)]
    return NodeGroup(
        name=name,
        zone=ZONES[0],
        instance=first,
        others=tuple(others),
        capacity_type=capacity,
        min=least,
        max=most,
        notice_seconds=120 if capacity == SPOT else 0,
        settings=GroupSettings.model_construct(**own),
    )


def manager() -> NodeGroup:
    return NodeGroup(
        name="manager", zone=ZONES[0], instance=instance("m7i.large"), capacity_type=ON_DEMAND, min=1, max=1, notice_seconds=0
    )


def settings(**sections: Any) -> Settings:
    """Settings with `sections` in the file's own words."""
    given = {
        "region": "us-west-2",
        "cluster": {"publicAccessCidrs": ["192.0.2.0/24"]},
        "storage": {"efs": {}},
        "tags": {"team": "vision"},
        "nodes": {"releases": {AMI_CPU: RELEASE, AMI_GPU: RELEASE}},
    }
    return Settings.model_validate({**given, **sections})


def at_random(chance: random.Random, index: int) -> NodeGroup:
    """A group that the settings' checks would let pass."""
    machine = chance.choice(USABLE)
    capacity = chance.choice([SPOT, SPOT, ON_DEMAND, CAPACITY_BLOCK if machine.gpus else SPOT])
    alike = [one for one in USABLE if one.shape == machine.shape and one is not machine and capacity != CAPACITY_BLOCK]
    least = chance.randint(0, 3)
    return NodeGroup(
        name=f"{capacity}-{machine.name.replace('.', '-')}-{index}",
        zone=chance.choice(ZONES),
        instance=machine,
        others=tuple(chance.sample(alike, chance.randint(0, len(alike)))),
        capacity_type=capacity,
        min=least,
        max=least + chance.randint(1, 8),
        notice_seconds=120 if capacity == SPOT else 0,
        settings=chance.choice([None, _own(chance, machine, capacity)])
        if capacity != CAPACITY_BLOCK
        else _own(chance, machine, capacity),
    )


def _own(chance: random.Random, machine: AwsInstance, capacity: str) -> GroupSettings:
    return GroupSettings.model_construct(
        efa=bool(machine.efa) and chance.random() < 0.7,
        placement_group=chance.random() < 0.3,
        disk_gib=chance.choice([None, 100, 500]),
        capacity_reservation_id=BLOCK if capacity == CAPACITY_BLOCK else None,
    )


def control() -> ControlPlane:
    """As much of a control plane as machines need."""
    ready = eks.Addon("vpc-cni", addon_name="vpc-cni", cluster_name="ebb-dev")
    return cast(
        ControlPlane,
        SimpleNamespace(
            name=pulumi.Output.from_input("ebb-dev"), security_group_id=pulumi.Output.from_input("sg-cluster"), ready=(ready,)
        ),
    )


def world(found: list[NodeGroup], given: Settings | None = None) -> Declared:
    """The groups, declared."""

    def declare() -> list[pulumi.Resource]:
        part = Part("aws", "machines")
        role = identity.role(part, "ebb-dev", "machine")
        subnets = {zone: pulumi.Output.from_input(f"subnet-private-{zone}") for zone in ZONES}
        around = Part("aws", "network")
        ec2.NatGateway("way-out", connectivity_type="private", subnet_id="subnet-public", opts=around.child())
        network = cast(Network, SimpleNamespace(private=subnets, part=around))
        plane = control()
        return [nodes.declare(part, "ebb-dev", one, plane, network, given or settings(), role) for one in found]

    return declared(declare)


def asg_tags(declared: Declared, name: str) -> dict[str, str]:
    """What the Auto Scaling group of a node group carries; EKS's own tags for the autoscaler are not ours to set."""
    found = [one.inputs for one in declared.all("Tag") if one.inputs["autoscalingGroupName"] == f"eks-{name}"]
    assert not any(one["tag"]["propagateAtLaunch"] for one in found)
    return {one["tag"]["key"]: one["tag"]["value"] for one in found}
