"""The add-ons: pinned, placed, tolerant, and in order."""

import json
from typing import Any

import pytest
from pydantic import TypeAdapter

from ebb.api.contract import TAINT_RECLAIM
from infra.clouds.aws.checks import needed_add_ons
from infra.clouds.aws.control import addons
from infra.clouds.aws.forms import AddOn
from infra.clouds.aws.settings import Bucket, Efs, Fsx, Settings, Storage
from tests.infra.aws import groups
from tests.infra.aws.control import ADD_ONS, stack, usual, world
from tests.infra.declared import ACCOUNT

MANAGER = {"ebb.dev/node-group": "manager"}


def values(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(usual().one("Addon", f"ebb-dev-{name}").inputs["configurationValues"])
    return found


def test_every_one_is_pinned_to_the_files_version() -> None:
    pins = {one.inputs["addonName"]: one.inputs["addonVersion"] for one in usual().all("Addon")}
    assert pins == dict(stack().settings.cluster.add_ons)


@pytest.mark.parametrize(
    "storage",
    [
        Storage(efs=Efs()),
        Storage(fsx=Fsx(zone="us-west-2a"), data="delete"),
        Storage(efs=Efs(), fsx=Fsx(zone="us-west-2a"), data="delete"),
        Storage(efs=Efs(), buckets=(Bucket(name="imagenet", url="s3://our-data"),)),
        Storage(efs=Efs(), buckets=(Bucket(name="imagenet", url="s3://our-data", mode="copy"),)),
    ],
    ids=["efs", "fsx", "both", "bucket", "copied"],
)
def test_those_that_are_made_are_those_that_the_file_must_pin(storage: Storage) -> None:
    settings: Settings = stack().settings.model_copy(update={"storage": storage})
    assert {one.name for one in addons.used(settings)} == set(needed_add_ons(settings))


def test_the_table_and_the_allowed_keys_are_the_same() -> None:
    allowed = TypeAdapter(AddOn).json_schema()["enum"]
    assert {one.name for one in (*addons.FIRST, *addons.THEN)} | {addons.INSIGHTS} == set(allowed)


def test_all_are_taken_over_and_taken_away() -> None:
    for one in usual().all("Addon"):
        conflicts = (one.inputs["resolveConflictsOnCreate"], one.inputs["resolveConflictsOnUpdate"])
        assert (*conflicts, one.inputs["preserve"]) == ("OVERWRITE", "OVERWRITE", False), one.name


@pytest.mark.parametrize(
    ("name", "placed"),
    [
        ("aws-ebs-csi-driver", {"controller": {"nodeSelector": MANAGER}, "node": {"nodeSelector": MANAGER}}),
        ("aws-efs-csi-driver", {"controller": {"nodeSelector": MANAGER}}),
    ],
)
def test_controllers_are_on_the_manager_machine(name: str, placed: dict[str, Any]) -> None:
    found = values(name)
    assert {key: found[key] for key in placed} == placed


def test_dns_outlives_the_manager_machine() -> None:
    """Its pods go apart where there are other machines, bear the taints of those for jobs, and leave a dead one in seconds."""
    found = values("coredns")
    assert "nodeSelector" not in found
    group = groups.group()
    assert {taint["key"] for taint in group.taints} == {"nvidia.com/gpu", "ebb.dev/capacity-type"}
    for taint in group.taints:
        assert any(_bears(one, taint) for one in found["tolerations"]), taint
    # Not every taint: a pod that bears `unschedulable` comes back to the machine that it is drained from.
    for key in ("node.kubernetes.io/unschedulable", TAINT_RECLAIM):
        assert not any(_bears(one, {"key": key, "effect": "NoSchedule"}) for one in found["tolerations"])
    gone = {one["key"]: one.get("tolerationSeconds") for one in found["tolerations"] if one.get("effect") == "NoExecute"}
    assert gone == {"node.kubernetes.io/not-ready": 10, "node.kubernetes.io/unreachable": 10}
    # A wish and no demand: with the manager alone, a pod that waits would make the autoscaler start a machine with GPUs.
    assert set(found["affinity"]["podAntiAffinity"]) == {"preferredDuringSchedulingIgnoredDuringExecution"}
    (apart,) = found["affinity"]["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    (near,) = found["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert apart["weight"] > near["weight"]


def _bears(toleration: dict[str, Any], taint: dict[str, str]) -> bool:
    effect = toleration.get("effect") in (None, taint["effect"])
    return effect and toleration.get("operator") == "Exists" and toleration.get("key") in (None, taint["key"])


def test_network_policies_are_on() -> None:
    assert values("vpc-cni") == {"enableNetworkPolicy": "true"}


def test_gpus_on_tainted_machines_are_looked_at() -> None:
    assert values("eks-node-monitoring-agent") == {"dcgmAgent": {"tolerations": [{"operator": "Exists"}]}}


def test_the_efs_driver_is_not_killed_by_a_busy_machine() -> None:
    node = values("aws-efs-csi-driver")["node"]
    assert node["resources"]["requests"]["cpu"] == "50m"
    probe = node["livenessProbe"]
    assert probe["periodSeconds"] * probe["failureThreshold"] >= 50
    assert probe["timeoutSeconds"] <= probe["periodSeconds"]


def test_nor_is_the_fsx_driver_though_its_add_on_has_no_value_for_it() -> None:
    """The fields that EKS sets are taken over, and stay so when it updates the add-on."""
    pins = {**ADD_ONS, "aws-fsx-csi-driver": "v1.9.0-eksbuild.1"}
    found = world(stack(storage={"fsx": {"zone": "us-west-2a"}, "data": "delete"}, addOns=pins))
    driver = found.one("Addon", "ebb-dev-aws-fsx-csi-driver")
    patch = found.one("DaemonSetPatch")
    assert driver.inputs["resolveConflictsOnUpdate"] == "PRESERVE"
    assert driver.key in found.before(patch)
    node = values("aws-efs-csi-driver")["node"]
    probe = {key: value for key, value in node["livenessProbe"].items() if key != "httpGet"}
    assert patch.inputs == {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {
            "name": "fsx-csi-node",
            "namespace": "kube-system",
            "annotations": {"pulumi.com/patchForce": "true"},
        },
        "spec": {
            "template": {"spec": {"containers": [{"name": "fsx-plugin", "resources": node["resources"], "livenessProbe": probe}]}}
        },
    }
    assert not usual().all("DaemonSetPatch")


def test_rights_are_given_by_pod_identity() -> None:
    given = {
        one.inputs["addonName"]: one.inputs["podIdentityAssociations"]
        for one in usual().all("Addon")
        if "podIdentityAssociations" in one.inputs
    }
    arn = f"arn:aws:iam::{ACCOUNT}:role/ebb-dev"
    assert given == {
        "vpc-cni": [{"serviceAccount": "aws-node", "roleArn": f"{arn}-vpc-cni"}],
        "aws-ebs-csi-driver": [{"serviceAccount": "ebs-csi-controller-sa", "roleArn": f"{arn}-ebs-csi"}],
    }


def test_the_s3_drivers_rights_are_there_as_long_as_it_runs() -> None:
    pins = {**ADD_ONS, "aws-mountpoint-s3-csi-driver": "v2.7.0-eksbuild.1"}
    found = world(stack(storage={"efs": {}, "buckets": [{"name": "imagenet", "url": "s3://our-data/imagenet"}]}, addOns=pins))
    driver = found.one("Addon", "ebb-dev-aws-mountpoint-s3-csi-driver")
    role = f"arn:aws:iam::{ACCOUNT}:role/ebb-dev-s3-csi"
    assert driver.inputs["podIdentityAssociations"] == [{"serviceAccount": "s3-csi-driver-sa", "roleArn": role}]
    assert "ebb-dev-s3-csi" in {key.split("::")[1] for key in found.before(driver)}


@pytest.mark.parametrize(
    ("later", "earlier"),
    [
        pytest.param("vpc-cni", "eks-pod-identity-agent", id="the plugin takes its rights from the agent"),
        pytest.param("vpc-cni", "vpc-cni-AmazonEKS_CNI_Policy", id="and has them as long as it runs"),
        pytest.param("aws-ebs-csi-driver", "ebs-csi", id="the driver has its rights as long as it runs"),
        pytest.param("coredns", "vpc-cni", id="pods have addresses first"),
    ],
)
def test_order(later: str, earlier: str) -> None:
    found = usual()
    names = {key.split("::")[1] for key in found.before(found.one("Addon", f"ebb-dev-{later}"))}
    assert f"ebb-dev-{earlier}" in names


def test_what_needs_a_machine_goes_before_the_manager() -> None:
    found = usual()
    manager = found.one("LaunchTemplate", "manager")
    after = {one.inputs["addonName"] for one in found.all("Addon") if manager.key in found.before(one)}
    assert after == {one.name for one in addons.THEN} - {"aws-fsx-csi-driver", "aws-mountpoint-s3-csi-driver"}
