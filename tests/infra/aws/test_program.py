"""The whole program on AWS, declared: what must be there before what."""

from functools import cache

from infra import program
from infra.clouds.aws.cloud import Aws
from tests.infra.aws import stacks
from tests.infra.aws.case import ANSWERS
from tests.infra.declared import Declared, declared

NODE_GROUP = "aws:eks/nodeGroup:NodeGroup"


@cache
def whole() -> Declared:
    stack = stacks.stack()
    return declared(lambda: program.declare(stack, Aws(stack, stack.settings)), answers=ANSWERS)


def test_the_manager_group_is_created_before_the_others() -> None:
    """The first node group of an account makes EKS create a service-linked role; others that ask meanwhile can be refused."""
    found = whole()
    manager, *others = found.all(NODE_GROUP)
    assert (manager.name, len(others)) == ("manager", 3)
    assert all(manager.key in found.before(one) for one in others)
