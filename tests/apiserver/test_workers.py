"""What the controller makes for a job: upstream's names, labels and owners, one Service, and nothing that outlives the job."""

from typing import Any

from ebb.api import contract as names
from ebb.kube import ELASTIC_JOBS, PODS, SERVICES
from tests.apiserver.place import Place, article
from tests.apiserver.test_injected import variables, worker

Object = dict[str, Any]


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
    job = await place.submit(replicas=1, suspend=True)
    template = {"metadata": {"labels": {"team": "vision"}, "annotations": {"note": "mine"}}}
    await job.patch(replicaSpecs={"Worker": {"template": template}}, suspend=False)
    await job.runs(1)
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


MARKS = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false", "karpenter.sh/do-not-disrupt": "true"}


async def test_running_workers_are_marked_so_that_the_autoscaler_leaves_their_machine(place: Place) -> None:
    _, pod = await worker(place)
    assert pod["metadata"]["annotations"].items() >= MARKS.items()


async def test_the_mark_goes_with_the_job(place: Place) -> None:
    """A machine must not be kept for one that is suspended or has ended; autoscalers pass over pods that have finished."""
    job = await place.submit(replicas=2)
    await job.runs(2)
    await job.patch(suspend=True)
    await job.until("no marked pod is left", lambda: job.state == names.SUSPENDED and not job.pods)
    await job.patch(suspend=False)
    await job.runs(2)
    await job.ends(0, code=0)
    await job.ends(1, code=1)
    await job.until("it succeeded", lambda: job.state == names.SUCCEEDED)
    await job.looked()
    assert {pod["status"]["phase"] for pod in job.pods.values()} <= {"Succeeded", "Failed"}


async def test_a_job_has_one_headless_service_by_which_bare_names_of_workers_resolve(place: Place) -> None:
    """Its pods name it as their subdomain, and look names up in it; before they are ready, too."""
    job = await place.submit(replicas=2)
    await job.runs(2)
    (service,) = await job.until("there is one", lambda: job.services)
    assert service["metadata"]["name"] == "digits-workers"
    spec = service["spec"]
    assert (spec["clusterIP"], spec["publishNotReadyAddresses"], "ports" in spec) == ("None", True, False)
    assert spec["selector"] == {"group-name": "elastic.pytorch.org", "job-name": "digits", "replica-type": "worker"}
    for pod in job.pods.values():
        spec, name = pod["spec"], pod["metadata"]["name"]
        assert (spec["hostname"], spec["subdomain"]) == (name, "digits-workers")
        assert f"digits-workers.{place.namespace}.svc.cluster.local" in spec["dnsConfig"]["searches"]


async def test_the_service_is_made_again_if_somebody_deletes_it_and_those_of_earlier_controllers_go(place: Place) -> None:
    job = await place.submit(replicas=1)
    await job.runs(1)
    (first,) = await job.until("there is one", lambda: job.services)
    metadata = {key: first["metadata"][key] for key in ("namespace", "labels", "ownerReferences")}
    old = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "digits-worker-0", **metadata}}
    await place.made.kube.create(
        SERVICES, place.namespace, {**old, "spec": {"clusterIP": "None", "selector": metadata["labels"]}}
    )
    await place.made.kube.delete(SERVICES, place.namespace, "digits-workers")

    def mended() -> bool:
        found = {one["metadata"]["name"]: one["metadata"]["uid"] for one in job.services}
        return set(found) == {"digits-workers"} and found["digits-workers"] != first["metadata"]["uid"]

    await job.until("there is one, and it is another", mended)


async def test_what_upstream_declares_and_ignores_is_ignored_here_too(place: Place) -> None:
    """An Etcd replica and a gang: rdzvEndpoint says where etcd is, and minReplicas how many workers a job needs."""
    item = article("digits", place.namespace, replicas=2, low=1, schedulingPolicy={"minAvailable": 99})
    item["spec"]["replicaSpecs"]["Etcd"] = {"replicas": 1, **item["spec"]["replicaSpecs"]["Worker"]}
    await place.made.kube.create(ELASTIC_JOBS, place.namespace, item)
    job = place.job()
    await job.runs(2)
    assert {pod["metadata"]["labels"]["replica-type"] for pod in place.made.seen.all(PODS, place.namespace)} == {"worker"}


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


async def test_workers_of_a_deleted_job_go_without_a_garbage_collector(place: Place) -> None:
    job = await place.submit(replicas=2)
    await job.runs(2)
    place.made.processes.dismiss_manager()
    try:
        await job.delete()
        await job.until("its workers and its Service are gone", lambda: not job.pods and not job.services, seconds=40)
    finally:
        place.made.processes.manage()
