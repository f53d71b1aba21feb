"""Karpenter in the place of cluster-autoscaler: what is declared of it, and that its machines are as in managed node groups."""

import email
import email.policy
import json
from functools import cache
from types import SimpleNamespace
from typing import Any, cast

import pulumi
import pytest
import yaml
from pulumi_aws import eks
from pulumi_kubernetes.provider import Provider as KubernetesProvider

from infra import groups, program
from infra.clouds.aws.catalog import HUGE_PAGES_MIB, KERNEL_SHARE_OF_REST
from infra.clouds.aws.cloud import Aws
from infra.clouds.aws.control.cluster import ControlPlane
from infra.clouds.aws.iam import identity
from infra.clouds.aws.machines import karpenter, machine
from infra.clouds.aws.network import Network
from infra.config import Stack
from infra.part import Part
from tests.infra.aws import stacks
from tests.infra.aws.case import ANSWERS
from tests.infra.aws.groups import BLOCK, USABLE, control, group, settings
from tests.infra.declared import Declared, declared
from workloads.cluster import CAPACITY_BLOCK, ON_DEMAND, NodeGroup

Object = dict[str, Any]
CLASS, POOL, OVERLAY = (
    f"kubernetes:karpenter.{kind}" for kind in ("k8s.aws/v1:EC2NodeClass", "sh/v1:NodePool", "sh/v1alpha1:NodeOverlay")
)
T4 = "spot-t4-us-west-2a"
ONE: Any = {"min_size": 1, "max_size": 1, "desired_size": 1}


def stack(*, efa: bool = False) -> Stack:
    own = stacks.small(autoscaler={"kind": "karpenter"})
    own["nodeGroups"][1]["min"] = 0
    if efa:
        line = {"name": "efa", "instanceTypes": ["g4dn.8xlarge"], "max": 2, "aws": {"efa": True, "placementGroup": True}}
        own["nodeGroups"][0] = line
    return stacks.stack(own)


@cache
def world(*, efa: bool = False) -> Declared:
    """Karpenter and the stack's groups, without what else is in the stack."""
    found = stack(efa=efa)

    def declare() -> None:
        part, kubernetes = Part("aws", "machines"), KubernetesProvider("cluster", kubeconfig="{}")
        plane = cast(ControlPlane, SimpleNamespace(**vars(control()), kubernetes=kubernetes))
        subnets = {zone: pulumi.Output.from_input(f"subnet-{zone}") for zone in found.zones}
        network = cast(Network, SimpleNamespace(private=subnets))
        role = identity.role(part, "ebb-dev", "machine")
        manager = eks.NodeGroup("manager", cluster_name="ebb-dev", node_role_arn=role.arn, subnet_ids=[], scaling_config=ONE)
        made = karpenter.Karpenter(part, "ebb-dev", found, plane, network, role, manager)
        for one in groups.job_groups(found, cast(groups.Notice, SimpleNamespace(notice_seconds=120))):
            made.node_pool(one)

    return declared(declare)


@cache
def whole() -> Declared:
    found = stack()
    return declared(lambda: program.declare(found, Aws(found, found.settings)), answers=ANSWERS)


def node_class(one: NodeGroup, **sections: Any) -> Object:
    return karpenter.node_class(
        one, settings(**sections), stack="dev", subnet="subnet-a", security_group="sg-a", profile="profile"
    )


def test_no_managed_node_group_but_the_managers_and_no_cluster_autoscaler() -> None:
    found = whole()
    assert [one.name for one in found.all("NodeGroup")] == ["manager"]
    assert not [one for one in found.resources if "cluster-autoscaler" in one.name]
    assert sorted(one.name for one in found.all(POOL)) == [
        "nodepool-on-demand-t4-us-west-2a", "nodepool-spot-t4-us-west-2a", "nodepool-spot-t4-us-west-2b",
    ]  # fmt: skip


