"""Node groups: what is declared, group by group. That everything which describes a group agrees is in test_nodes_agree.py."""

import base64
import email
import email.policy
from typing import Any

import pytest
import yaml

from infra.clouds.aws.iam.rights import ROLES
from infra.clouds.aws.machines import machine
from tests.infra.aws.groups import BLOCK, RELEASE, USABLE, asg_tags, group, manager, settings, world
from tests.infra.declared import Registered
from workloads.cluster import CAPACITY_BLOCK, NodeGroup

Object = dict[str, Any]
CA = "k8s.io/cluster-autoscaler/node-template"


def launch_template(one: NodeGroup, **sections: Any) -> Object:
    return world([one], settings(**sections)).one("LaunchTemplate").inputs


def user_data(one: NodeGroup, **sections: Any) -> Object | None:
    found = machine.user_data(one, settings(**sections))
    if found is None:
        return None
    message = email.message_from_bytes(base64.b64decode(found), policy=email.policy.default)
    (part,) = message.iter_parts()
    assert (message.get_content_type(), part.get_content_type()) == ("multipart/mixed", "application/node.eks.aws")
    config = yaml.safe_load(str(part.get_payload()))
    assert (config.pop("apiVersion"), config.pop("kind")) == ("node.eks.aws/v1alpha1", "NodeConfig")
    spec: Object = config["spec"]
    return spec


def test_a_spot_group_as_eks_gets_it() -> None:
    declared = world([group(least=1)])
    template = declared.one("LaunchTemplate")
    ours = asg_tags(declared, "spot-t4-us-west-2a")
    assert declared.one("NodeGroup").inputs == {
        "clusterName": "ebb-dev",
        "nodeRoleArn": "arn:aws:iam::111122223333:role/ebb-dev-machine",
        "subnetIds": ["subnet-private-us-west-2a"],
        "amiType": "AL2023_x86_64_NVIDIA",
        "version": "1.35",
        "releaseVersion": RELEASE,
        "capacityType": "SPOT",
        "instanceTypes": ["g4dn.xlarge"],
        "launchTemplate": {"id": f"LaunchTemplate-{template.name}", "version": "1"},
        "scalingConfig": {"minSize": 1, "maxSize": 8, "desiredSize": 1},
        "updateConfig": {"maxUnavailable": 1, "updateStrategy": "MINIMAL"},
        "nodeRepairConfig": {"enabled": True},
        "labels": {
            "ebb.dev/node-group": "spot-t4-us-west-2a",
            "ebb.dev/capacity-type": "spot",
            "ebb.dev/gpu-type": "T4",
            "k8s.amazonaws.com/accelerator": "nvidia-tesla-t4",
        },
        "taints": [
            {"key": "nvidia.com/gpu", "value": "present", "effect": "NO_SCHEDULE"},
            {"key": "ebb.dev/capacity-type", "value": "spot", "effect": "NO_SCHEDULE"},
        ],
        "tags": {key: value for key, value in ours.items() if key.startswith(CA)},
    }
    assert ours == {
        f"{CA}/label/ebb.dev/node-group": "spot-t4-us-west-2a",
        f"{CA}/label/ebb.dev/capacity-type": "spot",
        f"{CA}/label/ebb.dev/gpu-type": "T4",
        f"{CA}/label/k8s.amazonaws.com/accelerator": "nvidia-tesla-t4",
        f"{CA}/taint/nvidia.com/gpu": "present:NoSchedule",
        f"{CA}/taint/ebb.dev/capacity-type": "spot:NoSchedule",
        f"{CA}/resources/ephemeral-storage": "98Gi",
        f"{CA}/resources/nvidia.com/gpu": "1",
        f"{CA}/autoscaling-options/scaledownunneededtime": "10m0s",
        "ebb.dev/project": "ebb",
        "ebb.dev/stack": "dev",
        "team": "vision",
    }


def test_a_launch_template_as_ec2_gets_it() -> None:
    own = {"ebb.dev/project": "ebb", "ebb.dev/stack": "dev", "team": "vision"}
    carried = {**own, "ebb.dev/node-group": "spot-v100-us-west-2a", "Name": "ebb-dev-spot-v100-us-west-2a"}
    assert launch_template(group("spot-v100-us-west-2a", "p3.8xlarge")) == {
        "description": "Machines of node group spot-v100-us-west-2a",
        "metadataOptions": {
            "httpEndpoint": "enabled",
            "httpTokens": "required",
            "httpPutResponseHopLimit": 1,
            "instanceMetadataTags": "disabled",
        },
        "blockDeviceMappings": [
            {
                "deviceName": "/dev/xvda",
                "ebs": {
                    "volumeType": "gp3",
                    "volumeSize": 200,
                    "throughput": 500,
                    "iops": 3000,
                    "encrypted": "true",
                    "deleteOnTermination": "true",
                },
            }
        ],
        "tagSpecifications": [{"resourceType": kind, "tags": carried} for kind in ("instance", "volume", "network-interface")],
    }


