"""What a stack's file names and AWS must have: versions, releases, networks, file systems, keys, reservations."""

from collections.abc import Iterator
from typing import Any

import pytest

from infra.account.records import Finding
from infra.clouds.aws.account import existing, offers
from infra.clouds.aws.account.calls import Refused
from infra.clouds.aws.account.look import Look
from tests.infra.aws import stacks
from tests.infra.aws.accounts import Answers, look

GONE = Refused("InvalidSubnetID.NotFound", "no such subnet")
VPC = {"vpcId": "vpc-0123456789abcdef0"}
SUBNETS = {
    "privateSubnets": {"us-west-2a": "subnet-0000000000000000a", "us-west-2b": "subnet-0000000000000000b"},
    "publicSubnets": {"us-west-2a": "subnet-0000000000000001a", "us-west-2b": "subnet-0000000000000001b"},
}
EFS = "fs-0123456789abcdef0"
PINNED = stacks.values()["aws"]


def texts(found: Iterator[Finding]) -> list[tuple[str, str]]:
    return [(one.level, one.text) for one in found]


def network(changes: Answers | None = None, **subnet: Any) -> Look:
    """A stack in an existing VPC. `subnet`: what AWS says of all its subnets."""

    def described(asked: dict[str, Any]) -> dict[str, Any]:
        number = asked["SubnetIds"][0]
        zone = f"us-west-2{number[-1]}"
        return {"Subnets": [{"AvailabilityZone": zone, "VpcId": VPC["vpcId"], "AvailableIpAddressCount": 4000, **subnet}]}

    answers: Answers = {
        ("ec2", "describe_vpcs"): {"Vpcs": [{"VpcId": VPC["vpcId"], "CidrBlock": "10.0.0.0/16"}]},
        ("ec2", "describe_vpc_attribute"): {"EnableDnsSupport": {"Value": True}, "EnableDnsHostnames": {"Value": True}},
        ("ec2", "describe_subnets"): described,
        **(changes or {}),
    }
    return look(answers, network={**VPC, **SUBNETS})


def test_an_existing_network_that_fits_is_ok() -> None:
    assert {level for level, _ in texts(existing.network(network()))} == {"ok"}


@pytest.mark.parametrize(
    ("seen", "level", "text"),
    [
        pytest.param(
            network({("ec2", "describe_vpcs"): Refused("InvalidVpcID.NotFound", "none")}),
            "fail",
            "there is no VPC vpc-0123456789abcdef0 in us-west-2",
            id="no VPC",
        ),
        pytest.param(
            network(
                {("ec2", "describe_vpc_attribute"): {"EnableDnsSupport": {"Value": True}, "EnableDnsHostnames": {"Value": False}}}
            ),
            "fail",
            "VPC vpc-0123456789abcdef0 has enableDnsHostnames off: machines would not find the cluster or EFS",
            id="DNS",
        ),
        pytest.param(
            network({("ec2", "describe_subnets"): GONE}),
            "fail",
            "network.privateSubnets.us-west-2a: there is no subnet subnet-0000000000000000a in us-west-2",
            id="no subnet",
        ),
        pytest.param(
            network(AvailabilityZone="us-west-2d"),
            "fail",
            "network.privateSubnets.us-west-2a: subnet subnet-0000000000000000a is in us-west-2d",
            id="zone",
        ),
        pytest.param(
            network(VpcId="vpc-other"),
            "fail",
            "network.privateSubnets.us-west-2a: subnet subnet-0000000000000000a is in VPC vpc-other",
            id="VPC",
        ),
        pytest.param(
            network(AvailableIpAddressCount=9),
            "warn",
            "network.privateSubnets.us-west-2a: subnet subnet-0000000000000000a has 9 free addresses; a machine takes about ten",
            id="addresses",
        ),
    ],
)
def test_a_network_that_does_not_fit_is_told(seen: Look, level: str, text: str) -> None:
    assert (level, text) in texts(existing.network(seen))


