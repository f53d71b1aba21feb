"""The stacks on the real Pulumi engine, against mocks of their clouds: what a changed setting changes, in which order all goes.

Each property has a test of its own, over all clouds. One stack of each cloud comes up for all; what a change would do is read
from a preview of it. What one cloud alone has is in tests/infra/<cloud>/test_engine.py.
"""

import copy
from collections.abc import Iterator
from functools import cache

import pytest
import yaml

from devcluster.settings import CHECKOUT
from testing.pulumi.mocks.engine import EngineError, Stack
from testing.pulumi.mocks.run import Run, name_of, type_of
from tests.infra.cases import CASES, Case, Values

pytestmark = pytest.mark.e2e

CRD, NAMESPACE = "kubernetes:apiextensions.k8s.io/v1:CustomResourceDefinition", "kubernetes:core/v1:Namespace"
CLAIM, PV = "kubernetes:core/v1:PersistentVolumeClaim", "kubernetes:core/v1:PersistentVolume"
STATEFUL_SET = "kubernetes:apps/v1:StatefulSet"
JOB = "kubernetes:elastic.pytorch.org/v1alpha1:ElasticJob"


@pytest.fixture(scope="module", params=CASES, ids=str)
def case(request: pytest.FixtureRequest) -> Case:
    found: Case = request.param
    return found


@pytest.fixture(scope="module")
def stack(case: Case) -> Iterator[Stack]:
    with Stack(case.stack, case.values()) as stack:
        created = stack.up()
        assert set(created.changes.values()) == {"create"}
        yield stack


def planned(case: Case, stack: Stack, settings: Values) -> Run:
    stack.configure(settings)
    try:
        return stack.preview()
    finally:
        stack.configure(case.values())


def names(run: Run, operation: str) -> list[str]:
    return sorted(name_of(urn) for urn, done in run.changes.items() if done == operation)


def test_up_creates_everything_once_and_a_second_up_nothing(case: Case, stack: Stack) -> None:
    again = stack.up()
    assert again.changes == {}
    assert len(again.same) > case.least


def test_refresh_changes_nothing(stack: Stack) -> None:
    assert stack.refresh().changes == {}


def test_one_groups_max_updates_that_group_and_the_facts(case: Case, stack: Stack) -> None:
    settings, group = case.values(), f"on-demand-t4-{case.zones[0]}"
    settings["ebb:nodeGroups"][1]["max"] += 1
    run = planned(case, stack, settings)
    assert set(run.changes.values()) == {"update"}
    assert names(run, "update") == ["ebb-platform", group]
    assert run.step(group).diff == {case.max_key: "update"}


def test_a_further_zone_deletes_and_replaces_nothing(case: Case, stack: Stack) -> None:
    run = planned(case, stack, case.values((("ebb:zones",), [*case.zones, case.further_zone])))
    assert set(run.changes.values()) == {"create", "update"}
    assert tuple(names(run, "update")) == case.further_updates
    created = {type_of(urn) for urn, done in run.changes.items() if done == "create"}
    assert case.further_creates <= created


def test_another_capacity_type_replaces_its_node_groups_alone(case: Case, stack: Stack) -> None:
    run = planned(case, stack, case.values((("ebb:nodeGroups", 0, "capacity"), "on-demand")))  # type: ignore[arg-type]
    replaced = [urn for urn, done in run.changes.items() if done == "replace" and type_of(urn) == case.node_group]
    assert sorted(map(name_of, replaced)) == [f"t4-{zone}" for zone in case.zones]
    assert run.step(f"t4-{case.zones[0]}").diff[case.bought_key].endswith("-replace")
    assert f"on-demand-t4-{case.zones[0]}" not in {name_of(urn) for urn in run.changes}


def test_another_cidr_replaces_its_network_and_says_so_first(case: Case, stack: Stack) -> None:
    run = planned(case, stack, case.values(case.cidr))
    replaced = {type_of(urn) for urn, done in run.changes.items() if done == "replace"}
    assert case.cidr_replaces <= replaced


def test_what_a_job_was_scaled_to_is_left_alone(case: Case, stack: Stack) -> None:
    [job] = [one for one in stack.resources().values() if one["type"] == JOB]
    manifest = yaml.safe_load((CHECKOUT / "workloads/jobs/tiny-imagenet.yaml").read_text())
    assert job["inputs"]["spec"]["replicaSpecs"]["Worker"]["replicas"] == manifest["spec"]["replicaSpecs"]["Worker"]["replicas"]
    changed = copy.deepcopy(manifest)
    changed["spec"]["replicaSpecs"]["Worker"]["replicas"] += 1
    changed["spec"]["suspend"] = True
    assert planned(case, stack, case.values((("ebb:jobs",), [changed]))).changes == {}


def test_every_resource_of_the_account_has_the_stacks_provider(case: Case, stack: Stack) -> None:
    providers = {one["provider"] for one in stack.resources().values() if one["type"].startswith(f"{case.package}:")}
    assert [name_of(reference.rpartition("::")[0]) for reference in providers] == [case.provider]


