"""What is left of a job: the record's content, and when it is written."""

import json
from dataclasses import replace
from typing import Any

import pytest

from ebb.api.clock import stamp
from ebb.api.schema import encode
from ebb.api.spec import Job
from ebb.api.status import Cost
from ebb.controller.reconciler.reconcile import refused
from ebb.controller.reconciler.records import DELETED, record, record_name
from ebb.controller.reconciler.types import CreateRecord, DeletePod, Plan
from tests.builders import NOW, UID, make_group, make_job, make_node, make_platform, make_pod
from tests.looks import again, done, ended, look, running

Object = dict[str, Any]

STATUS: Object = {
    "state": "Succeeded",
    "conditions": [{"type": "Succeeded", "status": "True", "reason": "ElasticJobSucceeded", "message": "The training finished."}],
    "startTime": stamp(NOW - 7200),
    "completionTime": stamp(NOW - 60),
    "placement": {"zone": "local-a", "capacityType": "spot", "gpuType": "T4"},
    "progress": {"step": 900, "totalSteps": 1000},
    "reclaims": 3,
    "failures": 1,
    "restarts": 2,
    "secondsLost": 12.5,
    "cost": encode(Cost(usd_spent=1.25, usd_on_demand=4.0, machine_seconds=14400.0, at=stamp(NOW - 50, digits=3))),
}


def written(job: Object, reason: str = "", now: float = NOW) -> Object:
    read = Job.of(job)
    return record(read, read.status, now, reason)


def test_a_record() -> None:
    job = make_job(status=STATUS, group={"name": "sweep-7", "maxParallel": 4})
    job["metadata"]["annotations"] = {"ebb.dev/submitted-by": "ada@example.org"}
    found = written(job)
    told = {
        "schema": 1,
        "job": "digits",
        "namespace": "elastic-job",
        "uid": UID,
        "group": "sweep-7",
        "submittedBy": "ada@example.org",
        "state": "Succeeded",
        "reason": "ElasticJobSucceeded",
        "message": "The training finished.",
        "created": stamp(NOW - 60),
        "started": stamp(NOW - 7200),
        "ended": stamp(NOW - 60),
        "workers": 2,
        "minReplicas": 1,
        "maxReplicas": 4,
        "zone": "local-a",
        "capacityType": "spot",
        "gpuType": "T4",
        "machineSeconds": 14400.0,
        "usdSpent": 1.25,
        "usdOnDemand": 4.0,
        "reclaims": 3,
        "failures": 1,
        "restarts": 2,
        "secondsLost": 12.5,
        "lastStep": 900,
        "totalSteps": 1000,
    }
    assert json.loads(found["data"].pop("record.json")) == told
    assert found == {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": "ebb-record-digits-0b8e7a52",
            "namespace": "elastic-job",
            "labels": {"ebb.dev/record": "true", "ebb.dev/job": "digits"},
        },
        "data": {key: str(value) for key, value in told.items()},
    }


def test_a_job_that_never_did_anything_has_a_record_too() -> None:
    data = written(make_job(), DELETED)["data"]
    told = json.loads(data["record.json"])
    assert (told["state"], told["reason"], told["ended"]) == ("Waiting", "Deleted", stamp(NOW))
    assert (told["usdSpent"], told["machineSeconds"], told["lastStep"], data["lastStep"]) == (0, 0, None, "")


def test_a_job_that_is_deleted_while_it_runs_costs_until_then() -> None:
    cost = Cost(usd_spent=1.0, usd_per_hour=3.6, usd_on_demand_per_hour=7.2, machines=2, at=stamp(NOW, digits=3))
    told = json.loads(written(make_job(status={"cost": encode(cost)}), DELETED, NOW + 100)["data"]["record.json"])
    assert (told["usdSpent"], told["usdOnDemand"], told["machineSeconds"]) == (1.1, 0.2, 200)


def test_a_suspended_job_tells_where_it_last_was() -> None:
    history = [{"at": stamp(NOW), "what": "placed", "cause": zone} for zone in ("local-b", "local-c")]
    told = json.loads(written(make_job(status={"state": "Suspended", "history": history}), DELETED)["data"]["record.json"])
    assert told["zone"] == "local-c"


SUBMITTERS: dict[str, tuple[Object, str]] = {
    "nobody": ({}, ""),
    "annotation": ({"annotations": {"ebb.dev/submitted-by": "ada@example.org"}}, "ada@example.org"),
    "label": ({"labels": {"ebb.dev/submitted-by": "team-vision"}}, "team-vision"),
    "both": ({"labels": {"ebb.dev/submitted-by": "l"}, "annotations": {"ebb.dev/submitted-by": "a"}}, "a"),
}