def test_the_fix_of_a_switched_off_attribute_is_a_command() -> None:
    off = {"EnableDnsSupport": {"Value": False}, "EnableDnsHostnames": {"Value": True}}
    found = list(existing.network(network({("ec2", "describe_vpc_attribute"): off})))
    assert found[0].fix == "aws ec2 modify-vpc-attribute --vpc-id vpc-0123456789abcdef0 --enable-dns-support"


def efs(targets: list[dict[str, Any]], **system: Any) -> Look:
    told = {
        "FileSystemId": EFS,
        "LifeCycleState": "available",
        "Encrypted": True,
        "SizeInBytes": {"Value": 5_000_000_000},
        **system,
    }
    answers: Answers = {
        ("efs", "describe_file_systems"): {"FileSystems": [told]},
        ("efs", "describe_mount_targets"): {"MountTargets": targets},
    }
    return look(answers, storage={"efs": {"fileSystemId": EFS}, "etcdGiB": 10})


@pytest.mark.parametrize(
    ("seen", "told"),
    [
        pytest.param(efs([]), ("ok", f"EFS file system {EFS}: 5.0 GB"), id="kept by an earlier destroy"),
        pytest.param(
            efs([], LifeCycleState="deleting"), ("fail", f"EFS file system {EFS} is deleting, not available"), id="deleting"
        ),
        pytest.param(
            efs([], Encrypted=False),
            ("warn", f"EFS file system {EFS} is not encrypted at rest; that can only be chosen when one is made"),
            id="plain",
        ),
        pytest.param(
            efs([{"VpcId": "vpc-other", "MountTargetId": "m"}]),
            ("fail", f"EFS file system {EFS} is mounted from vpc-other: it can have mount targets in one VPC only"),
            id="mounted elsewhere",
        ),
        pytest.param(
            look(
                {("efs", "describe_file_systems"): Refused("FileSystemNotFound", "none")},
                storage={"efs": {"fileSystemId": EFS}, "etcdGiB": 10},
            ),
            ("fail", f"there is no EFS file system {EFS} in us-west-2"),
            id="none",
        ),
    ],
)
def test_a_file_system_that_is_taken_over(seen: Look, told: tuple[str, str]) -> None:
    assert told in texts(existing.file_systems(seen))


def test_the_secrets_key_and_the_reservation_must_be_usable() -> None:
    key = "arn:aws:kms:us-west-2:111122223333:key/12345678-1234-1234-1234-123456789012"
    own = stacks.small(accountId="111122223333", cluster={**PINNED["cluster"], "encryptionKeyArn": key})
    reservation = {"capacityReservationId": "cr-0123456789abcdef0"}
    own["nodeGroups"] = [
        {"instanceTypes": ["p5.48xlarge"], "capacity": "capacity-block", "zones": ["us-west-2a"], "max": 2, "aws": reservation}
    ]
    answers: Answers = {
        ("kms", "describe_key"): {"KeyMetadata": {"KeyId": "k", "KeyState": "PendingDeletion"}},
        ("ec2", "describe_capacity_reservations"): {
            "CapacityReservations": [
                {"AvailabilityZone": "us-west-2b", "State": "active", "TotalInstanceCount": 2, "InstanceType": "p5.48xlarge"}
            ]
        },
    }
    from dataclasses import replace

    stack = stacks.stack(own)
    seen = replace(look(answers), stack=stack)
    assert texts(existing.others(seen)) == [
        ("ok", "disks are encrypted with AWS's own key"),
        ("fail", f"KMS key {key} is PendingDeletion"),
        (
            "fail",
            "capacity-block-p5-48xlarge-us-west-2a: reservation cr-0123456789abcdef0 is in us-west-2b, the group in us-west-2a",
        ),
    ]


def test_a_disks_key_of_the_accounts_own_is_worth_a_warning() -> None:
    [(level, text)] = texts(existing.others(look({("ec2", "get_ebs_default_kms_key_id"): {"KmsKeyId": "arn:aws:kms:own"}})))
    assert level == "warn"
    assert "default key arn:aws:kms:own" in text


