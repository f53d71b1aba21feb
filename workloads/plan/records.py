"""What is left of a job that is gone: a ConfigMap that says what it was, how it ended and what it cost. Pure.

draft.actions.append(CreateRecord(record(view.job, status, now)))
"""

from typing import Any

from workloads.job.spec import Job
from workloads.job.status import Status

Object = dict[str, Any]


def record(job: Job, status: Status, now: float) -> Object:
    """The ConfigMap."""
    raise NotImplementedError
