"""Notices a job that pays for machines and trains nothing. Pure.

stop = watch(view, draft)       # updates status.stall and condition Stalled; (reason, message) when the job is to be held

Three signs: containers that cannot start, new generations without a new step, no step for progress.stallTimeoutSeconds. The
first time all workers are started again, which counts as no failure: it fixes a hung collective or a bad machine. The second time
the job is held. Programs that end by themselves are not looked at here, they spend backoffLimit; nor is one worker that cannot
start while enough others train.
"""

from dataclasses import replace

from ebb.api import contract as names
from ebb.api.clock import stamp, unix
from ebb.api.status import STALL, HistoryEntry, Stall
from ebb.controller.reconciler.scheduling import container_states, start_error
from ebb.controller.reconciler.types import JobView, PlanBuilder
from ebb.controller.reconciler.worker_state import Outcome, Worker

# A registry or a volume that is away comes back within minutes or not soon; by then the kubelet has tried about five times (its
# pauses double from 10 s to 5 min).
ERROR_SECONDS = 300.0
# Without an error, "being created" may be an image on its way: 10 GB at the 20 MB/s of a slow disk are 8.5 minutes.
CREATING_SECONDS = 600.0
GENERATIONS = 5  # one bad hour of spot machines can end two or three before their first step
# Beside the tests themselves: torch and CUDA are started twice for them, 5 to 20 s each.
BURN_IN_START_SECONDS = 60.0
LATE_SECONDS = 30.0  # a limit that was over for longer than this passed while no controller looked

Trouble = tuple[str, str]
"""A reason of the contract, and a sentence."""

ADVICE = {
    names.REASON_CANNOT_START: "Correct the job and apply it again; any change of its spec makes it try once more.",
    names.REASON_NO_PROGRESS: "Its workers' logs may say why; any change of its spec makes it try once more.",
}


def watch(view: JobView, draft: PlanBuilder) -> Trouble | None:
    """The first time all workers are started again (status.restarts), the second time the job is to be held."""
    old = draft.status.stall or Stall()
    stall = _begun(view, _starting(view, _stepped(view, old)))
    recovery = _recovery(view, draft, old, stall)
    if recovery:
        stall = replace(stall, restarts=0)
        draft.status = draft.status.with_condition(names.STALLED, False, *recovery, view.now)
    if stall != old:
        draft.status = replace(draft.status, stall=stall)
    trouble = _cannot_start(view, draft, stall) or _idle(view, draft, stall)
    return _act(view, draft, stall, *trouble) if trouble else None


def _stepped(view: JobView, stall: Stall) -> Stall:
    """Take in the workers' metrics: a new step, or only a new generation, or a step that is done again after a checkpoint."""
    seen, written, at = view.observed.progress, view.job.status.progress, stamp(view.now)
    if seen is None:
        return stall
    generation = stall.generation if seen.generation is None else seen.generation
    if stall.step is None or seen.step > stall.step:
        return replace(stall, step=seen.step, step_at=at, generation=generation, generations=0)
    newer = 0 if generation is None or stall.generation is None else max(0, generation - stall.generation)
    repeated = written is not None and written.generation == seen.generation and written.step < seen.step
    return replace(stall, step_at=at if repeated else stall.step_at, generation=generation, generations=stall.generations + newer)


def _starting(view: JobView, stall: Stall) -> Stall:
    """Since when containers cannot start. A worker that is replaced meanwhile does not start that clock anew, but one that did
    start does: a registry that refuses a few of many for a moment is no broken job."""
    waiting = [] if view.trains(view.job.status) else _waiting(view)
    if view.trains(view.job.status):
        return replace(stall, broken_at=None, creating_at=None)
    if not waiting:  # their machines went: the next ones will not fare better
        return replace(stall, creating_at=None)
    at, started = stamp(view.now), len(view.running) > view.job.status.replica_statuses.worker.active
    broken = None if started else stall.broken_at
    return replace(
        stall,
        broken_at=broken or (at if any(map(start_error, waiting)) else None),
        creating_at=stall.creating_at or (at if any(map(_being_created, waiting)) else None),
    )


def _begun(view: JobView, stall: Stall) -> Stall:
    """Time in which the job did not run, or no controller looked, does not count as time without a step."""
    if not view.trains(view.job.status):
        return stall
    due = _due(view, stall)
    began = not view.job.status.is_true(names.RUNNING) or stall.step_at is None
    unwatched = due is not None and view.now > due + LATE_SECONDS
    return replace(stall, step_at=stamp(view.now)) if began or unwatched else stall


