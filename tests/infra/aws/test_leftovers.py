"""The search in an account: each kind is found by its tag or its name, what belongs to others and what is gone is not."""

from datetime import UTC, datetime
from typing import Any

import pytest

from infra.account.records import Left, Seen
from infra.clouds.aws import leftovers
from infra.clouds.aws.account import left_in_ec2
from infra.clouds.aws.account.calls import NoAccess, Refused
from tests.infra.aws import stacks
from tests.infra.aws.fake_calls import Answer, FakeCalls

NOW = datetime(2026, 11, 21, tzinfo=UTC)
OURS = [{"Key": "ebb.dev/stack", "Value": "dev"}]
OTHERS = [{"Key": "ebb.dev/stack", "Value": "other"}]
Answers = dict[tuple[str, str], Answer]


def empty() -> Answers:
    """An account in which nothing is left."""
    kinds = (*left_in_ec2.MACHINES, *left_in_ec2.NETWORK)
    return {
        **{("ec2", kind.operation): {kind.key: []} for kind in kinds},
        ("sts", "get_caller_identity"): {"Account": "111122223333", "Arn": "a", "UserId": "u"},
        ("eks", "describe_cluster"): Refused("ResourceNotFoundException", "no cluster"),
        ("autoscaling", "describe_auto_scaling_groups"): {"AutoScalingGroups": []},
        ("elbv2", "describe_load_balancers"): {"LoadBalancers": []},
        ("elb", "describe_load_balancers"): {"LoadBalancerDescriptions": []},
        ("efs", "describe_file_systems"): {"FileSystems": []},
        ("fsx", "describe_file_systems"): {"FileSystems": []},
        ("ecr", "describe_repositories"): {"repositories": []},
        ("s3", "list_buckets"): {"Buckets": []},
        ("codebuild", "list_projects"): {"projects": []},
        ("logs", "describe_log_groups"): {"logGroups": []},
        ("dlm", "get_lifecycle_policies"): {"Policies": []},
        ("fis", "list_experiment_templates"): {"experimentTemplates": []},
        ("iam", "list_roles"): {"Roles": []},
        ("iam", "list_role_tags"): {"Tags": OURS},
        ("resourcegroupstaggingapi", "get_resources"): {"ResourceTagMappingList": []},
    }


def seen(changes: Answers, **aws: Any) -> Seen:
    return leftovers.seen("dev", stacks.stack(**aws), lambda line: None, FakeCalls({**empty(), **changes}))


def things(changes: Answers, **aws: Any) -> tuple[Left, ...]:
    return seen(changes, **aws).things


def test_in_an_empty_account_nothing_is_left() -> None:
    assert seen({}) == Seen(things=())


def role(name: str) -> dict[str, Any]:
    return {"Path": "/", "RoleName": name, "RoleId": "R" * 16, "Arn": "a" * 20, "CreateDate": NOW}


