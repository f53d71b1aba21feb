"""What AWS alone has, on the real Pulumi engine against the echo of AWS. What all clouds have: tests/infra/test_engine.py."""

import json
from collections import Counter
from collections.abc import Iterator

import pytest

from devcluster.settings import CHECKOUT
from testing.pulumi.mocks.engine import EngineError, Stack
from testing.pulumi.mocks.run import Run, type_of
from tests.infra.aws.case import CASE, NODE_GROUP, SUBNET
from tests.infra.test_engine import JOB, Destroyed, destroyed_stack

pytestmark = pytest.mark.e2e

EKS, ADD_ON, FSX = "aws:eks/cluster:Cluster", "aws:eks/addon:Addon", "aws:fsx/lustreFileSystem:LustreFileSystem"
RELEASE, NODE_CLASS = "kubernetes:helm.sh/v3:Release", "kubernetes:karpenter.k8s.aws/v1:EC2NodeClass"
NODE_POOL = "kubernetes:karpenter.sh/v1:NodePool"
KARPENTERS = (
    *("aws:sqs/queue:Queue", "aws:sqs/queuePolicy:QueuePolicy", "aws:cloudwatch/eventRule:EventRule"),
    *("aws:cloudwatch/eventTarget:EventTarget", RELEASE, NODE_CLASS, NODE_POOL, NODE_GROUP),
)
PATCH = "kubernetes:apps/v1:DaemonSetPatch"
FIRST_ADD_ONS = ("vpc-cni", "kube-proxy", "eks-pod-identity-agent")  # machines need them from their start to their end


@pytest.fixture(scope="module")
def destroyed() -> Destroyed:
    return destroyed_stack(CASE.cloud)


def test_machines_for_jobs_go_before_the_manager(destroyed: Destroyed) -> None:
    assert destroyed.before(destroyed.of(NODE_GROUP, without=("::manager",)), destroyed.of(NODE_GROUP, only=("::manager",)))


def test_machines_lose_their_network_plugin_last(destroyed: Destroyed) -> None:
    assert destroyed.before(destroyed.of(NODE_GROUP), destroyed.of(ADD_ON, only=FIRST_ADD_ONS))


def test_add_ons_that_run_on_the_manager_go_before_it(destroyed: Destroyed) -> None:
    assert destroyed.before(destroyed.of(ADD_ON, without=FIRST_ADD_ONS), destroyed.of(NODE_GROUP, only=("::manager",)))


def test_only_the_control_plane_is_made_by_a_component_of_others(destroyed: Destroyed) -> None:
    eks = [one["urn"] for one in destroyed.made.values() if "$eks:index:Cluster$" in one["urn"]]
    assert sorted(type_of(urn) for urn in eks) == [EKS, "pulumi:providers:kubernetes"]


def test_karpenter_comes_up_once_and_goes_after_its_machines() -> None:
    values = CASE.values((("ebb:aws", "autoscaler"), {"kind": "karpenter"}))
    groups = sum(len(line.get("zones") or CASE.zones) for line in values["ebb:nodeGroups"])
    with Stack("dev", values) as stack:
        first = stack.preview()
        assert set(first.changes.values()) == {"create"}
        stack.up()
        assert stack.up().changes == {}
        made = Counter(one["type"] for one in stack.resources().values())
        assert {kind: made[kind] for kind in KARPENTERS} == dict.fromkeys((*KARPENTERS[:4], NODE_GROUP), 1) | {
            RELEASE: 2, NODE_CLASS: groups, NODE_POOL: groups,
        }  # fmt: skip
        upgraded = CASE.values((("ebb:aws", "autoscaler"), {"kind": "karpenter", "version": "1.14.2"}))
        stack.configure(upgraded)
        assert {type_of(urn): done for urn, done in stack.preview().changes.items()} == {RELEASE: "update"}
        run = stack.destroy()
        assert stack.resources() == {}
    order = [type_of(urn) for urn in run.finished("delete")]
    last = {kind: max(at for at, one in enumerate(order) if one == kind) for kind in KARPENTERS}
    first_of = {kind: order.index(kind) for kind in KARPENTERS}
    assert last[NODE_POOL] < first_of[RELEASE], "it ends the machines"
    assert all(last[RELEASE] < first_of[kind] for kind in (*KARPENTERS[:4], NODE_GROUP))


@pytest.fixture(scope="module")
def upgraded() -> Iterator[tuple[Stack, Run]]:
    """A stack whose Kubernetes was older, and the update."""
    values = CASE.values()
    older = {**values, "ebb:aws": json.loads(json.dumps(values["ebb:aws"]).replace("1.35", "1.34"))}
    with Stack("dev", older) as stack:
        stack.up()
        stack.configure(values)
        yield stack, stack.up()


def test_an_upgrade_of_kubernetes_goes_in_the_order_that_the_versions_need(upgraded: tuple[Stack, Run]) -> None:
    """No machine may be newer than its control plane, and no autoscaler before its machines. Nothing is replaced."""
    values, run = CASE.values(), upgraded[1]
    assert set(run.changes.values()) == {"update"}, run.changes
    order = run.finished("update")

    def at(kind: str, name: str = "") -> list[int]:
        found = [place for place, urn in enumerate(order) if type_of(urn) == kind and urn.endswith(name)]
        assert found, f"{kind} {name}: {order}"
        return found

    control, proxy, machines = at(EKS), at(ADD_ON, "kube-proxy"), at(NODE_GROUP)
    scaler = at("kubernetes:apps/v1:Deployment", "cluster-autoscaler")
    assert len(machines) == 1 + sum(len(line.get("zones") or CASE.zones) for line in values["ebb:nodeGroups"])
    assert max(control) < min(proxy) <= max(proxy) < min(machines) <= max(machines) < min(scaler), order


def test_up_says_what_to_do_with_a_group_that_eks_does_not_update(upgraded: tuple[Stack, Run]) -> None:
    """It became degraded in a spot drought, and EKS's words say neither why nor what to do."""
    values, stack = CASE.values(), upgraded[0]
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
        assert [one["id"] for one in made if one["type"] == PATCH] == ["kube-system/fsx-csi-node"]
        assert stack.up().changes == {}
        run = stack.destroy()
        order = [type_of(urn) for urn in run.finished("delete")]
        assert order.index(FSX) < order.index(SUBNET)
        [driver] = [one for one in run.finished("delete") if type_of(one) == ADD_ON and one.endswith("aws-fsx-csi-driver")]
        assert order.index(PATCH) < run.finished("delete").index(driver)
        assert stack.resources() == {}
