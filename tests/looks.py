"""One look of the planner, and its answer in a short form that fits into tables."""

from typing import Any

from ebb.api.clock import unix
from ebb.api.schema import encode
from ebb.api.spec import Job
from ebb.controller.reconciler.reconcile import plan
from ebb.controller.reconciler.types import CreatePod, CreateService, DeleteJob, DeletePod, DeleteService, Observed, Plan
from tests.builders import NOW, make_job, make_node, make_pod

Object = dict[str, Any]


def look(job: Object, *pods: Object, now: float = NOW, nodes: tuple[Object, ...] = (), **observed: Any) -> Plan:
    """One look; pods are on a healthy node n0 unless `nodes` says otherwise."""
    known = {node["metadata"]["name"]: node for node in (make_node(), *nodes)}
    unready = {name: seconds for name, node in known.items() if (seconds := _unready_seconds(node, now)) is not None}
    return plan(Job.of(job), Observed(pods=pods, nodes=known, unready=unready, **observed), now)


def _unready_seconds(node: Object, now: float) -> float | None:
    ready = next(item for item in node["status"]["conditions"] if item["type"] == "Ready")
    return None if ready["status"] != "False" else now - (unix(ready["lastTransitionTime"]) or now)


def done(decided: Plan) -> list[str]:
    """Actions in a short form: +0 creates worker 0, -0 deletes it, -0! with force, -0/9 with 9 s of grace."""
    words = []
    for action in decided.actions:
        match action:
            case CreatePod(body):
                words.append(f"+{body['metadata']['labels']['replica-index']}")
            case DeletePod():
                grace = {None: "", 0: "!"}.get(action.grace_seconds, f"/{action.grace_seconds}")
                words.append(f"-{action.name.rpartition('-')[2]}{grace}")
            case DeleteJob():
                words.append("-job")
            case CreateService() | DeleteService():
                continue
    return sorted(words)


def again(job: Object, decided: Plan) -> Object:
    """The job after the plan's status was written."""
    return {**job, "status": encode(decided.status)}


def running(job: Object, count: int, **rest: Any) -> list[Object]:
    return [make_pod(job, index, **rest) for index in range(count)]


def ended(code: int, index: int = 0) -> Object:
    return make_pod(JOB, index, phase="Failed" if code else "Succeeded", exit_code=code)


JOB = make_job()
