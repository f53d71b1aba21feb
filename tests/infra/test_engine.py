"""The AWS stack on the real Pulumi engine, against the echo of AWS: what a changed setting changes, in which order all goes.

Each property has a test of its own. One stack comes up for all; what a change would do is read from a preview of it.
"""

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from local.echo.engine import EngineError, Stack
from local.echo.run import Run, name_of, type_of
from local.settings import CHECKOUT

pytestmark = pytest.mark.e2e
Settings = dict[str, Any]

NODE_GROUP, SUBNET = "aws:eks/nodeGroup:NodeGroup", "aws:ec2/subnet:Subnet"
FILE_SYSTEM, MOUNT_TARGET = "aws:efs/fileSystem:FileSystem", "aws:efs/mountTarget:MountTarget"
EKS, VPC, CRD = "aws:eks/cluster:Cluster", "aws:ec2/vpc:Vpc", "kubernetes:apiextensions.k8s.io/v1:CustomResourceDefinition"
CLAIM, PV = "kubernetes:core/v1:PersistentVolumeClaim", "kubernetes:core/v1:PersistentVolume"
STATEFUL_SET = "kubernetes:apps/v1:StatefulSet"
ADD_ON, NAMESPACE = "aws:eks/addon:Addon", "kubernetes:core/v1:Namespace"
JOB = "kubernetes:elastic.pytorch.org/v1alpha1:ElasticJob"
FIRST_ADD_ONS = ("vpc-cni", "kube-proxy", "eks-pod-identity-agent")  # machines need them from their start to their end


def dev() -> Settings:
    """Pulumi.dev.yaml, with a name on its spot groups: so a changed capacity type is not another name."""
    settings: Settings = yaml.safe_load((CHECKOUT / "Pulumi.dev.yaml").read_text())["config"]
    settings["ebb:nodeGroups"][0]["name"] = "t4"
    return settings


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    with Stack("dev", dev()) as stack:
        created = stack.up()
        assert set(created.changes.values()) == {"create"}
        yield stack


def planned(stack: Stack, settings: Settings) -> Run:
    stack.configure(settings)
    try:
        return stack.preview()
    finally:
        stack.configure(dev())


def names(run: Run, operation: str) -> list[str]:
    return sorted(name_of(urn) for urn, done in run.changes.items() if done == operation)


def test_up_creates_everything_once_and_a_second_up_nothing(stack: Stack) -> None:
    again = stack.up()
    assert again.changes == {}
    assert len(again.same) > 150


def test_refresh_changes_nothing(stack: Stack) -> None:
    assert stack.refresh().changes == {}


def test_one_groups_max_updates_that_group_and_the_facts(stack: Stack) -> None:
    settings = dev()
    settings["ebb:nodeGroups"][1]["max"] += 1
    run = planned(stack, settings)
    assert set(run.changes.values()) == {"update"}
    assert names(run, "update") == ["ebb-platform", "on-demand-t4-us-west-2a"]
    assert run.step("on-demand-t4-us-west-2a").diff == {"scalingConfig.maxSize": "update"}


def test_a_further_zone_deletes_and_replaces_nothing(stack: Stack) -> None:
    settings = dev()
    settings["ebb:zones"].append("us-west-2d")
    run = planned(stack, settings)
    assert set(run.changes.values()) == {"create", "update"}
    assert names(run, "update") == ["cluster-autoscaler-priority-expander", "ebb-dev-s3", "ebb-platform"]
    created = {type_of(urn) for urn, done in run.changes.items() if done == "create"}
    assert {NODE_GROUP, SUBNET, MOUNT_TARGET} <= created


def test_another_capacity_type_replaces_its_node_groups_alone(stack: Stack) -> None:
    settings = dev()
    settings["ebb:nodeGroups"][0]["capacity"] = "on-demand"
    run = planned(stack, settings)
    replaced = [urn for urn, done in run.changes.items() if done == "replace" and type_of(urn) == NODE_GROUP]
    assert sorted(map(name_of, replaced)) == ["t4-us-west-2a", "t4-us-west-2b", "t4-us-west-2c"]
    assert run.step("t4-us-west-2a").diff["capacityType"] == "update-replace"
    assert "on-demand-t4-us-west-2a" not in {name_of(urn) for urn in run.changes}


