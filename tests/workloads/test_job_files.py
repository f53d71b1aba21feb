"""The job files in the repository, and that of the step-by-step guide: what becomes of them, and that it fits."""

import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from ebb.api.clock import stamp
from ebb.api.platform import Network, NodeGroup, Platform, Taint, Volume
from ebb.api.spec import Job, parse_spec
from ebb.api.status import Placed
from ebb.controller.reconciler.candidates import pod_placement
from ebb.controller.reconciler.pods import worker_pod
from tests.builders import NOW, UID, make_group, make_job, make_platform
from tests.looks import look
from tests.pod_security import violations
from trainer.images import models as model
from trainer.images.config import TrainConfig, parse

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "workloads" / "jobs").glob("*.yaml"))
ARTICLE = Path(__file__).parent / "articles" / "imagenet.yaml"
SPOT = (
    Taint(key="nvidia.com/gpu", value="present", effect="NoSchedule"),
    Taint(key="ebb.dev/capacity-type", value="spot", effect="NoSchedule"),
)
VOLUMES = tuple(
    Volume(name=name, claim=f"ebb-{name}", mount_path=f"/mnt/{name}", read_only=False) for name in ("data", "output", "fsx")
)
T4 = make_group(
    "spot-t4-us-west-2a", zone="us-west-2a", instance_type="g4dn.xlarge", cpu=4, memory_gib=16, taints=SPOT,
    on_demand_usd_per_hour=0.526,
)  # fmt: skip
EFA = Network(name="EFA", resources={"vpc.amazonaws.com/efa": "4", "hugepages-2Mi": "5120Mi"}, environment={"FI_PROVIDER": "efa"})
P4D = make_group(
    "on-demand-p4d-us-west-2b", zone="us-west-2b", instance_type="p4d.24xlarge", gpu_type="A100", gpus_per_node=8, cpu=96,
    memory_gib=1152, capacity_type="on-demand", max=3, taints=SPOT[:1], on_demand_usd_per_hour=21.958, network=EFA,
)  # fmt: skip
P3 = make_group(
    "spot-p3-us-west-2b", zone="us-west-2b", instance_type="p3.8xlarge", gpu_type="V100", gpus_per_node=4, cpu=32,
    memory_gib=244, taints=SPOT, on_demand_usd_per_hour=12.24,
)  # fmt: skip
AWS = make_platform(T4, P4D, P3, volumes=VOLUMES)


def read(path: Path) -> dict[str, Any]:
    """The job as the API server returns it."""
    job: dict[str, Any] = yaml.safe_load(path.read_text())
    job["metadata"] |= {"uid": UID, "generation": 1, "creationTimestamp": stamp(NOW)}
    return job


def pod_of(job: dict[str, Any], platform: Platform) -> dict[str, Any]:
    found = Job.of(job)
    return worker_pod(found, index=0, attempt=0, pod_placement=pod_placement(found, place_of(job, platform), platform))


def place_of(job: dict[str, Any], platform: Platform) -> Placed:
    placed = look({**job, "spec": {**job["spec"], "suspend": False}}, platform=platform).status.placement
    assert placed is not None
    return placed


def container(pod: dict[str, Any]) -> dict[str, Any]:
    (found,) = pod["spec"]["containers"]
    return dict(found)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_file_is_a_job(path: Path) -> None:
    job = read(path)
    assert (job["apiVersion"], job["kind"]) == ("elastic.pytorch.org/v1alpha1", "ElasticJob")
    assert parse_spec(job["spec"]).rdzv_endpoint == "etcd-service:2379"


EXAMPLES = {
    "tiny-imagenet": (T4, 1, (1, 2, 3)),
    "imagenet-efa": (P4D, 8, (1, 3, 3)),
    "imagenet-fsx": (P3, 4, (1, 4, 4)),
}


@pytest.mark.parametrize(("name", "group", "gpus", "workers"), [(name, *rest) for name, rest in EXAMPLES.items()], ids=EXAMPLES)
def test_the_examples_fit_their_machines(name: str, group: NodeGroup, gpus: int, workers: tuple[int, int, int]) -> None:
    job = read(ROOT / "workloads" / "jobs" / f"{name}.yaml")
    found = Job.of(job)
    placed = place_of(job, AWS)
    assert (placed.gpu_type, placed.zone, placed.capacity_type) == (group.gpu_type, group.zone, group.capacity_type)
    assert (found.min_replicas, found.worker.replicas, found.max_replicas) == workers
    pod = pod_of(job, AWS)
    assert f"--nproc_per_node={gpus}" in container(pod)["args"]
    assert container(pod)["resources"]["limits"]["nvidia.com/gpu"] == gpus
    tolerated = {(item["key"], item["value"]) for item in pod["spec"]["tolerations"]}
    assert {(taint.key, taint.value) for taint in group.taints} <= tolerated


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_examples_pass_pod_security_restricted(name: str) -> None:
    pod = pod_of(read(ROOT / "workloads" / "jobs" / f"{name}.yaml"), AWS)
    assert violations(pod["spec"]) == []
    assert pod["spec"]["automountServiceAccountToken"] is False


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_trainer_understands_the_arguments(name: str, tmp_path: Path) -> None:
    config = trainer_config(container(pod_of(read(ROOT / "workloads" / "jobs" / f"{name}.yaml"), AWS))["args"], tmp_path)
    assert config.arch in model.names()
    assert config.augment == "imagenet"


