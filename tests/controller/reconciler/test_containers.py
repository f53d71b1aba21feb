"""What the container that trains is given, a row for each rule, and that what its author wrote wins."""

import json
from typing import Any

import pytest

from ebb.api.platform import Volume
from ebb.api.spec import Job
from ebb.api.template import worker_container
from ebb.controller.reconciler.pods import PodPlacement, worker_pod
from ebb.elastic.launch.restart_rules import RestartRules
from tests.builders import UID, make_job

Object = dict[str, Any]
DATA = Volume(name="data", claim="ebb-data", mount_path="/mnt/data", read_only=False)
ENVIRONMENT = Volume(name="environment", claim="ebb-environment", mount_path="/opt/ebb/site-packages", read_only=True)


def pod_of(job: Object, *, attempt: int = 0, pod_placement: PodPlacement | None = None) -> Object:
    """They meet in an etcd of their author's, so that no certificate is among the volumes (test_rendezvous.py has those)."""
    job = {**job, "spec": {**job["spec"], "rdzvEndpoint": "mine:2379"}}
    return worker_pod(Job.of(job), index=1, attempt=attempt, pod_placement=pod_placement or PodPlacement())


def container_of(job: Object, **rest: Any) -> Object:
    return worker_container(pod_of(job, **rest)["spec"]["containers"])


def environment(container: Object) -> dict[str, str | None]:
    return {item["name"]: item.get("value") for item in container["env"]}


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


def test_the_launcher_is_told_to_hold_its_machine_where_the_job_says_so() -> None:
    told = environment(container_of(make_job(holdOnFailureSeconds=1800)))
    assert (told["EBB_HOLD_ON_FAILURE_SECONDS"], told["EBB_LAUNCHER_PORT"]) == ("1800", "9401")
    assert not {"EBB_HOLD_ON_FAILURE_SECONDS", "EBB_LAUNCHER_PORT"} & environment(container_of(make_job())).keys()


def test_the_launcher_is_told_to_test_its_machine_and_which_it_is() -> None:
    container = container_of(make_job(burnInSeconds=60))
    assert environment(container)["EBB_BURN_IN_SECONDS"] == "60"
    (node,) = [item for item in container["env"] if item["name"] == "EBB_NODE_NAME"]
    assert node["valueFrom"] == {"fieldRef": {"fieldPath": "spec.nodeName"}}
    assert not {"EBB_BURN_IN_SECONDS", "EBB_NODE_NAME"} & {item["name"] for item in container_of(make_job())["env"]}


def test_the_launcher_is_told_after_which_failures_to_start_the_program_again() -> None:
    rules = [
        {"action": "HoldJob", "onReasons": ["OOMKilled"]},
        {"action": "FailJob", "onExitCodes": [3]},
        {"action": "RestartInPlace", "onMessage": "DataLoader worker"},
        {"action": "RestartInPlace", "onExitCodes": [139], "times": 5},
        {"action": "RestartJob", "onExitCodes": [1]},
    ]
    told = environment(container_of(make_job(failurePolicy={"rules": rules})))
    assert json.loads(told["EBB_RESTART_RULES"] or "") == [
        {"rule": 2, "times": 0, "codes": [3], "words": ""},
        {"rule": 3, "times": 3, "codes": [], "words": "DataLoader worker"},
        {"rule": 4, "times": 5, "codes": [139], "words": ""},
    ]
    launcher = RestartRules.of({"EBB_RESTART_RULES": told["EBB_RESTART_RULES"] or ""})
    assert [bool(launcher.take(code, "")) for code in (3, 139, 1)] == [False, True, False]
    assert "EBB_RESTART_RULES" not in environment(container_of(make_job(failurePolicy={"rules": rules[:2]})))


def test_a_launcher_that_is_told_by_a_variable_is_not_told_otherwise_by_an_argument() -> None:
    written = [{"name": "PET_RDZV_ENDPOINT", "value": "mine:2379"}]
    found = container_of(make_job(container={"env": written}))
    assert (environment(found)["PET_RDZV_ENDPOINT"], [word for word in found["args"] if "endpoint" in word]) == ("mine:2379", [])


