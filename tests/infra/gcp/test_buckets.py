"""Buckets of Cloud Storage: who may read them, what is mounted where, and what is copied."""

from functools import cache
from typing import Any

import pytest

from ebb.api.platform import parse
from ebb.api.spec import Job
from ebb.controller.reconciler.pods import PodPlacement, worker_labels, worker_pod
from testing.pulumi.mocks.gcp import PROJECT, package
from tests.builders import make_job
from tests.infra.declared import Declared
from tests.infra.gcp.stacks import usual, world


@cache
def both() -> Declared:
    """Both of them mounted, for all that only look at it."""
    return world({"gcp.storage.buckets": BUCKETS})


BUCKETS = [{"name": "imagenet", "url": "gs://our-data/imagenet"}, {"name": "words", "url": "gs://our-data/words"}]


def test_copies_may_read_the_buckets_of_the_file_and_nothing_else() -> None:
    made = both()
    rights = [one for one in made.all("gcp:storage/bucketIAMMember:BucketIAMMember") if one.name.startswith("copy")]
    (right,) = rights  # one for each bucket, however often it is named
    assert (right.inputs["bucket"], right.inputs["role"]) == ("our-data", "roles/storage.objectViewer")
    be = made.one("gcp:serviceaccount/iAMMember:IAMMember", "copy").inputs
    assert be["role"] == "roles/iam.workloadIdentityUser"
    assert be["member"] == "serviceAccount:my-project-123.svc.id.goog[elastic-job/ebb-copy]"
    account = made.one("ServiceAccount", "ebb-copy")
    assert list(account.inputs["metadata"]["annotations"]) == ["iam.gke.io/gcp-service-account"]
    assert right.key in made.before(account)
    enabled = {one.inputs["service"] for one in made.all("gcp:projects/service:Service")}
    assert {"iamcredentials.googleapis.com", "storage.googleapis.com"} <= enabled
    assert "ebb-copy" not in usual().named("ServiceAccount")


def test_a_team_reads_its_buckets_as_itself() -> None:
    shared = {"name": "scans", "url": "gs://scans/a", "teams": ["vision", "speech"]}
    people = {f"teams.{team}": {"researchers": [f"user:{team}@lab.example"]} for team in ("vision", "speech", "text")}
    made = world({"gcp.storage.buckets": [*BUCKETS, shared], **people})
    for team in ("vision", "speech"):
        be = made.one("gcp:serviceaccount/iAMMember:IAMMember", f"copy-{team}").inputs
        assert be["member"] == f"serviceAccount:my-project-123.svc.id.goog[ebb-team-{team}/ebb-copy]"
        right = made.one("gcp:storage/bucketIAMMember:BucketIAMMember", f"copy-{team}-scans")
        account = made.one("ServiceAccount", f"ebb-copy-{team}")
        assert account.inputs["metadata"]["name"] == "ebb-copy"
        assert account.inputs["metadata"]["namespace"] == f"ebb-team-{team}"
        assert right.key in made.before(account)
        assert made.one("NetworkPolicy", f"network-policy-copies-{team}").inputs["metadata"]["namespace"] == f"ebb-team-{team}"
    identities = [
        one.inputs["accountId"] for one in made.all("gcp:serviceaccount/account:Account") if one.name.startswith("copy")
    ]
    assert len(set(identities)) == 3
    assert max(len(one) for one in identities) <= 30
    assert "ebb-copy-text" not in made.named("ServiceAccount")
    platform = parse(made.one("ConfigMap", "ebb-platform").inputs["data"])
    assert {name: seen.buckets for name in ("vision", "text") for seen in [platform.seen_from(f"ebb-team-{name}")]} == {
        "vision": {"scans": "gs://scans/a"},
        "text": {},
    }
    accounts = [platform.seen_from(place).copies for place in ("elastic-job", "ebb-team-vision", "ebb-team-text")]
    assert [one.account for one in accounts if one] == ["ebb-copy", "ebb-copy", ""]


# --- Mounted -------------------------------------------------------------------------------------------------------------------

POOL = "principal://iam.googleapis.com/projects/123456789012/locations/global/workloadIdentityPools/my-project-123.svc.id.goog"
PEOPLE = {f"teams.{team}": {"researchers": [f"user:{team}@lab.example"]} for team in ("vision", "text")}
COPIED = [{**one, "mode": "copy"} for one in BUCKETS]
SCANS = {"name": "scans", "url": "gs://scans/a/b", "teams": ["vision"]}


def csi(made: Declared) -> dict[str, Any]:
    """Volume -> what its driver is told."""
    specs = {one.name: one.inputs["spec"] for one in made.all("PersistentVolume")}
    return {name: spec for name, spec in specs.items() if spec.get("csi", {}).get("driver") == "gcsfuse.csi.storage.gke.io"}


def facts(made: Declared) -> Any:
    return parse(made.one("ConfigMap", "ebb-platform").inputs["data"])


def addon(made: Declared) -> Any:
    return made.one("gcp:container/cluster:Cluster").inputs["addonsConfig"]["gcsFuseCsiDriverConfig"]


