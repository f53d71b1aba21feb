"""What the controller fills into workers' pods where the author did not choose: where to meet, threads, memory, safety, grace."""

from typing import Any

from ebb.api import contract as names
from ebb.api.quantities import quantity
from tests.apiserver.place import Job, Place
from tests.apiserver.stack import GPU, group, stack

Object = dict[str, Any]


async def worker(place: Place, **changes: Any) -> tuple[Job, Object]:
    """The first pod of a new job, as the API server keeps it."""
    job = await place.submit(**{"replicas": 1, **changes})
    await job.until("its worker is made", lambda: 0 in job.pods)
    return job, job.pods[0]


def training(pod: Object) -> Object:
    found: Object = next(one for one in pod["spec"]["containers"] if one["name"] == names.WORKER_CONTAINER)
    return found


def variables(pod: Object) -> dict[str, Any]:
    return {one["name"]: one.get("value", one.get("valueFrom")) for one in training(pod)["env"]}


async def test_the_launcher_gets_upstreams_arguments_before_its_own(place: Place) -> None:
    job, pod = await worker(place, low=1, high=4)
    assert training(pod)["args"] == [
        "--rdzv_backend=etcd3",
        "--rdzv_endpoint=etcd-service:2379",
        f"--rdzv_id=digits-{job.uid[:8]}",
        "--nnodes=1:4",
        "-m",
        "trainer",
    ]
    assert "command" not in training(pod), "the image starts the launcher"


async def test_arguments_that_the_author_wrote_are_not_written_twice(place: Place) -> None:
    _, pod = await worker(place, container={"args": ["--rdzv-id=mine", "--nnodes=2", "train.py"]})
    arguments = training(pod)["args"]
    assert [one for one in arguments if one.startswith(("--rdzv_id", "--rdzv-id", "--nnodes"))] == [
        "--rdzv-id=mine",
        "--nnodes=2",
    ]


async def test_processes_per_worker_are_its_gpus(place: Place) -> None:
    _, pod = await worker(place, container={"resources": {"limits": {"nvidia.com/gpu": "4"}}})
    assert "--nproc_per_node=4" in training(pod)["args"]


async def test_processes_per_worker_are_those_of_the_spec_if_it_says_so(place: Place) -> None:
    _, pod = await worker(place, nprocPerNode=2, container={"resources": {"limits": {"nvidia.com/gpu": "4"}}})
    assert "--nproc_per_node=2" in training(pod)["args"]


async def test_the_rendezvous_is_also_in_variables_for_programs_that_read_those(place: Place) -> None:
    job, pod = await worker(place)
    found = variables(pod)
    wanted = {
        "PET_RDZV_BACKEND": "etcd3",
        "PET_RDZV_ENDPOINT": "etcd-service:2379",
        "PET_RDZV_ID": f"digits-{job.uid[:8]}",
        "PET_NNODES": "1:4",
        "EBB_JOB": "digits",
        "EBB_JOB_UID": job.uid,
        "EBB_NAMESPACE": place.namespace,
        "EBB_WORKER_INDEX": "0",
        "EBB_OUTPUT_DIR": f"/mnt/output/{place.namespace}/digits-{job.uid[:8]}",
    }
    assert {key: found.get(key) for key in wanted} == wanted


async def test_peers_need_no_dns_name_of_a_worker_because_it_tells_its_address(place: Place) -> None:
    _, pod = await worker(place)
    assert variables(pod)["PET_LOCAL_ADDR"]["fieldRef"]["fieldPath"] == "status.podIP"


async def test_a_variable_that_the_author_set_is_kept(place: Place) -> None:
    chosen = {
        "PET_RDZV_ID": "mine", "PET_NNODES": "2", "PET_LOCAL_ADDR": "10.0.0.7", "NCCL_SOCKET_IFNAME": "eth1",
        "GLOO_SOCKET_IFNAME": "eth1", "OMP_NUM_THREADS": "3", "EBB_OUTPUT_DIR": "/mnt/mine",
    }  # fmt: skip
    env = [{"name": name, "value": value} for name, value in chosen.items()]
    _, pod = await worker(place, container={"env": env, "resources": {"requests": {"cpu": "8"}}})
    found = [(one["name"], one.get("value")) for one in training(pod)["env"] if one["name"] in chosen]
    assert found == list(chosen.items()), "each once, as it was written"
    assert not any(one.startswith(("--rdzv_id", "--nnodes")) for one in training(pod)["args"]), "launchers prefer arguments"


async def test_sidecars_are_left_alone(place: Place) -> None:
    sidecar = {
        "name": "log-shipper",
        "image": "example.org/shipper:1",
        "args": ["--follow"],
        "env": [{"name": "A", "value": "b"}],
    }
    main = {"name": names.WORKER_CONTAINER, "image": "example.org/trainer:1", "args": ["train.py"]}
    first = {**sidecar, "name": "fetch-weights"}
    _, pod = await worker(place, pod={"containers": [sidecar, main], "initContainers": [first]})
    others = [pod["spec"]["containers"][0], *pod["spec"]["initContainers"]]
    assert [one["name"] for one in others] == ["log-shipper", "fetch-weights"]
    assert [(one["args"], one["env"]) for one in others] == [(["--follow"], [{"name": "A", "value": "b"}])] * 2
    assert not any("volumeMounts" in one for one in others)
    assert "--rdzv_backend=etcd3" in training(pod)["args"]