@pytest.mark.parametrize(("backend", "restarts"), [("etcd", "3"), ("etcd-v2", "3"), ("etcd3", None), ("c10d", None)])
def test_a_lost_peer_does_not_end_a_launcher_that_cannot_tell_it_from_a_bug(backend: str, restarts: str | None) -> None:
    env = environment(container_of(make_job(container={"args": [f"--rdzv_backend={backend}", "train.py"]})))
    assert env.get("PET_MAX_RESTARTS") == restarts


def test_only_the_training_container_is_told_where_to_meet() -> None:
    sidecar = {"name": "sidecar", "image": "logger", "args": ["--follow"]}
    worker = {"name": "elasticjob-worker", "image": "trainer"}
    made = pod_of(make_job(pod={"containers": [sidecar, worker]}))["spec"]["containers"]
    assert made[0]["args"] == ["--follow"]
    assert "env" not in made[0]
    assert made[1]["args"][0] == "--rdzv_backend=etcd3"


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
    spec = pod_of(job, pod_placement=PodPlacement(volumes=(DATA, ENVIRONMENT)))["spec"]
    assert [volume["name"] for volume in spec["volumes"]] == ["data", "shm", "environment"]
    assert [mount["mountPath"] for mount in spec["containers"][0]["volumeMounts"]] == [
        "/mnt/data/",
        "/dev/shm",
        "/opt/ebb/site-packages",
    ]


def test_a_volume_of_the_same_name_elsewhere_does_not_clash() -> None:
    job = make_job(pod={"volumes": [{"name": "data", "emptyDir": {}}]})
    spec = pod_of(job, pod_placement=PodPlacement(volumes=(DATA,)))["spec"]
    assert [volume["name"] for volume in spec["volumes"]] == ["data", "shm", "ebb-data"]


def worker(
    gpus: int = 0, cpu: str = "", args: list[str] | None = None, env: list[Object] | None = None, limit: str = ""
) -> Object:
    """A container; `limit`: CPUs that it may use but does not request."""
    requests, limits = ({"cpu": cpu} if cpu else {}), {"nvidia.com/gpu": gpus} if gpus else {}
    written = {"args": args} if args is not None else {}
    return {"resources": {"requests": requests, "limits": {**limits, **({"cpu": limit} if limit else {})}}, "env": env, **written}


PROCESSES: dict[str, tuple[Object, int | None, tuple[str | None, str | None, str | None]]] = {
    # container, spec.nprocPerNode -> argument, PET_NPROC_PER_NODE, OMP_NUM_THREADS
    "nothing known": (worker(), None, (None, None, None)),
    "no arguments at all": (worker(gpus=2, args=[]), None, ("2", "2", None)),
    "of the GPUs": (worker(gpus=4, cpu="16"), None, ("4", "4", "4")),
    "of the spec, before the GPUs": (worker(gpus=4, cpu="16"), 2, ("2", "2", "8")),
    "without GPUs there is one": (worker(cpu="3"), None, (None, None, "3")),
    "of an argument": (worker(gpus=4, cpu="16", args=["--nproc_per_node=8", "x.py"]), None, ("8", "8", "2")),
    "of an argument in two words": (worker(gpus=4, cpu="16", args=["--nproc-per-node", "8", "x.py"]), None, (None, "8", "2")),
    "of a variable": (worker(gpus=4, cpu="16", env=[{"name": "PET_NPROC_PER_NODE", "value": "8"}]), None, (None, "8", "2")),
    "a word, with GPUs": (worker(gpus=4, cpu="16", args=["--nproc_per_node=gpu"]), None, ("gpu", "4", "4")),
    "a word, without": (worker(cpu="16", args=["--nproc_per_node=auto"]), None, ("auto", None, None)),
    "fewer cores than processes": (worker(gpus=4, cpu="2"), None, ("4", "4", "1")),
    "part of a core": (worker(cpu="300m"), None, (None, None, "1")),
    "rounded down": (worker(gpus=2, cpu="7900m"), None, ("2", "2", "3")),
    "a limit alone is a request too": (worker(limit="6"), None, (None, None, "6")),
    "the request before the limit": (worker(cpu="2", limit="6"), None, (None, None, "2")),
    "threads of the author": (worker(cpu="8", env=[{"name": "OMP_NUM_THREADS", "value": "5"}]), None, (None, None, "5")),
    "no quantity": (worker(cpu="many"), None, (None, None, None)),
}


