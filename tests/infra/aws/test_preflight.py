"""The AWS checks, against a healthy account and one with one thing wrong at a time."""

from collections.abc import Callable
from typing import Any

import pytest

from infra.account import preflight as neutral
from infra.account.records import Finding
from infra.clouds.aws import preflight
from infra.clouds.aws.account.calls import NO_CREDENTIALS, NoAccess, Refused
from infra.clouds.aws.account.look import Look
from tests.infra.aws.accounts import FSX, cluster, described, fsx_add_ons, look


def findings(seen: Look) -> list[Finding]:
    return neutral.run(neutral.checks(preflight.CHECKS, seen), lambda line: None)


def not_ok(seen: Look) -> list[Finding]:
    return [one for one in findings(seen) if one.level != "ok"]


def test_a_healthy_account_is_all_ok() -> None:
    assert not_ok(look()) == []


def test_every_check_says_something() -> None:
    seen = look(storage=FSX, cluster=cluster(addOns=fsx_add_ons()))
    for check in neutral.checks(preflight.CHECKS, seen):
        if check.what != "keys, reservations, alarms":  # there are none
            assert list(check.look()), check.what


def case(make: Callable[[], Look], level: str, text: str, fix: str = "", *, name: str) -> Any:
    return pytest.param(make, level, text, fix, id=name)