async def test_the_first_container_trains_where_none_has_the_name(place: Place) -> None:
    _, pod = await worker(place, pod={"containers": [{"name": "main", "image": "example.org/trainer:1"}]})
    assert "--rdzv_backend=etcd3" in pod["spec"]["containers"][0]["args"]


async def test_pods_are_never_restarted_in_place(place: Place) -> None:
    _, pod = await worker(place, pod={"restartPolicy": "Always"})
    assert pod["spec"]["restartPolicy"] == "Never"


async def test_what_a_silent_template_gets_is_safe(place: Place) -> None:
    _, pod = await worker(place)
    assert pod["spec"]["automountServiceAccountToken"] is False
    assert pod["spec"]["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    security = training(pod)["securityContext"]
    assert (security["allowPrivilegeEscalation"], security["capabilities"]) == (False, {"drop": ["ALL"]})


async def test_what_the_template_says_of_security_is_kept(place: Place) -> None:
    security = {"allowPrivilegeEscalation": True, "capabilities": {"add": ["SYS_PTRACE"]}}
    _, pod = await worker(place, pod={"automountServiceAccountToken": True}, container={"securityContext": security})
    assert pod["spec"]["automountServiceAccountToken"] is True
    assert training(pod)["securityContext"]["allowPrivilegeEscalation"] is True
    assert training(pod)["securityContext"]["capabilities"] == {"add": ["SYS_PTRACE"]}


async def test_loader_workers_have_shared_memory(place: Place) -> None:
    _, pod = await worker(place)
    mount = next(one for one in training(pod)["volumeMounts"] if one["mountPath"] == "/dev/shm")
    volume = next(one for one in pod["spec"]["volumes"] if one["name"] == mount["name"])
    assert volume["emptyDir"]["medium"] == "Memory"


async def test_shared_memory_that_the_author_mounted_is_kept(place: Place) -> None:
    volume = {"name": "big", "emptyDir": {"medium": "Memory", "sizeLimit": "3Gi"}}
    container = {"volumeMounts": [{"name": "big", "mountPath": "/dev/shm"}]}
    _, pod = await worker(place, container=container, pod={"volumes": [volume]})
    assert pod["spec"]["volumes"] == [volume]
    assert [(one["name"], one["mountPath"]) for one in training(pod)["volumeMounts"]] == [("big", "/dev/shm")]
    assert training(pod).get("resources", {}) == {}


async def test_shared_memory_is_part_of_what_the_worker_asked_for(place: Place) -> None:
    """What is written to it counts as the container's memory, so it must not be promised beside it."""
    _, pod = await worker(place, container={"resources": {"limits": {"memory": "2Gi"}}})
    volume = next(one for one in pod["spec"]["volumes"] if one["name"] == "shm")
    assert volume["emptyDir"] == {"medium": "Memory", "sizeLimit": "1Gi"}


async def test_a_worker_that_asks_for_no_memory_asks_for_its_shared_memory_by_the_size_of_the_machine(place: Place) -> None:
    async with stack(place.made, group("a", memoryGiB=8)):
        _, pod = await worker(place, container=GPU)
        volume = next(one for one in pod["spec"]["volumes"] if one["name"] == "shm")
        asked = training(pod)["resources"]["requests"]["memory"]
        assert volume["emptyDir"]["sizeLimit"] == asked
        assert 0 < quantity(asked) < 8 * 2**30


async def test_gloo_and_nccl_are_kept_off_the_loopback(place: Place) -> None:
    _, pod = await worker(place)
    found = variables(pod)
    assert (found["NCCL_SOCKET_IFNAME"], found["GLOO_SOCKET_IFNAME"]) == ("^lo,docker", "eth0")


async def test_threads_are_each_processs_share_of_the_cpus(place: Place) -> None:
    _, pod = await worker(place, nprocPerNode=2, container={"resources": {"requests": {"cpu": "8"}}})
    assert variables(pod)["OMP_NUM_THREADS"] == "4"


async def test_the_grace_of_workers_fits_into_the_clouds_notice(place: Place) -> None:
    async with stack(place.made, group("a", noticeSeconds=120)):
        _, pod = await worker(place, container=GPU)
        assert 100 <= pod["spec"]["terminationGracePeriodSeconds"] < 120


async def test_a_grace_that_the_author_chose_is_kept(place: Place) -> None:
    async with stack(place.made, group("a", noticeSeconds=120)):
        _, pod = await worker(place, container=GPU, pod={"terminationGracePeriodSeconds": 7})
        assert pod["spec"]["terminationGracePeriodSeconds"] == 7
