"""The record that outlives a job: a ConfigMap with its spec, its end and its cost. Pure.

draft.actions.append(CreateRecord(record(view.job, status, now)))

It belongs to nobody, so that it outlives the job: `kubectl get configmaps -l ebb.dev/record=true`. Its keys can be read one by
one, and `record.json` has them all, with types, for programs. Nothing here deletes records.
"""

import json
import re
from typing import Any

from ebb.api import contract as names
from ebb.api.clock import stamp
from ebb.api.costs import sums
from ebb.api.spec import Job
from ebb.api.status import PLACED, Cost, Status

Object = dict[str, Any]

SCHEMA = 1
DELETED = "Deleted"
LONGEST_NAME, LONGEST_LABEL = 253, 63  # Kubernetes' limits


def record(job: Job, status: Status, now: float, reason: str = "") -> Object:
    """The ConfigMap. `reason` is for a job that has not ended by itself, such as DELETED; its cost counts until now."""
    document = _document(job, status, now, reason)
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": record_name(job),
            "namespace": job.namespace,
            "labels": {names.LABEL_RECORD: "true", names.LABEL_EBB_JOB: _label(job.name)},
        },
        "data": {names.RECORD_KEY: json.dumps(document), **{key: _text(value) for key, value in document.items()}},
    }


def record_name(job: Job) -> str:
    """One for each job, also for those of the same name."""
    end = f"-{job.short_uid}".rstrip("-")
    return f"ebb-record-{job.name}"[: LONGEST_NAME - len(end)].rstrip("-.") + end


def _document(job: Job, status: Status, now: float, reason: str) -> Object:
    cost, final = sums(status.cost or Cost(), now), status.condition(status.state)
    placed = status.placement
    return {
        "schema": SCHEMA,
        "job": job.name,
        "namespace": job.namespace,
        "uid": job.uid,
        "group": job.spec.group.name if job.spec.group else "",
        "submittedBy": job.submitted_by,
        "state": status.state,
        "reason": reason or (final.reason if final else ""),
        "message": "" if reason or final is None else final.message,
        "created": stamp(job.created),
        "started": status.start_time or "",
        "ended": status.completion_time or stamp(now),
        "workers": job.worker.replicas,
        "minReplicas": job.min_replicas,
        "maxReplicas": job.max_replicas,
        "zone": placed.zone if placed else _last_zone(status),
        "capacityType": placed.capacity_type if placed else job.spec.placement.capacity or "",
        "gpuType": placed.gpu_type if placed else job.spec.placement.gpu_type or "",
        "machineSeconds": cost.machine_seconds,
        "usdSpent": round(cost.usd_spent, 6),
        "usdOnDemand": round(cost.usd_on_demand, 6),
        "reclaims": status.reclaims,
        "failures": status.failures,
        "restarts": status.restarts,
        "secondsLost": status.seconds_lost,
        "lastStep": status.progress.step if status.progress else None,
        "totalSteps": status.progress.total_steps if status.progress else None,
    }


def _last_zone(status: Status) -> str:
    """A suspended job has none, and gave its machines back in the one before."""
    zones = [entry.cause for entry in status.history if entry.what == PLACED and entry.cause]
    return zones[-1] if zones else ""


def _label(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9]+$", "", text[:LONGEST_LABEL])


def _text(value: object) -> str:
    return "" if value is None else str(value)
