"""What must run in an EKS cluster: the autoscaler's flags, order of groups and identity, and the device plugins."""

import re
from typing import Any

import pytest

from infra.clouds.aws.machines import in_cluster
from infra.image_lock import pinned
from infra.part import Part
from tests.infra.aws.groups import BLOCK, control, group, manager, settings
from tests.infra.declared import Declared, declared
from workloads.cluster import CAPACITY_BLOCK, ON_DEMAND, Autoscaler, Cluster, DevicePlugin, Helpers, NodeGroup
from workloads.helpers import autoscaler

VPC, SUBNET = "vpc-0123456789abcdef0", "subnet-0123456789abcdef0"
UUID = "0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9"
ALL = [
    group("spot-t4-us-west-2a"),
    group("spot-t4-us-west-2b"),
    group("on-demand-t4-us-west-2a", capacity=ON_DEMAND),
    group("efa-us-west-2a", "p4d.24xlarge", efa=True, capacity=ON_DEMAND),
    group("block-us-west-2a", "p5.48xlarge", capacity=CAPACITY_BLOCK, capacity_reservation_id=BLOCK),
    group("cpu-us-west-2a", "m7i.large"),
]
# Those of cluster-autoscaler-1.35.2 that are used here (cluster-autoscaler/config/flags/flags.go; --v is klog's).
FLAGS = {
    *("cloud-provider", "node-group-auto-discovery", "expander", "balance-similar-node-groups", "max-node-provision-time"),
    *("initial-node-group-backoff-duration", "max-node-group-backoff-duration", "node-group-backoff-reset-timeout"),
    *("scale-down-unneeded-time", "scale-down-delay-after-add", "scale-down-delay-type-local", "max-total-unready-percentage"),
    *("skip-nodes-with-system-pods", "skip-nodes-with-local-storage", "emit-per-nodegroup-metrics"),
    *("aws-use-static-instance-list", "v"),
}


def world(groups: list[NodeGroup], **sections: Any) -> tuple[Declared, Helpers]:
    found: list[Helpers] = []

    def declare() -> None:
        plane = control()
        found.append(in_cluster.helpers(Part("aws", "helpers"), "ebb-dev", plane, settings(**sections), groups))

    return declared(declare), found[0]


def scaler(groups: list[NodeGroup], **sections: Any) -> Autoscaler:
    found = world(groups, **sections)[1].autoscaler
    assert found is not None
    return found


def plugins(groups: list[NodeGroup], **sections: Any) -> dict[str, DevicePlugin]:
    return {one.name: one for one in world(groups, **sections)[1].device_plugins}


def flags(**sections: Any) -> dict[str, str]:
    words = [word.removeprefix("--").split("=", 1) for word in in_cluster.arguments("ebb-dev", settings(**sections))]
    return {name: value for name, value in words}


def test_the_autoscaler_in_full() -> None:
    assert flags() == {
        "cloud-provider": "aws",
        "node-group-auto-discovery": "asg:tag=k8s.io/cluster-autoscaler/enabled,k8s.io/cluster-autoscaler/ebb-dev",
        "expander": "priority,least-waste",
        "balance-similar-node-groups": "false",
        "max-node-provision-time": "7m",
        "initial-node-group-backoff-duration": "2m",
        "max-node-group-backoff-duration": "10m",
        "node-group-backoff-reset-timeout": "30m",
        "scale-down-unneeded-time": "10m",
        "scale-down-delay-after-add": "10m",
        "scale-down-delay-type-local": "true",
        "max-total-unready-percentage": "100",
        "skip-nodes-with-system-pods": "false",
        "skip-nodes-with-local-storage": "false",
        "emit-per-nodegroup-metrics": "true",
        "v": "2",
    }
    assert flags().keys() < FLAGS
    assert scaler(ALL).image == pinned("registry.k8s.io/autoscaling/cluster-autoscaler:v1.35.0")


def test_its_times_come_from_the_settings() -> None:
    found = flags(autoscaler={"version": "v1.35.2", "scaleDownMinutes": 25, "provisionMinutes": 5})
    assert (found["scale-down-unneeded-time"], found["scale-down-delay-after-add"], found["max-node-provision-time"]) == (
        *("25m", "25m", "5m"),
    )


@pytest.mark.parametrize(
    ("network", "expected"),
    [
        pytest.param({}, False, id="own VPC"),
        pytest.param({"vpcId": VPC, "publicSubnets": {"us-west-2a": SUBNET}}, False, id="public subnets"),
        pytest.param({"vpcId": VPC}, True, id="no way out"),
    ],
)
def test_instance_types_are_the_built_in_ones_only_where_ec2_is_out_of_reach(network: dict[str, Any], expected: bool) -> None:
    private = {"privateSubnets": {"us-west-2a": SUBNET}} if "vpcId" in network else {}
    found = flags(network={**network, **private})
    assert ("aws-use-static-instance-list" in found) is expected
    assert found.keys() <= FLAGS