FOUND: dict[str, tuple[Answers, list[tuple[str, str, float | None]]]] = {
    "cluster": (
        {("eks", "describe_cluster"): {"cluster": {"name": "ebb-dev", "status": "DELETING"}}},
        [("cluster", "ebb-dev", 73.0)],
    ),
    "scaling group": (
        {
            ("autoscaling", "describe_auto_scaling_groups"): {
                "AutoScalingGroups": [{"AutoScalingGroupName": "eks-1", "Instances": []}]
            }
        },
        [("Auto Scaling group", "eks-1", 0.0)],
    ),
    "instance": (
        {
            ("ec2", "describe_instances"): {
                "Reservations": [
                    {
                        "Instances": [
                            {"InstanceId": "i-1", "State": {"Name": "running"}},
                            {"InstanceId": "i-2", "State": {"Name": "terminated"}},
                        ]
                    }
                ]
            }
        },
        [("instances", "i-1", None)],
    ),
    "volume": (
        {
            ("ec2", "describe_volumes"): {
                "Volumes": [
                    {"VolumeId": "vol-1", "Size": 10, "State": "available"},
                    {"VolumeId": "vol-2", "Size": 10, "State": "deleting"},
                ]
            }
        },
        [("volumes", "vol-1", 0.8)],
    ),
    "NAT gateway": (
        {
            ("ec2", "describe_nat_gateways"): {
                "NatGateways": [{"NatGatewayId": "nat-1", "State": "available"}, {"NatGatewayId": "nat-2", "State": "deleted"}]
            }
        },
        [("NAT gateways", "nat-1", 32.85)],
    ),
    "address": (
        {("ec2", "describe_addresses"): {"Addresses": [{"AllocationId": "eipalloc-1"}]}},
        [("addresses", "eipalloc-1", 3.65)],
    ),
    "network interface": (
        {("ec2", "describe_network_interfaces"): {"NetworkInterfaces": [{"NetworkInterfaceId": "eni-1", "Status": "available"}]}},
        [("network interfaces", "eni-1", 0.0)],
    ),
    "security group": (
        {("ec2", "describe_security_groups"): {"SecurityGroups": [{"GroupId": "sg-1"}]}},
        [("security groups", "sg-1", 0.0)],
    ),
    "VPC": ({("ec2", "describe_vpcs"): {"Vpcs": [{"VpcId": "vpc-1", "State": "available"}]}}, [("VPCs", "vpc-1", 0.0)]),
    "launch template": (
        {("ec2", "describe_launch_templates"): {"LaunchTemplates": [{"LaunchTemplateId": "lt-1"}]}},
        [("launch templates", "lt-1", 0.0)],
    ),
    "load balancers": (
        {
            ("elbv2", "describe_load_balancers"): {
                "LoadBalancers": [
                    {"LoadBalancerArn": "arn:1", "LoadBalancerName": "k8s-1"},
                    {"LoadBalancerArn": "arn:2", "LoadBalancerName": "k8s-2"},
                ]
            },
            ("elbv2", "describe_tags"): {
                "TagDescriptions": [
                    {"ResourceArn": "arn:1", "Tags": [{"Key": "elbv2.k8s.aws/cluster", "Value": "ebb-dev"}]},
                    {"ResourceArn": "arn:2", "Tags": [{"Key": "elbv2.k8s.aws/cluster", "Value": "ebb-other"}]},
                ]
            },
            ("elb", "describe_load_balancers"): {
                "LoadBalancerDescriptions": [{"LoadBalancerName": "a1"}, {"LoadBalancerName": "a2"}]
            },
            ("elb", "describe_tags"): {
                "TagDescriptions": [
                    {"LoadBalancerName": "a1", "Tags": [{"Key": "kubernetes.io/cluster/ebb-dev", "Value": "owned"}]},
                    {"LoadBalancerName": "a2", "Tags": [{"Key": "kubernetes.io/cluster/ebb-dev2", "Value": "owned"}]},
                ]
            },
        },
        [("load balancer", "k8s-1", 16.43), ("load balancer", "a1", 16.43)],
    ),
    "FSx": (
        {
            ("fsx", "describe_file_systems"): {
                "FileSystems": [
                    {
                        "FileSystemId": "fs-1",
                        "Lifecycle": "AVAILABLE",
                        "StorageCapacity": 1200,
                        "Tags": OURS,
                        "LustreConfiguration": {"DeploymentType": "PERSISTENT_2", "PerUnitStorageThroughput": 250},
                    },
                    {"FileSystemId": "fs-2", "Lifecycle": "AVAILABLE", "StorageCapacity": 1200, "Tags": OTHERS},
                ]
            }
        },
        [("FSx file system", "fs-1", 252.0)],
    ),
    "repository": (
        {
            ("ecr", "describe_repositories"): {
                "repositories": [
                    {"repositoryName": "ebb-dev/trainer"},
                    {"repositoryName": "ebb-dev2/trainer"},
                    {"repositoryName": "other"},
                ]
            }
        },
        [("ECR repository", "ebb-dev/trainer", None)],
    ),
    "bucket": ({("s3", "list_buckets"): {"Buckets": [{"Name": "ebb-dev-sources-1"}]}}, [("S3 bucket", "ebb-dev-sources-1", 0.0)]),
    "project": (
        {("codebuild", "list_projects"): {"projects": ["ebb-dev-images", "ebb-dev-images-2"]}},
        [("CodeBuild project", "ebb-dev-images", 0.0)],
    ),
    "log group": (
        {
            ("logs", "describe_log_groups"): lambda asked: {
                "logGroups": [{"logGroupName": "/aws/eks/ebb-dev/cluster", "storedBytes": 100 * 2**30}]
                if "/eks/" in asked["logGroupNamePrefix"]
                else []
            }
        },
        [("log group", "/aws/eks/ebb-dev/cluster", 3.0)],
    ),
    "snapshot policy": (
        {
            ("dlm", "get_lifecycle_policies"): {
                "Policies": [{"PolicyId": "policy-1", "Tags": {"ebb.dev/stack": "dev"}}, {"PolicyId": "policy-2", "Tags": {}}]
            }
        },
        [("snapshot policy", "policy-1", 0.0)],
    ),
    "drill": (
        {
            ("fis", "list_experiment_templates"): {
                "experimentTemplates": [{"id": "EXT1", "tags": {"ebb.dev/stack": "dev"}}, {"id": "EXT2"}]
            }
        },
        [("FIS template", "EXT1", 0.0)],
    ),
    "roles": (
        {
            ("iam", "list_roles"): {
                "Roles": [role("ebb-dev-autoscaler"), role("ebb-development"), role("ebb-dev-2-autoscaler"), role("admin")]
            },
            ("iam", "list_role_tags"): lambda asked: {"Tags": OTHERS if "-2-" in asked["RoleName"] else OURS},
        },
        [("role", "ebb-dev-autoscaler", 0.0)],
    ),
    "of a kind that nobody thought of": (
        {
            ("resourcegroupstaggingapi", "get_resources"): {
                "ResourceTagMappingList": [
                    {"ResourceARN": "arn:aws:sqs:us-west-2:111122223333:queue"},
                    {"ResourceARN": "arn:aws:ec2:us-west-2:111122223333:volume/vol-9"},
                    {"ResourceARN": "arn:aws:s3:::ebb-dev-sources-9"},
                ]
            }
        },
        [("sqs:queue", "arn:aws:sqs:us-west-2:111122223333:queue", None)],
    ),
}


