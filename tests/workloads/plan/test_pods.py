"""A worker's pod and Service: what is filled in, and that what the author wrote wins."""

from typing import Any

import pytest

from tests.workloads.builders import UID, make_job
from tests.workloads.pod_security import violations
from workloads.job.spec import Job
from workloads.plan.pods import Seat, worker_container, worker_pod, worker_service
from workloads.platform import Taint, Volume

Object = dict[str, Any]
SPOT = Taint(key="ebb.dev/capacity-type", value="spot", effect="NoSchedule")
GPU = Taint(key="nvidia.com/gpu", value="present", effect="NoSchedule")
DATA = Volume(name="data", claim="ebb-data", mount_path="/mnt/data", read_only=False)
ENVIRONMENT = Volume(name="environment", claim="ebb-environment", mount_path="/opt/ebb/environment", read_only=True)


def pod_of(job: Object, *, index: int = 1, attempt: int = 0, seat: Seat | None = None) -> Object:
    return worker_pod(Job.of(job), index=index, attempt=attempt, seat=seat or Seat())


def container_of(job: Object, **rest: Any) -> Object:
    return worker_container(pod_of(job, **rest)["spec"]["containers"])


def test_the_whole_pod() -> None:
    job = make_job(container={"resources": {"limits": {"nvidia.com/gpu": 1}}})
    seat = Seat(selector={"topology.kubernetes.io/zone": "local-a"}, taints=(GPU,), volumes=(DATA,))
    assert pod_of(job, seat=seat) == {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "digits-worker-1",
            "namespace": "elastic-job",
            "labels": {
                "group-name": "elastic.pytorch.org",
                "job-name": "digits",
                "replica-type": "worker",
                "replica-index": "1",
                "ebb.dev/job": "digits",
            },
            "annotations": {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false", "ebb.dev/attempt": "0"},
            "ownerReferences": [
                {
                    "apiVersion": "elastic.pytorch.org/v1alpha1",
                    "kind": "ElasticJob",
                    "name": "digits",
                    "uid": UID,
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        },
        "spec": {
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "nodeSelector": {"topology.kubernetes.io/zone": "local-a"},
            "tolerations": [{"key": "nvidia.com/gpu", "operator": "Equal", "value": "present", "effect": "NoSchedule"}],
            "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
            "volumes": [
                {"name": "shm", "emptyDir": {"medium": "Memory"}},
                {"name": "data", "persistentVolumeClaim": {"claimName": "ebb-data"}},
            ],
            "containers": [
                {
                    "name": "elasticjob-worker",
                    "image": "trainer",
                    "args": [
                        "--rdzv_backend=etcd",
                        "--rdzv_endpoint=etcd-service:2379",
                        f"--rdzv_id=digits-{UID[:8]}",
                        "--nnodes=1:4",
                        "--nproc_per_node=1",
                        "-m",
                        "trainer",
                    ],
                    "env": [
                        {"name": "PET_RDZV_BACKEND", "value": "etcd"},
                        {"name": "PET_RDZV_ENDPOINT", "value": "etcd-service:2379"},
                        {"name": "PET_RDZV_ID", "value": f"digits-{UID[:8]}"},
                        {"name": "PET_NNODES", "value": "1:4"},
                        {"name": "EBB_JOB", "value": "digits"},
                        {"name": "EBB_JOB_UID", "value": UID},
                        {"name": "EBB_NAMESPACE", "value": "elastic-job"},
                        {"name": "EBB_WORKER_INDEX", "value": "1"},
                        {"name": "EBB_OUTPUT_DIR", "value": f"/mnt/output/elastic-job/digits-{UID[:8]}"},
                        {"name": "EBB_METRICS_PORT", "value": "9400"},
                        {"name": "PET_LOCAL_ADDR", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
                    ],
                    "resources": {"limits": {"nvidia.com/gpu": 1}},
                    "terminationMessagePolicy": "FallbackToLogsOnError",
                    "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
                    "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}, {"name": "data", "mountPath": "/mnt/data"}],
                }
            ],
        },
    }


def test_the_whole_service() -> None:
    service = worker_service(Job.of(make_job()), 1)
    assert service["metadata"]["name"] == "digits-worker-1"
    assert service["spec"] == {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": {
            "group-name": "elastic.pytorch.org",
            "job-name": "digits",
            "replica-type": "worker",
            "replica-index": "1",
        },
    }


GIVEN = {
    "equals-sign": ["--rdzv_id=mine"],
    "two-words": ["--rdzv_id", "mine"],
    "hyphens": ["--rdzv-id=mine"],
    "in-the-command": None,
}


@pytest.mark.parametrize("args", GIVEN.values(), ids=GIVEN.keys())
def test_arguments_that_the_author_wrote_are_not_repeated(args: list[str] | None) -> None:
    container = (
        {"command": ["torchrun", "--rdzv_id=mine"], "args": ["train.py"]} if args is None else {"args": [*args, "train.py"]}
    )
    made = container_of(make_job(container=container))["args"]
    assert not any(word.startswith("--rdzv_id=digits") for word in made)
    assert any(word.startswith("--rdzv_endpoint=") for word in made)


def test_variables_that_the_author_wrote_are_not_overridden() -> None:
    written = [{"name": "EBB_OUTPUT_DIR", "value": "/mnt/output/mine"}, {"name": "LR", "value": "0.1"}]
    env = container_of(make_job(container={"env": written}))["env"]
    assert [item["value"] for item in env if item["name"] == "EBB_OUTPUT_DIR"] == ["/mnt/output/mine"]
    assert env[-1] == {"name": "LR", "value": "0.1"}


def test_only_the_training_container_is_told_where_to_meet() -> None:
    sidecar = {"name": "sidecar", "image": "logger", "args": ["--follow"]}
    worker = {"name": "elasticjob-worker", "image": "trainer"}
    made = pod_of(make_job(pod={"containers": [sidecar, worker]}))["spec"]["containers"]
    assert made[0]["args"] == ["--follow"]
    assert "env" not in made[0]
    assert made[1]["args"][0] == "--rdzv_backend=etcd"


def test_without_the_name_the_first_container_trains() -> None:
    made = pod_of(make_job(pod={"containers": [{"name": "a", "image": "x"}, {"name": "b", "image": "y"}]}))["spec"]["containers"]
    assert ("args" in made[0], "args" in made[1]) == (True, False)


def test_each_attempt_after_a_failure_meets_elsewhere_and_writes_to_the_same_folder() -> None:
    first, second = container_of(make_job()), container_of(make_job(), attempt=1)
    assert f"--rdzv_id=digits-{UID[:8]}-r1" in second["args"]
    folders = [[item for item in made["env"] if item["name"] == "EBB_OUTPUT_DIR"] for made in (first, second)]
    assert folders[0] == folders[1]


def test_what_is_mounted_already_is_left_alone() -> None:
    mine = {"name": "data", "persistentVolumeClaim": {"claimName": "mine"}}
    job = make_job(container={"volumeMounts": [{"name": "data", "mountPath": "/mnt/data/"}]}, pod={"volumes": [mine]})
    spec = pod_of(job, seat=Seat(volumes=(DATA, ENVIRONMENT)))["spec"]
    assert [volume["name"] for volume in spec["volumes"]] == ["data", "shm", "environment"]
    assert [mount["mountPath"] for mount in spec["containers"][0]["volumeMounts"]] == [
        "/mnt/data/",
        "/dev/shm",
        "/opt/ebb/environment",
    ]


def test_a_volume_of_the_same_name_elsewhere_does_not_clash() -> None:
    job = make_job(pod={"volumes": [{"name": "data", "emptyDir": {}}]})
    spec = pod_of(job, seat=Seat(volumes=(DATA,)))["spec"]
    assert [volume["name"] for volume in spec["volumes"]] == ["data", "shm", "ebb-data"]


def test_a_toleration_that_is_there_is_enough() -> None:
    tolerations = [{"key": "nvidia.com/gpu", "operator": "Exists"}]
    spec = pod_of(make_job(pod={"tolerations": tolerations}), seat=Seat(taints=(GPU, SPOT)))["spec"]
    assert [item["key"] for item in spec["tolerations"]] == ["nvidia.com/gpu", "ebb.dev/capacity-type"]


def test_processes_per_node_come_from_the_spec_before_the_gpus() -> None:
    gpus = {"resources": {"limits": {"nvidia.com/gpu": "4"}}}
    assert "--nproc_per_node=4" in container_of(make_job(container=gpus))["args"]
    assert "--nproc_per_node=2" in container_of(make_job(container=gpus, nprocPerNode=2))["args"]
    assert not any("nproc" in word for word in container_of(make_job())["args"])


def test_labels_and_annotations_of_the_template_are_kept_but_ours_win() -> None:
    job = make_job()
    template = job["spec"]["replicaSpecs"]["Worker"]["template"]
    template["metadata"] = {"labels": {"team": "vision", "job-name": "x"}, "annotations": {"note": "a"}}
    metadata = pod_of(job)["metadata"]
    assert (metadata["labels"]["team"], metadata["labels"]["job-name"], metadata["annotations"]["note"]) == (
        "vision",
        "digits",
        "a",
    )


def test_a_template_that_says_it_is_not_root_passes_pod_security_restricted() -> None:
    job = make_job(pod={"securityContext": {"runAsNonRoot": True}})
    assert violations(pod_of(job, seat=Seat(taints=(GPU, SPOT), volumes=(DATA, ENVIRONMENT)))["spec"]) == []


def test_making_a_pod_does_not_change_the_job() -> None:
    job = Job.of(make_job(pod={"nodeSelector": {"a": "b"}}))
    first = worker_pod(job, index=0, attempt=0, seat=Seat(selector={"c": "d"}, taints=(GPU,), volumes=(DATA,)))
    assert worker_pod(job, index=0, attempt=0, seat=Seat(selector={"c": "d"}, taints=(GPU,), volumes=(DATA,))) == first
    assert job.worker.template["spec"]["nodeSelector"] == {"a": "b"}
