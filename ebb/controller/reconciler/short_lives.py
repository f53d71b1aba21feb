"""Pauses for workers that are lost again and again as soon as they come, and the end of that. Pure.

    note(view, draft, worker, verdict)      # of a loss that is being counted: into status.shortLived, or out of it
    resting(view, draft)                    # index -> entry of the workers that are not to be created yet
    stop = verdict(view, draft)             # (reason, message) when the job is to be held

A pod that the kubelet refuses, or whose launcher leaves at once with the code of a reclaim, spends nothing of backoffLimit, and
its machine is there for the next: without a pause two such workers made 802 pods in a minute. The first replacement comes at
once, as any; then the pause doubles. Machines that are taken away are not counted: the next takes minutes by itself. Nor is a
worker that lived for a while, so a storm of reclaims neither slows a job down nor holds it. A job is held only while fewer than
minReplicas workers run: the others need not stop for one that does not come.
"""

from collections.abc import Mapping
from dataclasses import replace

from ebb.api import contract as names
from ebb.api.clock import stamp, unix
from ebb.api.status import ShortLived
from ebb.controller.reconciler.scheduling import doubled
from ebb.controller.reconciler.types import JobView, PlanBuilder
from ebb.controller.reconciler.worker_state import SHUTDOWN_REASONS, Worker, WorkerVerdict

LIVED_SECONDS = 60.0  # a worker that ran for so long is not one that cannot live; importing torch takes 5 to 20
PAUSE_SECONDS, PAUSE_MAX_SECONDS = 5.0, 300.0  # before the second replacement; doubles
MOST = 8  # in a row: 5 minutes of pauses, within which a device plugin or a webhook that starts anew is back
CAUSES = frozenset({names.CAUSE_DISRUPTED, names.CAUSE_LEFT, names.CAUSE_PROGRAM})  # the last where a rule ignores it
MESSAGE_LENGTH = 300


def note(view: JobView, draft: PlanBuilder, worker: Worker, verdict: WorkerVerdict) -> None:
    """Count a loss that came too soon; a worker that lived long enough, or was lost with its machine, begins anew."""
    others = tuple(item for item in draft.status.short_lived if item.index != worker.index and item.index < view.wanted)
    if not _short_lived(worker, verdict):
        if len(others) < len(draft.status.short_lived):
            draft.status = replace(draft.status, short_lived=others)
        return
    before = next((item.times for item in draft.status.short_lived if item.index == worker.index), 0)
    message = verdict.message.strip()[:MESSAGE_LENGTH]
    entry = ShortLived(index=worker.index, times=before + 1, at=stamp(view.now, digits=3), node=worker.node, message=message)
    draft.status = replace(draft.status, short_lived=tuple(sorted((*others, entry), key=lambda item: item.index)))


def resting(view: JobView, draft: PlanBuilder) -> Mapping[int, ShortLived]:
    """The workers whose pause is not over; the plan wakes when the first is."""
    found = {item.index: until for item in draft.status.short_lived if (until := _until(item, view.now)) > view.now}
    draft.wakes += found.values()
    return {item.index: item for item in draft.status.short_lived if item.index in found}


def waiting(view: JobView, entries: tuple[ShortLived, ...]) -> str:
    """The sentence about the first worker that is missing for its pause; "" where none is."""
    present = {worker.index for worker, _ in view.workers}
    for item in entries:
        until = _until(item, view.now)
        if until > view.now and item.index < view.wanted and item.index not in present:
            return f"{_sentence(item)} The next is created at {stamp(until)}."
    return ""


def verdict(view: JobView, draft: PlanBuilder) -> tuple[str, str] | None:
    """The reason and message of the hold."""
    spent = next((item for item in draft.status.short_lived if item.times >= MOST and item.index < view.wanted), None)
    if spent is None or view.trains(draft.status):
        return None
    message = (
        f"{_sentence(spent)} The job is stopped. If the machine refuses it, `kubectl describe node {spent.node}` says what it "
        "lacks; if its program leaves by itself, its log says why. Any change of the job's spec lets it try again."
    )
    return names.REASON_REPEATEDLY_LOST, message


def _short_lived(worker: Worker, verdict: WorkerVerdict) -> bool:
    """Losses that are the machine's end, or the scheduler's choice, set their own pace."""
    reason = (worker.pod.get("status") or {}).get("reason", "")
    if verdict.cause not in CAUSES or reason in SHUTDOWN_REASONS or not worker.node:
        return False
    if worker.finished_at is None:
        return not worker.started  # the kubelet refused it, or stopped it before it ran
    # Both times are of one clock, the kubelet's.
    return bool(worker.started_at) and worker.finished_at - worker.started_at < LIVED_SECONDS


def _until(item: ShortLived, now: float) -> float:
    """The end of its pause; a time to come is of another clock."""
    at = unix(item.at)
    if item.times < 2 or at is None or at > now:
        return 0.0
    return at + doubled(PAUSE_SECONDS, item.times - 2, PAUSE_MAX_SECONDS)


def _sentence(item: ShortLived) -> str:
    times = "once" if item.times == 1 else f"{item.times} times in a row"
    return (
        f"Worker {item.index} was lost {times} before it had run for {LIVED_SECONDS:.0f} s, the last time on {item.node}: "
        f"{item.message.rstrip('.')}."
    )
