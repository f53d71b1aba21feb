"""What the controller makes for a job: upstream's names, labels and arguments, and what it fills in where nobody chose."""

from typing import Any

from tests.workloads.api.place import Job, Place
from tests.workloads.api.stack import GPU, group, stack
from workloads import contract as names
from workloads.kube import PODS
from workloads.plan.quantities import quantity

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


async def test_workers_are_named_by_job_and_index_from_zero(place: Place) -> None:
    job = await place.submit(replicas=3)
    await job.until("all are made", lambda: len(job.pods) == 3)
    assert {index: pod["metadata"]["name"] for index, pod in job.pods.items()} == {
        0: "digits-worker-0", 1: "digits-worker-1", 2: "digits-worker-2",
    }  # fmt: skip


async def test_workers_have_the_four_upstream_labels_and_ours(place: Place) -> None:
    _, pod = await worker(place)
    assert pod["metadata"]["labels"] == {
        "group-name": "elastic.pytorch.org",
        "job-name": "digits",
        "replica-type": "worker",
        "replica-index": "0",
        "ebb.dev/job": "digits",
    }


async def test_labels_and_annotations_of_the_template_are_kept(place: Place) -> None:
    job = await place.submit(replicas=1)
    await job.runs(1)
    template = {"metadata": {"labels": {"team": "vision"}, "annotations": {"note": "mine"}}}
    await job.patch(replicaSpecs={"Worker": {"template": template}})
    old = job.pod_uid(0)
    await place.machines.vanish(job.machine(0))
    await job.is_replaced(0, old)
    metadata = job.pods[0]["metadata"]
    assert (metadata["labels"]["team"], metadata["annotations"]["note"]) == ("vision", "mine")


async def test_everything_made_is_owned_by_the_job_and_goes_with_it(place: Place) -> None:
    job = await place.submit(replicas=2)
    await job.runs(2)
    owner = {
        "apiVersion": "elastic.pytorch.org/v1alpha1",
        "kind": "ElasticJob",
        "name": "digits",
        "uid": job.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
    made = [*job.pods.values(), *job.services]
    assert [one["metadata"]["ownerReferences"] for one in made] == [[owner]] * len(made)
    assert not any("finalizers" in one["metadata"] for one in made)
    await job.delete()
    await job.until("nothing is left", lambda: not job.pods and not job.services)


async def test_a_job_has_no_finalizer_so_deleting_it_never_hangs(place: Place) -> None:
    job, _ = await worker(place)
    assert job.value is not None
    assert "finalizers" not in job.value["metadata"]


async def test_the_launcher_gets_upstreams_arguments_before_its_own(place: Place) -> None:
    job, pod = await worker(place, low=1, high=4)
    assert training(pod)["args"] == [
        "--rdzv_backend=etcd",
        "--rdzv_endpoint=etcd-service:2379",
        f"--rdzv_id=digits-{job.uid[:8]}",
        "--nnodes=1:4",
        "-m",
        "trainer",
    ]


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
        "PET_RDZV_BACKEND": "etcd",
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
    _, pod = await worker(place, container={"env": [{"name": "PET_RDZV_ID", "value": "mine"}]})
    assert variables(pod)["PET_RDZV_ID"] == "mine"
    assert [one["name"] for one in training(pod)["env"]].count("PET_RDZV_ID") == 1


async def test_sidecars_are_left_alone(place: Place) -> None:
    sidecar = {
        "name": "log-shipper",
        "image": "example.org/shipper:1",
        "args": ["--follow"],
        "env": [{"name": "A", "value": "b"}],
    }
    main = {"name": names.WORKER_CONTAINER, "image": "example.org/trainer:1", "args": ["train.py"]}
    _, pod = await worker(place, pod={"containers": [sidecar, main]})
    kept = next(one for one in pod["spec"]["containers"] if one["name"] == "log-shipper")
    assert (kept["args"], kept["env"]) == (["--follow"], [{"name": "A", "value": "b"}])
    assert "--rdzv_backend=etcd" in training(pod)["args"]


async def test_the_first_container_trains_where_none_has_the_name(place: Place) -> None:
    _, pod = await worker(place, pod={"containers": [{"name": "main", "image": "example.org/trainer:1"}]})
    assert "--rdzv_backend=etcd" in pod["spec"]["containers"][0]["args"]


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


async def test_running_workers_are_marked_so_that_the_autoscaler_leaves_their_machine(place: Place) -> None:
    _, pod = await worker(place)
    assert pod["metadata"]["annotations"]["cluster-autoscaler.kubernetes.io/safe-to-evict"] == "false"


async def test_bare_worker_names_resolve_by_a_headless_service(place: Place) -> None:
    """Of each worker, or one of the job that its pods name as their subdomain; before the pods are ready, too."""
    job = await place.submit(replicas=2)
    await job.runs(2)
    assert job.services
    for service in job.services:
        assert service["spec"]["clusterIP"] == "None"
        assert service["spec"]["publishNotReadyAddresses"] is True
        assert service["spec"]["selector"].items() <= job.pods[0]["metadata"]["labels"].items() or len(job.services) == 2
    for pod in job.pods.values():
        name = pod["metadata"]["name"]
        by_own_service = name in {service["metadata"]["name"] for service in job.services}
        assert by_own_service or _named_by_subdomain(job, pod), f"nothing makes {name} resolve"


def _named_by_subdomain(job: Job, pod: Object) -> bool:
    """The Service, the pod's host name, and the search entry with which a bare name is looked up in it."""
    spec, service = pod["spec"], pod["spec"].get("subdomain")
    searched = (spec.get("dnsConfig") or {}).get("searches") or []
    return (
        spec.get("hostname") == pod["metadata"]["name"]
        and service in {one["metadata"]["name"] for one in job.services}
        and f"{service}.{job.namespace}.svc.cluster.local" in searched
    )


async def test_a_name_that_somebody_elses_pod_has_is_waited_for(place: Place) -> None:
    place.machines.boots = False
    body: Object = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "digits-worker-0", "namespace": place.namespace, "labels": {names.LABEL_GROUP: names.GROUP}},
        "spec": {"containers": [{"name": "other", "image": "example.org/other"}]},
    }
    await place.made.kube.create(PODS, place.namespace, body)
    job = await place.submit(replicas=1)
    await job.until("it says so", lambda: job.condition(names.RUNNING).get("reason") == names.WAITING_FOR_NAMES)
    assert "digits-worker-0" in job.condition(names.RUNNING)["message"]
    await place.made.kube.delete(PODS, place.namespace, "digits-worker-0")
    place.machines.boots = True
    await job.runs(1)


async def test_a_job_made_again_under_its_name_does_not_take_its_predecessors_pods(place: Place) -> None:
    place.machines.leaves = False
    first = await place.submit(replicas=1)
    await first.runs(1)
    old = first.pod_uid(0)
    await first.delete()
    await first.until("its pod is on its way out", lambda: "deletionTimestamp" in first.pods[0]["metadata"])
    second = await place.submit(replicas=1)
    await second.looked()
    assert second.pod_uid(0) == old
    assert second.status["replicaStatuses"]["Worker"]["active"] == 0
    place.machines.leaves = True
    place.machines.again()
    await second.is_replaced(0, old, seconds=20)
    assert variables(second.pods[0])["PET_RDZV_ID"] == f"digits-{second.uid[:8]}"
    await second.runs(1)
    assert (second.status["reclaims"], second.status["failures"]) == (0, 0)
