"""The decision about one job: (job, observed, now) -> Plan. Pure, so that every rule is a row in a table of tests.

    decided = plan(job, observed, now)

Level-triggered: nothing depends on which event led here, everything on the objects as they are and on what status remembers.
Two rules make it safe to be killed between any two calls. What only the status knows (a failure that was counted, an end, that a
pod goes because we want it) is written there first and acted upon afterwards. All the rest may be done again at any time.
"""

from collections.abc import Sequence
from dataclasses import replace

from ebb.api import contract as names
from ebb.api import costs
from ebb.api.clock import stamp, unix
from ebb.api.parts import CLEAN_NONE, EXIT_CODE, FAIL_JOB, HOLD_JOB, IGNORE, NEVER, RESTART_WORKER
from ebb.api.spec import Job
from ebb.api.status import PROGRAM_FAILED, HistoryEntry, Hold, Progress, Stall, Status
from ebb.controller.reconciler import (
    crash_hold,
    data_copy,
    gpu_use,
    lending,
    money,
    quotas,
    short_lives,
    spec_changes,
    stall_policy,
    sweep,
    workload,
)
from ebb.controller.reconciler.failure_policy import Loss, account, count_rule, dismiss, dismissed, matching_rule, stop, trained
from ebb.controller.reconciler.lifecycle import ASKED, after_end, end, finish, hold, suspend
from ebb.controller.reconciler.placing import place
from ebb.controller.reconciler.pods import leave_seconds, selector
from ebb.controller.reconciler.sizing import resize
from ebb.controller.reconciler.summary import summarize, with_last_figures
from ebb.controller.reconciler.types import Admission, CreateRecord, Event, JobView, Observed, Plan, PlanBuilder
from ebb.controller.reconciler.worker_state import NOT_READY_SECONDS as NOT_READY
from ebb.controller.reconciler.worker_state import Outcome, Worker, WorkerVerdict, numbered

PROGRESS_SECONDS = 30.0  # progress alone rewrites the object at most this often
ANSWERING_SECONDS = 5.0  # until a machine that looks lost, and whose worker answers, is asked again
CLOCKS_DIFFER = 60.0  # a machine that is there so long after its end was told by another clock than ours


def plan(job: Job, observed: Observed, now: float) -> Plan:
    """Decide what to do about one job now."""
    if job.deleting or job.spec.managed_by != names.MANAGER:
        return Plan(status=job.status)
    admission = _admission(job, observed, now)
    job = workload.apply(admission, job)
    view, draft = with_last_figures(JobView.of(job, observed, now, admission)), PlanBuilder(job.status)
    draft.status = replace(draft.status, observed_generation=job.generation, selector=selector(job.name))
    if draft.status.condition(names.CREATED) is None:
        message = f"The controller took the job on: {view.wanted} workers wanted."
        draft.status = draft.status.with_condition(names.CREATED, True, names.REASON_CREATED, message, now)
        draft.event(names.REASON_CREATED, message)
    money.accrue(view, draft)
    if job.status.hold and job.status.hold.generation != job.generation and not sweep.keeps(job, job.status.hold):
        draft.status = replace(draft.status, hold=None)
    held = draft.status.hold
    if held and not job.spec.suspend and sweep.goes_on(view, draft, held):
        held = None
    if job.status.ended or job.spec.suspend or held:
        data_copy.stop(view, draft)
    if job.status.ended:
        after_end(view, draft)
    elif job.spec.suspend:
        suspend(view, draft, *ASKED)
    elif held:
        _stay_held(view, draft, held)
    else:
        _run(view, draft)
    if not (job.status.ended and job.spec.clean_pod_policy == CLEAN_NONE):
        _force_out(view, draft)
    workload.sync(view, draft)
    _hold_progress(view, draft)
    return draft.plan()


def _admission(job: Job, observed: Observed, now: float) -> Admission:
    """The number of workers that Kueue, or the quotas of all teams, let the job have."""
    if job.queue:
        return workload.admission_of(job, observed.kueue, has_workers=bool(observed.pods))
    return Admission(most=lending.most_of(job, observed, now))


