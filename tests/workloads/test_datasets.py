"""The Jobs that put data sets on the data volume: from where, with whose credentials, and on which machines."""

from dataclasses import replace
from typing import Any

import pytest

from devcluster.cloud import records
from devcluster.cloud.records import NodeGroupObject, Taint
from devcluster.cloud.scaling import World, decide
from ebb.api.contract import EXIT_COPY_REFUSED
from ebb.client.secrets.uses import KEY, object_name, usual_variable
from tests.infra.declared import Declared
from tests.pod_security import violations
from tests.workloads.world import SETTINGS, Elsewhere, Object, stack
from workloads.cluster import Cluster, CopyIdentity
from workloads.datasets import SECRET_KEY

KEYS = ["aws-access-key-id", "aws-secret-access-key"]
IMAGENET = {"name": "ilsvrc", "kind": "imagenet", "url": "s3://our-data/ilsvrc", "secrets": KEYS}
ZIP = {"name": "birds", "url": "gs://our-data/birds.zip", "sha256": "ab" * 32, "environment": {"GOOGLE_SKIP_SIGNATURE": "true"}}
CPU = {"instanceTypes": ["plain"], "capacity": "spot", "max": 2, "name": "cpu"}
DEAR = {"instanceTypes": ["plain"], "capacity": "on-demand", "zones": ["north-b"], "max": 1, "name": "dear"}
NOW = 1000.0


def prepared(*listed: Object, groups: tuple[Object, ...] = ()) -> Declared:
    return stack(digits=False, datasets=list(listed), jobs=[], nodeGroups=[*SETTINGS["nodeGroups"], *groups])


def spec(world: Declared, name: str) -> Any:
    return world.one("Job", f"dataset-{name}").inputs["spec"]


def pod(world: Declared, name: str) -> Any:
    return spec(world, name)["template"]["spec"]


@pytest.fixture(scope="module")
def world() -> Declared:
    return prepared(IMAGENET, ZIP)


def test_archives_in_a_bucket_are_copied_before_they_are_unpacked(world: Declared) -> None:
    (copy,) = pod(world, "ilsvrc")["initContainers"]
    source = "/mnt/data/.preparing-ilsvrc/source"
    assert copy["command"][-5:] == ["ebb.buckets", "s3://our-data/ilsvrc", source, "--unless", "/mnt/data/ilsvrc"]
    assert copy["image"] == "example.org/controller@sha256:3"
    (container,) = pod(world, "ilsvrc")["containers"]
    arguments = ["/mnt/data/ilsvrc", "--url", "s3://our-data/ilsvrc", "--kind", "imagenet"]
    assert container["command"][-6:] == ["trainer.datasets", *arguments]
    assert [one["mountPath"] for one in copy["volumeMounts"]] == ["/mnt/data"]
    assert violations(pod(world, "ilsvrc")) == []


def test_credentials_are_those_of_secrets_and_go_to_the_copy_alone(world: Declared) -> None:
    (copy,) = pod(world, "ilsvrc")["initContainers"]
    refs = [{"secretKeyRef": {"name": object_name(name), "key": KEY}} for name in KEYS]
    assert copy["env"] == [{"name": usual_variable(name), "valueFrom": ref} for name, ref in zip(KEYS, refs, strict=True)]
    assert [one["name"] for one in pod(world, "ilsvrc")["containers"][0]["env"]] == ["TMPDIR"]
    assert pod(world, "birds")["initContainers"][0]["env"] == [{"name": "GOOGLE_SKIP_SIGNATURE", "value": "true"}]
    assert SECRET_KEY == KEY
    assert "serviceAccountName" not in pod(world, "birds")


