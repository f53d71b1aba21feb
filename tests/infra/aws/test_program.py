"""The whole program on AWS, declared: what must be there before what."""

from functools import cache

import pytest

from infra import program
from infra.clouds.aws.cloud import Aws
from tests.infra.aws import stacks
from tests.infra.aws.case import ANSWERS
from tests.infra.declared import Declared, declared

NODE_GROUP = "aws:eks/nodeGroup:NodeGroup"


@cache
def whole(*, ssm: bool = False, managers: int = 1, scaler: str = "cluster-autoscaler") -> Declared:
    nodes = {**stacks.values()["aws"]["nodes"], **({"ssm": True} if ssm else {})}
    own = stacks.small(nodes=nodes, autoscaler={"kind": scaler})
    own["manager"]["count"] = managers
    if scaler == "karpenter":
        own["nodeGroups"][1]["min"] = 0  # it keeps no idle machine
    stack = stacks.stack(own)
    return declared(lambda: program.declare(stack, Aws(stack, stack.settings)), answers=ANSWERS)


def test_the_manager_group_is_created_before_the_others() -> None:
    """The first node group of an account makes EKS create a service-linked role; others that ask meanwhile can be refused."""
    found = whole()
    manager, *others = found.all(NODE_GROUP)
    assert (manager.name, len(others)) == ("manager", 3)
    assert all(manager.key in found.before(one) for one in others)


@pytest.mark.parametrize("ssm", [False, True])
def test_machines_have_a_shell_by_ssm_if_the_stack_wants_it(ssm: bool) -> None:
    found = whole(ssm=ssm)
    attached = {one.inputs["policyArn"].rpartition("/")[2] for one in found.all("RolePolicyAttachment")}
    assert ("AmazonSSMManagedInstanceCore" in attached) is ssm
    policies = {one.key for one in found.all("RolePolicyAttachment") if "SSM" in one.name}
    assert all(policies <= found.before(one) for one in found.all(NODE_GROUP))


@pytest.mark.parametrize("scaler", ["cluster-autoscaler", "karpenter"])
def test_two_manager_machines_are_two_managed_groups_of_one(scaler: str) -> None:
    """A group in one subnet replaces its machine in its zone, which for the first is that of etcd's volume."""
    found = whole(managers=2, scaler=scaler)
    made = [found.one("NodeGroup", name) for name in ("manager", "manager-2")]
    assert [one.inputs["scalingConfig"] for one in made] == [{"minSize": 1, "maxSize": 1, "desiredSize": 1}] * 2
    assert [one.ignore_changes for one in made] == [(), ()]
    first, second = (one.inputs["subnetIds"] for one in made)
    assert (len(first), len(second)) == (1, 1)
    assert first != second
    assert made[0].inputs["labels"] == made[1].inputs["labels"] == {
        "ebb.dev/node-group": "manager", "ebb.dev/capacity-type": "on-demand",
    }  # fmt: skip
    # The autoscaler of jobs' machines leaves both alone.
    tags = {one.name for one in found.all("Tag") if one.name.startswith("manager") and "node-template" in one.name}
    assert not tags
    assert found.one("Volume").inputs["availabilityZone"] == "us-west-2a"