def _stay_held(view: JobView, draft: PlanBuilder, held: Hold) -> None:
    """While a machine is held, the limits of the job's cost and time count on."""
    if held.machine is None:
        suspend(view, draft, held.reason, held.message)
    elif stop := money.verdict(view, draft):
        hold(view, draft, *stop)
    elif _overdue(view, draft):
        _end_overdue(view, draft)
    else:
        held, kept = crash_hold.renew(view, draft, held, held.machine)
        suspend(view, draft, held.reason, held.message, keep=kept)


def _force_out(view: JobView, draft: PlanBuilder) -> None:
    """Delete without grace what leaves a dead machine: nobody confirms its end, and its name would stay taken for minutes."""
    for worker, verdict in view.workers:
        if verdict.force and worker.leaving:
            draft.delete(worker, 0, once_written=_unknown(view, worker))
        elif worker.node in view.observed.silent and worker.overdue_at is not None and worker.overdue_at > view.now:
            draft.wakes.append(worker.overdue_at)


def refused(job: Job, decided: Plan, messages: Sequence[str], now: float) -> Plan:
    """The same plan after the API server refused some of its creations: the job's condition says so in the server's words."""
    status, message = decided.status, messages[0]
    event = Event(names.REASON_CREATE_REFUSED, message, True)
    if any(isinstance(action, CreateRecord) for action in decided.actions):
        status = replace(status, recorded=False)  # it may be what was refused; one that exists is as good
    if status.ended:
        return replace(decided, status=status, events=(*decided.events, event))
    reason = names.WAITING_FOR_QUOTA if quotas.EXCEEDED in message else names.REASON_CREATE_REFUSED
    status = quotas.noted(job, _hindered(status, reason, message, now), messages, now)
    return replace(decided, status=status, events=(*decided.events, event))


def failing(status: Status, error: str, now: float) -> tuple[Status, Event]:
    """The status of a job for which the API server fails again and again, and the event that says so. An ended job has nothing
    that its condition could say."""
    message = f"The API server fails at what the job needs, which is tried again every 30 s or sooner: {error}"
    event = Event(names.REASON_API_ERROR, message, True)
    return (status if status.ended else _hindered(status, names.REASON_API_ERROR, message, now)), event


def _hindered(status: Status, reason: str, message: str, now: float) -> Status:
    """A job that runs goes on, though not as it should."""
    running = status.is_true(names.RUNNING)
    return status.with_condition(names.RUNNING, running, names.REASON_RUNNING if running else reason, message, now)


def _run(view: JobView, draft: PlanBuilder) -> None:
    stop = money.verdict(view, draft)
    if stop is None:
        _resume(view, draft)
    failed = account(view, draft)
    sweep.note(view, draft)
    # The job's time begins with its first worker that is there: one that a quota refuses has not begun.
    if draft.status.start_time is None and any(not member.settled for member in draft.status.members):
        draft.status = replace(draft.status, start_time=stamp(view.now))
    done = trained(view, draft.status)
    if done:
        finish(view, draft)
    elif failed:
        _program_failed(view, draft, failed)
    elif _overdue(view, draft):
        _end_overdue(view, draft)
    elif stop := stop or sweep.verdict(view, draft) or stall_policy.watch(view, draft) or short_lives.verdict(view, draft):
        hold(view, draft, *stop)
    elif spec_changes.restart(view, draft) or draft.status.restarts > view.job.status.restarts:
        dismiss(draft)
        _summarize(view, draft)
    else:
        _replace_lost(view, draft)
        if data_copy.ready(view, draft) and place(view, draft):
            resize(view, draft)
            _summarize(view, draft)
    if view.observed.progress:
        money.credit(view, draft, view.observed.progress)
        draft.status = replace(draft.status, progress=view.observed.progress)
    gpu_use.note(view, draft)


def _resume(view: JobView, draft: PlanBuilder) -> None:
    if draft.status.is_true(names.SUSPENDED):
        message = "The job was resumed: it goes on from its last checkpoint."
        status = draft.status.with_condition(names.SUSPENDED, False, names.REASON_RESUMED, message, view.now)
        if status.is_true(names.STALLED):
            status = status.with_condition(names.STALLED, False, names.REASON_RESUMED, message, view.now)
        draft.status = replace(status, stall=None)
        draft.event(names.REASON_RESUMED, message)


