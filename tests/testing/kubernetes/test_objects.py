"""What the stand-in makes of inputs and live objects: names, the fields that are the stack's business, drift, imports."""

from typing import Any

import pytest

from devcluster.pulumi.stand_in import MARK
from testing.pulumi.kubernetes import objects
from testing.pulumi.kubernetes.objects import AUTONAMED, UNKNOWN, Kind

SEED = bytes.fromhex("0123456789abcdef")


@pytest.mark.parametrize(
    ("token", "kind", "api_version"),
    [
        pytest.param("kubernetes:core/v1:Namespace", Kind("", "v1", "Namespace"), "v1", id="core"),
        pytest.param("kubernetes:apps/v1:Deployment", Kind("apps", "v1", "Deployment"), "apps/v1", id="group"),
        pytest.param("kubernetes:box.ebb.dev/v1alpha1:NodeGroup", Kind("box.ebb.dev", "v1alpha1", "NodeGroup"),
                     "box.ebb.dev/v1alpha1", id="custom"),
    ],
)  # fmt: skip
def test_a_type_token_names_a_kind(token: str, kind: Kind, api_version: str) -> None:
    assert objects.kind_of(token) == kind
    assert kind.api_version == api_version


@pytest.mark.parametrize(
    "token",
    [
        pytest.param("kubernetes:helm.sh/v3:Release", id="chart"),
        pytest.param("kubernetes:yaml/v2:ConfigFile", id="bundle"),
        pytest.param("kubernetes:core/v1:ConfigMapPatch", id="patch"),
        pytest.param("kubernetes:core/v1:ConfigMapList", id="list"),
        pytest.param("aws:s3/bucket:Bucket", id="another package"),
    ],
)
def test_what_is_more_than_a_plain_resource_is_refused(token: str) -> None:
    with pytest.raises(objects.Unsupported, match="official plugin"):
        objects.kind_of(token)


def checked(inputs: dict[str, Any], old: dict[str, Any] | None = None, namespace: str | None = None) -> dict[str, Any]:
    return objects.checked(Kind("", "v1", "ConfigMap"), inputs, old or {}, urn_name="settings", seed=SEED, namespace=namespace)


def test_an_object_without_a_name_gets_one_and_keeps_it() -> None:
    first = checked({"data": {}})
    assert first["metadata"] == {"name": "settings-01234567", "annotations": {AUTONAMED: "true"}}
    again = objects.checked(Kind("", "v1", "ConfigMap"), {}, first, urn_name="settings", seed=b"another!", namespace=None)
    assert again["metadata"]["name"] == "settings-01234567"


def test_a_given_name_that_goes_is_not_kept() -> None:
    assert checked({}, {"metadata": {"name": "given"}})["metadata"]["name"] == "settings-01234567"


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        pytest.param({"name": "a"}, {"name": "a", "namespace": "team"}, id="filled in"),
        pytest.param({"name": "a", "namespace": "x"}, {"name": "a", "namespace": "x"}, id="given"),
        pytest.param({"generateName": "a-"}, {"generateName": "a-", "namespace": "team"}, id="named by the server"),
        pytest.param(UNKNOWN, UNKNOWN, id="unknown in a preview"),
    ],
)
def test_the_namespace(metadata: Any, expected: Any) -> None:
    assert checked({"metadata": metadata, "status": {"x": 1}}, namespace="team") == {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": expected,
    }


@pytest.mark.parametrize(
    ("live", "wanted", "expected"),
    [
        pytest.param({"a": 1, "b": 2}, {"a": 5}, {"a": 1}, id="only fields that we set"),
        pytest.param({"a": {"b": 1, "c": 2}}, {"a": {"b": 0, "d": 0}}, {"a": {"b": 1}}, id="a field that is missing"),
        pytest.param([{"name": "x", "v": 1}, {"name": "y", "v": 2}], [{"name": "y", "v": 0}], [{"name": "y", "v": 2}],
                     id="a list by its key: others' items do not matter"),
        pytest.param([1, 2], [3, 4], [1, 2], id="a list of values"),
        pytest.param([{"key": "a", "extra": 1}], [{"key": "b"}], [{"key": "a"}], id="a list without a key, by position"),
        pytest.param([{"key": "a"}, {"key": "b"}], [{"key": "a"}], [{"key": "a"}, {"key": "b"}], id="an item more"),
        pytest.param([{"mountPath": "/a", "name": "v", "x": 1}, {"mountPath": "/b", "name": "v"}],
                     [{"mountPath": "/a", "name": "v"}, {"mountPath": "/b", "name": "v"}],
                     [{"mountPath": "/a", "name": "v"}, {"mountPath": "/b", "name": "v"}], id="names that are not unique"),
    ],
)  # fmt: skip
def test_projection(live: Any, wanted: Any, expected: Any) -> None:
    assert objects.projection(live, wanted) == expected