def test_the_manager_is_one_plain_machine_that_nothing_scales() -> None:
    declared = world([manager()])
    found = declared.one("NodeGroup")
    assert found.inputs["amiType"] == "AL2023_x86_64_STANDARD"
    assert found.inputs["capacityType"] == "ON_DEMAND"
    assert found.inputs["scalingConfig"] == {"minSize": 1, "maxSize": 1, "desiredSize": 1}
    assert found.inputs["updateConfig"] == {"maxUnavailable": 1}
    assert not found.inputs.get("taints")
    assert not any(key.startswith(CA) for key in asg_tags(declared, "manager"))
    assert found.ignore_changes == ()
    assert machine.disk(manager(), settings()) == machine.Disk(gib=50, throughput_mib=125, iops=3000)
    assert machine.user_data(manager(), settings()) is None


def test_the_manager_carries_the_tags_that_the_rights_of_the_ebs_driver_name() -> None:
    (wanted,) = (one.conditions for one in ROLES["ebs-csi"].statements if one.resources == ("arn:aws:ec2:*:*:instance/*",))
    asked = {
        key.removeprefix("aws:ResourceTag/"): str(value).format(stack="dev") for key, value in wanted["StringEquals"].items()
    }
    assert asked.items() <= machine.machine_tags("dev", manager(), settings()).items()


def test_the_autoscaler_owns_the_size_of_job_groups() -> None:
    assert world([group()]).one("NodeGroup").ignore_changes == ("scalingConfig.desiredSize",)


def test_another_max_changes_the_scaling_of_that_group_and_nothing_else() -> None:
    others = [manager(), group("spot-v100-us-west-2a", "p3.8xlarge", efa=False)]
    before, after = ({one.key: one for one in world([group(most=most), *others]).resources} for most in (8, 20))
    assert before.keys() == after.keys()
    changed = [key for key in before if before[key] != after[key]]
    assert changed == ["aws:eks/nodeGroup:NodeGroup::spot-t4-us-west-2a"]
    old, new = before[changed[0]].inputs, after[changed[0]].inputs
    assert new == {**old, "scalingConfig": {"minSize": 0, "maxSize": 20, "desiredSize": 0}}


def test_machines_wait_for_the_control_plane_and_their_role() -> None:
    declared = world([group()])
    before = declared.before(declared.one("NodeGroup"))
    assert {
        "aws:iam/rolePolicyAttachment:RolePolicyAttachment::ebb-dev-machine-AmazonEKSWorkerNodePolicy",
        "aws:eks/addon:Addon::vpc-cni",
        "aws:ec2/natGateway:NatGateway::way-out",
    } <= before
    assert all("aws:eks/nodeGroup:NodeGroup::spot-t4-us-west-2a" in declared.before(one) for one in declared.all("Tag"))


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        pytest.param(group(), [], id="without EFA"),
        pytest.param(group("a", "g4dn.8xlarge", efa=True), [(0, 0, "efa")], id="one card"),
        pytest.param(
            group("a", "p4d.24xlarge", efa=True), [(0, 0, "efa"), *((card, 1, "efa-only") for card in (1, 2, 3))], id="p4d"
        ),
        pytest.param(
            group("a", "p6-b300.48xlarge", efa=True),
            [(0, 0, "interface"), *((card, 0, "efa-only") for card in range(1, 17))],
            id="card 0 without EFA",
        ),
    ],
)
def test_network_interfaces(one: NodeGroup, expected: list[tuple[int, int, str]]) -> None:
    found = launch_template(one).get("networkInterfaces", [])
    assert [(int(each["networkCardIndex"]), int(each["deviceIndex"]), each["interfaceType"]) for each in found] == expected
    for each in found:
        assert each["securityGroups"] == ["sg-cluster"]
        assert (each["associatePublicIpAddress"], each["deleteOnTermination"]) == ("false", "true")


@pytest.mark.parametrize(
    ("one", "nodes", "expected"),
    [
        pytest.param(group("a", "p3.8xlarge"), {}, (200, 500, 3000, 170), id="EBS alone"),
        pytest.param(group("a", "p3.8xlarge"), {"diskThroughputMiB": 1000}, (200, 1000, 4000, 170), id="fast EBS"),
        pytest.param(group("a", "p3.8xlarge", disk_gib=400), {}, (400, 500, 3000, 340), id="a size of its own"),
        pytest.param(group("a", "g4dn.xlarge"), {}, (50, 125, 3000, 98), id="NVMe"),
        pytest.param(group("a", "g4dn.xlarge", disk_gib=100), {}, (100, 125, 3000, 98), id="NVMe, a size of its own"),
        pytest.param(group("a", "m7i.large"), {}, (200, 500, 3000, 170), id="without GPUs"),
    ],
)
def test_disks(one: NodeGroup, nodes: dict[str, int], expected: tuple[int, int, int, int]) -> None:
    releases = {"releases": settings().nodes.releases}
    found = machine.disk(one, settings(nodes={**releases, **nodes}))
    assert (found.gib, found.throughput_mib, found.iops, found.ephemeral_gib) == expected


