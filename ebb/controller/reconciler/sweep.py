"""A run among the others of its sweep: when it stops or pauses, and when it goes on. Pure; ebb/api/halving.py has the rules.

    note(view, draft)                  # the rung at which it is seen for the first time, into status.sweep
    stop = verdict(view, draft)        # (reason, message) when it stops as one of the worst, or pauses at its rung
    goes_on(view, draft, held)         # a paused run is promoted, or nobody compares it any more
    reason = waits(view, draft)        # a new run lets those that are promoted go first

The runs are all that remembers a sweep: each has its own part in its status, which the controller alone writes. So nobody needs
rights for it, and no laptop has to stay open. A run that stops here is held as for a spent budget, and stays so when its spec
changes, or a new maxParallel would let all of them go: it goes on when its author takes it out of the comparison, as
`ebb resume` does.
"""

from dataclasses import replace

from ebb.api import contract as names
from ebb.api.halving import Phase, SweepRun, new_rung, promoted_now, rung_step, verdicts
from ebb.api.parts import ASHA, Halving
from ebb.api.spec import Job
from ebb.api.status import Hold, Sweep
from ebb.controller.reconciler.types import JobView, PlanBuilder

OURS = (names.REASON_SWEEP_PAUSED, names.REASON_SWEEP_WORST)


def rule_of(job: Job) -> Halving | None:
    """The rule by which the job is compared with others; None: it is not."""
    return job.spec.group.halving if job.spec.group else None


def keeps(job: Job, held: Hold) -> bool:
    """Return whether a change of the spec leaves the hold as it is."""
    return held.reason in OURS and rule_of(job) is not None


def goes_on(view: JobView, draft: PlanBuilder, held: Hold) -> bool:
    """Let a paused run go on if it is promoted."""
    rule = rule_of(view.job)
    if rule is None or held.reason != names.REASON_SWEEP_PAUSED or view.job.name not in view.observed.siblings.promoted:
        return False
    _promote(view, draft, rule)
    draft.status = replace(draft.status, hold=None)
    return True


def note(view: JobView, draft: PlanBuilder) -> None:
    """Write down what the run has at a rung where it is seen for the first time."""
    rule, progress = rule_of(view.job), view.observed.progress
    if rule is None or progress is None:
        return
    sweep = draft.status.sweep or Sweep()
    known = {rung.step: 0.0 for rung in sweep.rungs}
    if found := new_rung(rule, known, sweep.promotions, progress):
        draft.status = replace(draft.status, sweep=replace(sweep, rungs=(*sweep.rungs, found)))


def verdict(view: JobView, draft: PlanBuilder) -> tuple[str, str] | None:
    """The reason and message of the hold. A run that has done all its steps is left to finish."""
    rule, progress = rule_of(view.job), view.observed.progress or draft.status.progress
    if rule is None or progress is None or (progress.total_steps is not None and progress.step >= progress.total_steps):
        return None
    job = replace(view.job, status=draft.status)
    me = SweepRun.of(job, rule.metric)
    if rule.algorithm == ASHA:
        return _pause(view, draft, rule, me)
    because = next((found.because for found in verdicts((*view.observed.siblings.runs, me), rule) if found.name == me.name), "")
    if not because:
        return None
    return names.REASON_SWEEP_WORST, f"{because}. Continue it: ebb resume {me.name}"


def waits(view: JobView, draft: PlanBuilder) -> str:
    """The reason why a new run has to wait for one that is promoted; "" if it has not."""
    rule, group = rule_of(view.job), view.job.spec.group
    first = view.observed.siblings.promoted
    if rule is None or group is None or not (group.max_parallel and first) or (draft.status.sweep or Sweep()).rungs:
        return ""
    return f"group {group.name!r} runs {group.max_parallel} at once, as its maxParallel says: {first[0]} is promoted first."


def _pause(view: JobView, draft: PlanBuilder, rule: Halving, me: SweepRun) -> tuple[str, str] | None:
    """A run that is promoted at its rung in the same moment goes on without a pause."""
    rung = rung_step(rule, me.promoted)
    if rung not in me.rungs:
        return None
    at_once = view.job.spec.group.max_parallel if view.job.spec.group else None
    paused = replace(me, phase=Phase.PAUSED)
    if me.name in promoted_now((*view.observed.siblings.runs, paused), rule, at_once):
        _promote(view, draft, rule)
        return None
    return names.REASON_SWEEP_PAUSED, (
        f"{rule.metric} {me.rungs[rung]:.4g} at step {rung}: the run pauses, and goes on when it is among the best of every "
        f"{rule.factor} that came there. Continue it whatever the others have: ebb resume {me.name}"
    )


def _promote(view: JobView, draft: PlanBuilder, rule: Halving) -> None:
    sweep = draft.status.sweep or Sweep()
    rung = rung_step(rule, sweep.promotions)
    draft.status = replace(draft.status, sweep=replace(sweep, promotions=sweep.promotions + 1))
    further = rung_step(rule, sweep.promotions + 1)
    message = f"The run is among the best of every {rule.factor} at step {rung}: it goes on to step {further}."
    draft.event(names.REASON_SWEEP_PROMOTED, message)
