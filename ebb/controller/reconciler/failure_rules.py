"""The rules of spec.failurePolicy: what a failure of the program does, by its exit code, reason or last words. Pure.

    number, rule = matching(view.job, draft.status, worker)      # of the worker that failed first
    draft.status = counted(draft.status, number)

The first rule counts that fits and is not used up. Where none does, restartPolicy and backoffLimit say what happens, as in a job
without rules.
"""

from dataclasses import replace

from ebb.api.parts import FailureRule
from ebb.api.spec import Job
from ebb.api.status import RuleUse, Status
from ebb.controller.reconciler.worker_state import Worker


def matching(job: Job, status: Status, worker: Worker) -> tuple[int, FailureRule] | None:
    """The rule for this failure with its number, from 1."""
    policy = job.spec.failure_policy
    for number, rule in enumerate(policy.rules if policy else (), 1):
        used_up = rule.times is not None and _times(status, number) >= rule.times
        if not used_up and _fits(rule, worker):
            return number, rule
    return None


def counted(status: Status, number: int) -> Status:
    """The status after another use of the rule."""
    others = [use for use in status.failure_rules if use.rule != number]
    uses = [*others, RuleUse(rule=number, times=_times(status, number) + 1)]
    return replace(status, failure_rules=tuple(sorted(uses, key=lambda use: use.rule)))


def _times(status: Status, number: int) -> int:
    return next((use.times for use in status.failure_rules if use.rule == number), 0)


def _fits(rule: FailureRule, worker: Worker) -> bool:
    """All that the rule names has to fit; a rule that names nothing is refused before."""
    reasons = {worker.exit_reason, (worker.pod.get("status") or {}).get("reason", "")}
    words = worker.exit_message or str((worker.pod.get("status") or {}).get("message") or "")
    return (
        (not rule.on_exit_codes or worker.exit_code in rule.on_exit_codes)
        and (not rule.on_reasons or not reasons.isdisjoint(rule.on_reasons))
        and (not rule.on_message or rule.on_message in words)
    )
