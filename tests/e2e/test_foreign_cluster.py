"""A stack `cloud: kubeconfig` on a cluster whose machines know nothing of Ebb: up, a job, a lost machine, destroy.

The devcluster plays the somebody who runs the cluster: it gets its NodeGroups from here, without a label of Ebb's, and keeps
their machines at their number. The stack knows a kubeconfig, labels, a storage class and images. `make prove-kubeconfig`.
"""

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from devcluster.cloud.records import GROUP_LABEL, ZONE_LABEL
from devcluster.control_plane.cluster import ENVIRONMENT_VOLUME
from devcluster.settings import CHECKOUT, Box
from testing import exactness
from tests.e2e.conftest import Object, Platform
from tests.e2e.test_platform import NAMESPACE, TRAINER, job, state, steps_of
from tests.figures import report

pytestmark = pytest.mark.proof
ZONE, HEAD, WORKERS, NAME = "local-a", "head", "workers", "abroad"
WANTED = {"ebb.dev/node-group": f"{WORKERS}-{ZONE}", "ebb.dev/capacity-type": "spot", "ebb.dev/gpu-type": "T4"}
CLAIM = "training-environment"


def node_group(name: str, machines: int, **more: object) -> Object:
    """A NodeGroup of the devcluster whose machines are always there: its autoscaler knows no labels of Ebb's to scale by."""
    spec = {"zone": ZONE, "instanceType": name, "cpu": 2, "memoryGiB": 8, "bootSeconds": 3, "min": machines, "max": machines}
    return {"apiVersion": "box.ebb.dev/v1alpha1", "kind": "NodeGroup", "metadata": {"name": name}, "spec": spec | more}


# As GPU machines are often kept for their users. It also keeps the cluster's one DNS pod off the machine that is to be lost.
TAINT = {"key": "dedicated", "value": "training", "effect": "NoSchedule"}
GROUPS = (
    node_group(HEAD, 1, capacityType="on-demand"),
    node_group(WORKERS, 2, capacityType="spot", gpuType="T4", gpus=1, taints=[TAINT]),
)
# The trainer's image on the devcluster has no torch: pods mount it, here from a claim that the team has made for itself.
ENVIRONMENT = {
    "apiVersion": "v1",
    "kind": "PersistentVolumeClaim",
    "metadata": {"name": CLAIM, "namespace": NAMESPACE},
    "spec": {
        "accessModes": ["ReadOnlyMany"],
        "storageClassName": "",
        "volumeName": ENVIRONMENT_VOLUME,
        "resources": {"requests": {"storage": "1Gi"}},
    },
}


def stack_file(platform: Platform) -> Object:
    """The file of the stack, as its user would write it from what `kubectl get nodes --show-labels` says."""
    images = platform.get("configmap", "ebb-box", "-n", "kube-system")["data"]
    salt = yaml.safe_load((CHECKOUT / "Pulumi.local.yaml").read_text())["encryptionsalt"]
    workers = {"name": WORKERS, "gpu": "T4", "max": 2, "kubeconfig": {"selector": {GROUP_LABEL: WORKERS}, "taints": [TAINT]}}
    own = {
        "file": str(platform.kubeconfig),
        "managerSelector": {GROUP_LABEL: HEAD},
        "storageClass": images["storageClass"],
        "images": {
            "controller": images["image.controller"],
            "trainers": {"default": images["image.trainer"]},
            "etcd": images["image.etcd"],
        },
    }
    config = {
        "ebb:cloud": "kubeconfig",
        "ebb:zones": [ZONE],
        "ebb:kubeconfig": own,
        "ebb:instanceTypes": {
            "head": {"cpu": 2, "memoryGiB": 8},
            "worker": {"cpu": 2, "memoryGiB": 8, "gpu": "T4", "gpus": 1, "usdPerHour": 0.5},
        },
        "ebb:manager": {"zone": ZONE, "instanceType": "head"},
        "ebb:nodeGroups": [workers],
        "ebb:storage": {"dataGiB": 1, "outputGiB": 1},
    }
    return {"encryptionsalt": salt, "config": config}


def apply(platform: Platform, *objects: Object) -> None:
    path = platform.folder / "objects.yaml"
    path.write_text(yaml.safe_dump_all(objects))
    platform.kubectl("apply", "-f", str(path))


def labels(platform: Platform, selector: str = "") -> dict[str, dict[str, str]]:
    """The labels of the nodes that are ready, by node."""
    found = {}
    for node in platform.nodes(selector):
        if any(one["type"] == "Ready" and one["status"] == "True" for one in node["status"].get("conditions", [])):
            found[node["metadata"]["name"]] = dict(node["metadata"]["labels"])
    return found


