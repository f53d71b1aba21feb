"""What stays of an object in the controller's memory: all that is read, and as little else as may be."""

import json
from typing import Any

from ebb.api.clock import stamp
from ebb.api.contract import TAINT_RECLAIM
from ebb.api.spec import Job
from ebb.controller.reconciler.worker_state import Worker
from ebb.controller.trimming import trim_event, trim_job, trim_lease, trim_node, trim_pod, trim_service
from tests.builders import NOW, make_job, make_lease, make_node, make_pod, make_service

Object = dict[str, Any]


def as_served(value: Object) -> Object:
    """With what an API server adds."""
    value = json.loads(json.dumps(value))
    value["metadata"] |= {"managedFields": [{"manager": "kubelet", "fieldsV1": {"f:status": {}}}], "generateName": "x-"}
    return dict(value)


def heartbeat(node: Object, at: float) -> Object:
    node = as_served(node)
    node["metadata"] |= {"resourceVersion": str(int(at)), "annotations": {"volumes.kubernetes.io/attach-detach": "true"}}
    for condition in node["status"]["conditions"]:
        condition["lastHeartbeatTime"] = stamp(at)
    node["status"] |= {"images": [{"names": ["trainer"], "sizeBytes": 1}], "nodeInfo": {"kernelVersion": "6"}}
    return node


def test_the_planner_sees_the_same_worker_in_what_is_left_of_its_pod() -> None:
    job = make_job(container={"resources": {"limits": {"nvidia.com/gpu": 1}}, "env": [{"name": "A", "value": "b"}]})
    condition = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI", "message": "evicted"}
    for pod in (
        make_pod(job, marked=True),
        make_pod(
            job, 3, phase="Failed", exit_code=1, message="Traceback", deleted=NOW, conditions=(condition,), reason="Evicted"
        ),
        make_pod(job, phase="Pending", node=""),
    ):
        whole, kept = Worker.of(as_served(pod)), Worker.of(trim_pod(as_served(pod)))
        for field in Worker.__dataclass_fields__.keys() - {"pod"}:
            assert getattr(whole, field) == getattr(kept, field), field
        assert whole.condition("DisruptionTarget") == kept.condition("DisruptionTarget")


def test_a_pod_keeps_what_it_asks_for_and_what_its_kubelet_says() -> None:
    pod = as_served(make_pod(make_job(container={"resources": {"requests": {"cpu": "2"}}})))
    state = {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}
    pod["status"] |= {"initContainerStatuses": [{"name": "fetch", "state": state, "imageID": "x"}], "qosClass": "Burstable"}
    kept = trim_pod(pod)
    assert kept["spec"]["containers"] == [{"name": "elasticjob-worker", "resources": {"requests": {"cpu": "2"}}}]
    assert kept["status"]["initContainerStatuses"] == [{"name": "fetch", "state": state}]
    assert "qosClass" not in kept["status"]
    assert len(json.dumps(kept)) < len(json.dumps(pod)) / 2


def test_what_the_workers_of_a_job_have_in_common_is_in_memory_once() -> None:
    job = make_job()
    one, two = (trim_pod(as_served(make_pod(job, index))) for index in (0, 1))
    assert one["metadata"]["ownerReferences"] is two["metadata"]["ownerReferences"]
    assert one["spec"]["containers"] is two["spec"]["containers"]


def test_a_job_loses_only_what_is_in_it_twice() -> None:
    job = as_served(make_job())
    job["metadata"]["annotations"] = {"ebb.dev/submitted-by": "me", "kubectl.kubernetes.io/last-applied-configuration": "{}"}
    kept = trim_job(as_served(job))
    assert kept["metadata"]["annotations"] == {"ebb.dev/submitted-by": "me"}
    assert "managedFields" not in kept["metadata"]
    assert Job.of(kept).spec == Job.of(job).spec
    assert trim_job(as_served(make_job()))["spec"] == make_job()["spec"]


def test_a_heartbeat_of_a_machine_leaves_nothing_new() -> None:
    node = make_node(notice="soon", taint=TAINT_RECLAIM)
    node["metadata"]["labels"] = {"topology.kubernetes.io/zone": "local-a"}
    kept = [trim_node(heartbeat(node, at)) for at in (NOW, NOW + 10)]
    for one in kept:
        del one["metadata"]["resourceVersion"]
    assert kept[0] == kept[1]
    assert kept[0]["metadata"]["labels"] == {"topology.kubernetes.io/zone": "local-a"}
    assert [item["type"] for item in kept[0]["status"]["conditions"]] == ["Ready", "ReclaimNotice"]
    assert kept[0]["spec"]["taints"] == [{"key": TAINT_RECLAIM, "effect": "NoSchedule"}]


def test_a_machine_without_conditions_has_none() -> None:
    bare = {"metadata": {"name": "n0", "uid": "u", "resourceVersion": "1"}}
    assert trim_node(bare)["status"] == {"conditions": []}


def test_a_lease_keeps_its_renewal() -> None:
    assert trim_lease(as_served(make_lease("n0")))["spec"] == {
        "renewTime": stamp(NOW, digits=6),
        "leaseDurationSeconds": 40,
    }


def test_a_service_is_there() -> None:
    kept = trim_service(as_served(make_service(make_job())))
    assert set(kept) == {"apiVersion", "kind", "metadata"}
    assert kept["metadata"]["ownerReferences"][0]["kind"] == "ElasticJob"


def test_an_event_says_what_about_whom_and_when() -> None:
    event = {
        "metadata": {"name": "e", "namespace": "ns", "resourceVersion": "1"},
        "involvedObject": {"kind": "Pod", "uid": "u"},
        "reason": "TriggeredScaleUp",
        "message": "m",
        "lastTimestamp": stamp(NOW),
        "source": {"component": "cluster-autoscaler"},
    }
    assert "source" not in trim_event(as_served(event))
    assert trim_event(as_served(event))["involvedObject"] == {"kind": "Pod", "uid": "u"}
