"""Objects for the tests of the week, as the API server would return them, each with the fields that the week reads."""

from typing import Any

from benchmarks.week.model import FAILED, RUNNING, SUCCEEDED, SUSPENDED

Object = dict[str, Any]


def make_job(state: str, *, failures: int = 0, reason: str = "", hold: str = "", uid: str = "u1", **spec: Any) -> Object:
    kind = state if state in (SUCCEEDED, FAILED, SUSPENDED) else RUNNING
    status: Object = {"state": state, "failures": failures, "conditions": [{"type": kind, "status": "True", "reason": reason}]}
    if hold:
        status["hold"] = {"reason": hold, "generation": 1}
    return {"metadata": {"name": "one", "uid": uid, "generation": 1}, "spec": {"maxReplicas": 2, **spec}, "status": status}


def make_pod(
    index: int = 0, *, uid: str = "", node: str = "spot-week-a-1", zone: str = "week-a", phase: str = "Running", job: str = "u1",
    attempt: int = 0, disrupted: bool = False,
) -> Object:  # fmt: skip
    return {
        "metadata": {
            "name": f"one-worker-{index}", "uid": uid or f"p{index}", "labels": {"replica-index": str(index)},
            "annotations": {"ebb.dev/attempt": str(attempt)},
            "ownerReferences": [{"kind": "ElasticJob", "name": "one", "uid": job}],
        },
        "spec": {"nodeName": node, "nodeSelector": {"topology.kubernetes.io/zone": zone}},
        "status": {
            "phase": phase,
            "conditions": [{"type": "DisruptionTarget", "status": "True"}] if disrupted else [],
            "containerStatuses": [{"state": {"running": {}} if phase == "Running" else {}}],
        },
    }  # fmt: skip
