"""Workers that were started with another spec than the job has now, and the restart that ends it. Pure.

    spec_hash(job)              # into annotation ebb.dev/spec of every worker
    restart(view, draft)        # True: all workers start again, from a checkpoint; nothing is spent
    of_another_spec(view)       # as long as one of these is there, no new worker is made

The API server refuses to change what running workers were started with (spec.FIXED_RULES), but not in a job that is suspended,
changed and resumed while no controller leads: its old workers still run then. Workers that differ in their program or their
--nnodes do not meet, and each of the two groups may train alone, into the same output.

Replica counts are not in the hash where the job gives minReplicas and maxReplicas. Neither is the platform: a stack that gets
another etcd or volume must not start all jobs again. What Kueue
adds to the template holds for as long as the workers do.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ebb.api import contract as names
from ebb.api.spec import Job
from ebb.controller.reconciler.types import JobView, PlanBuilder
from ebb.controller.reconciler.worker_state import Outcome, Worker

# Before every hash. Whoever changes what is hashed changes it too: workers of another version are left as they are, or each
# update of the controller would start all jobs again.
VERSION = "1."
LENGTH = 16


def spec_hash(job: Job) -> str:
    """A hash of the parts of the spec that a worker is started with."""
    spec = job.spec
    parts = [
        without_nulls(job.spec.replica_specs.worker.template),
        spec.rdzv_endpoint,
        spec.rdzv_backend,
        spec.nproc_per_node,
        job.min_replicas,
        job.max_replicas,
    ]
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"))
    return VERSION + hashlib.sha256(text.encode()).hexdigest()[:LENGTH]


def of_another_spec(view: JobView) -> list[Worker]:
    """Workers whose processes may run, started with another spec; those of an older controller say nothing and may stay."""
    marked = [worker for worker, _ in view.workers if worker.spec.startswith(VERSION) and not worker.finished]
    if not marked:
        return []
    present = spec_hash(view.job)
    return [worker for worker in marked if worker.spec != present]


def restart(view: JobView, draft: PlanBuilder) -> bool:
    """Let all workers start again if one of another spec is to go on. Their next attempt has a rendezvous of its own."""
    goes_on = {worker.uid for worker, verdict in view.workers if verdict.outcome is Outcome.LIVES and not worker.leaving}
    others = [worker for worker in of_another_spec(view) if worker.uid in goes_on]
    if not any(worker.attempt >= draft.status.restarts for worker in others):
        return False
    draft.status = replace(draft.status, restarts=draft.status.restarts + 1)
    draft.event(
        names.REASON_SPEC_CHANGED,
        "The job's spec was changed after its workers had started: all of them are stopped with a checkpoint and start again as "
        "the spec says now. Nothing of backoffLimit is spent.",
    )
    return True


def without_nulls(value: Any) -> Any:
    """A copy that may be changed. Fields that are null are left out, which to the API server is the same: `securityContext:` with
    nothing behind it is silent too."""
    if isinstance(value, Mapping):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    return [without_nulls(item) for item in value] if isinstance(value, list) else value