@pytest.mark.parametrize(
    ("make", "level", "text", "fix"),
    [
        case(
            lambda: look(accountId="999988887777"),
            "fail",
            "arn:aws:iam::111122223333:user/ada in account 111122223333, but aws.accountId is 999988887777: `up` would refuse",
            "take other credentials (AWS_PROFILE)",
            name="another account",
        ),
        case(
            lambda: look(accountId=None),
            "warn",
            "arn:aws:iam::111122223333:user/ada in account 111122223333",
            "set aws.accountId: 111122223333, so that `up` never runs in another account",
            name="no account named",
        ),
        case(
            lambda: look(
                {("ec2", "describe_regions"): {"Regions": [{"RegionName": "us-west-2", "OptInStatus": "not-opted-in"}]}}
            ),
            "fail",
            "region us-west-2 is off in this account",
            "aws account enable-region --region-name us-west-2",
            name="region off",
        ),
        case(
            lambda: look(
                {
                    ("ec2", "describe_availability_zones"): {
                        "AvailabilityZones": [{"ZoneName": "us-west-2b", "State": "available"}]
                    }
                }
            ),
            "fail",
            "us-west-2a: not a zone of this account; it has us-west-2b",
            "change ebb:zones",
            name="zone unknown",
        ),
        case(
            lambda: look(absent=("aws",)),
            "fail",
            "aws is not on PATH: pulumi_eks and kubeconfigs get tokens of the cluster by `aws eks get-token`",
            "install aws",
            name="no aws program",
        ),
        case(
            lambda: look(absent=("docker",), images={"build": "docker"}),
            "fail",
            "docker is not on PATH: images.build: docker builds here; `codebuild` needs no Docker",
            "install docker",
            name="no docker",
        ),
        case(
            lambda: look(absent=("kubectl",)),
            "warn",
            "kubectl is not on PATH: neither `up` nor `ebb` needs it, but you need it to inspect the cluster",
            name="no kubectl",
        ),
        case(
            lambda: look({("iam", "get_role"): Refused("NoSuchEntity", "none")}),
            "warn",
            "AWSServiceRoleForEC2Spot is not there: Auto Scaling creates it with the first spot machine, if it may",
            "aws iam create-service-linked-role --aws-service-name spot.amazonaws.com",
            name="no spot role",
        ),
        case(
            lambda: look({("iam", "get_role"): Refused("NoSuchEntity", "none")}, autoscaler={"kind": "karpenter"}, least=0),
            "fail",
            "AWSServiceRoleForEC2Spot is not there, and Karpenter may not create it",
            "aws iam create-service-linked-role --aws-service-name spot.amazonaws.com",
            name="no spot role for Karpenter",
        ),
        case(
            lambda: look(
                {("eks", "describe_cluster"): {"cluster": {"name": "ebb-dev", "tags": {}}}}, cluster=cluster(administrators=[])
            ),
            "fail",
            "there is a cluster ebb-dev that no stack of Ebb has made",
            "choose another name: pulumi stack init NAME",
            name="cluster of others",
        ),
        case(
            lambda: look(
                {
                    ("logs", "describe_log_groups"): lambda asked: {
                        "logGroups": [
                            {"logGroupName": asked["logGroupNamePrefix"] + more, "logGroupArn": "arn:" + more}
                            for more in ("", "-other")
                            if "eks" in asked["logGroupNamePrefix"]
                        ]
                    },
                    ("logs", "list_tags_for_resource"): {"tags": {}},
                }
            ),
            "fail",
            "there is a log group /aws/eks/ebb-dev/cluster already",
            "aws logs delete-log-group --log-group-name /aws/eks/ebb-dev/cluster",
            name="log group of before",
        ),
        case(
            lambda: look(
                {
                    ("ecr", "describe_repositories"): {
                        "repositories": [
                            {"repositoryName": "ebb-dev/trainer", "repositoryArn": "arn:one"},
                            {"repositoryName": "other"},
                        ]
                    },
                    ("ecr", "list_tags_for_resource"): {"tags": []},
                }
            ),
            "fail",
            "there is a repository ebb-dev/trainer already",
            "aws ecr delete-repository --force --repository-name ebb-dev/trainer",
            name="repository of others",
        ),
        case(
            lambda: look({("ec2", "describe_vpcs"): {"Vpcs": [{"VpcId": "vpc-1", "CidrBlock": "10.64.128.0/20"}]}}),
            "warn",
            "network.cidr 10.64.0.0/16 overlaps with VPC vpc-1 (10.64.128.0/20): the two can never be connected",
            "take another range, if they ever shall be",
            name="overlap",
        ),
        case(
            lambda: look(address="203.0.113.9"),
            "fail",
            "this machine (203.0.113.9) is not in aws.cluster.publicAccessCidrs (198.51.100.0/24)",
            "add 203.0.113.9/32",
            name="outside the ranges",
        ),
        case(
            lambda: look(address="<html>"),
            "warn",
            "this machine's address on the internet is not known ('<html>' does not appear to be an IPv4 or IPv6 address): "
            "is it in publicAccessCidrs?",
            name="address unknown",
        ),
        case(
            lambda: look(
                {
                    ("ec2", "describe_instance_type_offerings"): {
                        "InstanceTypeOfferings": [
                            {"InstanceType": name, "Location": "us-west-2a"} for name in ("g4dn.xlarge", "m7i.large")
                        ]
                    }
                }
            ),
            "fail",
            "spot-t4-us-west-2b: us-west-2b has no g4dn.xlarge; us-west-2a has",
            "leave the zone out of the group's zones",
            name="not offered",
        ),
        case(
            lambda: look(
                {
                    ("ec2", "describe_instance_types"): {
                        "InstanceTypes": [described("m7i.large"), described("g4dn.xlarge", VCpuInfo={"DefaultVCpus": 8})]
                    }
                }
            ),
            "fail",
            "g4dn.xlarge: the catalog says vCPUs 4, AWS says 8",
            "correct infra/clouds/aws/machines.yaml",
            name="facts",
        ),
        case(
            lambda: look(
                {
                    ("eks", "describe_cluster_versions"): {
                        "clusterVersions": [{"clusterVersion": "1.35", "versionStatus": "EXTENDED_SUPPORT"}]
                    }
                }
            ),
            "fail",
            "Kubernetes 1.35 is in extended support",
            "docs/aws.md says how to upgrade",
            name="old Kubernetes",
        ),
        case(
            lambda: look(
                {
                    ("eks", "describe_cluster_versions"): {
                        "clusterVersions": [
                            {"clusterVersion": "1.40", "versionStatus": "STANDARD_SUPPORT"},
                            {"clusterVersion": "1.9"},
                        ]
                    }
                }
            ),
            "fail",
            "EKS has no Kubernetes 1.35; it has 1.9, 1.40",
            "change kubernetesVersion",
            name="unknown Kubernetes",
        ),
        case(
            lambda: look({("service-quotas", "get_service_quota"): Refused("AccessDeniedException", "service-quotas: denied")}),
            "warn",
            "not checked: service-quotas: denied",
            "give this identity the right to read it, or ask who has it",
            name="no right",
        ),
        case(
            lambda: look({("s3", "get_bucket_location"): {}}, storage=FSX, cluster=cluster(addOns=fsx_add_ons())),
            "fail",
            "S3 bucket 'imagenet-of-ours' is in us-east-1: FSx imports and exports by itself only within its own region",
            "take a bucket in us-west-2, or copy it: aws s3 sync",
            name="bucket elsewhere",
        ),
    ],
)
def test_one_thing_wrong_is_told_with_its_fix(make: Callable[[], Look], level: str, text: str, fix: str) -> None:
    assert Finding(level=level, text=text, fix=fix) in not_ok(make())  # type: ignore[arg-type]