def test_another_cidr_replaces_its_network_and_says_so_first(stack: Stack) -> None:
    settings = dev()
    settings["ebb:aws"]["network"]["cidr"] = "10.80.0.0/16"
    run = planned(stack, settings)
    replaced = {type_of(urn) for urn, done in run.changes.items() if done == "replace"}
    assert {VPC, SUBNET} <= replaced
    assert run.step("ebb-dev-private-us-west-2a").diff["cidrBlock"] == "update-replace"


def test_what_a_job_was_scaled_to_is_left_alone(stack: Stack) -> None:
    [job] = [one for one in stack.resources().values() if one["type"] == JOB]
    manifest = yaml.safe_load((CHECKOUT / "workloads/jobs/tiny-imagenet.yaml").read_text())
    assert job["inputs"]["spec"]["replicaSpecs"]["Worker"]["replicas"] == manifest["spec"]["replicaSpecs"]["Worker"]["replicas"]
    changed = copy.deepcopy(manifest)
    changed["spec"]["replicaSpecs"]["Worker"]["replicas"] += 1
    changed["spec"]["suspend"] = True
    settings = dev() | {"ebb:jobs": [changed]}
    assert planned(stack, settings).changes == {}


def test_every_resource_of_the_account_has_the_stacks_provider(stack: Stack) -> None:
    providers = {one["provider"] for one in stack.resources().values() if one["type"].startswith("aws:")}
    assert [name_of(reference.rpartition("::")[0]) for reference in providers] == ["aws"]


def test_only_the_control_plane_is_made_by_a_component_of_others(stack: Stack) -> None:
    eks = [one["urn"] for one in stack.resources().values() if "$eks:index:Cluster$" in one["urn"]]
    assert sorted(type_of(urn) for urn in eks) == [EKS, "pulumi:providers:kubernetes"]


class Destroyed:
    """One stack up and down: when each deletion ended and began, and what the plugins were asked to delete."""

    def __init__(self) -> None:
        with Stack("dev", dev()) as stack:
            stack.up()
            run = stack.destroy()
            self.left = stack.resources()
            self.asked = {str(call["urn"]) for call in stack.calls() if call["method"] == "Delete"}
        self._ended = {urn: at for at, urn in enumerate(run.finished("delete"))}
        self._order = self._positions(run)

    def _positions(self, run: Run) -> dict[str, tuple[int, int]]:
        began = {urn: at for at, urn in enumerate(run.started("delete"))}
        return {urn: (began[urn], self._ended[urn]) for urn in began}

    def of(self, kind: str, *, without: tuple[str, ...] = (), only: tuple[str, ...] = ()) -> list[str]:
        found = [urn for urn in self._order if type_of(urn) == kind]
        chosen = [urn for urn in found if not urn.endswith(without or ("\0",)) and (not only or urn.endswith(only))]
        assert chosen, f"nothing of {kind} was deleted"
        return chosen

    def before(self, first: list[str], then: list[str]) -> bool:
        """Whether all of `first` have ended before any of `then`."""
        return max(self._ended[urn] for urn in first) < min(self._ended[urn] for urn in then)


@pytest.fixture(scope="module")
def destroyed() -> Destroyed:
    return Destroyed()


