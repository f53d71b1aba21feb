"""Cloud Logging, with `logs.ship`."""

import re
from functools import cache

from infra.account.records import Left
from infra.clouds.gcp.leftovers import seen
from tests.infra.declared import Declared
from tests.infra.gcp.fake_calls import FakeCalls
from tests.infra.gcp.stacks import stack, usual, world


@cache
def shipped() -> Declared:
    return world({"logs": {"ship": True, "keepDays": 90}})


def test_without_it_gke_does_what_it_does_by_default() -> None:
    assert "loggingConfig" not in usual().one("Cluster").inputs
    assert not usual().all("ProjectSink")


def test_gke_ships_and_nothing_of_ours_runs() -> None:
    assert shipped().one("Cluster").inputs["loggingConfig"] == {"enableComponents": ["SYSTEM_COMPONENTS", "WORKLOADS"]}
    assert not [one for one in shipped().resources if "ebb-log" in str(one.inputs.get("metadata", {}).get("name"))]


def test_lines_are_in_a_bucket_that_forgets_and_once() -> None:
    bucket, sink, exclusion = (shipped().one(kind) for kind in ("ProjectBucketConfig", "ProjectSink", "ProjectExclusion"))
    assert (bucket.inputs["bucketId"], bucket.inputs["retentionDays"]) == ("ebb-gcp", 90)
    assert bucket.inputs["location"] == "us-central1"
    assert bucket.key in shipped().before(sink)
    assert sink.inputs["filter"] == exclusion.inputs["filter"], "else a line is kept twice, or nowhere"
    assert sink.key in shipped().before(exclusion)


def chosen(namespace: str, pod: str) -> bool:
    """Read the filter as Cloud Logging would."""
    text = shipped().one("ProjectSink").inputs["filter"]
    of_namespace, of_pod = re.findall(r'=~"([^"]+)"', text)
    (single,) = re.findall(r'namespace_name="([^"]+)"', text)
    return bool(re.search(of_namespace, namespace)) or (namespace == single and bool(re.search(of_pod, pod)))


def test_they_are_those_of_ebbs_pods() -> None:
    text = shipped().one("ProjectSink").inputs["filter"]
    assert 'resource.labels.cluster_name="ebb-gcp"' in text
    taken = [("ebb-system", "etcd-0"), ("elastic-job", "x"), ("ebb-team-vision", "x"), ("kube-system", "ebb-notices-1")]
    left = [("kube-system", "kube-dns-1"), ("default", "ebb-x"), ("ebb-systems", "x"), ("elastic-job-2", "x")]
    assert [chosen(*one) for one in taken] == [True] * 4
    assert [chosen(*one) for one in left] == [False] * 4


def test_the_service_is_enabled() -> None:
    names = {one.inputs["service"] for one in shipped().all("Service") if one.type.startswith("gcp:")}
    assert "logging.googleapis.com" in names


def test_what_a_destroy_has_left_is_found() -> None:
    place = "projects/p/locations/us-central1/buckets"
    table = {
        "locations/-/buckets": {
            "buckets": [
                {"name": f"{place}/ebb-gcp", "lifecycleState": "ACTIVE"},
                {"name": f"{place}/ebb-gcp-old", "lifecycleState": "DELETE_REQUESTED"},
                {"name": f"{place}/_Default", "lifecycleState": "ACTIVE"},
            ]
        },
        "v2/projects/my-project-123/sinks": {"sinks": [{"name": "_Default"}, {"name": "ebb-gcp"}]},
        "v2/projects/my-project-123/exclusions": {"exclusions": [{"name": "ebb-gcp"}]},
    }
    found: tuple[Left, ...] = seen("gcp", stack(), lambda _: None, FakeCalls(table)).things
    assert [(one.kind, one.name) for one in found] == [
        ("log bucket", "ebb-gcp"),
        ("log sink", "ebb-gcp"),
        ("log exclusion", "ebb-gcp"),
    ]
    assert "--location us-central1" in found[0].remove