def test_a_mounted_bucket_is_files_that_nobody_writes() -> None:
    made = world({"gcp.storage.buckets": [*BUCKETS, {"name": "whole", "url": "gs://our-data"}]})
    found = csi(made)
    assert {name: spec["csi"]["volumeHandle"] for name, spec in found.items()} == {
        "volume-imagenet": "our-data:imagenet",
        "volume-words": "our-data:words",
        "volume-whole": "our-data:whole",
    }, "the kubelet takes two volumes of one handle for one"
    read_only = ["ro", "implicit-dirs", "file-mode=444", "dir-mode=555"]
    assert found["volume-whole"]["mountOptions"] == read_only
    assert found["volume-words"]["mountOptions"] == [*read_only, "only-dir=words"]
    assert addon(made) == {"enabled": True}
    (claim,) = [one for one in made.all("PersistentVolumeClaim") if one.inputs["metadata"]["name"] == "ebb-words"]
    assert claim.inputs["metadata"]["namespace"] == "elastic-job"
    told = {one.name: (one.mount_path, one.read_only) for one in facts(made).volumes}
    assert told["words"] == ("/mnt/words", True)


def test_workers_read_it_as_the_account_of_their_namespace_and_not_before_they_may() -> None:
    made = both()
    (right,) = [one for one in made.all("gcp:storage/bucketIAMMember:BucketIAMMember") if one.name.startswith("mount")]
    assert right.inputs == {
        "bucket": "our-data",
        "role": "roles/storage.objectViewer",
        "member": f"{POOL}/subject/ns/elastic-job/sa/default",
    }
    for volume in csi(made):
        assert right.key in made.before(made.one("PersistentVolume", volume))
    assert "default" not in made.named("ServiceAccount"), "it is Kubernetes' own"


def test_a_worker_carries_what_gke_adds_its_container_for() -> None:
    """As the stack's facts say it, in the controller's own hands: which knows no cloud."""
    platform = facts(both())
    placement = PodPlacement(volumes=platform.volumes)
    annotations = worker_pod(Job.of(make_job()), index=0, attempt=0, pod_placement=placement)["metadata"]["annotations"]
    asked = {name.removeprefix("gke-gcsfuse/"): value for name, value in annotations.items() if name.startswith("gke-gcsfuse/")}
    assert asked["volumes"] == "true"
    (sidecar,) = platform.sidecars_in("elastic-job")
    assert (asked["cpu-request"], asked["memory-request"]) == (f"{sidecar.cpu * 1000:g}m", f"{sidecar.memory_gib:g}Gi")
    assert asked["memory-limit"] == asked["memory-request"], "the rest of the machine is the workers'"


def test_workers_alone_reach_gkes_metadata_server() -> None:
    made = both()
    policy = made.one("NetworkPolicy", "network-policy-sidecars").inputs
    (expression,) = policy["spec"]["podSelector"]["matchExpressions"]
    assert (expression["operator"], expression["key"] in worker_labels("digits", 0)) == ("Exists", True)
    assert policy["metadata"]["namespace"] == "elastic-job"
    blocks = [peer["ipBlock"]["cidr"] for rule in policy["spec"]["egress"] for peer in rule["to"]]
    assert blocks == ["169.254.169.254/32", "169.254.169.252/32"]
    assert "imagenet" not in str(made.one("Deployment", "deployment-ebb-gateway").inputs), "it speaks to nobody"


def test_a_team_mounts_its_own_buckets_as_itself() -> None:
    made = world({"gcp.storage.buckets": [*COPIED, SCANS], **PEOPLE})
    assert list(csi(made)) == ["volume-team-vision-scans"]
    spec = csi(made)["volume-team-vision-scans"]
    assert spec["csi"]["volumeHandle"] == "scans:vision-scans"
    assert spec["claimRef"]["namespace"] == "ebb-team-vision"
    assert spec["mountOptions"][-1] == "only-dir=a/b"
    right = made.one("gcp:storage/bucketIAMMember:BucketIAMMember", "mount-vision-scans").inputs
    assert right["member"] == f"{POOL}/subject/ns/ebb-team-vision/sa/default"
    platform = facts(made)
    names = {place: [one.name for one in platform.seen_from(place).volumes] for place in ("ebb-team-vision", "ebb-team-text")}
    assert names == {"ebb-team-vision": ["data", "output", "scans"], "ebb-team-text": ["data", "output"]}
    assert [bool(platform.sidecars_in(place)) for place in (*names, "elastic-job")] == [True, False, False]
    policies = [name for name in made.named("NetworkPolicy") if "sidecars" in name]
    assert policies == ["network-policy-sidecars-vision"]
    assert "scans" in platform.seen_from("ebb-team-text").closed_buckets


def test_a_bucket_of_two_teams_has_a_volume_in_each() -> None:
    made = world({"gcp.storage.buckets": [{**SCANS, "teams": ["vision", "text"]}], **PEOPLE})
    handles = [spec["csi"]["volumeHandle"] for spec in csi(made).values()]
    assert sorted(handles) == ["scans:text-scans", "scans:vision-scans"]


@pytest.mark.parametrize("buckets", [[], COPIED], ids=["none", "copied"])
def test_without_a_mounted_bucket_nothing_of_it_is_there(buckets: list[dict[str, Any]]) -> None:
    made = world({"gcp.storage.buckets": buckets}) if buckets else usual()
    assert (csi(made), addon(made)) == ({}, {"enabled": False})
    assert not [name for name in made.named("NetworkPolicy") if "sidecars" in name]
    assert facts(made).sidecars_in("elastic-job") == ()


def test_the_mocks_know_a_project_s_number() -> None:
    """It stands in a preview without a project, too."""
    assert package().invoke(PROJECT, {"projectId": "my-project-123"})["number"] == "123456789012"
