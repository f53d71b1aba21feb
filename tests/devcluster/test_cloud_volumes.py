"""Shared volumes: which are created, freed and deleted for which claims."""

from pathlib import Path
from typing import Any

import pytest

import infra.clouds.local
from devcluster.cloud.volumes import ENVIRONMENT, FOLDER, NewVolume, VolumePlan, make_folder, plan_volumes, storage_class

ROOT, CODE = Path("/box/volumes"), Path("/box/environment")


def claim(name: str = "data", namespace: str = "jobs", **spec: Any) -> dict[str, Any]:
    """A pending claim of the shared class."""
    wanted = {"storageClassName": "ebb-shared", "accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
    return {"metadata": {"namespace": namespace, "name": name, "uid": f"uid-{namespace}-{name}"}, "spec": wanted | spec}


def volume(name: str = "data", namespace: str = "jobs") -> dict[str, Any]:
    """The volume that the box makes for `claim(name, namespace)`, written out whole."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {
            "name": f"pvc-uid-{namespace}-{name}",
            "annotations": {"pv.kubernetes.io/provisioned-by": "box.ebb.dev/shared"},
        },
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteMany"],
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": "ebb-shared",
            "hostPath": {"path": f"/box/volumes/{namespace}-{name}", "type": "Directory"},
            "claimRef": {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "namespace": namespace,
                "name": name,
                "uid": f"uid-{namespace}-{name}",
            },
        },
    }


def environment(phase: str = "Available") -> dict[str, Any]:
    return {"metadata": {"name": ENVIRONMENT}, "spec": {}, "status": {"phase": phase}}


def plan(claims: list[Any], volumes: list[Any]) -> VolumePlan:
    return plan_volumes(claims, [environment(), *volumes], ROOT, CODE)


def test_a_claim_gets_a_volume_on_its_folder() -> None:
    expected = NewVolume(claim(), ROOT / "jobs-data", volume())
    assert plan([claim()], []) == VolumePlan(create=(expected,))


def test_a_claim_that_has_its_volume_gets_no_second_one() -> None:
    assert plan([claim()], [volume()]) == VolumePlan()


def test_claims_that_are_not_ours() -> None:
    others = [
        claim(storageClassName="fast"),
        claim(storageClassName=""),
        claim(volumeName="pvc-by-hand"),
        {**claim(), "metadata": {**claim()["metadata"], "deletionTimestamp": "now"}},
    ]
    assert plan(others, []) == VolumePlan()


def test_a_volume_whose_claim_is_gone_is_deleted() -> None:
    assert plan([], [volume()]) == VolumePlan(delete=("pvc-uid-jobs-data",))


def test_a_volume_being_deleted_is_left_to_it() -> None:
    going = volume()
    going["metadata"]["deletionTimestamp"] = "now"
    assert plan([], [going]) == VolumePlan()


def test_a_claim_that_comes_back_gets_the_same_folder() -> None:
    again = claim()
    again["metadata"]["uid"] = "another"
    decided = plan([again], [volume()])
    assert (decided.delete, decided.create[0].folder) == (("pvc-uid-jobs-data",), ROOT / "jobs-data")


def test_two_claims_never_share_a_folder() -> None:
    decided = plan([claim("b-c", "a"), claim("c", "a-b")], [])
    assert [new.folder.name for new in decided.create] == ["a-b-c"]
    (refusal,) = decided.refuse
    assert "belongs to claim a/b-c already" in refusal.message


def test_other_provisioners_volumes_are_left_alone() -> None:
    other = volume()
    other["metadata"]["annotations"] = {}
    assert plan([], [other]) == VolumePlan()


def test_the_environment_is_created_once_and_freed_when_released() -> None:
    created = plan_volumes([], [], ROOT, CODE).create_environment
    assert created is not None
    assert created["spec"]["hostPath"] == {"path": "/box/environment", "type": "Directory"}
    assert plan_volumes([], [environment("Bound")], ROOT, CODE) == VolumePlan()
    assert plan_volumes([], [environment("Released")], ROOT, CODE) == VolumePlan(free=(ENVIRONMENT,))


def test_the_class_binds_at_once() -> None:
    assert (storage_class()["volumeBindingMode"], storage_class()["provisioner"]) == ("Immediate", "box.ebb.dev/shared")


def test_a_folder_is_the_trainers_and_keeps_what_is_in_it(tmp_path: Path, monkeypatch: Any) -> None:
    owners = []
    monkeypatch.setattr("devcluster.cloud.volumes.os.chown", lambda *owner: owners.append(owner))
    folder = tmp_path / "volumes" / "jobs-data"
    make_folder(tmp_path / "volumes", folder)
    (folder / "kept").write_text("x")
    make_folder(tmp_path / "volumes", folder)
    assert (folder / "kept").read_text() == "x"
    assert owners == [(folder, 1000, 1000)] * 2


def named(name: str, folder: str) -> dict[str, Any]:
    """A claim that names its folder."""
    plain = claim(name)
    return {**plain, "metadata": {**plain["metadata"], "annotations": {FOLDER: folder}}}


def test_a_claim_names_its_folder_and_another_sees_it_in_its_own() -> None:
    decided = plan([named("data", "shared/data"), named("whole", "shared"), named("output", "shared/output")], [])
    assert [new.body["spec"]["hostPath"]["path"] for new in decided.create] == [
        "/box/volumes/shared/data", "/box/volumes/shared", "/box/volumes/shared/output",
    ]  # fmt: skip
    assert decided.refuse == ()


def test_two_claims_cannot_name_one_folder() -> None:
    decided = plan([named("data", "shared/data"), named("other", "shared/data")], [])
    assert [new.claim["metadata"]["name"] for new in decided.create] == ["data"]
    assert "folder shared/data belongs to claim jobs/data already" in decided.refuse[0].message


@pytest.mark.parametrize(
    "folder",
    ["", "/etc", "..", "shared/..", "shared/../../etc", "shared//data", "shared/", "./shared", "a/b/c/d/e", "Shared", "a b"],
)
def test_a_folder_outside_the_boxs_volumes_is_refused(folder: str) -> None:
    decided = plan([named("data", folder)], [])
    assert decided.create == ()
    assert f"{FOLDER} is {folder!r}" in decided.refuse[0].message
    assert "for example shared/data" in decided.refuse[0].message


def test_folders_are_made_inside_each_other_in_any_order(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("devcluster.cloud.volumes.os.chown", lambda *_: None)
    for name in ("shared/data", "shared", "shared/output"):
        make_folder(tmp_path, tmp_path / name)
    assert sorted(path.name for path in (tmp_path / "shared").iterdir()) == ["data", "output"]


def test_a_link_that_a_pod_made_leads_nowhere(tmp_path: Path, monkeypatch: Any) -> None:
    owners: list[Any] = []
    monkeypatch.setattr("devcluster.cloud.volumes.os.chown", lambda *owner: owners.append(owner))
    outside, root = tmp_path / "outside", tmp_path / "volumes"
    outside.mkdir()
    root.mkdir()
    (root / "shared").symlink_to(outside)
    with pytest.raises(OSError, match="a link on the way leads to"):
        make_folder(root, root / "shared" / "data")
    assert (owners, list(outside.iterdir())) == ([], [])


def test_the_program_and_the_box_mean_the_same_annotation() -> None:
    assert FOLDER == infra.clouds.local.FOLDER
