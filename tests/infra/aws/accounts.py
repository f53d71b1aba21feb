"""An AWS account for the checks of preflight: healthy, but for what a test changes. Requests and answers fit AWS's models."""

from datetime import UTC, datetime
from typing import Any

from infra.clouds.aws.account.calls import Refused
from infra.clouds.aws.account.look import Look
from tests.infra.aws import stacks
from tests.infra.aws.fake_calls import Answer, FakeCalls

ACCOUNT = "111122223333"
STACK_TAGS = [{"Key": "ebb.dev/stack", "Value": "dev"}]
BUCKET = "s3://imagenet-of-ours/train"
FSX = {"efs": {}, "fsx": {"zone": "us-west-2a", "bucket": BUCKET}, "etcdGiB": 10}
Answers = dict[tuple[str, str], Answer]


def quota(value: float) -> Answer:
    return lambda asked: {"Quota": {"QuotaName": asked["QuotaCode"], "QuotaCode": asked["QuotaCode"], "Value": value}}


def builds(value: float) -> Answer:
    """The quotas of CodeBuild, of which one counts."""
    named = {"Build projects": 5000, "Concurrently running builds for Linux/Medium environment": value}
    return {"Quotas": [{"QuotaName": name, "QuotaCode": f"L-{number}", "Value": one}
                       for number, (name, one) in enumerate(named.items())]}  # fmt: skip


def described(name: str, **changes: Any) -> dict[str, Any]:
    gpus = {"GpuInfo": {"Gpus": [{"Name": "T4", "Count": 1}]}} if name.startswith("g4dn") else {}
    cpu, memory = {"g4dn.xlarge": (4, 16), "m7i.large": (2, 8)}[name]
    network = {"NetworkInfo": {"EfaInfo": {"MaximumEfaInterfaces": 0}}}
    told = {
        "InstanceType": name,
        "VCpuInfo": {"DefaultVCpus": cpu},
        "MemoryInfo": {"SizeInMiB": memory * 1024},
        **gpus,
        **network,
    }
    return {**told, **changes}


def healthy() -> Answers:
    pinned = stacks.values()["aws"]
    dates = {release.rpartition("-")[2] for release in pinned["nodes"]["releases"].values()}

    def released(asked: dict[str, Any]) -> dict[str, Any]:
        base = f"{asked['Path']}/amazon-eks-node-al2023-1.35-v"
        return {"Parameters": [{"Name": f"{base}{date}/image_id"} for date in (*dates, "20200101")]}

    def versions(asked: dict[str, Any]) -> dict[str, Any]:
        mine = fsx_add_ons()[asked["addonName"]]
        return {"addons": [{"addonVersions": [{"addonVersion": "v0.0.1-eksbuild.1"}, {"addonVersion": mine}]}]}

    return {
        ("sts", "get_caller_identity"): {"Account": ACCOUNT, "Arn": "arn:aws:iam::111122223333:user/ada", "UserId": "U"},
        ("ec2", "describe_regions"): {"Regions": [{"RegionName": "us-west-2", "OptInStatus": "opt-in-not-required"}]},
        ("ec2", "describe_availability_zones"): {
            "AvailabilityZones": [
                {"ZoneName": f"us-west-2{letter}", "State": "available", "OptInStatus": "opt-in-not-required"} for letter in "abc"
            ]
        },
        ("service-quotas", "get_service_quota"): quota(200),
        ("service-quotas", "list_service_quotas"): builds(20),
        ("ec2", "describe_instances"): {"Reservations": []},
        ("ec2", "get_ebs_default_kms_key_id"): {"KmsKeyId": "alias/aws/ebs"},
        ("ec2", "describe_vpcs"): {"Vpcs": []},
        ("ec2", "describe_addresses"): {"Addresses": []},
        ("ec2", "describe_instance_type_offerings"): lambda asked: {
            "InstanceTypeOfferings": [
                {"InstanceType": name, "Location": zone}
                for name in asked["Filters"][0]["Values"]
                for zone in ("us-west-2a", "us-west-2b", "us-west-2c")
            ]
        },
        ("ec2", "describe_instance_types"): lambda asked: {"InstanceTypes": [described(name) for name in asked["InstanceTypes"]]},
        ("eks", "describe_cluster_versions"): {
            "clusterVersions": [
                {
                    "clusterVersion": "1.35",
                    "versionStatus": "STANDARD_SUPPORT",
                    "endOfStandardSupportDate": datetime(2027, 3, 27, tzinfo=UTC),
                }
            ]
        },
        ("eks", "describe_addon_versions"): versions,
        ("eks", "describe_cluster"): Refused("ResourceNotFoundException", "no cluster"),
        ("eks", "list_nodegroups"): {"nodegroups": []},
        ("ssm", "get_parameters_by_path"): released,
        ("iam", "get_role"): {"Role": _role()},
        ("logs", "describe_log_groups"): {"logGroups": []},
        ("ecr", "describe_repositories"): {"repositories": []},
        ("s3", "get_bucket_location"): {"LocationConstraint": "us-west-2"},
    }


def _role(**more: Any) -> dict[str, Any]:
    made = datetime(2026, 1, 1, tzinfo=UTC)
    return {"Path": "/", "RoleName": "AWSServiceRoleForEC2Spot", "RoleId": "R" * 16, "Arn": "a" * 20, "CreateDate": made, **more}


def look(
    changes: Answers | None = None, address: str = "198.51.100.7", absent: tuple[str, ...] = (), least: int = 1, **aws: Any
) -> Look:
    """`least`: machines that the on-demand group keeps."""
    own = stacks.small(**{"accountId": ACCOUNT, **aws})
    own["nodeGroups"][1]["min"] = least
    stack = stacks.stack(own)
    return Look(
        stack_name="dev",
        stack=stack,
        calls=FakeCalls({**healthy(), **(changes or {})}),
        which=lambda program: None if program in absent else f"/usr/bin/{program}",
        address=lambda: address,
    )


def cluster(**changes: Any) -> dict[str, Any]:
    return {**stacks.values()["aws"]["cluster"], **changes}


def fsx_add_ons() -> dict[str, str]:
    return {**stacks.values()["aws"]["cluster"]["addOns"], "aws-fsx-csi-driver": "v1.8.0-eksbuild.1"}