def ebbs(labels: dict[str, str]) -> dict[str, str]:
    return {key: value for key, value in labels.items() if key.startswith("ebb.dev/")}


def volume(platform: Platform, claim: str) -> Path:
    """The folder in which the devcluster keeps what is on a claim."""
    return Box.load(platform.box_name).volumes / f"{NAMESPACE}-{claim}"


def submit(platform: Platform) -> Path:
    """Send what `ebb submit` would send, with the claim of the environment; returns the output folder."""
    told = platform.ebb("submit", "--name", NAME, "--gpus", "2", "--gpu", "T4", "--min", "1", "--dry-run", "--",
                        *TRAINER, "--epochs", "8", "--ledger", "--log-every", "1", "--min-step-seconds", "0.2")  # fmt: skip
    manifest = yaml.safe_load(told)
    spec = manifest["spec"]["replicaSpecs"]["Worker"]["template"]["spec"]
    spec["volumes"].append({"name": "environment", "persistentVolumeClaim": {"claimName": CLAIM, "readOnly": True}})
    spec["containers"][0]["volumeMounts"].append({"name": "environment", "mountPath": "/opt/ebb/site-packages", "readOnly": True})
    apply(platform, ENVIRONMENT, manifest)
    uid = job(platform, NAME)["metadata"]["uid"]
    return volume(platform, "ebb-output") / NAMESPACE / f"{NAME}-{uid[:8]}"


@pytest.fixture
def foreign(tmp_path: Path) -> Iterator[Platform]:
    """A devcluster with the machines of GROUPS, and no stack yet."""
    it = Platform(tmp_path, "foreign")
    with it.on_a_devcluster():
        apply(it, *GROUPS)
        it.until("three machines are ready", lambda: len(labels(it)) == 3)
        yield it


def test_a_job_on_machines_that_know_nothing_of_ebb(foreign: Platform) -> None:
    workers, figures = f"{GROUP_LABEL}={WORKERS}", {}
    before = labels(foreign)
    assert not any(map(ebbs, before.values())), before
    assert {found[ZONE_LABEL] for found in before.values()} == {ZONE}

    began = time.monotonic()
    foreign.bring_up(stack_file(foreign))
    figures["up"] = time.monotonic() - began
    foreign.until("both workers' machines are labelled", lambda: [*map(ebbs, labels(foreign, workers).values())] == [WANTED] * 2)
    assert [ebbs(found) for found in labels(foreign, f"{GROUP_LABEL}={HEAD}").values()] == [{}]

    foreign.run(sys.executable, "-m", "trainer.digits", str(volume(foreign, "ebb-data") / "digits"))
    began = time.monotonic()
    output = submit(foreign)
    foreign.until("two workers train", lambda: [step for step in steps_of(output) if step["world_size"] == 2][5:])
    figures["submit_to_training"] = time.monotonic() - began

    lost = foreign.get("pod", f"{NAME}-worker-1", "-n", NAMESPACE)["spec"]["nodeName"]
    generation = steps_of(output)[-1]["generation"]
    began = time.monotonic()
    foreign.box("reclaim", lost, "--no-notice")
    foreign.until("a new machine is there", lambda: labels(foreign, workers).keys() - before.keys())
    figures["lost_to_new_machine"] = time.monotonic() - began
    wanted = ",".join(f"{key}={value}" for key, value in WANTED.items())
    new = foreign.until("it is labelled", lambda: labels(foreign, wanted).keys() - before.keys())
    figures["lost_to_labelled"] = time.monotonic() - began
    foreign.until(
        "two workers train again",
        lambda: [step for step in steps_of(output) if step["world_size"] == 2 and step["generation"] > generation],
    )
    figures["lost_to_full_size"] = time.monotonic() - began
    on = {foreign.get("pod", f"{NAME}-worker-{i}", "-n", NAMESPACE)["spec"]["nodeName"] for i in range(2)}
    assert new <= on, "the second worker is on the new machine"
    foreign.until("the job succeeds", lambda: state(foreign, NAME) == "Succeeded", seconds=400)
    verdict = exactness.check(output)
    assert (verdict.samples_lost, verdict.samples_repeated) == (0, 0)
    assert job(foreign, NAME)["status"]["reclaims"] == 1

    began = time.monotonic()
    foreign.pulumi("destroy", "--yes", "--skip-preview")
    figures["destroy"] = time.monotonic() - began
    after = labels(foreign)
    assert len(after) == 3
    assert not any(map(ebbs, after.values())), after
    assert {found[ZONE_LABEL] for found in after.values()} == {ZONE}, "the zone is the machines' own and stays"
    report({f"{key}_seconds": round(value, 1) for key, value in figures.items()})