def test_an_add_on_version_that_is_not_there_is_told_with_the_newest() -> None:
    versions = ["v1.9.0-eksbuild.1", "v1.10.0-eksbuild.2", "v1.10.0-eksbuild.10"]
    found = {"addons": [{"addonVersions": [{"addonVersion": one} for one in versions]}]}
    told = texts(offers.add_ons(look({("eks", "describe_addon_versions"): found})))
    pinned = PINNED["cluster"]["addOns"]["vpc-cni"]
    newest = "v1.10.0-eksbuild.10, v1.10.0-eksbuild.2, v1.9.0-eksbuild.1"
    assert ("fail", f"add-on vpc-cni {pinned} is not there for Kubernetes 1.35; newest: {newest}") in told


def test_newer_versions_of_an_add_on_are_named() -> None:
    def versions(asked: dict[str, Any]) -> dict[str, Any]:
        pinned = PINNED["cluster"]["addOns"][asked["addonName"]]
        return {
            "addons": [{"addonVersions": [{"addonVersion": one} for one in (pinned, "v99.0.0-eksbuild.1", "v0.1.0-eksbuild.1")]}]
        }

    told = texts(offers.add_ons(look({("eks", "describe_addon_versions"): versions})))
    assert ("ok", f"add-on coredns {PINNED['cluster']['addOns']['coredns']}; newer: v99.0.0-eksbuild.1") in told


def test_a_release_that_is_not_published_is_told_with_the_newest() -> None:
    parameters = [{"Name": f"/aws/service/eks/x-v{date}/image_id"} for date in ("20250101", "20261101")]
    told = texts(
        offers.releases(look({("ssm", "get_parameters_by_path"): {"Parameters": [*parameters, {"Name": "/x/recommended/y"}]}}))
    )
    release = PINNED["nodes"]["releases"]["AL2023_x86_64_NVIDIA"]
    said = f"AL2023_x86_64_NVIDIA {release} is not published for Kubernetes 1.35; newest: 20261101, 20250101"
    assert ("fail", said) in told


def test_releases_are_looked_for_in_the_folder_of_their_kind() -> None:
    seen = look()
    list(offers.releases(seen))
    assert {asked["Path"] for asked in seen.calls.asked("ssm", "get_parameters_by_path")} == {  # type: ignore[attr-defined]
        "/aws/service/eks/optimized-ami/1.35/amazon-linux-2023/x86_64/standard",
        "/aws/service/eks/optimized-ami/1.35/amazon-linux-2023/x86_64/nvidia",
    }


def _groups(status: str, *codes: str) -> Answers:
    issues = [{"code": code, "message": "no capacity", "resourceIds": ["asg"]} for code in codes]
    return {
        ("eks", "describe_cluster"): {"cluster": {"name": "ebb-dev", "tags": {"ebb.dev/stack": "dev"}}},
        ("eks", "list_nodegroups"): {"nodegroups": ["spot-t4-us-west-2a-0123456"]},
        ("eks", "describe_nodegroup"): lambda asked: {
            "nodegroup": {"nodegroupName": asked["nodegroupName"], "status": status, "health": {"issues": issues}}
        },
    }


def test_a_degraded_node_group_is_told_before_an_update_of_it_fails() -> None:
    (one,) = existing.node_groups(look(_groups("DEGRADED", "AsgInstanceLaunchFailures")))
    assert (one.level, one.text) == (
        "warn",
        "node group spot-t4-us-west-2a-0123456 is DEGRADED (AsgInstanceLaunchFailures): machines come and go, but an `up` "
        "that changes it fails",
    )
    assert "give the line a `name`" in one.fix


@pytest.mark.parametrize(("changes", "text"), [
    ({}, "there are no node groups yet"),
    (_groups("ACTIVE"), "1 node groups, none is degraded"),
])  # fmt: skip
def test_node_groups_that_can_be_updated_are_all_right(changes: Answers, text: str) -> None:
    (one,) = existing.node_groups(look(changes))
    assert (one.level, one.text) == ("ok", text)