@pytest.mark.parametrize(
    ("one", "throughput", "expected"),
    [
        pytest.param(group("a", "g4dn.xlarge"), 500, {"instance": {"localStorage": {"strategy": "RAID0"}}}, id="few cores"),
        pytest.param(
            group("a", "g4dn.2xlarge"),
            500,
            {"instance": {"localStorage": {"strategy": "RAID0"}}, "featureGates": {"FastImagePull": True}},
            id="NVMe and cores",
        ),
        pytest.param(group("a", "p3.8xlarge"), 500, None, id="slow EBS"),
        pytest.param(group("a", "p3.8xlarge"), 600, {"featureGates": {"FastImagePull": True}}, id="fast EBS"),
    ],
)
def test_user_data(one: NodeGroup, throughput: int, expected: Object | None) -> None:
    releases = {"releases": settings().nodes.releases}
    assert user_data(one, nodes={**releases, "diskThroughputMiB": throughput}) == expected


def test_pods_may_pin_memory_where_there_is_efa_and_nowhere_else() -> None:
    with_efa, without = (user_data(group("a", "p4d.24xlarge", efa=efa)) for efa in (True, False))
    assert with_efa is not None
    assert without is not None
    limits = {one.pop("type"): one for one in with_efa["containerd"]["baseRuntimeSpec"]["process"]["rlimits"]}
    assert limits["RLIMIT_NOFILE"] == {"soft": 65536, "hard": 1048576}  # the AMI's own, which the list replaces
    assert limits["RLIMIT_MEMLOCK"]["soft"] == limits["RLIMIT_MEMLOCK"]["hard"] > 4096 * 2**30  # more than any machine has
    assert int(float(limits["RLIMIT_MEMLOCK"]["hard"])) == limits["RLIMIT_MEMLOCK"]["hard"] < 10**21  # whole, as Go writes it
    assert "containerd" not in without


def test_a_capacity_block_is_named_in_the_launch_template_with_its_type() -> None:
    declared = world([group("a", "p5.48xlarge", capacity=CAPACITY_BLOCK, capacity_reservation_id=BLOCK)])
    template = declared.one("LaunchTemplate").inputs
    assert template["instanceType"] == "p5.48xlarge"
    assert template["instanceMarketOptions"] == {"marketType": "capacity-block"}
    assert template["capacityReservationSpecification"] == {"capacityReservationTarget": {"capacityReservationId": BLOCK}}
    found = declared.one("NodeGroup").inputs
    assert found["capacityType"] == "CAPACITY_BLOCK"
    assert "instanceTypes" not in found


def test_a_placement_group_is_the_groups_own() -> None:
    declared = world([group("a", "p4d.24xlarge", efa=True, placement_group=True), group("b", "p4d.24xlarge", efa=True)])
    assert [one.inputs for one in declared.all("PlacementGroup")] == [{"strategy": "cluster"}]
    assert declared.one("LaunchTemplate", "a").inputs["placement"] == {"groupName": "a"}
    assert "placement" not in declared.one("LaunchTemplate", "b").inputs


def test_every_gpu_of_the_catalog_has_a_name_for_the_autoscaler() -> None:
    found = {one.gpu_type: machine.accelerator(one.gpu_type) for one in USABLE if one.gpus}
    assert found["H100"] == "nvidia-h100"
    assert {found[each] for each in ("T4", "A10G", "L4", "L40S", "A100", "V100")} == {
        *("nvidia-tesla-t4", "nvidia-a10g", "nvidia-l4", "nvidia-l40s", "nvidia-tesla-a100", "nvidia-tesla-v100")
    }
    assert all(name == name.lower() and len(name) < 64 for name in found.values())


def test_registered_names_are_readable() -> None:
    names = sorted(one.name for one in world([group()]).all("Tag"))
    assert "spot-t4-us-west-2a/label/ebb.dev/gpu-type" in names
    assert "spot-t4-us-west-2a/resources/nvidia.com/gpu" in names


def test_tags_are_children_of_their_group() -> None:
    found: list[Registered] = world([group()]).all("Tag")
    assert {one.parent for one in found} == {"aws:eks/nodeGroup:NodeGroup::spot-t4-us-west-2a"}