ADMIN = "arn:aws:iam::111122223333:role/people/platform-engineer"
SESSION = "arn:aws:sts::111122223333:assumed-role/platform-engineer/ada"


@pytest.mark.parametrize(
    ("administrator", "caller", "clashes"),
    [
        pytest.param(ADMIN, SESSION, True, id="a session of the role, whose path sessions do not show"),
        pytest.param("arn:aws:iam::111122223333:user/ada", "arn:aws:iam::111122223333:user/ada", True, id="the user"),
        pytest.param(ADMIN, "arn:aws:sts::111122223333:assumed-role/platform/platform-engineer", False, id="another role"),
        pytest.param(ADMIN, "arn:aws:iam::111122223333:user/people/platform-engineer", False, id="a user of that name"),
        pytest.param(ADMIN, SESSION.replace("111122223333", "999988887777"), False, id="another account's role"),
    ],
)
def test_who_makes_the_cluster_may_not_be_listed_as_its_administrator(administrator: str, caller: str, clashes: bool) -> None:
    identity = {"Account": "111122223333", "Arn": caller, "UserId": "U"}
    seen = look({("sts", "get_caller_identity"): identity}, cluster=cluster(administrators=[administrator]))
    said = f"{administrator} is an administrator by creating the cluster; a second access entry for it makes `up` fail"
    fix = "take it out of aws.cluster.administrators"
    assert not_ok(seen) == ([Finding(level="fail", text=said, fix=fix)] if clashes else [])


@pytest.mark.parametrize(
    ("entry", "clashes"),
    [
        pytest.param({"accessEntry": {"principalArn": ADMIN}}, True, id="its creator's"),
        pytest.param({"accessEntry": {"principalArn": ADMIN, "tags": {"ebb.dev/stack": "dev"}}}, False, id="the stack's own"),
        pytest.param(Refused("ResourceNotFoundException", "no entry"), False, id="none yet"),
    ],
)
def test_an_access_entry_that_somebody_else_has_made_is_told(entry: Any, clashes: bool) -> None:
    changes = {
        ("eks", "describe_cluster"): {"cluster": {"name": "ebb-dev", "tags": {"ebb.dev/stack": "dev"}}},
        ("eks", "describe_access_entry"): entry,
    }
    assert [one.level for one in not_ok(look(changes, cluster=cluster(administrators=[ADMIN])))] == ["fail"] * clashes


def test_without_credentials_nothing_else_is_asked() -> None:
    seen = look({("sts", "get_caller_identity"): NoAccess("NoCredentials", NO_CREDENTIALS)})
    with pytest.raises(NoAccess, match="there are no AWS credentials in this shell"):
        findings(seen)
    assert len(seen.calls.seen) == 1  # type: ignore[attr-defined]


def test_nothing_that_changes_an_account_is_ever_asked() -> None:
    seen = look(storage=FSX, cluster=cluster(addOns=fsx_add_ons()))
    findings(seen)
    asked = {operation.partition("_")[0] for _, operation, _ in seen.calls.seen}  # type: ignore[attr-defined]
    assert asked <= {"get", "describe", "list"}