@pytest.mark.parametrize(
    ("first", "then"),
    [
        pytest.param((JOB,), (CRD,), id="the stack's jobs before the kind"),
        pytest.param((CRD,), (CLAIM,), id="the kind, and with it every job, before the claims"),
        pytest.param((CLAIM,), (PV,), id="claims before volumes"),
        pytest.param((NAMESPACE,), (NODE_GROUP,), id="namespaces while their pods have machines to end on"),
        pytest.param((PV,), (MOUNT_TARGET,), id="volumes before the file system's interfaces"),
        pytest.param((NODE_GROUP,), (EKS,), id="machines before the control plane"),
        pytest.param((MOUNT_TARGET,), (SUBNET,), id="the file system's interfaces before the subnets"),
        pytest.param((EKS,), (SUBNET,), id="the control plane before the subnets"),
        pytest.param((SUBNET,), (VPC,), id="subnets before the network"),
    ],
)
def test_destroy_goes_in_this_order(destroyed: Destroyed, first: tuple[str], then: tuple[str]) -> None:
    assert destroyed.before(destroyed.of(*first), destroyed.of(*then))


def test_etcd_is_there_until_no_worker_holds_a_claim(destroyed: Destroyed) -> None:
    """Without it a worker that is told to end could write its checkpoint, but not commit it."""
    assert destroyed.before(destroyed.of(CLAIM, without=("::claim-etcd-data",)), destroyed.of(STATEFUL_SET))


def test_machines_lose_their_network_plugin_last(destroyed: Destroyed) -> None:
    assert destroyed.before(destroyed.of(NODE_GROUP), destroyed.of(ADD_ON, only=FIRST_ADD_ONS))


def test_add_ons_that_run_on_the_manager_go_before_it(destroyed: Destroyed) -> None:
    assert destroyed.before(destroyed.of(ADD_ON, without=FIRST_ADD_ONS), destroyed.of(NODE_GROUP, only=("::manager",)))


def test_destroy_leaves_no_resource_in_the_stack(destroyed: Destroyed) -> None:
    assert destroyed.left == {}


def test_destroy_keeps_the_data_by_default(destroyed: Destroyed) -> None:
    kept = destroyed.of(FILE_SYSTEM)
    assert not set(kept) & destroyed.asked, "EFS was asked to delete it"
    assert set(destroyed.of(MOUNT_TARGET)) <= destroyed.asked, "it would hold the network"


def test_destroy_deletes_the_data_where_the_stack_says_so() -> None:
    settings = dev()
    settings["ebb:aws"]["storage"]["data"] = "delete"
    with Stack("dev", settings) as stack:
        stack.up()
        stack.destroy()
        assert [call["urn"] for call in stack.calls() if call["method"] == "Delete" and call["type"] == FILE_SYSTEM]


def test_protected_data_stops_a_destroy_before_anything_is_deleted() -> None:
    settings = dev()
    settings["ebb:aws"]["storage"]["data"] = "protect"
    with Stack("dev", settings) as stack:
        stack.up()
        before = set(stack.resources())
        with pytest.raises(EngineError, match="protect"):
            stack.destroy(looking_first=True)
        assert set(stack.resources()) == before
        assert not [call for call in stack.calls() if call["method"] == "Delete"]
        settings["ebb:aws"]["storage"]["data"] = "keep"  # as docs/aws.md says it: released by an `up`
        stack.configure(settings)
        stack.up()
        stack.destroy()
        assert stack.resources() == {}


def test_a_wrong_setting_is_said_before_any_resource_is_declared() -> None:
    settings = dev()
    settings["ebb:aws"]["cluster"]["publicAccessCidrs"] = []
    with Stack("dev", settings) as stack:
        with pytest.raises(EngineError, match="publicAccessCidrs"):
            stack.up()
        assert not [call for call in stack.calls() if call["method"] == "Create"]


def test_the_large_stack_comes_up_and_goes() -> None:
    with Stack("imagenet", CHECKOUT / "Pulumi.imagenet.yaml") as stack:
        stack.up()
        made = stack.resources().values()
        assert len([one for one in made if one["type"] == "aws:fsx/lustreFileSystem:LustreFileSystem"]) == 1
        assert len([one for one in made if one["type"] == JOB]) == 2
        run = stack.destroy()
        order = [type_of(urn) for urn in run.finished("delete")]
        assert order.index("aws:fsx/lustreFileSystem:LustreFileSystem") < order.index(SUBNET)
        assert stack.resources() == {}
