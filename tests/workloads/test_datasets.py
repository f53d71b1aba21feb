"""The Jobs that put data sets on the data volume: from where, with whose credentials, and on which machines."""

from dataclasses import replace
from typing import Any

import pytest

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


def test_without_cheap_machines_the_managers_prepares(world: Declared) -> None:
    assert pod(world, "ilsvrc")["nodeSelector"] == {"ebb.dev/node-group": "manager"}
    assert "affinity" not in pod(world, "ilsvrc")
    for group in ({**CPU, "capacity": "on-demand"}, {**CPU, "max": 0}):
        assert "affinity" not in pod(prepared(ZIP, groups=(group,)), "birds"), group


def test_spot_machines_without_gpus_prepare_where_the_stack_has_some() -> None:
    found = prepared(ZIP, groups=(CPU,))
    terms = [
        {"matchExpressions": [{"key": "ebb.dev/node-group", "operator": "In", "values": [f"cpu-{zone}"]}]}
        for zone in ("north-a", "north-b")
    ]
    affinity = pod(found, "birds")["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert affinity == {"nodeSelectorTerms": terms}, "in any of the zones"
    assert pod(found, "birds")["nodeSelector"] == {}
    tolerated = [{"key": "ebb.dev/capacity-type", "value": "spot", "effect": "NoSchedule", "operator": "Equal"}]
    assert pod(found, "birds")["tolerations"] == tolerated
    needs = {key.split("::")[1] for key in found.before(found.one("Job", "dataset-birds"))}
    assert {"machines-cpu-north-a", "machines-cpu-north-b"} <= needs


def test_a_volume_of_one_zone_is_filled_from_there(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = Elsewhere.storage

    def zoned(self: Elsewhere, cluster: Cluster, add_ons: Any) -> Any:
        made = usual(self, cluster, add_ons)
        return replace(made, jobs=tuple(replace(one, zone="north-b") if one.name == "data" else one for one in made.jobs))

    monkeypatch.setattr(Elsewhere, "storage", zoned)
    assert "cpu-north-a" not in str(pod(prepared(ZIP, groups=(CPU,)), "birds")["affinity"])
    only_a = {**CPU, "zones": ["north-a"]}
    assert pod(prepared(ZIP, groups=(only_a,)), "birds")["nodeSelector"] == {"ebb.dev/node-group": "manager"}
