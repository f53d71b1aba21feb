"""What an update would change, and what it would have to make anew."""

from typing import Any

import pytest

from testing.pulumi.kubernetes.changes import compare, delete_first, replacing
from testing.pulumi.kubernetes.objects import AUTONAMED, UNKNOWN, Kind


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        pytest.param({"a": 1}, {"a": 1}, {}, id="nothing"),
        pytest.param({"a": 1}, {"a": 1.0}, {}, id="numbers"),
        pytest.param({"spec": {"replicas": 1}}, {"spec": {"replicas": 2}}, {"spec.replicas": "update"}, id="update"),
        pytest.param({}, {"data": {"a": "1"}}, {"data": "add"}, id="add"),
        pytest.param({"data": {"a": "1"}}, {}, {"data": "delete"}, id="delete"),
        pytest.param({"a": None}, {}, {}, id="null is absent"),
        pytest.param({"labels": {"a.b/c": "1"}}, {"labels": {"a.b/c": "2"}}, {'labels["a.b/c"]': "update"}, id="odd key"),
        pytest.param({"l": [1, 2]}, {"l": [1, 3, 4]}, {"l[1]": "update", "l[2]": "add"}, id="list"),
        pytest.param({"a": {"b": 1}}, {"a": "text"}, {"a": "update"}, id="another type"),
        pytest.param({"a": "x"}, {"a": UNKNOWN}, {"a": "update"}, id="unknown"),
        pytest.param({"a": UNKNOWN}, {"a": UNKNOWN}, {"a": "update"}, id="unknown twice"),
    ],
)
def test_compare(old: Any, new: Any, expected: dict[str, str]) -> None:
    assert compare(old, new) == expected


DEPLOYMENT, JOB = Kind("apps", "v1", "Deployment"), Kind("batch", "v1", "Job")
CONFIG_MAP, CLAIM = Kind("", "v1", "ConfigMap"), Kind("", "v1", "PersistentVolumeClaim")


@pytest.mark.parametrize(
    ("kind", "old", "new", "expected"),
    [
        pytest.param(CONFIG_MAP, {"data": {"a": "1"}}, {"data": {"a": "2"}}, [], id="data changes in place"),
        pytest.param(CONFIG_MAP, {"metadata": {"name": "a"}}, {"metadata": {"name": "b"}}, ["metadata.name"], id="name"),
        pytest.param(CONFIG_MAP, {"metadata": {"namespace": "a"}}, {"metadata": {"namespace": "b"}}, ["metadata.namespace"],
                     id="namespace"),
        pytest.param(CONFIG_MAP, {"immutable": True, "data": {"a": "1"}}, {"immutable": True, "data": {"a": "2"}}, ["data.a"],
                     id="immutable"),
        pytest.param(DEPLOYMENT, {"spec": {"selector": {"matchLabels": {"a": "1"}}}},
                     {"spec": {"selector": {"matchLabels": {"a": "2"}}}}, ["spec.selector.matchLabels.a"], id="selector"),
        pytest.param(DEPLOYMENT, {"spec": {"selectors": 1}}, {"spec": {"selectors": 2}}, [], id="a name that only begins so"),
        pytest.param(DEPLOYMENT, {"apiVersion": "apps/v1beta1"}, {"apiVersion": "apps/v1"}, [], id="another version"),
        pytest.param(DEPLOYMENT, {"apiVersion": "extensions/v1"}, {"apiVersion": "apps/v1"}, ["apiVersion"], id="another group"),
        pytest.param(JOB, {"spec": {"template": {"spec": {"containers": [{"image": "a"}]}}}},
                     {"spec": {"template": {"spec": {"containers": [{"image": "b"}]}}}},
                     ["spec.template.spec.containers[0].image"], id="a job's image"),
        pytest.param(CLAIM, {"spec": {"resources": {"requests": {"storage": "1Gi"}}}},
                     {"spec": {"resources": {"requests": {"storage": "2Gi"}}}}, [], id="a claim grows"),
        pytest.param(CLAIM, {"spec": {"storageClassName": "a"}}, {"spec": {"storageClassName": "b"}}, ["spec.storageClassName"],
                     id="a claim's class"),
    ],
)  # fmt: skip
def test_what_needs_a_new_object(kind: Kind, old: Any, new: Any, expected: list[str]) -> None:
    assert replacing(kind, compare(old, new), old, new) == expected


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        pytest.param({}, {}, True, id="given names"),
        pytest.param({AUTONAMED: "true"}, {AUTONAMED: "true"}, False, id="autonamed: the new one has another name"),
        pytest.param({AUTONAMED: "true"}, {}, True, id="from autonamed to given"),
    ],
)
def test_the_old_object_goes_first_when_the_name_is_the_same(old: Any, new: Any, expected: bool) -> None:
    assert delete_first({"metadata": {"annotations": old}}, {"metadata": {"annotations": new}}) is expected
