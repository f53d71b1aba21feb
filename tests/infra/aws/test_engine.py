"""What AWS alone has, on the real Pulumi engine against the echo of AWS. What all clouds have: tests/infra/test_engine.py."""

import pytest

from devcluster.settings import CHECKOUT
from testing.pulumi.mocks.engine import EngineError, Stack
from testing.pulumi.mocks.run import type_of
from tests.infra.aws.case import CASE, NODE_GROUP, SUBNET
from tests.infra.test_engine import JOB, Destroyed

pytestmark = pytest.mark.e2e

EKS, ADD_ON, FSX = "aws:eks/cluster:Cluster", "aws:eks/addon:Addon", "aws:fsx/lustreFileSystem:LustreFileSystem"
FIRST_ADD_ONS = ("vpc-cni", "kube-proxy", "eks-pod-identity-agent")  # machines need them from their start to their end


@pytest.fixture(scope="module")
def destroyed() -> Destroyed:
    return Destroyed(CASE)


def test_machines_for_jobs_go_before_the_manager(destroyed: Destroyed) -> None:
    assert destroyed.before(destroyed.of(NODE_GROUP, without=("::manager",)), destroyed.of(NODE_GROUP, only=("::manager",)))


def test_machines_lose_their_network_plugin_last(destroyed: Destroyed) -> None:
    assert destroyed.before(destroyed.of(NODE_GROUP), destroyed.of(ADD_ON, only=FIRST_ADD_ONS))


def test_add_ons_that_run_on_the_manager_go_before_it(destroyed: Destroyed) -> None:
    assert destroyed.before(destroyed.of(ADD_ON, without=FIRST_ADD_ONS), destroyed.of(NODE_GROUP, only=("::manager",)))


def test_only_the_control_plane_is_made_by_a_component_of_others() -> None:
    with Stack("dev", CASE.values()) as stack:
        stack.up()
        eks = [one["urn"] for one in stack.resources().values() if "$eks:index:Cluster$" in one["urn"]]
    assert sorted(type_of(urn) for urn in eks) == [EKS, "pulumi:providers:kubernetes"]


def test_up_says_what_to_do_with_a_group_that_eks_does_not_update() -> None:
    """It became degraded in a spot drought, and EKS's words say neither why nor what to do."""
    values = CASE.values()
    with Stack("dev", values) as stack:
        stack.up()
        deployment = stack.export()
        groups = [one for one in deployment["resources"] if one["type"] == NODE_GROUP]
        [group] = [one for one in groups if one["urn"].endswith("::t4-us-west-2a")]
        group["outputs"]["status"] = "DEGRADED"
        stack.load(deployment)
        values["ebb:nodeGroups"][0]["max"] += 1
        stack.configure(values)
        with pytest.raises(EngineError, match=r"t4-us-west-2a: EKS updates only groups that are ACTIVE.*another `name`"):
            stack.up()


def test_the_large_stack_comes_up_and_goes() -> None:
    with Stack("imagenet", CHECKOUT / "Pulumi.imagenet.yaml") as stack:
        stack.up()
        made = stack.resources().values()
        assert len([one for one in made if one["type"] == FSX]) == 1
        assert len([one for one in made if one["type"] == JOB]) == 2
        run = stack.destroy()
        order = [type_of(urn) for urn in run.finished("delete")]
        assert order.index(FSX) < order.index(SUBNET)
        assert stack.resources() == {}
