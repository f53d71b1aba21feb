"""When an object is ready, and whose words say why it is not."""

from typing import Any

import pytest

from testing.pulumi.kubernetes.readiness import READY, Readiness, judge, pod_selector

Object = dict[str, Any]


def live(api_version: str, kind: str, spec: Object | None = None, generation: int = 1, **status: Any) -> Object:
    return {
        "apiVersion": api_version, "kind": kind, "metadata": {"name": "x", "generation": generation},
        "spec": spec or {}, "status": status,
    }  # fmt: skip


def condition(kind: str, status: str = "True", reason: str = "", message: str = "") -> Object:
    return {"type": kind, "status": status, "reason": reason, "message": message}


def pod(*containers: Object, name: str = "x-1", created: str = "2026-01-01", **status: Any) -> Object:
    return {"metadata": {"name": name, "creationTimestamp": created}, "status": {"containerStatuses": list(containers), **status}}


def waiting(reason: str, message: str = "", exit_code: int | None = None) -> Object:
    ended = {"terminated": {"exitCode": exit_code}} if exit_code is not None else {}
    return {"name": "main", "state": {"waiting": {"reason": reason, "message": message}}, "lastState": ended}


DEPLOYED: Object = {"observedGeneration": 1, "replicas": 2, "updatedReplicas": 2, "availableReplicas": 2}
SET: Object = {"observedGeneration": 1, "readyReplicas": 1, "currentRevision": "a", "updateRevision": "a"}


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        pytest.param(live("apps/v1", "Deployment", {"replicas": 2}, **DEPLOYED), READY, id="deployment"),
        pytest.param(live("apps/v1", "Deployment", {"replicas": 0}, observedGeneration=1), READY, id="deployment of none"),
        pytest.param(live("v1", "ResourceQuota", {"hard": {"pods": "5k"}}, hard={"pods": "5k"}), READY, id="quota"),
        pytest.param(live("v1", "ResourceQuota", {"hard": {"pods": "5k"}}),
                     Readiness("waiting", "what is there is being counted"),
                     id="quota that has counted nothing yet"),
        pytest.param(live("apps/v1", "Deployment", {"replicas": 2}, 2, **DEPLOYED), Readiness("waiting", "2 of 2 pods available"),
                     id="deployment not seen yet"),
        pytest.param(live("apps/v1", "Deployment", {"replicas": 2}, **DEPLOYED | {"replicas": 3}),
                     Readiness("waiting", "1 of 2 pods available"), id="an old pod still runs"),
        pytest.param(live("apps/v1", "Deployment", {"replicas": 2}, **DEPLOYED | {"availableReplicas": 1}),
                     Readiness("waiting", "1 of 2 pods available"), id="deployment half"),
        pytest.param(live("apps/v1", "Deployment", observedGeneration=1,
                          conditions=[condition("Progressing", "False", "ProgressDeadlineExceeded", "too slow")]),
                     Readiness("failed", "too slow"), id="deployment gave up"),
        pytest.param(live("apps/v1", "StatefulSet", {"replicas": 1}, **SET), READY, id="set"),
        pytest.param(live("apps/v1", "StatefulSet", {"replicas": 1}, **SET | {"updateRevision": "b"}),
                     Readiness("waiting", "1 of 1 pods ready"), id="set of the old revision"),
        pytest.param(live("apps/v1", "DaemonSet", observedGeneration=1, desiredNumberScheduled=2, updatedNumberScheduled=2,
                          numberAvailable=1), Readiness("waiting", "1 of 2 pods available"), id="daemons"),
        pytest.param(live("batch/v1", "Job", conditions=[condition("Complete")]), READY, id="job"),
        pytest.param(live("batch/v1", "Job", {"suspend": True}), READY, id="job suspended"),
        pytest.param(live("batch/v1", "Job", {"completions": 2}, succeeded=1, failed=3),
                     Readiness("waiting", "1 of 2 done, 3 attempts failed"), id="job runs"),
        pytest.param(live("batch/v1", "Job", conditions=[condition("Failed", "True", "BackoffLimitExceeded", "too often")]),
                     Readiness("failed", "BackoffLimitExceeded: too often"), id="job failed"),
        pytest.param(live("v1", "PersistentVolumeClaim", phase="Bound"), READY, id="claim"),
        pytest.param(live("v1", "PersistentVolumeClaim", phase="Pending"),
                     Readiness("waiting", "no volume bound yet"), id="free"),
        pytest.param(live("v1", "PersistentVolumeClaim", {"volumeName": "v"}, phase="Lost"),
                     Readiness("failed", "its volume 'v' is gone"), id="claim lost"),
        pytest.param(live("apiextensions.k8s.io/v1", "CustomResourceDefinition", conditions=[condition("Established")]), READY,
                     id="kind"),
        pytest.param(live("apiextensions.k8s.io/v1", "CustomResourceDefinition",
                          conditions=[condition("NamesAccepted", "False", message="things is taken")]),
                     Readiness("failed", "the names are taken: things is taken"), id="kind's names"),
        pytest.param(live("v1", "Namespace", phase="Active"), READY, id="namespace"),
        pytest.param(live("v1", "Service", {"type": "ClusterIP"}), READY, id="service"),
        pytest.param(live("v1", "Service", {"type": "LoadBalancer"}),
                     Readiness("waiting", "no address from the load balancer yet"), id="load balancer"),
        pytest.param(live("v1", "ConfigMap"), READY, id="others at once"),
        pytest.param(live("box.ebb.dev/v1alpha1", "Deployment"), READY, id="another group's kind of that name"),
    ],
)  # fmt: skip
def test_verdicts(item: Object, expected: Readiness) -> None:
    assert judge(item) == expected


WANTED = live("apps/v1", "Deployment", {"replicas": 1}, observedGeneration=1)


@pytest.mark.parametrize(
    ("pods", "expected"),
    [
        pytest.param([pod(waiting("ImagePullBackOff", "not found"))],
                     Readiness("waiting", "0 of 1 pods available; pod x-1: ImagePullBackOff: not found", stuck=True), id="image"),
        pytest.param([pod(waiting("CrashLoopBackOff", "back-off", exit_code=3))],
                     Readiness("waiting", "0 of 1 pods available; pod x-1: container main ended with exit code 3; "
                             "CrashLoopBackOff: back-off", stuck=True), id="crash"),
        pytest.param([pod(waiting("ContainerCreating"))], Readiness("waiting", "0 of 1 pods available"), id="on its way"),
        pytest.param([pod(conditions=[condition("PodScheduled", "False", "Unschedulable", "0/1 nodes are available")])],
                     Readiness("waiting", "0 of 1 pods available; pod x-1: no machine fits: 0/1 nodes are available"),
                     id="unschedulable: a machine may boot"),
        pytest.param([pod(waiting("ErrImagePull"), name="old", created="2025"), pod(name="y", phase="Failed", reason="Evicted")],
                     Readiness("waiting", "0 of 1 pods available; pod y: Evicted"), id="the newest speaks"),
    ],
)  # fmt: skip
def test_pods_say_why(pods: list[Object], expected: Readiness) -> None:
    assert judge(WANTED, pods) == expected


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        pytest.param(live("apps/v1", "StatefulSet", {"selector": {"matchLabels": {"a": "1", "b": "2"}}}), "a=1,b=2", id="set"),
        pytest.param(live("v1", "Service", {"selector": {"a": "1"}}), None, id="service"),
        pytest.param(live("batch/v1", "Job"), None, id="no selector yet"),
    ],
)
def test_pod_selector(item: Object, expected: str | None) -> None:
    assert pod_selector(item) == expected