@pytest.mark.parametrize(("changes", "told"), FOUND.values(), ids=FOUND.keys())
def test_each_kind_is_found_and_priced(changes: Answers, told: list[tuple[str, str, float | None]]) -> None:
    found = things(changes)
    assert [(one.kind, one.name, None if one.usd_per_month is None else round(one.usd_per_month, 2)) for one in found] == told
    assert not any(one.kept for one in found)
    assert all(one.remove for one in found if not one.kind.startswith("sqs"))


EFS = {
    ("efs", "describe_file_systems"): {
        "FileSystems": [
            {"FileSystemId": "fs-1", "LifeCycleState": "available", "SizeInBytes": {"Value": 50 * 2**30}, "Tags": OURS},
            {"FileSystemId": "fs-2", "LifeCycleState": "available", "SizeInBytes": {"Value": 1}, "Tags": []},
        ]
    }
}


@pytest.mark.parametrize(("data", "kept"), [("keep", True), ("delete", False), ("protect", False)])
def test_data_counts_as_left_unless_the_stack_keeps_it(data: str, kept: bool) -> None:
    (one,) = things(dict(EFS), storage={"efs": {}, "data": data, "etcdGiB": 10})
    assert (one.name, bool(one.kept)) == ("fs-1", kept)
    assert one.usd_per_month == pytest.approx(15.0)


def test_backups_of_etcd_are_kept_on_purpose() -> None:
    (one,) = things({("ec2", "describe_snapshots"): {"Snapshots": [{"SnapshotId": "snap-1", "VolumeSize": 10}]}})
    assert one.kept == "a backup of etcd; AWS keeps it when the policy goes that made it"
    assert one.usd_per_month == pytest.approx(0.5)


