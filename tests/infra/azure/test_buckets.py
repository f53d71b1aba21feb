"""Blob containers that are mounted: by whom, where, and for whose jobs."""

from typing import Any

from ebb.api.platform import parse
from infra import config
from infra.config import ROOT
from tests.infra.azure import stacks
from tests.infra.azure.answers import ISSUER
from tests.infra.azure.world import world
from tests.infra.declared import Declared

TRAIN = {**stacks.BUCKET, "name": "train", "folder": "a/train"}
SCANS = {"name": "scans", "containerId": stacks.CONTAINER.replace("imagenet", "scans"), "teams": ["vision"]}
READER = "2a2b9908-6ea1-4ae2-8e65-a410df84e7d1"


def made(*buckets: dict[str, Any], teams: tuple[str, ...] = ()) -> Declared:
    people = {team: {"researchers": [f"group:{stacks.RESEARCHERS}"]} for team in teams}
    own = {**stacks.small(storage={"files": {}, "buckets": list(buckets)}), **({"teams": people} if teams else {})}
    return world(config.parse(own, ROOT))


def blobs(found: Declared) -> dict[str, Any]:
    specs = {one.inputs["metadata"]["name"]: one.inputs["spec"] for one in found.all("PersistentVolume")}
    return {name: spec for name, spec in specs.items() if spec["csi"]["driver"] == "blob.csi.azure.com"}


def test_a_container_is_files_that_nobody_writes() -> None:
    found = made(stacks.BUCKET, TRAIN)
    specs = blobs(found)
    handles = {name: spec["csi"]["volumeHandle"] for name, spec in specs.items()}
    assert handles == {"ebb-dev-imagenet": "ebbold1a2b3c4d_imagenet_imagenet", "ebb-dev-train": "ebbold1a2b3c4d_imagenet_train"}
    assert specs["ebb-dev-imagenet"]["csi"]["volumeAttributes"] == {
        "protocol": "fuse2",
        "subscriptionID": stacks.SUBSCRIPTION,
        "resourceGroup": "ebb-old-data",
        "storageAccount": "ebbold1a2b3c4d",
        "containerName": "imagenet",
        "clientID": "client-ebb-dev-buckets",
        "mountWithWorkloadIdentityToken": "true",
    }
    assert "--read-only=true" in specs["ebb-dev-imagenet"]["mountOptions"]
    assert specs["ebb-dev-train"]["mountOptions"][-1] == "--subdirectory=a/train"
    platform = parse(found.one("ConfigMap", "ebb-platform").inputs["data"])
    told = {one.name: (one.claim, one.mount_path, one.read_only) for one in platform.volumes}
    assert told["train"] == ("ebb-train", "/mnt/train", True)
    assert platform.sidecars_in("elastic-job") == (), "the machine mounts it"
    prepare = found.one("Job", "prepare-storage").inputs["spec"]["template"]["spec"]
    assert "/mnt/train" not in str(prepare), "nothing is made in what is read only"


def test_workers_are_an_identity_that_reads_these_and_nothing_else() -> None:
    found = made(stacks.BUCKET, TRAIN)
    trust = found.one("FederatedIdentityCredential").inputs
    assert (trust["resourceName"], trust["issuer"]) == ("ebb-dev-buckets", ISSUER)
    assert trust["subject"] == "system:serviceaccount:elastic-job:default"
    assert trust["audiences"] == ["api://AzureADTokenExchange"]
    given = [one for one in found.all("RoleAssignment") if one.inputs["principalId"] == "id-ebb-dev-buckets"]
    assert [(one.inputs["scope"], one.inputs["roleDefinitionId"].rpartition("/")[2]) for one in given] == [
        (stacks.CONTAINER, READER)
    ], "once, however many of its folders are named"
    for volume in found.all("PersistentVolume"):
        if volume.inputs["metadata"]["name"] in blobs(found):
            before = found.before(volume)
            assert {given[0].key, found.one("FederatedIdentityCredential").key} <= before


def test_a_team_mounts_its_own_as_itself() -> None:
    found = made(stacks.BUCKET, SCANS, teams=("vision", "text"))
    spec = blobs(found)["ebb-dev-team-vision-scans"]
    assert (spec["csi"]["volumeHandle"], spec["claimRef"]["namespace"]) == (
        "ebbold1a2b3c4d_scans_vision_scans",
        "ebb-team-vision",
    )
    assert spec["csi"]["volumeAttributes"]["clientID"] == "client-ebb-dev-buckets-vision"
    subjects = {one.inputs["resourceName"]: one.inputs["subject"] for one in found.all("FederatedIdentityCredential")}
    assert subjects["ebb-dev-buckets-vision"] == "system:serviceaccount:ebb-team-vision:default"
    scopes = {one.inputs["principalId"]: one.inputs["scope"] for one in found.all("RoleAssignment")}
    assert scopes["id-ebb-dev-buckets"].endswith("/imagenet")
    assert scopes["id-ebb-dev-buckets-vision"].endswith("/scans")
    platform = parse(found.one("ConfigMap", "ebb-platform").inputs["data"])
    seen = {place: [one.name for one in platform.seen_from(place).volumes][2:] for place in ("elastic-job", *NAMESPACES)}
    assert seen == {"elastic-job": ["imagenet"], "ebb-team-vision": ["scans"], "ebb-team-text": []}
    assert platform.seen_from("ebb-team-text").closed_buckets == {"scans", "imagenet"}


NAMESPACES = ("ebb-team-vision", "ebb-team-text")


def test_without_one_no_identity_is_made() -> None:
    assert not world().all("FederatedIdentityCredential")