def _recovery(view: JobView, draft: PlanBuilder, old: Stall, stall: Stall) -> Trouble | None:
    """The reason why the job is not stalled any more: (reason, sentence)."""
    condition = draft.status.condition(names.STALLED)
    if condition is None or condition.status != "True":
        return None
    if stall.step is not None and (old.step is None or stall.step > old.step):
        return names.REASON_PROGRESSES, f"Step {stall.step} was made."
    if condition.reason == names.REASON_CANNOT_START and view.trains(draft.status):
        return names.REASON_RUNNING, "Enough workers run."
    return None


def _cannot_start(view: JobView, draft: PlanBuilder, stall: Stall) -> Trouble | None:
    waiting = [] if view.trains(view.job.status) else _waiting(view)
    broken = [(worker, start_error(worker)) for worker in waiting if start_error(worker)]
    since = unix(stall.broken_at)
    if broken and since is not None and _over(view, draft, since + ERROR_SECONDS):
        worker, words = broken[0]
        said = f"{worker.name} cannot start for {ERROR_SECONDS / 60:.0f} minutes: {words.rstrip('.')}."
        return names.REASON_CANNOT_START, said
    for worker in filter(_being_created, waiting):
        # The clock of who placed it may be hours away: a time to come says nothing, one that is over not enough.
        times = (unix(stall.creating_at), _placed_at(worker))
        since = max((time for time in times if time is not None and time <= view.now), default=view.now)
        if _over(view, draft, since + CREATING_SECONDS):
            said = (
                f"{worker.name} was placed on {worker.node} {CREATING_SECONDS / 60:.0f} minutes ago and its containers are still "
                f"being created: its image or a volume does not come; `kubectl describe pod {worker.name}` says which."
            )
            return names.REASON_CANNOT_START, said
    return None


def _idle(view: JobView, draft: PlanBuilder, stall: Stall) -> Trouble | None:
    if stall.generations >= GENERATIONS:
        return names.REASON_NO_PROGRESS, f"{stall.generations} generations made no step after step {stall.step}."
    due, asked = _due(view, stall), view.observed.progress is not None or stall.step is None
    # A controller that has just started has not asked the workers yet.
    if due is None or not view.trains(draft.status) or not asked or not _over(view, draft, due):
        return None
    seconds = view.job.spec.progress.stall_timeout_seconds
    if stall.step is None:
        said = (
            f"No step was ever reported in {seconds} s of running (progress.stallTimeoutSeconds): either none is made, or the "
            f"trainer does not serve the metric {names.METRIC_STEP} on port {names.METRICS_PORT}."
        )
        return names.REASON_NO_PROGRESS, said
    return names.REASON_NO_PROGRESS, f"No step after step {stall.step} for {seconds} s (progress.stallTimeoutSeconds)."


def _act(view: JobView, draft: PlanBuilder, stall: Stall, reason: str, said: str) -> Trouble | None:
    if stall.restarts:
        message = f"{said} Starting all workers again did not help: the job is stopped. {ADVICE[reason]}"
        draft.status = draft.status.with_condition(names.STALLED, True, reason, message, view.now)
        return reason, message
    message = f"{said} All workers are started again, once."
    draft.status = replace(
        draft.status.with_condition(names.STALLED, True, reason, message, view.now),
        restarts=draft.status.restarts + 1,
        stall=replace(stall, restarts=1, broken_at=None, creating_at=None, generations=0, step_at=stamp(view.now)),
    )
    draft.remember(HistoryEntry(at=stamp(view.now, digits=3), what=STALL, cause=said))
    draft.event(reason, message, warning=True)
    return None


def _due(view: JobView, stall: Stall) -> float | None:
    """The time at which there was no step for too long."""
    since, timeout = unix(stall.step_at), view.job.spec.progress.stall_timeout_seconds
    tested = view.job.spec.burn_in_seconds
    burn_in = tested + BURN_IN_START_SECONDS if tested else 0.0  # a machine may have come at any time, and the others wait for it
    return None if since is None or timeout is None else since + timeout + burn_in


def _over(view: JobView, draft: PlanBuilder, limit: float) -> bool:
    if view.now < limit:
        draft.wakes.append(limit)
    return view.now >= limit


def _waiting(view: JobView) -> list[Worker]:
    """Workers that have a machine and have not started. Those that are on their way out anyway do not count."""
    alive = [worker for worker, verdict in view.workers if verdict.outcome is Outcome.LIVES and worker.index < view.wanted]
    return [worker for worker in alive if worker.node and not worker.started and worker.attempt >= view.job.status.restarts]


def _being_created(worker: Worker) -> bool:
    """Until any container has started: an init container may take its time."""
    return not any("running" in state or "terminated" in state for state in container_states(worker))


def _placed_at(worker: Worker) -> float | None:
    status = worker.pod.get("status") or {}
    return unix(worker.condition("PodScheduled").get("lastTransitionTime") or status.get("startTime"))
