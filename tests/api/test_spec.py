"""The job's model and its schema: defaults, round trips, drift, and that every field is described."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from ebb.api import crd as generated
from ebb.api import job_page as page
from ebb.api.contract import MANAGER
from ebb.api.schema import decode, encode
from ebb.api.spec import Job, SpecError
from ebb.api.status import Progress, Status
from tests.builders import make_job

Object = dict[str, Any]
JOBS = Path(__file__).parents[2] / "workloads" / "jobs"


def schema() -> Object:
    found: Object = generated.crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return found


def nodes(node: Object, path: str) -> Iterator[tuple[str, Object]]:
    """Every field of the schema with its path."""
    yield path, node
    for name, child in node.get("properties", {}).items():
        yield from nodes(child, f"{path}.{name}")
    if "items" in node:
        yield from nodes(node["items"], f"{path}[]")


def test_the_manifest_is_what_the_code_says() -> None:
    assert generated.PATH.read_text() == generated.text(), "run `make manifests`"


def test_every_field_is_described_in_a_sentence() -> None:
    silent = [
        path
        for path, node in nodes(schema(), "")
        if not node.get("description", "").endswith(".")
        and path != ".metadata"
        and not path.endswith("[]")  # what a list of words or numbers holds, the list's own sentence says
    ]
    assert silent == []


def test_the_fields_of_the_spec_are_these() -> None:
    """A public surface: a new field is a decision, and has to do something."""
    assert list(schema()["properties"]["spec"]["properties"]) == [
        "rdzvEndpoint",
        "rdzvBackend",
        "replicaSpecs",
        "minReplicas",
        "maxReplicas",
        "cleanPodPolicy",
        "ttlSecondsAfterFinished",
        "activeDeadlineSeconds",
        "backoffLimit",
        "schedulingPolicy",
        "suspend",
        "managedBy",
        "nprocPerNode",
        "placement",
        "priorityClassName",
        "scaling",
        "successPolicy",
        "deadline",
        "budget",
        "data",
        "group",
        "failurePolicy",
        "holdOnFailureSeconds",
        "burnInSeconds",
        "progress",
    ]


def test_the_columns_are_fields_of_the_schema() -> None:
    for name, _, path, _, _ in generated.COLUMNS:
        node = schema()
        for part in path.strip(".").split("."):
            if part == "metadata":
                break
            assert part in node["properties"], f"column {name}: {path}"
            node = node["properties"][part]


def test_defaults() -> None:
    job = Job.of(make_job(low=None, high=None, replicas=3))
    assert (job.min_replicas, job.max_replicas) == (3, 3)
    assert (job.worker.restart_policy, job.spec.clean_pod_policy, job.spec.backoff_limit) == ("OnFailure", "Running", 3)
    assert (job.spec.placement.zone, job.spec.suspend, job.spec.managed_by) == ("single", False, "ebb.dev/elasticjob-controller")
    assert job.status == Status()


BAD: dict[str, tuple[Object, str]] = {
    "min-above-replicas": (make_job(low=3), "minReplicas 3, Worker.replicas 2 and maxReplicas 4 must not fall"),
    "max-below-replicas": (make_job(high=1), "maxReplicas 1"),
    "more-than-an-object-can-tell-of": (make_job(high=1001), "maxReplicas <= 1000"),
    "a-time-that-no-calendar-has": (make_job(deadline="2027-01-01T00:00:00+99:00"), "deadline '2027-01-01T00:00:00.99:00' is no"),
    "no-containers": (make_job(pod={"containers": []}), "containers is empty: name the image to run"),
}


@pytest.mark.parametrize(("job", "message"), BAD.values(), ids=BAD.keys())
def test_what_an_old_crd_let_through_is_refused(job: Object, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        Job.of(job)


def test_what_others_run_is_theirs_to_judge() -> None:
    assert Job.of(make_job(managedBy="kueue.x-k8s.io/multikueue", pod={"containers": []})).spec.managed_by != MANAGER


def test_a_missing_key_is_named() -> None:
    job = make_job()
    del job["spec"]["replicaSpecs"]["Worker"]["replicas"]
    with pytest.raises(SpecError, match="'replicas' is missing"):
        Job.of(job)


def test_a_status_survives_the_api_server() -> None:
    status = Status(reclaims=2, succeeded_indices=(1, 2), progress=Progress(step=4, loss=0.5)).with_condition(
        "Running", True, "r", "m", 0
    )
    assert decode(Status, encode(status)) == status


def test_zero_is_written_and_nothing_is_not() -> None:
    written = encode(Status())
    assert (written["reclaims"], written["state"]) == (0, "Waiting")
    assert not {"progress", "startTime", "history", "conditions"} & set(written)


def test_a_conditions_times_move_only_with_it() -> None:
    first = Status().with_condition("Running", False, "Waiting", "no machine", 100)
    same = first.with_condition("Running", False, "Waiting", "no machine", 200)
    said = first.with_condition("Running", False, "Waiting", "one machine", 300)
    flipped = said.with_condition("Running", True, "Enough", "all", 400)
    times = [
        (state.conditions[0].last_transition_time, state.conditions[0].last_update_time) for state in (first, same, said, flipped)
    ]
    at = {number: f"1970-01-01T00:0{number // 60}:{number % 60:02}Z" for number in (100, 300, 400)}
    assert times == [(at[100], at[100]), (at[100], at[100]), (at[100], at[300]), (at[400], at[400])]


@pytest.mark.parametrize("path", sorted(JOBS.glob("*.yaml")), ids=lambda path: path.stem)
def test_the_examples_are_jobs(path: Path) -> None:
    value = yaml.safe_load(path.read_text())
    value["metadata"] |= {"uid": "u" * 8}
    job = Job.of(value)
    assert (job.namespace, job.name) == ("elastic-job", path.stem)
    unknown = set(value["spec"]) - set(schema()["properties"]["spec"]["properties"])
    assert unknown == set()


def test_the_reference_has_every_field_of_the_spec() -> None:
    assert all(f"| `{name}` |" in page.text() for name in schema()["properties"]["spec"]["properties"])