def test_a_node_pool_is_the_node_group() -> None:
    assert world().one(POOL, f"nodepool-{T4}").inputs["spec"] == {
        "weight": 50,
        "limits": {"nodes": "8"},
        "template": {
            "metadata": {
                "labels": {
                    "ebb.dev/node-group": T4,
                    "ebb.dev/capacity-type": "spot",
                    "ebb.dev/gpu-type": "T4",
                    "k8s.amazonaws.com/accelerator": "nvidia-tesla-t4",
                }
            },
            "spec": {
                "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": T4},
                "requirements": [
                    {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["us-west-2a"]},
                    {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["g4dn.xlarge"]},
                    {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot"]},
                ],
                "taints": [
                    {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"},
                    {"key": "ebb.dev/capacity-type", "value": "spot", "effect": "NoSchedule"},
                ],
                "expireAfter": "Never",
            },
        },
        "disruption": {
            "consolidationPolicy": "WhenEmptyOrUnderutilized",
            "consolidateAfter": "10m",
            "budgets": [{"nodes": "100%"}],
        },
    }


def test_a_machine_is_started_as_by_the_launch_template() -> None:
    spec = world().one(CLASS, f"ec2nodeclass-{T4}").inputs["spec"]
    boot = spec.pop("userData")
    assert spec == {
        "amiSelectorTerms": [{"alias": "al2023@v20260714"}],
        "instanceProfile": "ebb-dev-machine",
        "subnetSelectorTerms": [{"id": "subnet-us-west-2a"}],
        "securityGroupSelectorTerms": [{"id": "sg-cluster"}],
        "associatePublicIPAddress": False,
        "metadataOptions": {"httpEndpoint": "enabled", "httpTokens": "required", "httpPutResponseHopLimit": 1},
        "blockDeviceMappings": [
            {
                "deviceName": "/dev/xvda",
                "rootVolume": True,
                "ebs": {
                    "volumeType": "gp3",
                    "volumeSize": "50Gi",
                    "throughput": 125,
                    "iops": 3000,
                    "encrypted": True,
                    "deleteOnTermination": True,
                },
            }
        ],
        "instanceStorePolicy": "RAID0",
        "tags": {
            "ebb.dev/project": "ebb",
            "ebb.dev/stack": "dev",
            "ebb.dev/node-group": T4,
            "Name": f"ebb-dev-{T4}",
        },
    }
    (part,) = email.message_from_string(boot, policy=email.policy.default).iter_parts()
    assert yaml.safe_load(str(part.get_payload()))["spec"] == {"instance": {"localStorage": {"strategy": "RAID0"}}}


def test_the_ways_of_buying() -> None:
    block = group("block", "p5.48xlarge", capacity=CAPACITY_BLOCK, capacity_reservation_id=BLOCK)
    bought = {}
    for one in (group("spot"), group("on-demand", capacity=ON_DEMAND), block):
        pool = karpenter.node_pool(one, settings())
        bought[one.name] = pool["weight"], pool["template"]["spec"]["requirements"][2]["values"]
    assert bought == {"spot": (50, ["spot"]), "on-demand": (10, ["on-demand"]), "block": (60, ["reserved"])}
    assert node_class(block)["capacityReservationSelectorTerms"] == [{"id": BLOCK}]


@pytest.mark.parametrize(
    ("instance", "expected"),
    [
        ("g4dn.8xlarge", [(0, 0, "interface"), (0, 1, "efa-only")]),
        ("p4d.24xlarge", [(0, 0, "interface"), (0, 1, "efa-only"), (1, 1, "efa-only"), (2, 1, "efa-only"), (3, 1, "efa-only")]),
        ("p6-b300.48xlarge", [(0, 0, "interface"), *((card, 0, "efa-only") for card in range(1, 17))]),
    ],
)
def test_efa_has_as_many_interfaces_as_in_a_managed_node_group(instance: str, expected: list[tuple[int, int, str]]) -> None:
    """An EC2NodeClass wants one for IP alone first, and counts what is efa-only (efas() in instancetype/types.go)."""
    one = group("a", instance, efa=True)
    found = [tuple(each.values()) for each in node_class(one)["networkInterfaces"]]
    assert found == expected
    assert sum(kind == "efa-only" for _, _, kind in found) == machine.efa_interfaces(one)


def test_machines_with_efa_have_huge_pages_and_a_placement_group() -> None:
    found = world(efa=True)
    assert found.one(OVERLAY, "nodeoverlay-efa-us-west-2a").inputs["spec"] == {
        "requirements": [{"key": "karpenter.sh/nodepool", "operator": "In", "values": ["efa-us-west-2a"]}],
        "capacity": {"hugepages-2Mi": f"{HUGE_PAGES_MIB}Mi"},
    }
    spec = found.one(CLASS, "ec2nodeclass-efa-us-west-2a").inputs["spec"]
    assert spec["placementGroupSelector"] == {"name": found.one("PlacementGroup", "efa-us-west-2a").name}
    gates = [one.one("Release", "karpenter").inputs["values"]["settings"]["featureGates"] for one in (world(), found)]
    assert gates == [{"nodeRepair": True, "nodeOverlay": False}, {"nodeRepair": True, "nodeOverlay": True}]
    assert not world().all(OVERLAY)


def test_the_controller_is_of_the_charts_at_the_pinned_version() -> None:
    found = world()
    charts = {one.name: one.inputs for one in found.all("Release")}
    assert {(one["chart"], one["version"], one["namespace"]) for one in charts.values()} == {
        ("oci://public.ecr.aws/karpenter/karpenter-crd", "1.14.1", "kube-system"),
        ("oci://public.ecr.aws/karpenter/karpenter", "1.14.1", "kube-system"),
    }
    values = charts["karpenter"]["values"]
    assert values["nodeSelector"] == {"ebb.dev/node-group": "manager"}
    assert values["controller"]["env"] == [{"name": "AWS_REGION", "value": "us-west-2"}]
    assert (values["settings"]["clusterName"], values["settings"]["interruptionQueue"]) == ("ebb-dev", "ebb-dev-karpenter")


def test_its_identity_is_there_before_its_pod() -> None:
    found = world()
    link = found.one("PodIdentityAssociation", "karpenter")
    assert (link.inputs["namespace"], link.inputs["serviceAccount"]) == ("kube-system", "karpenter")
    release = found.one("Release", "karpenter")
    assert {link.key, found.one("NodeGroup").key, found.one("EventTarget").key, found.one("InstanceProfile").key} <= found.before(
        release
    )


def test_nodes_go_before_what_ends_them() -> None:
    """A NodePool takes its NodeClaims along, its EC2NodeClass waits for them, and Karpenter ends their machines."""
    found = whole()
    for pool in found.all(POOL):
        name = pool.name.removeprefix("nodepool-")
        before = found.before(pool)
        assert {found.one(CLASS, f"ec2nodeclass-{name}").key, found.one("Release", "karpenter").key} <= before
        assert pool.key in found.before(found.one("Namespace", "namespace-elastic-job"))


def test_ec2s_warnings_reach_the_queue() -> None:
    found = world()
    queue, rule = found.one("Queue").inputs, found.one("EventRule").inputs
    assert (queue["name"], queue["messageRetentionSeconds"], queue["sqsManagedSseEnabled"]) == ("ebb-dev-karpenter", 300, True)
    assert "EC2 Spot Instance Interruption Warning" in json.loads(rule["eventPattern"])["detail-type"]
    may, must_not = json.loads(found.one("QueuePolicy").inputs["policy"])["Statement"]
    assert (may["Action"], may["Principal"]["Service"][0]) == ("sqs:SendMessage", "events.amazonaws.com")
    assert (must_not["Effect"], must_not["Condition"]) == ("Deny", {"Bool": {"aws:SecureTransport": "false"}})


def test_karpenter_thinks_no_less_of_a_machine_than_the_platform_promises() -> None:
    """Or it would start none for a worker that asks for all (memory(), kubeReservedResources() in instancetype/types.go)."""
    for one in USABLE:
        nominal = one.memory_gib * 1024
        guess = nominal * (1 - KERNEL_SHARE_OF_REST) - (11 * one.max_pods + 255) - 100
        assert guess >= one.allocatable_mib(None), one.name
