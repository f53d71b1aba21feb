"""The Workload of a job in a queue of Kueue's: what is asked, what the answer lets the job do, and what is written into it."""

from typing import Any

import pytest

from ebb.api import contract as names
from ebb.api.clock import stamp
from ebb.api.schema import encode
from ebb.api.spec import Job
from ebb.controller.reconciler.types import (
    CreatePod,
    CreateWorkload,
    DeleteWorkload,
    JobView,
    Kueue,
    Observed,
    Plan,
    ReplaceWorkload,
    WriteWorkloadStatus,
)
from ebb.controller.reconciler.workload import condition, workload_name, workload_of
from tests.builders import NOW, make_group, make_job, make_platform, make_pod
from tests.controller.reconciler.scenes import claim, cluster_capacity, gpu_job, reasons, why
from tests.looks import done, look

Object = dict[str, Any]
FLAVORS = {
    "spot": {
        "metadata": {"name": "spot"},
        "spec": {"nodeLabels": {"pool": "spot"}, "tolerations": [{"key": "pool", "operator": "Exists"}]},
    }
}
PLATFORM = make_platform(make_group(max=4))


def queued(job: Object, queue: str = "gpus", **labels: str) -> Object:
    """The job in a queue of Kueue's."""
    job["metadata"]["labels"] = {names.LABEL_QUEUE: queue, **labels}
    return job


def workload(job: Object, *true: str, count: int | None = None, status: Object | None = None, **spec: Any) -> Object:
    """Its Workload as the controller's copy has it; `true` are conditions, `count` the workers that Kueue assigned."""
    body = workload_of(JobView.of(Job.of(job), Observed(kueue=Kueue(known=True)), NOW))
    body["metadata"] |= {"uid": "w-1", "resourceVersion": "7", "generation": 3}
    body["spec"]["podSets"] = [
        {key: value for key, value in item.items() if key != "template"} for item in body["spec"]["podSets"]
    ]
    body["spec"] |= spec
    at = stamp(NOW - 90)
    told = [
        {"type": kind, "status": "True", "reason": f"By{kind}", "message": f"{kind} it is.", "lastTransitionTime": at}
        for kind in true
    ]
    body["status"] = {"conditions": told, **(status or {})}
    if count is not None:
        assigned = [{"name": "worker", "flavors": {"nvidia.com/gpu": "spot"}, "count": count}]
        body["status"]["admission"] = {"clusterQueue": "vision", "podSetAssignments": assigned}
    return body


def admitted(job: Object, count: int, *more: str, **rest: Any) -> Object:
    return workload(job, "QuotaReserved", "Admitted", *more, count=count, **rest)


def seen(found: Object | None, **rest: Any) -> Kueue:
    return Kueue(**{"known": True, "workload": found, "flavors": FLAVORS, **rest})


def told(decided: Plan) -> list[str]:
    """The actions that concern the Workload."""
    short = {CreateWorkload: "create", ReplaceWorkload: "spec", WriteWorkloadStatus: "status", DeleteWorkload: "delete"}
    return [short[type(action)] for action in decided.actions if type(action) in short]


def written(decided: Plan) -> Object:
    """The status that the Workload gets."""
    (action,) = (action for action in decided.actions if isinstance(action, WriteWorkloadStatus))
    status: Object = action.body["status"]
    return status


# --- What is asked ---