CPU = {"spec": {"cpu": "1000m", "list": [{"name": "a", "v": 1}], "empty": []}, "metadata": {"labels": {"x": "1", "y": "2"}}}
AS_APPLIED = {"spec": {"cpu": "1", "list": [{"name": "a", "v": 1}]}, "metadata": {"labels": {"x": "1", "y": "2"}}}


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        pytest.param(AS_APPLIED, CPU, id="nothing: the server's spelling is no drift"),
        pytest.param({**AS_APPLIED, "metadata": {"labels": {"y": "2"}}}, {**CPU, "metadata": {"labels": {"y": "2"}}},
                     id="a label removed"),
        pytest.param({**AS_APPLIED, "spec": {"cpu": "2", "list": [{"name": "a", "v": 1}]}},
                     {**CPU, "spec": {"cpu": "2", "list": [{"name": "a", "v": 1}], "empty": []}}, id="a value changed"),
        pytest.param({**AS_APPLIED, "spec": {"cpu": "1", "list": [{"name": "a", "v": 7}]}},
                     {**CPU, "spec": {"cpu": "1000m", "list": [{"name": "a", "v": 7}], "empty": []}}, id="inside a list"),
        pytest.param({**AS_APPLIED, "spec": {"cpu": "1", "list": []}},
                     {**CPU, "spec": {"cpu": "1000m", "list": [], "empty": []}}, id="an item gone"),
    ],
)  # fmt: skip
def test_drift(now: Any, expected: Any) -> None:
    assert objects.drifted(CPU, AS_APPLIED, now) == expected


def test_the_state_holds_what_lasts() -> None:
    live = {
        "apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "1"}, "status": {"phase": "x"},
        "metadata": {"name": "n", "uid": "u", "resourceVersion": "5", "generation": 2, "managedFields": [{}]},
    }  # fmt: skip
    kept = objects.state({"data": {"a": "1"}}, live)
    assert kept == {
        "apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "1"}, "metadata": {"name": "n", "uid": "u"},
        MARK: {"schema": "1", "applied": {"data": {"a": "1"}}},
    }  # fmt: skip


def test_an_import_takes_what_somebody_set_and_not_the_servers_defaults() -> None:
    fields = {
        "f:metadata": {"f:labels": {".": {}, "f:app": {}}},
        "f:spec": {"f:replicas": {}, "f:containers": {'k:{"name":"x"}': {".": {}, "f:name": {}, "f:image": {}}}},
    }
    live = {
        "apiVersion": "apps/v1", "kind": "Deployment", "status": {"replicas": 1},
        "metadata": {
            "name": "n", "namespace": "ns", "uid": "u", "labels": {"app": "x", "by": "somebody"},
            "managedFields": [{"manager": "kubectl", "fieldsV1": fields},
                              {"manager": "controller", "subresource": "status", "fieldsV1": {"f:status": {}}}],
        },
        "spec": {"replicas": 3, "paused": False, "containers": [{"name": "x", "image": "i", "imagePullPolicy": "Always"}]},
    }  # fmt: skip
    assert objects.imported(live) == {
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "n", "namespace": "ns", "labels": {"app": "x"}},
        "spec": {"replicas": 3, "containers": [{"name": "x", "image": "i"}]},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("metadata", "resource_id"),
    [pytest.param({"name": "a"}, "a", id="cluster"), pytest.param({"name": "a", "namespace": "b"}, "b/a", id="namespace")],
)
def test_ids(metadata: dict[str, str], resource_id: str) -> None:
    assert objects.identity({"metadata": metadata}) == resource_id
    assert objects.split_identity(resource_id) == (metadata.get("namespace"), "a")


def test_two_resources_have_two_field_managers() -> None:
    assert objects.manager("urn:a") == objects.manager("urn:a") != objects.manager("urn:b")
    assert len(objects.manager("urn:a")) <= 128  # the API server's limit


def test_an_update_brings_no_ignored_field_back() -> None:
    inputs = {"spec": {"replicas": 2, "limit": 7, "worker": {"replicas": 2}}}
    live = {"spec": {"replicas": 3, "limit": 3, "worker": {"replicas": 4}, "suspend": True}}
    ignored = ["spec.replicas", "spec.worker.replicas", "spec.suspend", "spec.nothing.here"]
    assert objects.keeping(inputs, live, ignored) == {"spec": {"replicas": 3, "limit": 7, "worker": {"replicas": 4}}}
    assert inputs["spec"]["replicas"] == 2
