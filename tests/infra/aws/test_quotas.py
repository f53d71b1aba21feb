"""Quotas against what the groups want, with what others use of them."""

from typing import Any

import pytest

from infra.account.costs import groups_of
from infra.clouds.aws.account import quotas
from infra.clouds.aws.account.calls import Refused
from tests.infra.aws import stacks
from tests.infra.aws.accounts import STACK_TAGS, Answers, builds, look, quota


@pytest.mark.parametrize(
    ("instance", "capacity", "code"),
    [
        ("g4dn.xlarge", "spot", "L-3819A6DF"),
        ("g6e.12xlarge", "spot", "L-3819A6DF"),
        ("g5.xlarge", "on-demand", "L-DB2E81BA"),
        ("p3.2xlarge", "spot", "L-7212CCBC"),
        ("p4de.24xlarge", "spot", "L-7212CCBC"),
        ("p5en.48xlarge", "spot", "L-C4BD4855"),
        ("p4d.24xlarge", "on-demand", "L-417A185B"),
        ("p5.48xlarge", "on-demand", "L-417A185B"),
        ("p6-b200.48xlarge", "on-demand", "L-417A185B"),
        ("p6-b200.48xlarge", "spot", ""),
        ("m7i.large", "on-demand", "L-1216C47A"),
        ("c5.2xlarge", "spot", "L-34B43A08"),
    ],
)
def test_each_machine_counts_against_its_quota(instance: str, capacity: str, code: str) -> None:
    assert quotas.code(instance, capacity) == code


def test_groups_are_added_up_at_their_max() -> None:
    wishes = quotas.wishes(groups_of(stacks.stack()))
    assert {code: (wish.vcpus, wish.least) for code, wish in wishes.items()} == {
        "L-1216C47A": (2, 2),  # the manager
        "L-3819A6DF": (64, 4),  # 8 machines in each of two zones
        "L-DB2E81BA": (8, 4),
    }


RAISE = "aws service-quotas request-service-quota-increase --region us-west-2 --service-code ec2 --quota-code L-3819A6DF"


@pytest.mark.parametrize(
    ("value", "level", "words", "wanted"),
    [
        (
            0,
            "fail",
            "L-3819A6DF (L-3819A6DF): 0 vCPUs: no machine can start: 0 is what a new account has; the stack wants up to 64",
            64,
        ),
        (3, "fail", "3 vCPUs: no machine can start: its smallest machine has 4", 64),
        (
            32,
            "warn",
            "32 vCPUs, the stack wants up to 64 (spot-t4-us-west-2a, spot-t4-us-west-2b): groups do not reach their max",
            64,
        ),
        (64, "ok", "64 vCPUs, the stack wants up to 64", None),
    ],
)
def test_a_quota_is_judged_by_what_the_groups_want(value: int, level: str, words: str, wanted: int | None) -> None:
    found = list(quotas.machines(look({("service-quotas", "get_service_quota"): quota(value)})))
    (one,) = [one for one in found if "L-3819A6DF" in one.text]
    assert one.level == level
    assert words in one.text
    assert one.fix == (f"{RAISE} --desired-value {wanted}" if wanted else "")


def test_machines_of_others_take_their_part_of_a_quota() -> None:
    def machine(lifecycle: str, tags: list[dict[str, str]]) -> dict[str, Any]:
        spot = {"InstanceLifecycle": "spot"} if lifecycle else {}
        return {"InstanceType": "g5.48xlarge", "CpuOptions": {"CoreCount": 96, "ThreadsPerCore": 2}, "Tags": tags, **spot}

    ours = [STACK_TAGS, [{"Key": "eks:cluster-name", "Value": "ebb-dev"}]]
    there = [machine("spot", []), machine("", []), *(machine("spot", tags) for tags in ours)]
    found = list(quotas.machines(look({("ec2", "describe_instances"): {"Reservations": [{"Instances": there}]}})))
    spot = next(one for one in found if "L-3819A6DF" in one.text)
    assert spot.level == "warn"
    assert "192 are in use by others" in spot.text
    assert spot.fix == f"{RAISE} --desired-value {64 + 192}"


def test_a_quota_that_nobody_has_changed_is_read_from_the_defaults() -> None:
    changes: Answers = {
        ("service-quotas", "get_service_quota"): Refused("NoSuchResourceException", "none"),
        ("service-quotas", "get_aws_default_service_quota"): quota(5),
    }
    assert {one.level for one in quotas.network(look(changes))} == {"ok"}


def test_addresses_and_vpcs_that_do_not_suffice_are_told() -> None:
    changes: Answers = {
        ("service-quotas", "get_service_quota"): quota(5),
        ("ec2", "describe_addresses"): {"Addresses": [{}] * 4},
        ("ec2", "describe_vpcs"): {"Vpcs": [{"VpcId": f"vpc-{number}", "CidrBlock": "10.0.0.0/16"} for number in range(5)]},
    }
    found = list(quotas.network(look(changes, network={"nat": "per-zone"})))
    assert [(one.level, one.text.partition(": ")[2]) for one in found] == [
        ("fail", "5 of 5 used, the stack needs 1 more"),
        ("fail", "4 of 5 used, the stack needs 2 more"),
        ("ok", "5, and 1 is needed"),
    ]


RAISE_BUILDS = "aws service-quotas request-service-quota-increase --region us-west-2 --service-code codebuild --quota-code L-1"


@pytest.mark.parametrize(
    ("value", "level", "words", "fix"),
    [
        (0, "fail", "0: no image can be built", f"{RAISE_BUILDS} --desired-value 2; or build here: aws.images.build: docker"),
        (1, "ok", "1, the stack has 2 images: they are built in turns", ""),
        (5, "ok", "5, the stack has 2 images", ""),
    ],
)
def test_the_quota_of_builds_is_judged_by_the_stacks_images(value: int, level: str, words: str, fix: str) -> None:
    (one,) = quotas.builds(look({("service-quotas", "list_service_quotas"): builds(value)}))
    assert (one.level, one.fix) == (level, fix)
    assert one.text == f"Concurrently running builds for Linux/Medium environment (L-1): {words}"


def test_a_stack_that_is_up_needs_no_more_of_the_network() -> None:
    changes: Answers = {("ec2", "describe_vpcs"): {"Vpcs": [{"VpcId": "vpc-1", "CidrBlock": "10.64.0.0/16", "Tags": STACK_TAGS}]}}
    assert [one.text for one in quotas.network(look(changes))] == ["the stack has its VPC already"]


def test_a_second_manager_machine_counts() -> None:
    own = stacks.small()
    own["manager"]["count"] = 2
    wish = quotas.wishes(groups_of(stacks.stack(own)))["L-1216C47A"]
    assert (wish.vcpus, wish.groups) == (4, ("manager", "manager-2"))