class Destroyed:
    """One stack up and down: what was made, when each deletion ended, and what the plugins were asked to delete.

    Its data is protected at first: `refusal` is what a destroy says then, `spared` and `touched` what it leaves and deletes.
    """

    def __init__(self, case: Case) -> None:
        self.refusal = ""
        with Stack(case.stack, case.values((case.data, "protect"))) as stack:
            stack.up()
            self.made = stack.resources()
            try:
                stack.destroy(with_preview=True)
            except EngineError as error:
                self.refusal = str(error)
            self.spared, self.touched = set(stack.resources()), deletions(stack)
            stack.configure(case.values((case.data, "keep")))  # as the cloud's page in docs/ says it: released by an `up`
            stack.up()
            run = stack.destroy()
            self.left = stack.resources()
            self.asked = deletions(stack)
        self._ended = {urn: at for at, urn in enumerate(run.finished("delete"))}

    def of(self, kind: str, *, without: tuple[str, ...] = (), only: tuple[str, ...] = ()) -> list[str]:
        found = [urn for urn in self._ended if type_of(urn) == kind]
        chosen = [urn for urn in found if not urn.endswith(without or ("\0",)) and (not only or urn.endswith(only))]
        assert chosen, f"nothing of {kind} was deleted"
        return chosen

    def before(self, first: list[str], then: list[str]) -> bool:
        """Whether all of `first` have ended before any of `then`."""
        return max(self._ended[urn] for urn in first) < min(self._ended[urn] for urn in then)


def deletions(stack: Stack) -> set[str]:
    """The resources that a plugin was asked to delete so far."""
    return {str(call["urn"]) for call in stack.calls() if call["method"] == "Delete"}


@cache
def destroyed_stack(cloud: str) -> Destroyed:
    """One of each cloud for all tests of a process."""
    [case] = [one for one in CASES if one.cloud == cloud]
    return Destroyed(case)


@pytest.fixture(scope="module")
def destroyed(case: Case) -> Destroyed:
    return destroyed_stack(case.cloud)


@pytest.mark.parametrize(
    ("first", "then"),
    [
        pytest.param(JOB, CRD, id="the stack's jobs before the kind"),
        pytest.param(CRD, CLAIM, id="the kind, and with it every job, before the claims"),
        pytest.param(CLAIM, PV, id="claims before volumes"),
        pytest.param(NAMESPACE, "node_group", id="namespaces while their pods have machines to end on"),
        pytest.param(PV, "mounts", id="volumes before what their mounts need"),
        pytest.param(PV, "file_system", id="volumes before the file system"),
        pytest.param("node_group", "control_plane", id="machines before the control plane"),
        pytest.param("control_plane", "subnet", id="the control plane before the subnets"),
        pytest.param("subnet", "network", id="subnets before the network"),
    ],
)
def test_destroy_goes_in_this_order(case: Case, destroyed: Destroyed, first: str, then: str) -> None:
    """Names without a colon are the cloud's own types."""
    kinds = [one if ":" in one else str(getattr(case, one)) for one in (first, then)]
    if not all(kinds):
        pytest.skip(f"{case} has no such thing")
    assert destroyed.before(destroyed.of(kinds[0]), destroyed.of(kinds[1]))


def test_destroy_goes_in_the_clouds_own_order(case: Case, destroyed: Destroyed) -> None:
    for first, then in case.later:
        assert destroyed.before(destroyed.of(first), destroyed.of(then)), (first, then)


def test_etcd_is_there_until_no_worker_holds_a_claim(destroyed: Destroyed) -> None:
    """Without it a worker that is told to end could write its checkpoint, but not commit it."""
    assert destroyed.before(destroyed.of(CLAIM, without=("::claim-etcd-data",)), destroyed.of(STATEFUL_SET))


def test_destroy_leaves_no_resource_in_the_stack(destroyed: Destroyed) -> None:
    assert destroyed.left == {}


def test_destroy_keeps_the_data_by_default(case: Case, destroyed: Destroyed) -> None:
    kept = destroyed.of(case.file_system)
    assert not set(kept) & destroyed.asked, "the cloud was asked to delete it"
    if case.mounts:
        assert set(destroyed.of(case.mounts)) <= destroyed.asked, "it would hold the network"


def test_destroy_deletes_the_data_where_the_stack_says_so(case: Case) -> None:
    with Stack(case.stack, case.values((case.data, "delete"))) as stack:
        stack.up()
        stack.destroy()
        asked = {call["type"] for call in stack.calls() if call["method"] == "Delete"}
        assert {case.file_system, case.network} <= asked


def test_protected_data_stops_a_destroy_before_anything_is_deleted(destroyed: Destroyed) -> None:
    assert "protect" in destroyed.refusal
    assert destroyed.spared == set(destroyed.made)
    assert destroyed.touched == set()


def test_a_wrong_setting_is_said_before_any_resource_is_declared(case: Case) -> None:
    path, value, said = case.wrong
    with Stack(case.stack, case.values((path, value))) as stack:
        with pytest.raises(EngineError, match=said):
            stack.up()
        assert not [call for call in stack.calls() if call["method"] == "Create"]