def test_it_asks_for_all_workers_and_is_content_with_min_replicas() -> None:
    decided = look(queued(gpu_job(replicas=4, low=2)), kueue=seen(None))
    (body,) = (action.body for action in decided.actions if isinstance(action, CreateWorkload))
    (pod_set,) = body["spec"]["podSets"]
    assert (pod_set["name"], pod_set["count"], pod_set["minCount"]) == ("worker", 4, 2)
    assert (body["spec"]["queueName"], body["spec"]["priority"]) == ("gpus", 0)
    assert pod_set["template"]["spec"]["containers"][0]["resources"] == {"limits": {"nvidia.com/gpu": 1}}
    (owner,) = body["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["controller"]) == ("ElasticJob", True)
    assert (done(decided), why(decided)) == ([], (names.WAITING_FOR_KUEUE, "Queue 'gpus': Kueue is asked for its turn."))


def test_an_automatic_job_asks_for_all_that_it_may_have() -> None:
    decided = look(queued(gpu_job(replicas=2, low=1, high=4, scaling="automatic")), kueue=seen(None))
    (body,) = (action.body for action in decided.actions if isinstance(action, CreateWorkload))
    assert (body["spec"]["podSets"][0]["count"], body["spec"]["podSets"][0]["minCount"]) == (4, 1)


def test_one_that_wants_all_or_nothing_has_no_min_count() -> None:
    decided = look(queued(gpu_job(replicas=2, low=2)), kueue=seen(None))
    (body,) = (action.body for action in decided.actions if isinstance(action, CreateWorkload))
    assert "minCount" not in body["spec"]["podSets"][0]


def test_it_is_named_as_kueue_names_those_of_its_own_integrations() -> None:
    """By GetWorkloadNameForOwnerWithGVK of pkg/controller/jobframework: tools find it by that. The digest is sha1's."""
    job = Job.of(make_job("digits", uid="u-1"))
    assert workload_name(job) == "elasticjob-digits-74e77"
    long = workload_name(Job.of(make_job("d" * 60, uid="u-1")))
    assert (len(long), long[:57]) == (63, f"elasticjob-{'d' * 46}")


def test_flavors_are_chosen_by_what_placement_asks_for_and_by_the_stacks_taints() -> None:
    placement = {"gpuType": "t4", "zone": "local-a", "capacity": "spot"}
    decided = look(queued(gpu_job(placement=placement)), kueue=seen(None), platform=PLATFORM)
    (body,) = (action.body for action in decided.actions if isinstance(action, CreateWorkload))
    spec = body["spec"]["podSets"][0]["template"]["spec"]
    assert spec["nodeSelector"] == {names.LABEL_GPU_TYPE: "T4", names.LABEL_ZONE: "local-a", names.LABEL_CAPACITY: "spot"}
    assert [item["key"] for item in spec["tolerations"]] == ["nvidia.com/gpu"]


@pytest.mark.parametrize(
    ("labels", "spec", "group", "priority"),
    [
        ({names.LABEL_QUEUE_PRIORITY: "urgent"}, {"priorityClassName": "ebb-job"}, "kueue.x-k8s.io", 5),
        ({}, {"priorityClassName": "ebb-job"}, "scheduling.k8s.io", 1000),
        ({}, {}, "", 7),
    ],
)
def test_its_priority_is_that_of_kueues_class_else_that_of_its_pods(
    labels: dict[str, str], spec: Object, group: str, priority: int
) -> None:
    job, classes = queued(gpu_job(**spec), **labels), {"ebb-job": 1000, "": 7}
    decided = look(job, kueue=seen(None, priorities={"urgent": 5}), priorities=classes)
    (body,) = (action.body for action in decided.actions if isinstance(action, CreateWorkload))
    assert (body["spec"].get("priorityClassRef", {}).get("group", ""), body["spec"]["priority"]) == (group, priority)


def test_a_class_that_is_not_there_is_named() -> None:
    decided = look(queued(gpu_job(), **{names.LABEL_QUEUE_PRIORITY: "urgnt"}), kueue=seen(None))
    assert told(decided) == []
    assert "Kueue has no WorkloadPriorityClass 'urgnt'" in why(decided)[1]


# --- What the answer lets it do ---


def test_it_has_workers_when_admitted_on_the_machines_that_kueue_says() -> None:
    job = queued(gpu_job(replicas=2, low=1))
    update = {"name": "worker", "labels": {"x": "1"}, "annotations": {"y": "2"}, "nodeSelector": {"rack": "r1"}}
    checks = {"admissionChecks": [{"name": "c", "state": "Ready", "podSetUpdates": [update]}]}
    decided = look(job, kueue=seen(admitted(job, 2, status=checks)))
    assert done(decided) == ["+0", "+1"]
    pod = next(action.body for action in decided.actions if isinstance(action, CreatePod))
    assert pod["spec"]["nodeSelector"] == {"pool": "spot", "rack": "r1"}
    assert {"key": "pool", "operator": "Exists"} in pod["spec"]["tolerations"]
    assert (pod["metadata"]["labels"]["x"], pod["metadata"]["annotations"]["y"]) == ("1", "2")


@pytest.mark.parametrize(("count", "expected"), [(4, ["+0", "+1", "+2", "+3"]), (3, ["+0", "+1", "+2"]), (2, ["+0", "+1"])])
def test_it_has_as_many_as_kueue_admits(count: int, expected: list[str]) -> None:
    job = queued(gpu_job(replicas=4, low=2))
    assert done(look(job, kueue=seen(admitted(job, count)))) == expected


def test_an_automatic_job_grows_to_what_kueue_admits_and_not_beyond() -> None:
    job = queued(gpu_job(replicas=1, low=1, high=4, scaling="automatic", status={"target": 1, "targetTime": stamp(NOW - 900)}))
    job["status"]["placement"] = {"zone": "", "since": stamp(NOW - 900)}
    decided = look(job, make_pod(job, 0), kueue=seen(admitted(job, 3)))
    assert decided.status.target == 3


def test_beyond_what_it_was_admitted_for_it_does_not_grow_and_says_so() -> None:
    small = queued(gpu_job(replicas=2, low=1, high=4))
    found = admitted(small, 2)
    job = queued(gpu_job(replicas=4, low=1, high=4, status={"placement": {"zone": "", "since": stamp(NOW - 900)}}))
    decided = look(job, make_pod(job, 0), make_pod(job, 1), kueue=seen(found))
    assert done(decided) == []
    assert why(decided)[1] == "2 of 2 workers run. Kueue lets it have 2 of 4."


WAITS: dict[str, tuple[tuple[str, ...], Object, Object, str]] = {
    "not looked at": ((), {}, {}, "Queue 'gpus': Kueue has not looked at it yet."),
    "quota, and a check": (
        ("QuotaReserved",),
        {"admissionChecks": [{"name": "budget", "state": "Pending"}]},
        {},
        "Queue 'gpus': Kueue has reserved its quota, and waits for budget.",
    ),
    "evicted": (("QuotaReserved", "Admitted", "Evicted"), {}, {}, "took its quota back (ByEvicted): Evicted it is."),
    "deactivated": (
        ("QuotaReserved", "Admitted", "Evicted"),
        {},
        {"active": False},
        "is deactivated, so it does not come back by itself: `ebb stop` and `ebb resume` queue it anew",
    ),
    "finished by another": (("Finished",), {}, {}, "Kueue holds its Workload for finished: delete that, and it is queued anew."),
}


@pytest.mark.parametrize(("true", "status", "spec", "words"), WAITS.values(), ids=WAITS)
def test_until_then_it_has_none_and_says_why(true: tuple[str, ...], status: Object, spec: Object, words: str) -> None:
    job = queued(gpu_job(replicas=2, low=1))
    decided = look(job, kueue=seen(workload(job, *true, count=2 if "Admitted" in true else None, status=status, **spec)))
    reason, message = why(decided)
    assert (done(decided), reason) == ([], names.WAITING_FOR_KUEUE)
    assert words in message


def test_kueues_own_words_are_passed_on() -> None:
    job = queued(gpu_job(replicas=2, low=1))
    said = {
        "type": "QuotaReserved",
        "status": "False",
        "reason": "Pending",
        "message": "insufficient unused quota, 1 more needed",
    }
    decided = look(job, kueue=seen(workload(job, status={"conditions": [{**said, "lastTransitionTime": stamp(NOW)}]})))
    assert why(decided)[1] == "Queue 'gpus': Kueue says: insufficient unused quota, 1 more needed."


@pytest.mark.parametrize(
    ("pod", "flavors", "words"),
    [
        ({}, {}, "ResourceFlavor 'spot', which is not there"),
        ({"nodeSelector": {"pool": "on-demand"}}, FLAVORS, "nodeSelector pool=spot, while pool=on-demand is asked for too"),
    ],
)
def test_what_cannot_be_applied_makes_it_wait(pod: Object, flavors: Object, words: str) -> None:
    job = queued(gpu_job(pod=pod))
    decided = look(job, kueue=seen(admitted(job, 2), flavors=flavors))
    assert done(decided) == []
    assert words in why(decided)[1]


def test_without_kueue_it_waits_and_says_what_to_do() -> None:
    decided = look(queued(gpu_job()), kueue=Kueue())
    assert (done(decided), told(decided)) == ([], [])
    reason, message = why(decided)
    assert reason == names.WAITING_NO_KUEUE
    assert "have Kueue installed, or submit the job without --queue" in message


def test_while_kueue_cannot_be_seen_workers_stay_and_none_is_made() -> None:
    job = queued(gpu_job(replicas=2, low=1, status={"placement": {"zone": "", "since": stamp(NOW - 900)}}))
    decided = look(job, make_pod(job, 0), kueue=Kueue())
    assert (done(decided), told(decided), decided.status.state) == ([], [], "Running")


def test_no_other_job_is_in_its_way_and_it_is_in_no_others() -> None:
    holder = claim("holder", "local-a", least=4)
    job, spot = queued(gpu_job(replicas=2, low=2)), {"spot": {"spec": {"nodeLabels": {names.LABEL_CAPACITY: "spot"}}}}
    decided = look(job, kueue=seen(admitted(job, 2), flavors=spot), platform=PLATFORM, cluster_capacity=cluster_capacity(holder))
    assert done(decided) == ["+0", "+1"], "Kueue has said so: whether there are machines shows when its workers ask for them"
    assert decided.status.placement is not None
    assert not decided.status.placement.on_loan


# --- Evictions ---


def test_when_evicted_its_workers_leave_with_a_checkpoint_and_nothing_is_counted() -> None:
    job = queued(gpu_job(replicas=2, low=1, status={"placement": {"zone": "", "since": stamp(NOW - 900)}}))
    found = admitted(job, 2, "Evicted")
    pods = [make_pod(job, 0), make_pod(job, 1)]
    first = look(job, *pods, kueue=seen(found))
    assert (first.status.placement, names.REASON_EVICTED in reasons(first), told(first)) == (None, True, [])
    second = look({**job, "status": encode(first.status)}, *pods, kueue=seen(found))
    assert done(second) == ["-0", "-1"]
    assert (second.status.failures, second.status.reclaims, second.status.restarts) == (0, 0, 0)
    assert "EvictedByKueue" not in reasons(second), "told once"


@pytest.mark.parametrize(("reason", "again"), [("Preempted", "True"), ("NodeFailures", "True"), ("Deactivated", "False")])
def test_when_they_have_left_it_gives_its_reservation_up(reason: str, again: str) -> None:
    job = queued(gpu_job(replicas=2, low=1))
    found = admitted(job, 2, "Evicted", status={"reclaimablePods": [{"name": "worker", "count": 1}]})
    condition(found, "Evicted")["reason"] = reason
    after = {"status": written(look(job, kueue=seen(found)))}
    assert "admission" not in after["status"]
    assert "reclaimablePods" not in after["status"]
    for kind, value in (("QuotaReserved", "False"), ("Admitted", "False"), ("Evicted", "True"), ("Requeued", again)):
        assert condition(after, kind)["status"] == value, kind
    assert condition(after, "Requeued")["reason"] == reason


def test_a_workload_that_somebody_deleted_stops_the_job_and_is_made_anew() -> None:
    job = queued(gpu_job(replicas=2, low=1, status={"placement": {"zone": "", "since": stamp(NOW - 900)}}))
    decided = look(job, make_pod(job, 0), make_pod(job, 1), kueue=seen(None))
    assert (decided.status.placement, told(decided)) == (None, ["create"])


# --- What is written into it ---


def test_it_says_when_enough_workers_run_and_when_no_longer() -> None:
    job = queued(gpu_job(replicas=2, low=1, status={"placement": {"zone": "", "since": stamp(NOW - 900)}}))
    found = admitted(job, 2)
    found["status"] = written(look(job, make_pod(job, 0, phase="Pending"), make_pod(job, 1, phase="Pending"), kueue=seen(found)))
    assert (condition(found, "PodsReady")["status"], condition(found, "PodsReady")["reason"]) == ("False", "WaitForStart")
    found["status"] = written(look(job, make_pod(job, 0), make_pod(job, 1, phase="Pending"), kueue=seen(found), now=NOW + 5))
    ready = condition(found, "PodsReady")
    assert (ready["status"], ready["reason"], ready["lastTransitionTime"]) == ("True", "Started", stamp(NOW + 5))
    assert told(look(job, make_pod(job, 0), make_pod(job, 1), kueue=seen(found))) == []
    found["status"] = written(look(job, make_pod(job, 0, phase="Pending"), kueue=seen(found), now=NOW + 9))
    assert condition(found, "PodsReady")["reason"] == "WaitForRecovery"
    found["status"] = written(look(job, make_pod(job, 0), make_pod(job, 1), kueue=seen(found), now=NOW + 20))
    assert condition(found, "PodsReady")["reason"] == "Recovered"


def test_what_it_scales_down_by_is_given_back_when_it_is_free_and_never_taken_again() -> None:
    placed = {"placement": {"zone": "", "since": stamp(NOW - 900)}}
    large = queued(gpu_job(replicas=4, low=1, high=4))
    found = admitted(large, 4)
    small = queued(gpu_job(replicas=2, low=1, high=4, status=placed))
    four = [make_pod(small, index) for index in range(4)]
    assert "reclaimablePods" not in written(look(small, *four, kueue=seen(found))), "their machines are not free yet"
    found["status"] = written(look(small, *four[:2], kueue=seen(found)))
    assert found["status"]["reclaimablePods"] == [{"name": "worker", "count": 2}]
    grown = queued(gpu_job(replicas=4, low=1, high=4, status=placed))
    decided = look(grown, *four[:2], kueue=seen(found))
    assert (done(decided), told(decided)) == ([], [])


@pytest.mark.parametrize(("count", "replicas", "given"), [(3, 4, 0), (3, 2, 2), (4, 3, 1)])
def test_of_a_part_that_was_admitted_only_what_is_below_it_is_given_back(count: int, replicas: int, given: int) -> None:
    """Kueue subtracts from the count that was asked for, and takes the smaller of that and what it admitted."""
    found = admitted(queued(gpu_job(replicas=4, low=1, high=4)), count)
    job = queued(gpu_job(replicas=replicas, low=1, high=4, status={"placement": {"zone": "", "since": stamp(NOW - 900)}}))
    pods = [make_pod(job, index) for index in range(min(count, replicas))]
    status = written(look(job, *pods, kueue=seen(found)))
    assert status.get("reclaimablePods", [{"count": 0}])[0]["count"] == given


def test_workers_that_have_finished_are_given_back_too() -> None:
    status = {"placement": {"zone": "", "since": stamp(NOW - 900)}, "succeededIndices": [1]}
    job = queued(gpu_job(replicas=3, low=1, high=3, successPolicy="AllWorkers", status=status))
    pods = [make_pod(job, 0), make_pod(job, 1, phase="Succeeded", exit_code=0), make_pod(job, 2)]
    found = admitted(job, 3)
    found["status"] = written(look(job, *pods, kueue=seen(found)))
    assert found["status"]["reclaimablePods"] == [{"name": "worker", "count": 1}]
    assert done(look(job, *pods, kueue=seen(found))) == [], "the others stay"


@pytest.mark.parametrize(("state", "word"), [("Succeeded", "Succeeded"), ("Failed", "Failed")])
def test_its_end_is_kueues_too_when_no_worker_runs(state: str, word: str) -> None:
    over = {"type": state, "status": "True", "reason": "x", "message": "It is over.", "lastTransitionTime": stamp(NOW)}
    job = queued(gpu_job(replicas=2, low=1, status={"state": state, "conditions": [over], "completionTime": stamp(NOW)}))
    found = admitted(job, 2)
    assert told(look(job, make_pod(job, 1), kueue=seen(found))) == []
    found["status"] = written(look(job, kueue=seen(found)))
    finished = condition(found, "Finished")
    assert (finished["status"], finished["reason"], finished["message"]) == ("True", word, "It is over.")
    assert told(look(job, kueue=seen(found))) == []


@pytest.mark.parametrize("how", ["suspend", "hold"])
def test_one_that_is_stopped_has_no_workload_when_its_workers_have_left(how: str) -> None:
    held = {"hold": {"reason": "BudgetSpent", "message": "x", "generation": 1, "at": stamp(NOW)}}
    job = queued(gpu_job(suspend=True) if how == "suspend" else gpu_job(status=held))
    found = admitted(job, 2)
    assert "delete" not in told(look(job, make_pod(job, 0), kueue=seen(found)))
    assert told(look(job, kueue=seen(found))) == ["delete"]
    assert told(look(job, kueue=seen(None))) == []


def test_while_it_waits_its_workload_follows_the_job() -> None:
    before = queued(gpu_job(replicas=2, low=1, high=4))
    job = queued(gpu_job(replicas=4, low=2, high=4), queue="others")
    found = workload(before, maximumExecutionTimeSeconds=60)
    (body,) = (action.body for action in look(job, kueue=seen(found)).actions if isinstance(action, ReplaceWorkload))
    assert (body["spec"]["queueName"], body["spec"]["podSets"][0]["count"]) == ("others", 4)
    assert body["spec"]["maximumExecutionTimeSeconds"] == 60, "somebody else's"
    assert body["metadata"]["resourceVersion"] == "7"
    assert told(look(before, kueue=seen(workload(before)))) == ["status"]


def test_one_with_a_reservation_for_less_gets_another_workload_before_it_has_workers() -> None:
    found = workload(queued(gpu_job(replicas=2, low=1, high=4)), "QuotaReserved", count=2)
    assert told(look(queued(gpu_job(replicas=4, low=1, high=4)), kueue=seen(found))) == ["delete"]
    assert told(look(queued(gpu_job(replicas=1, low=1, high=4)), kueue=seen(found))) == ["status"]


def test_a_job_that_leaves_kueues_queue_takes_its_workload_along() -> None:
    job = queued(gpu_job())
    found = admitted(job, 2)
    del job["metadata"]["labels"]
    decided = look(job, kueue=seen(found))
    assert (told(decided), done(decided)) == (["delete"], ["+0", "+1"])


def test_what_kueue_adds_is_no_change_of_the_spec() -> None:
    """Its workers keep the mark of the spec that people wrote, whatever an administrator does to a flavor meanwhile."""
    job = queued(gpu_job(replicas=2, low=1, high=4, status={"placement": {"zone": "", "since": stamp(NOW - 900)}}))
    pods = [make_pod(job, index, marked=True) for index in range(2)]
    other = {"spot": {"spec": {"nodeLabels": {"pool": "other"}}}}
    for flavors in (FLAVORS, other):
        assert done(look(job, *pods, kueue=seen(admitted(job, 2), flavors=flavors))) == []