def trainer_config(arguments: list[str], folder: Path) -> TrainConfig:
    """What follows `-m trainer`, with the data folder in a temporary one."""
    own = arguments[arguments.index("trainer") + 1 :]
    for part in ("train", "val"):
        (folder / part).mkdir()
    own = [f"--data={folder}" if word.startswith("--data=") else word for word in own]
    return parse(own, {"EBB_OUTPUT_DIR": str(folder)})


MEMORY = {"tiny-imagenet": "5632Mi", "imagenet-efa": "256Gi", "imagenet-fsx": "64Gi"}


@pytest.mark.parametrize(("name", "size"), MEMORY.items(), ids=MEMORY)
def test_the_examples_loaders_have_shared_memory(name: str, size: str) -> None:
    """Half of the worker's memory, where the file does not say how much."""
    volumes = pod_of(read(ROOT / "workloads" / "jobs" / f"{name}.yaml"), AWS)["spec"]["volumes"]
    assert {volume["name"]: volume for volume in volumes}["shm"]["emptyDir"] == {"medium": "Memory", "sizeLimit": size}


def test_a_job_that_says_nothing_of_memory_gets_a_quarter_of_the_machines_as_shared_memory_and_asks_for_it() -> None:
    pod = pod_of(make_job(container={"resources": {"limits": {"nvidia.com/gpu": 1}}}), make_platform(T4))
    assert {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "4096Mi"}} in pod["spec"]["volumes"]
    assert container(pod)["resources"]["requests"] == {"memory": "4096Mi"}


def test_the_efa_job_asks_for_the_interfaces_and_their_buffers() -> None:
    found = container(pod_of(read(ROOT / "workloads" / "jobs" / "imagenet-efa.yaml"), AWS))
    assert found["resources"]["limits"].items() >= EFA.resources.items()
    assert "--workers=4" in found["args"]
    assert "--arch=efficientnet_b7" in found["args"]
    assert {item["name"]: item.get("value") for item in found["env"]}["FI_PROVIDER"] == "efa"


def test_the_articles_job_differs_from_its_text_in_the_image_alone() -> None:
    """Its words: the range of workers, the toleration, the claim at /mnt/efs, /dev/shm, data and checkpoint below /mnt/efs."""
    spec = read(ARTICLE)["spec"]
    worker = spec["replicaSpecs"]["Worker"]["template"]["spec"]
    (train,) = worker["containers"]
    assert (spec["rdzvEndpoint"], spec["minReplicas"], spec["maxReplicas"]) == ("etcd-service:2379", 1, 3)
    assert {volume["name"]: volume for volume in worker["volumes"]}["persistent-storage"]["persistentVolumeClaim"] == {
        "claimName": "efs-claim"
    }
    assert [mount["mountPath"] for mount in train["volumeMounts"]] == ["/mnt/efs", "/dev/shm"]
    assert train["args"][-2:] == ["--checkpoint-file=/mnt/efs/output/checkpoint.pth", "/mnt/efs/data/tiny-imagenet-200"]


def test_the_articles_job_runs_as_it_is() -> None:
    """Nothing that it says is changed; the rendezvous, the zone and what a spot machine asks for are added."""
    job = read(ARTICLE)
    written = job["spec"]["replicaSpecs"]["Worker"]["template"]["spec"]
    pod = pod_of(job, AWS)
    found, own = container(pod), written["containers"][0]
    assert found["args"] == [
        *shlex.split("--rdzv_backend=etcd3 --rdzv_endpoint=etcd-service:2379 --rdzv_id=imagenet-0b8e7a52 --nnodes=1:3"),
        *own["args"],
    ]
    assert found["image"] == own["image"]
    assert found["volumeMounts"][:2] == own["volumeMounts"]
    mounted = [mount["mountPath"] for mount in found["volumeMounts"][2:]]
    assert mounted == ["/mnt/data", "/mnt/output", "/mnt/fsx", "/etc/ebb/etcd"]
    assert pod["spec"]["volumes"][:2] == written["volumes"]
    assert pod["spec"]["nodeSelector"] == {"topology.kubernetes.io/zone": "us-west-2a", "ebb.dev/gpu-type": "T4"}
    assert pod["spec"]["terminationGracePeriodSeconds"] == 25  # of the machines' 30
    assert pod["spec"]["tolerations"] == [
        *written["tolerations"],
        {"key": "ebb.dev/capacity-type", "operator": "Equal", "value": "spot", "effect": "NoSchedule"},
    ]