def test_what_others_have_put_into_the_stacks_vpc_is_found() -> None:
    """GuardDuty's endpoint and security group have no tag of the stack, and the VPC cannot go while they are in it."""
    endpoint: dict[str, Any] = {
        "VpcEndpointId": "vpce-1", "ServiceName": "com.amazonaws.us-west-2.guardduty-data", "State": "available",
        "SubnetIds": ["subnet-1", "subnet-2"], "Tags": [{"Key": "GuardDutyManaged", "Value": "true"}],
    }  # fmt: skip
    groups: list[dict[str, Any]] = [
        {"GroupId": "sg-1", "GroupName": "GuardDutyManagedSecurityGroup-vpc-1", "Tags": endpoint["Tags"]},
        {"GroupId": "sg-2", "GroupName": "default"},
    ]

    def inside(found: list[dict[str, Any]], key: str) -> Answer:
        wanted = [{"Name": "vpc-id", "Values": ["vpc-1"]}]
        return lambda asked: {key: found if asked["Filters"] == wanted else []}

    found = things({
        ("ec2", "describe_vpcs"): {"Vpcs": [{"VpcId": "vpc-1", "State": "available"}]},
        ("ec2", "describe_vpc_endpoints"): inside([endpoint], "VpcEndpoints"),
        ("ec2", "describe_security_groups"): inside(groups, "SecurityGroups"),
    })  # fmt: skip
    assert [(one.kind, one.name, one.note) for one in found] == [
        ("VPC endpoints", "vpce-1", "com.amazonaws.us-west-2.guardduty-data, available"),
        ("security groups", "sg-1", "GuardDutyManagedSecurityGroup-vpc-1"),
        ("VPCs", "vpc-1", "available"),
    ]
    assert found[0].usd_per_month == pytest.approx(2 * 0.01 * 730)


def test_what_may_not_be_looked_at_is_told_and_hides_nothing() -> None:
    found = seen(
        {
            ("fsx", "describe_file_systems"): Refused("AccessDeniedException", "fsx describe_file_systems: AccessDenied"),
            ("ec2", "describe_volumes"): {"Volumes": [{"VolumeId": "vol-1", "Size": 10, "State": "available"}]},
        }
    )
    assert found.blind == ("FSx: fsx describe_file_systems: AccessDenied",)
    assert [one.name for one in found.things] == ["vol-1"]


def test_without_credentials_the_search_ends() -> None:
    with pytest.raises(NoAccess):
        seen({("sts", "get_caller_identity"): NoAccess("NoCredentials", "none")})


def test_every_filter_of_a_kind_is_asked_and_each_thing_told_once() -> None:
    calls = FakeCalls(
        {**empty(), ("ec2", "describe_network_interfaces"): {"NetworkInterfaces": [{"NetworkInterfaceId": "eni-1"}]}}
    )
    kind = next(kind for kind in left_in_ec2.NETWORK if kind.what == "network interfaces")
    assert [one.name for one in left_in_ec2.search(kind, calls, "dev")] == ["eni-1"]
    assert [asked["Filters"] for asked in calls.asked("ec2", "describe_network_interfaces")] == [
        [{"Name": "tag:ebb.dev/stack", "Values": ["dev"]}],
        [{"Name": "tag:cluster.k8s.amazonaws.com/name", "Values": ["ebb-dev"]}],
        [{"Name": "description", "Values": ["Amazon EKS ebb-dev"]}],
    ]


def test_nothing_is_removed() -> None:
    calls = FakeCalls({**empty(), **{key: answer for changes, _ in FOUND.values() for key, answer in changes.items()}})
    leftovers.seen("dev", stacks.stack(), lambda line: None, calls)
    assert {operation.partition("_")[0] for _, operation, _ in calls.seen} <= {"get", "describe", "list"}


@pytest.mark.parametrize(
    ("arn", "kind"),
    [
        ("arn:aws:ec2:us-west-2:1:subnet/subnet-1", "ec2:subnet"),
        ("arn:aws:logs:us-west-2:1:log-group:/aws/eks/x", "logs:log-group"),
        ("arn:aws:s3:::bucket", "s3:"),
        ("arn:aws:eks:us-west-2:1:nodegroup/a/b/c", "eks:nodegroup"),
        ("arn:aws:sqs:us-west-2:1:queue", "sqs:queue"),
    ],
)
def test_kinds_are_read_from_arns(arn: str, kind: str) -> None:
    assert leftovers.kind_of(arn) == kind


def test_reasons_to_keep_are_of_the_stack_s_settings() -> None:
    left = Left(kind="EFS file system", name="fs-1")
    assert leftovers.mark_kept(left, stacks.stack()).kept.startswith("aws.storage.data is `keep`")