def _program_failed(view: JobView, draft: PlanBuilder, failed: Sequence[Loss]) -> None:
    """Do what a rule says, else spend one of the budget, for all that failed together."""
    crashed = crash_hold.first_held(view, failed)
    worker, verdict = crashed or min(failed, key=lambda loss: (loss[0].finished_at or view.now, loss[0].index))
    what, action = f"The program of worker {worker.index} failed: {verdict.message}.", ""
    if ruled := matching_rule(view.job, draft.status, worker):
        number, action = ruled[0], ruled[1].action
        draft.status = count_rule(draft.status, number)
        what += f" Rule {number} of spec.failurePolicy says {action}."
    if action == HOLD_JOB and not crashed:
        hold(view, draft, names.REASON_PROGRAM_FAILED, f"{what} Any change of the job's spec lets it try again.")
        return
    if action == IGNORE:
        for loss in failed:
            short_lives.note(view, draft, *loss)
        draft.event(names.REASON_PROGRAM_FAILED, f"{what} It is replaced, and nothing is spent.", warning=True)
        _summarize(view, draft)
        return
    status, limit = draft.status, view.job.spec.backoff_limit
    entry = HistoryEntry(
        at=stamp(view.now, digits=3), what=PROGRAM_FAILED, worker=worker.index, node=worker.node or None, cause=verdict.message
    )
    draft.status = replace(status, failures=status.failures + 1, last_failure_time=stamp(view.now))
    draft.remember(entry)
    if crashed:
        crash_hold.begin(view, draft, worker, what)
        return
    final = _final_failure(view.job, worker, draft.status, action)
    if final:
        end(view, draft, names.FAILED, names.REASON_FAILED, f"{what} {final}")
        return
    again = "it starts again" if len(failed) == 1 else f"{numbered([loss[0].index for loss in failed])} start again"
    if action != RESTART_WORKER:
        again = "all workers start again"
        draft.status = replace(draft.status, restarts=status.restarts + 1)
        dismiss(draft)
    message = f"{what} Failure {draft.status.failures} of {limit} tolerated: {again}."
    draft.event(names.REASON_PROGRAM_FAILED, message, warning=True)
    _summarize(view, draft)


def _final_failure(job: Job, worker: Worker, status: Status, action: str) -> str:
    """The reason why this failure ends the job; "" if it does not. `action`: what a rule says; "": there is none."""
    policy, limit = job.worker.restart_policy, job.spec.backoff_limit
    spent = f"backoffLimit {limit} is spent." if status.failures > limit else ""
    if action:
        return "The job ends." if action == FAIL_JOB else spent
    if policy == NEVER:
        return "restartPolicy is Never."
    if worker.exit_code == names.EXIT_NO_PROGRAM:
        return "Another try would not find it either."
    if policy == EXIT_CODE and worker.exit_code not in names.RETRYABLE_EXIT_CODES:
        return "restartPolicy ExitCode does not try again after that code."
    return spent


def _overdue(view: JobView, draft: PlanBuilder) -> bool:
    started, limit = unix(draft.status.start_time), view.job.spec.active_deadline_seconds
    if started is None or limit is None:
        return False
    draft.wakes.append(started + limit)
    return view.now >= started + limit


def _end_overdue(view: JobView, draft: PlanBuilder) -> None:
    limit = view.job.spec.active_deadline_seconds
    message = f"The job ran longer than activeDeadlineSeconds {limit}: raise it, or submit the job again to go on."
    end(view, draft, names.FAILED, names.REASON_DEADLINE, message)