def test_its_arguments_repeat_none_that_the_service_sets() -> None:
    ours = [word.split("=")[0] for word in in_cluster.arguments("ebb-dev", settings())]
    assert len(set(ours)) == len(ours)
    assert not {"--namespace", "--address"} & set(ours)


def test_spot_is_tried_before_on_demand_and_what_is_paid_for_before_both() -> None:
    found = scaler(ALL).priorities
    assert list(found) == [60, 50, 10]
    chosen = {
        one.name: [number for number, words in found.items() if any(re.search(word, _asg(one)) for word in words)] for one in ALL
    }
    assert chosen == {
        "spot-t4-us-west-2a": [50],
        "spot-t4-us-west-2b": [50],
        "on-demand-t4-us-west-2a": [10],
        "efa-us-west-2a": [10],
        "block-us-west-2a": [60],
        "cpu-us-west-2a": [50],
    }


def _asg(one: NodeGroup) -> str:
    """As EKS names it, behind the name that Pulumi gives the node group."""
    return f"eks-{one.name}-1a2b3c4-{UUID}"


def test_a_name_that_begins_like_another_is_not_taken_for_it() -> None:
    found = scaler([group("spot-t4"), group("spot-t4-big", capacity=ON_DEMAND)]).priorities
    (spot,) = found[50]
    assert re.search(spot, f"eks-spot-t4-1a2b3c4-{UUID}")
    assert not re.search(spot, f"eks-spot-t4-big-1a2b3c4-{UUID}")
    assert not re.search(spot, f"eks-my-spot-t4-1a2b3c4-{UUID}")
    assert not re.search(spot, f"eks-my-eks-spot-t4-1a2b3c4-{UUID}")


def test_the_manager_is_in_no_priority() -> None:
    assert not any(re.search(word, _asg(manager())) for words in scaler(ALL).priorities.values() for word in words)


def test_its_identity_is_tied_to_the_service_account_that_the_service_declares() -> None:
    resources = world(ALL)[0]
    link = resources.one("PodIdentityAssociation")
    assert {key: link.inputs[key] for key in ("clusterName", "namespace", "serviceAccount")} == {
        "clusterName": "ebb-dev",
        "namespace": "ebb-system",
        "serviceAccount": "cluster-autoscaler",
    }
    assert link.inputs["roleArn"] == "arn:aws:iam::111122223333:role/ebb-dev-autoscaler"
    assert "aws:iam/rolePolicy:RolePolicy::ebb-dev-autoscaler" in resources.before(link)


def test_its_pod_is_made_after_its_identity() -> None:
    """A pod that comes first has no credentials, and no restart of its container gives it any."""
    from pulumi_kubernetes.provider import Provider as KubernetesProvider

    def declare() -> None:
        provider = KubernetesProvider("cluster", kubeconfig="{}")
        record = in_cluster.helpers(Part("aws", "helpers"), "ebb-dev", control(), settings(), ALL).autoscaler
        assert record is not None
        autoscaler(Cluster(name="aws", region="us-west-2", provider=provider), record, manager(), [])

    found = declared(declare)
    assert "aws:eks/podIdentityAssociation:PodIdentityAssociation::cluster-autoscaler" in found.before(found.one("Deployment"))
    (container,) = found.one("Deployment").inputs["spec"]["template"]["spec"]["containers"]
    assert {"name": "AWS_REGION", "value": "us-west-2"} in container["env"]


def test_the_nvidia_plugin_runs_where_gpus_are() -> None:
    found = plugins(ALL)["nvidia-device-plugin"]
    assert (found.label, list(found.values)) == ("ebb.dev/gpu-type", ["A100", "H100", "T4"])
    assert re.fullmatch(r"nvcr\.io/nvidia/k8s-device-plugin:v\d+\.\d+\.\d+(@sha256:\w{64})?", found.image)
    assert not found.privileged
    carried = {one.labels.get(found.label) for one in ALL if one.instance.gpus}
    assert carried == set(found.values)


def test_the_efa_plugin_runs_where_interfaces_are_and_is_privileged() -> None:
    found = plugins(ALL)["efa-device-plugin"]
    assert (found.label, list(found.values)) == ("ebb.dev/node-group", ["efa-us-west-2a"])
    assert found.privileged


@pytest.mark.parametrize(
    ("region", "registry"),
    [
        ("us-west-2", "602401143452.dkr.ecr.us-west-2.amazonaws.com"),
        ("eu-central-1", "602401143452.dkr.ecr.eu-central-1.amazonaws.com"),
        ("eu-south-2", "602401143452.dkr.ecr.us-west-2.amazonaws.com"),
    ],
)
def test_the_efa_plugin_comes_from_a_registry_that_has_it(region: str, registry: str) -> None:
    found = plugins(ALL, region=region)["efa-device-plugin"]
    assert found.image == pinned(f"{registry}/eks/aws-efa-k8s-device-plugin:v0.5.20")


def test_a_stack_without_devices_gets_no_plugins() -> None:
    assert plugins([group("cpu", "m7i.large")]) == {}
    assert list(plugins([group()])) == ["nvidia-device-plugin"]
