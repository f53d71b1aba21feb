"""The table of rights: each has its reason, each action is named, and what changes something is limited to the stack."""

import re

import pytest

from infra.clouds.aws.iam import rights as page
from infra.clouds.aws.iam.rights import EVERYTHING, ROLES, Managed, Statement

STATEMENTS = [
    pytest.param(one, id=f"{key}: {', '.join(one.actions)[:60]}") for key, role in ROLES.items() for one in role.statements
]
MANAGED = [pytest.param(one, id=f"{key}: {one.name}") for key, role in ROLES.items() for one in role.managed]
# Actions that the service authorization reference lists without a resource type, so that a policy can say no resource but `*`
# (https://docs.aws.amazon.com/service-authorization/latest/reference/: list_amazonec2, list_amazonec2autoscaling,
# list_amazonelasticcontainerregistry). Reviewed by hand; another action on `*` fails until it has been looked up.
WITHOUT_RESOURCES = {
    "autoscaling:DescribeAutoScalingGroups", "autoscaling:DescribeAutoScalingInstances",
    "autoscaling:DescribeLaunchConfigurations", "autoscaling:DescribeScalingActivities",
    "ec2:DescribeCapacityReservations", "ec2:DescribeInstanceStatus", "ec2:DescribeInstanceTypeOfferings",
    "ec2:DescribeLaunchTemplates", "ec2:DescribePlacementGroups", "ec2:DescribeSecurityGroups", "ec2:DescribeSpotPriceHistory",
    "ec2:DescribeSubnets", "iam:ListInstanceProfiles", "pricing:GetProducts",
    "ec2:DescribeAvailabilityZones", "ec2:DescribeImages", "ec2:DescribeInstanceTypes", "ec2:DescribeInstances",
    "ec2:DescribeLaunchTemplateVersions", "ec2:DescribeSnapshots", "ec2:DescribeTags", "ec2:DescribeVolumes",
    "ec2:GetInstanceTypesFromInstanceRequirements", "ecr:GetAuthorizationToken",
}  # fmt: skip
# What AWS's policies name each action in, so that none is `service:*`
# (https://docs.aws.amazon.com/aws-managed-policy/latest/reference/about-managed-policy-reference.html, read 2026-11-21).
WITHOUT_WILDCARDS = {
    "AmazonEKSClusterPolicy", "AmazonEKSWorkerNodePolicy", "AmazonEC2ContainerRegistryPullOnly", "AmazonEKS_CNI_Policy",
    "AmazonSSMManagedInstanceCore",
}  # fmt: skip


@pytest.mark.parametrize("one", STATEMENTS)
def test_a_statement_names_its_actions_and_its_reason(one: Statement) -> None:
    assert one.reason
    assert all(re.fullmatch(r"[a-z0-9]+:[A-Z][A-Za-z]+", action) for action in one.actions), one.actions


@pytest.mark.parametrize("one", STATEMENTS)
def test_a_statement_on_everything_says_why(one: Statement) -> None:
    if EVERYTHING in one.resources:
        assert one.everything
        assert set(one.actions) <= WITHOUT_RESOURCES
    else:
        assert not one.everything
        assert not set(one.actions) & WITHOUT_RESOURCES, "it would never apply: the action knows no resources"


@pytest.mark.parametrize("one", STATEMENTS)
def test_what_changes_something_is_limited_to_the_stack(one: Statement) -> None:
    """By the resource's name or by a condition. Two statements cannot be: what they make has no tag yet. Nor can what a machine
    is made of: a start asks for rights on the machine and on a launch template, too, and these are limited."""
    reads = all(re.match(r"\w+:(Describe|Get|List|BatchGet|BatchCheck)", action) for action in one.actions)
    parts = set(one.actions) == {"ec2:RunInstances", "ec2:CreateFleet"} and not any(
        "/instance/" in each for each in one.resources
    )
    said = " ".join((*one.resources, *(f"{key} {value}" for test in one.conditions.values() for key, value in test.items())))
    new_snapshot = one.resources == ("arn:aws:ec2:*::snapshot/*",) and set(one.actions) <= {
        "ec2:CreateSnapshot",
        "ec2:CreateTags",
    }
    assert reads or "{name}" in said or "{stack}" in said or new_snapshot or parts


@pytest.mark.parametrize("one", MANAGED)
def test_a_managed_policy_has_a_reason_and_no_wildcard_action(one: Managed) -> None:
    assert one.reason
    assert one.name in WITHOUT_WILDCARDS


@pytest.mark.parametrize("key", ROLES)
def test_a_role_is_for_somebody(key: str) -> None:
    spec = ROLES[key]
    assert spec.who
    assert bool(spec.service) != bool(spec.principals)
    assert spec.managed or spec.statements


def test_the_table_lists_all() -> None:
    lines = page.table().splitlines()
    assert len(lines) == 2 + len(STATEMENTS) + len(MANAGED)
    assert {line.count(" | ") for line in lines[2:]} == {5}
    for key, role in ROLES.items():
        for one in role.statements:
            assert any(line.startswith(f"| {key} ") and one.reason in line and one.actions[0] in line for line in lines)
