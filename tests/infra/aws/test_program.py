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
def whole(*, ssm: bool = False) -> Declared:
    nodes = {**stacks.values()["aws"]["nodes"], **({"ssm": True} if ssm else {})}
    stack = stacks.stack(nodes=nodes)
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