@pytest.mark.parametrize(("metadata", "name"), SUBMITTERS.values(), ids=SUBMITTERS.keys())
def test_who_submitted_it(metadata: Object, name: str) -> None:
    job = make_job()
    job["metadata"] |= metadata
    assert written(job)["data"]["submittedBy"] == name


@pytest.mark.parametrize("name", ["a", "a" * 53, "a" * 62 + "-b", "a" * 253])
def test_names_and_labels_are_allowed_ones(name: str) -> None:
    job = replace(Job.of(make_job()), name=name)
    found = record(job, job.status, NOW)["metadata"]
    assert len(found["name"]) <= 253
    assert found["name"].endswith("-0b8e7a52")
    assert len(found["labels"]["ebb.dev/job"]) <= 63
    assert found["labels"]["ebb.dev/job"][-1].isalnum()


def test_jobs_of_one_name_have_records_of_their_own() -> None:
    other = make_job(uid="99999999-1111-4222-8333-444455556666")
    assert record_name(Job.of(make_job())) != record_name(Job.of(other))


# --- When it is written ---

DONE: Object = {"conditions": [{"type": "Succeeded", "status": "True"}], "completionTime": stamp(NOW - 10)}
KEPT = make_job(status=DONE, cleanPodPolicy="None")


def records(decided: Plan) -> int:
    return sum(isinstance(action, CreateRecord) for action in decided.actions)


RECORDS: dict[str, tuple[Plan, int]] = {
    "runs": (look(make_job(), make_pod(make_job())), 0),
    "held": (look(make_job(deadline=stamp(NOW))), 0),
    "ended-and-all-stopped": (look(make_job(status=DONE), ended(0)), 1),
    "ended-and-pods-gone": (look(make_job(status=DONE)), 1),
    "ended-with-one-on-its-way-out": (look(make_job(status=DONE), ended(0), make_pod(make_job(), 1, deleted=NOW)), 0),
    "ended-with-one-on-a-dead-machine": (
        look(make_job(status=DONE), make_pod(make_job(), 1, node="n9", deleted=NOW), gone=frozenset({"n9"})),
        1,
    ),
    "pods-that-stay-as-asked": (look(KEPT, make_pod(KEPT)), 1),
    "written-already": (look(make_job(status={**DONE, "recorded": True})), 0),
}


@pytest.mark.parametrize(("decided", "count"), RECORDS.values(), ids=RECORDS.keys())
def test_when_it_is_written(decided: Plan, count: int) -> None:
    assert records(decided) == count


def test_it_is_written_once_with_the_final_sum() -> None:
    stack, node = make_platform(make_group()), make_node()
    node["metadata"]["labels"] = {"ebb.dev/node-group": "spot-t4-local-a"}
    job = make_job(container={"resources": {"limits": {"nvidia.com/gpu": 1}}})
    story: list[tuple[float, list[Object]]] = [
        (0, running(job, 1)),
        (3600, [ended(0)]),
        (3600, [ended(0)]),
        (7200, [ended(0)]),
    ]
    plans = []
    for after, pods in story:
        decided = look(job, *pods, now=NOW + after, nodes=(node,), platform=stack)
        job = again(job, decided)
        plans.append(decided)
    assert [records(decided) for decided in plans] == [0, 0, 1, 0]
    body = next(action.body for action in plans[2].actions if isinstance(action, CreateRecord))
    assert (body["data"]["usdSpent"], body["data"]["machineSeconds"], body["data"]["ended"]) == (
        "0.3",
        "3600.0",
        stamp(NOW + 3600),
    )


def test_a_record_that_was_refused_is_written_later() -> None:
    job = make_job(status=DONE)
    decided = look(job)
    assert decided.status.recorded
    said = refused(Job.of(job), decided, ["exceeded quota: configmaps"], NOW)
    assert not said.status.recorded
    assert said.status.conditions == decided.status.conditions, "what became of the job is not changed by that"


def test_a_job_is_not_deleted_before_its_record_is_written() -> None:
    job = make_job(status=DONE, ttlSecondsAfterFinished=5)
    first = look(job)
    second = look(again(job, first))
    assert (records(first), done(first)) == (1, [])
    assert (records(second), done(second)) == (0, ["-job"])


def test_nor_kept_for_ever_for_a_record_that_cannot_be_written() -> None:
    job = make_job(status=DONE, ttlSecondsAfterFinished=5)
    assert done(look(job, now=NOW - 10 + 5 + 3599)) == []
    assert done(look(job, now=NOW - 10 + 5 + 3600)) == ["-job"]


def test_pods_of_an_ended_job_are_stopped_whether_it_is_recorded_or_not() -> None:
    decided = look(make_job(status=DONE), make_pod(make_job()))
    assert [action.name for action in decided.actions if isinstance(action, DeletePod)] == ["digits-worker-0"]
