"""For the tests of the week: objects as the API server would return them, each with the fields that the week reads, and the
listeners of its watches without a cluster."""

from typing import Any

from benchmarks.week import judge
from benchmarks.week.cloud import Sight
from benchmarks.week.ledger import Ledger
from benchmarks.week.model import FAILED, RUNNING, SUCCEEDED, SUSPENDED
from benchmarks.week.seen import ChangeSignal, Crowd, Watched
from ebb.kube import PODS

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


class Scene:
    """The watches' listeners without a cluster."""

    def __init__(self) -> None:
        self.crowd = Crowd()
        kube: Any = None
        watched = Watched(kube, PODS, changed=lambda: None)
        jobs = Watched(kube, PODS, changed=lambda: None)
        self.sight = Sight(pods=watched, nodes=watched, jobs=jobs, crowd=self.crowd, changes=ChangeSignal())
        self.steady, self.acts_since = True, 0.0
        self.ledger = Ledger(self.crowd, steady=lambda: self.steady)
        self.judge = judge.Judge(self.sight, self.ledger, acts_since=lambda: self.acts_since)
        self._pods: dict[str, Object] = {}

    def pod(self, pod: Object, *, gone: bool = False) -> None:
        uid = pod["metadata"]["uid"]
        old, new = self._pods.pop(uid, None), None if gone else pod
        if new:
            self._pods[uid] = new
        for listener in (self.crowd.note, self.ledger.pod, self.judge.pod):
            listener(old, new)

    def job(self, job: Object, old: Object | None = None) -> None:
        self.sight.jobs.objects[job["metadata"]["uid"]] = job
        self.judge.job(old, job)