def _replace_lost(view: JobView, draft: PlanBuilder) -> None:
    """Delete what is lost, of an earlier attempt, on its way off an old machine, or too many, so that its name is free or its
    machine is."""
    surplus, goes = [], dismissed(view)
    for worker, verdict in view.workers:
        if worker.leaving or verdict.outcome is Outcome.DONE:
            continue
        if worker.attempt < draft.status.restarts or worker.uid in goes:
            stop(draft, worker)
        elif worker.index >= view.wanted:
            stop(draft, worker)
            surplus.append(worker)
        elif verdict.outcome in (Outcome.LEAVES, Outcome.FAILED):  # FAILED: a rule replaces it alone
            stop(draft, worker)
        elif verdict.outcome is Outcome.RECLAIMED:
            draft.delete(worker, _grace(worker, verdict, view), once_written=_unknown(view, worker))
        elif worker.node in view.observed.nodes:
            since, leaves_at = view.observed.unready.get(worker.node), view.leaves_at(worker)
            lost_at = None if since is None or since >= NOT_READY else view.now + NOT_READY - since
            draft.wakes += [due for due in (lost_at, leaves_at) if due is not None]
    if view.observed.answering:
        draft.wakes.append(view.now + ANSWERING_SECONDS)
    if surplus:
        stopped = numbered([worker.index for worker in surplus])
        asked = view.job.automatic or view.wanted == view.job.worker.replicas
        why = f"the job was scaled to {view.wanted}" if asked else f"its quota lets it have {view.wanted}"
        draft.event(names.REASON_SCALED, f"Stopped {stopped}: {why}.")


def _unknown(view: JobView, worker: Worker) -> bool:
    """Return whether the status alone would not show this worker's loss, once its pod is gone."""
    return bool(worker.node) and worker.uid not in view.placed


def _grace(worker: Worker, verdict: WorkerVerdict, view: JobView) -> int | None:
    """Seconds for a lost worker to leave: what the notice leaves it; 0 on a dead machine; else its own grace."""
    if verdict.force:
        return 0
    if verdict.cause != names.CAUSE_NOTICE:
        return None
    left = None if verdict.notice_until is None else verdict.notice_until - view.now
    if left is None or left < -CLOCKS_DIFFER:  # the notice names no time (GKE's taint): what the cloud promises counts
        group = costs.group_of(view.observed.nodes.get(worker.node), view.observed.platform)
        left = leave_seconds(group.notice_seconds) if group and group.notice_seconds else None
    # Never 0: that would free the name while the processes still run.
    return None if left is None else max(1, min(worker.grace_seconds, int(left)))


def _summarize(view: JobView, draft: PlanBuilder) -> None:
    """Conditions and counts, and an event where Running or Restarting begins."""
    before = draft.status
    draft.status = summarize(view, before)
    for kind, reason in ((names.RUNNING, names.REASON_RUNNING), (names.RESTARTING, names.REASON_RESTARTING)):
        condition = draft.status.condition(kind)
        if condition and draft.status.is_true(kind) and not before.is_true(kind):
            draft.event(reason, condition.message, warning=kind == names.RESTARTING)


def _hold_progress(view: JobView, draft: PlanBuilder) -> None:
    """Stamp a status that changed. Where only figures did, write them now and then while the training moves, else not at all: the
    sums of a cost follow from its rates."""
    old, new = view.job.status, draft.status
    moved = (new.progress and replace(new.progress, at=None)) != (old.progress and replace(old.progress, at=None))
    if _still(new, moved) == _still(old, moved):
        moved = moved or new.gpus != old.gpus
        written = unix(old.last_reconcile_time)
        recently = written is not None and 0 <= view.now - written < PROGRESS_SECONDS
        if moved and recently and written is not None:
            draft.wakes.append(written + PROGRESS_SECONDS)
        if recently or not moved:
            draft.status = old
            return
    draft.status = replace(new, last_reconcile_time=stamp(view.now, digits=3))


def _still(status: Status, moved: bool) -> Status:
    """The status without what moves by itself; the steps that the stall watch has seen, only where the training moved."""
    cost, stall = status.cost, status.stall
    return replace(
        status,
        progress=Progress() if status.progress else None,
        gpus=tuple(map(gpu_use.still, status.gpus)),
        cost=replace(cost, usd_spent=0.0, usd_on_demand=0.0, machine_seconds=0.0, useful_machine_seconds=0.0, at=None)
        if cost
        else None,
        stall=Stall(broken_at=stall.broken_at, creating_at=stall.creating_at, restarts=stall.restarts)
        if stall and moved
        else stall,
    )
