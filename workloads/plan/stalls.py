"""Notices a job that pays for machines and trains nothing. Pure.

stop = watch(view, draft)       # updates status.stall and condition Stalled; (reason, message) when the job is to be held
"""

from workloads.plan.values import Draft, View


def watch(view: View, draft: Draft) -> tuple[str, str] | None:
    """The first time all workers are started again (status.restarts), the second time the job is to be held."""
    return None