@pytest.mark.parametrize(("container", "processes", "expected"), PROCESSES.values(), ids=PROCESSES)
def test_processes_and_their_threads(
    container: Object, processes: int | None, expected: tuple[str | None, str | None, str | None]
) -> None:
    found = container_of(make_job(container=container, nprocPerNode=processes))
    (*_, argument) = (None, *(word.partition("=")[2] or None for word in found["args"] if word.startswith("--nproc")))
    env = environment(found)
    assert (argument, env.get("PET_NPROC_PER_NODE"), env.get("OMP_NUM_THREADS")) == expected


def memory(**amounts: str) -> Object:
    return {"resources": {kind: {"memory": amount} for kind, amount in amounts.items()}}


GIB = 2**30
SHARED: dict[str, tuple[Object, float, str | None, str | None]] = {
    # container, the worker's share of its machine -> size of /dev/shm, the container's memory request
    "half of the limit": (memory(limits="8Gi"), 16 * GIB, "4096Mi", None),
    "half of the request": (memory(requests="8Gi"), 16 * GIB, "4096Mi", "8Gi"),
    "of the limit, where the two differ": (memory(requests="4Gi", limits="8Gi"), 0, "4096Mi", "4Gi"),
    "a quarter of the machine, and asked for": ({}, 16 * GIB, "4096Mi", "4096Mi"),
    "added to what is asked for": ({"resources": {"requests": {"cpu": "2"}, "limits": None}}, GIB, "256Mi", "256Mi"),
    "nothing known": ({}, 0, None, None),
    "no quantity": (memory(limits="much"), 0, None, None),
}


@pytest.mark.parametrize(("container", "share", "size", "request_"), SHARED.values(), ids=SHARED)
def test_shared_memory(container: Object, share: float, size: str | None, request_: str | None) -> None:
    spec = pod_of(make_job(container=container), pod_placement=PodPlacement(memory_bytes=share))["spec"]
    (volume,) = spec["volumes"]
    assert volume == {"name": "shm", "emptyDir": {"medium": "Memory", **({"sizeLimit": size} if size else {})}}
    resources = spec["containers"][0].get("resources") or {}
    assert (resources.get("requests") or {}).get("memory") == request_
    wanted = (container.get("resources") or {}).get("requests") or {}
    assert resources.get("requests", {}).items() >= wanted.items()


def test_a_container_with_its_own_shared_memory_is_asked_for_none() -> None:
    mine = {"volumeMounts": [{"name": "mine", "mountPath": "/dev/shm"}]}
    job = make_job(container=mine, pod={"volumes": [{"name": "mine", "emptyDir": {"medium": "Memory"}}]})
    spec = pod_of(job, pod_placement=PodPlacement(memory_bytes=GIB))["spec"]
    assert (spec["volumes"], "resources" in spec["containers"][0]) == (
        [{"name": "mine", "emptyDir": {"medium": "Memory"}}],
        False,
    )


def test_interfaces_of_the_author_are_kept() -> None:
    written = [{"name": "NCCL_SOCKET_IFNAME", "value": "net1"}, {"name": "GLOO_SOCKET_IFNAME", "value": "net1"}]
    found = container_of(make_job(container={"env": written}))["env"]
    assert [item for item in found if item["name"].endswith("_IFNAME")] == written


def test_rank_0_is_met_by_its_address_and_not_by_a_name() -> None:
    address = {"name": "PET_LOCAL_ADDR", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
    assert address in container_of(make_job())["env"]