def test_the_clouds_identity_is_that_of_copies_of_buckets(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = Elsewhere.storage
    identity = CopyIdentity(
        buckets={"ilsvrc": "s3://our-data"}, environment={"AWS_REGION": "north"}, addresses=[("169.254.170.23/32", 80)]
    )

    def with_buckets(self: Elsewhere, cluster: Cluster, add_ons: Any) -> Any:
        return replace(usual(self, cluster, add_ons), copies=identity)

    monkeypatch.setattr(Elsewhere, "storage", with_buckets)
    found = prepared({**IMAGENET, "secrets": [], "environment": {"AWS_REGION": "south"}})
    assert pod(found, "ilsvrc")["serviceAccountName"] == "ebb-copy"
    assert pod(found, "ilsvrc")["initContainers"][0]["env"] == [{"name": "AWS_REGION", "value": "south"}]
    assert "ebb.dev/copy" in spec(found, "ilsvrc")["template"]["metadata"]["labels"], "the way to the credentials is open by it"
    needs = {key.split("::")[1] for key in found.before(found.one("Job", "dataset-ilsvrc"))}
    assert {"ebb-copy", "network-policy-copies", "prepare-storage"} <= needs


def test_what_a_person_has_to_do_ends_the_job_and_a_reclaim_does_not_count(world: Declared) -> None:
    refused = {"containerName": "copy", "operator": "In", "values": [EXIT_COPY_REFUSED]}
    reclaimed = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    assert spec(world, "ilsvrc")["podFailurePolicy"]["rules"] == [{"action": "FailJob", "onExitCodes": refused}, reclaimed]
    assert spec(prepared(*SETTINGS["datasets"]), "birds")["podFailurePolicy"]["rules"] == [reclaimed]


@pytest.mark.parametrize(
    "groups",
    [
        pytest.param((), id="none"),
        pytest.param((CPU,), id="spot alone may be sold out"),
        pytest.param((DEAR,), id="on-demand alone"),
        pytest.param(({**CPU, "max": 0}, DEAR), id="no spot machine allowed"),
        pytest.param((CPU, {**DEAR, "max": 0}), id="no on-demand machine allowed"),
    ],
)
def test_without_spot_and_on_demand_machines_the_managers_prepares(groups: tuple[Object, ...]) -> None:
    found = pod(prepared(ZIP, groups=groups), "birds")
    assert found["nodeSelector"] == {"ebb.dev/node-group": "manager"}
    assert "affinity" not in found


@pytest.fixture(scope="module")
def both() -> Declared:
    return prepared(ZIP, groups=(CPU, DEAR))


def test_machines_without_gpus_prepare_where_the_stack_has_spot_and_on_demand_ones(both: Declared) -> None:
    names = ["cpu-north-a", "cpu-north-b", "dear-north-b"]
    terms = [{"matchExpressions": [{"key": "ebb.dev/node-group", "operator": "In", "values": [name]}]} for name in names]
    affinity = pod(both, "birds")["affinity"]["nodeAffinity"]
    assert affinity["requiredDuringSchedulingIgnoredDuringExecution"] == {"nodeSelectorTerms": terms}, "in any of the zones"
    (preferred,) = affinity["preferredDuringSchedulingIgnoredDuringExecution"]
    spot = {"key": "ebb.dev/capacity-type", "operator": "In", "values": ["spot"]}
    assert preferred == {"weight": 100, "preference": {"matchExpressions": [spot]}}
    assert pod(both, "birds")["nodeSelector"] == {}
    tolerated = [{"key": "ebb.dev/capacity-type", "value": "spot", "effect": "NoSchedule", "operator": "Equal"}]
    assert pod(both, "birds")["tolerations"] == tolerated
    needs = {key.split("::")[1] for key in both.before(both.one("Job", "dataset-birds"))}
    assert {f"machines-{name}" for name in names} <= needs


def group(name: str, zone: str, usd_per_hour: float, **changes: Any) -> NodeGroupObject:
    labels = {"ebb.dev/node-group": name}
    return NodeGroupObject(name=name, zone=zone, usd_per_hour=usd_per_hour, labels=labels, **changes)


def test_a_stockout_of_spot_sends_the_job_to_an_on_demand_machine(both: Declared) -> None:
    """By the devcluster's autoscaler, which chooses as cluster-autoscaler does: the cheapest group that gives machines."""
    unschedulable = {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]}
    waiting = records.pod({"metadata": {"name": "birds"}, "spec": pod(both, "birds"), "status": unschedulable})
    taints = (Taint("ebb.dev/capacity-type", "spot", "NoSchedule"),)
    spot = [group(f"cpu-{zone}", zone, 0.04, capacity_type="spot", taints=taints) for zone in ("north-a", "north-b")]
    # The manager's group could have another machine, and a cheaper one.
    groups = (*spot, group("dear-north-b", "north-b", 0.1), group("manager", "north-a", 0.01))

    def booted(**stockout: Any) -> tuple[tuple[str, int], ...]:
        return decide(World(groups=groups, pods=(waiting,), now=NOW, **stockout)).boot

    assert booted() == (("cpu-north-a", 1),)
    assert booted(exhausted=frozenset({"north-a"})) == (("cpu-north-b", 1),)
    assert booted(backoff={one.name: NOW + 60 for one in spot}) == (("dear-north-b", 1),)


def test_a_volume_of_one_zone_is_filled_from_there(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = Elsewhere.storage

    def zoned(self: Elsewhere, cluster: Cluster, add_ons: Any) -> Any:
        made = usual(self, cluster, add_ons)
        return replace(made, jobs=tuple(replace(one, zone="north-b") if one.name == "data" else one for one in made.jobs))

    monkeypatch.setattr(Elsewhere, "storage", zoned)
    assert "cpu-north-a" not in str(pod(prepared(ZIP, groups=(CPU, DEAR)), "birds")["affinity"])
    only_a = {**CPU, "zones": ["north-a"]}
    assert pod(prepared(ZIP, groups=(only_a, DEAR)), "birds")["nodeSelector"] == {"ebb.dev/node-group": "manager"}


def test_folders_that_come_from_a_bucket_are_loaded_before_the_stacks_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = Elsewhere.storage

    def linked(self: Elsewhere, cluster: Cluster, add_ons: Any) -> Any:
        made = usual(self, cluster, add_ons)
        folders = ("ILSVRC/train", "ILSVRC/val")
        return replace(
            made, jobs=tuple(replace(one, zone="north-b", preload=folders) if one.name == "data" else one for one in made.jobs)
        )

    monkeypatch.setattr(Elsewhere, "storage", linked)
    found = stack(digits=False, datasets=[], nodeGroups=[*SETTINGS["nodeGroups"], CPU, DEAR])
    first, second = (found.one("Job", f"load-data-{number}").inputs["spec"] for number in (1, 2))
    (container,) = first["template"]["spec"]["containers"]
    assert container["command"][-2:] == ["ebb.buckets.preload", "/mnt/data/ILSVRC/train"]
    assert second["template"]["spec"]["containers"][0]["command"][-1] == "/mnt/data/ILSVRC/val"
    assert container["image"] == "example.org/controller@sha256:3"
    assert violations(first["template"]["spec"]) == []
    refused = {"containerName": "load", "operator": "In", "values": [EXIT_COPY_REFUSED]}
    assert first["podFailurePolicy"]["rules"][0] == {"action": "FailJob", "onExitCodes": refused}
    assert "cpu-north-b" in str(first["template"]["spec"]["affinity"]), "on machines of its zone"
    assert "cpu-north-a" not in str(first["template"]["spec"]["affinity"])
    for job in found.all("ElasticJob"):
        needs = {key.split("::")[1] for key in found.before(job)}
        assert {"load-data-1", "load-data-2"} <= needs
    assert found.all("ElasticJob")
