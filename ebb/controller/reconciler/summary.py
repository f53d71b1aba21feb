"""Counts and conditions of a job, and the reason why its workers do not run yet. Pure.

    status = summarize(view, status)                            # of a job that is neither suspended nor ended
    status = blocked(view, status, reason, message)             # of one that may have no new workers yet
    reason, sentence = waiting_for(view, status)                # for programs, and for people
    view = with_last_figures(view)                              # of a run that has finished: step 47 of 47

waitingSince is when the workers became fewer than minReplicas. When enough run again, or the job ends or is suspended, that time
is added to secondsLost, if the job had trained before. No sentence counts seconds: it would be another one at every look, and
each would be written.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ebb.api import contract as names
from ebb.api.clock import stamp, unix
from ebb.api.needs import Wish
from ebb.api.parts import ANY, SINGLE
from ebb.api.status import Progress, ReplicaStatus, ReplicaStatuses, Status
from ebb.controller.reconciler import short_lives, stockouts
from ebb.controller.reconciler.candidates import Candidate, candidate_of, elsewhere, home_of
from ebb.controller.reconciler.failure_policy import faulty_machines
from ebb.controller.reconciler.scheduling import gated_base, gates, scheduled, start_error, unscheduled
from ebb.controller.reconciler.spec_changes import of_another_spec
from ebb.controller.reconciler.stockouts import Kind
from ebb.controller.reconciler.types import JobView
from ebb.controller.reconciler.worker_state import Outcome, Worker

DETAIL_LENGTH = 200
STOCKOUTS = {
    Kind.DRY: (names.WAITING_DRY, "there are no machines to be had in {place}"),
    Kind.QUOTA: (names.WAITING_CLOUD_QUOTA, "the account may not have more machines in {place}"),
    Kind.FULL: (names.WAITING_FOR_MACHINES, "the node groups in {place} have all the machines that they may"),
}


def count(view: JobView, status: Status) -> Status:
    """The figures: ready, replicas, replicaStatuses; and the job waits for nothing any more."""
    status = _figures(view, status)
    since = unix(status.waiting_since)
    if since is None:
        return status
    lost = max(0.0, view.now - since) if status.is_true(names.RESTARTING) else 0.0
    return replace(status, waiting_since=None, seconds_lost=round(status.seconds_lost + lost, 3))


def summarize(view: JobView, status: Status) -> Status:
    """Counts, then Running or Restarting, or why neither."""
    running, least = len(view.running), view.job.min_replicas
    if view.trains(status):
        status = count(view, status)
        if status.is_true(names.RESTARTING):
            status = status.with_condition(names.RESTARTING, False, names.REASON_RUNNING, "Enough workers run.", view.now)
        message = f"{running} of {view.wanted} workers run."
        most = view.admission.most
        if most is not None and not view.job.automatic and most < view.job.worker.replicas:
            who = "Kueue" if view.job.queue else "Its team's quota"
            message += f" {who} lets it have {most} of {view.job.worker.replicas}."
        return replace(status, state=names.RUNNING).with_condition(names.RUNNING, True, names.REASON_RUNNING, message, view.now)
    reason, detail = waiting_for(view, status)
    return blocked(view, status, reason, f"{running} of at least {least} workers run: {detail}")


def blocked(view: JobView, status: Status, reason: str, message: str) -> Status:
    """Fewer than minReplicas workers run, for this reason."""
    had_run = status.is_true(names.RUNNING) or status.is_true(names.RESTARTING)
    status = _figures(view, status).with_condition(names.RUNNING, False, reason, message, view.now)
    # maxParallel is the author's own wish, as suspension and Kueue's queue are: no time is lost by it. With a gate no machine is
    # asked for yet.
    if reason in (names.WAITING_FOR_GROUP, names.WAITING_FOR_GATES, names.WAITING_FOR_DATA, names.WAITING_FOR_KUEUE):
        status = count(view, status)
    else:
        status = replace(status, waiting_since=status.waiting_since or stamp(view.now, digits=3))
    if not had_run:
        return replace(status, state=names.WAITING)
    restarting = status.with_condition(names.RESTARTING, True, names.REASON_RESTARTING, message, view.now)
    return replace(restarting, state=names.RESTARTING)


def _figures(view: JobView, status: Status) -> Status:
    running = len(view.running)
    existing = sum(1 for worker, _ in view.workers if not worker.finished)
    figures = ReplicaStatus(active=running, succeeded=len(status.succeeded_indices), failed=status.failures)
    return replace(
        status,
        ready=f"{running}/{view.wanted}",
        replicas=existing,
        replica_statuses=ReplicaStatuses(worker=figures),
    )


def waiting_for(view: JobView, status: Status) -> tuple[str, str]:
    """(reason, sentence)."""
    leaving = strangers(view, status)
    if leaving and status.placement:
        place = here(view, status).title
        return names.REASON_MOVED, f"they start in {place} when {_counted(leaving, 'has', 'have')} left the old place."
    kept = _kept_back(view, status)
    if kept:
        return kept
    if unscheduled(view):
        return _for_machines(view, status)
    waiting = [worker for worker in scheduled(view) if not worker.started]
    if waiting:
        what = f"{_counted(waiting, 'waits', 'wait')} for containers to start"
        return names.WAITING_FOR_START, _sentence(
            what, next((f"{worker.name}: {said}" for worker in waiting if (said := start_error(worker))), "")
        )
    if view.observed.taken:
        first = min(view.observed.taken)
        return names.WAITING_FOR_NAMES, f"pod {first} is not this job's: it must be gone before its name is free."
    return names.WAITING_FOR_WORKERS, "the others are being created."


def _kept_back(view: JobView, status: Status) -> tuple[str, str] | None:
    """Workers that no machine would help: others must leave first, they pause, or a gate keeps them from the scheduler."""
    others = of_another_spec(view)
    if others:
        return names.REASON_SPEC_CHANGED, f"they start with the changed spec when {_counted(others, 'has', 'have')} left."
    lost = short_lives.waiting(view, status.short_lived)
    if lost:
        return names.REASON_REPEATEDLY_LOST, lost[0].lower() + lost[1:]
    held = gated_base(view)
    if held:
        gate = gates(held[0])[0]
        return names.WAITING_FOR_GATES, f"{_counted(held, 'waits', 'wait')} until somebody removes scheduling gate {gate!r}."
    return None


def strangers(view: JobView, status: Status) -> list[Worker]:
    """Workers, also those on their way out, that are held to another place than the job's."""
    placed = status.placement
    return [worker for worker, _ in view.workers if placed and elsewhere(view.job, placed, worker.pod)]


def here(view: JobView, status: Status) -> Candidate:
    """The site of a job that has a placement."""
    assert status.placement is not None
    return candidate_of(Wish.of(view.job), status.placement, view.observed.platform)


def _for_machines(view: JobView, status: Status) -> tuple[str, str]:
    missing, site = unscheduled(view), here(view, status) if status.placement else None
    stockout = stockouts.find(view, site) if site else None
    if site and stockout:
        reason, sentence = STOCKOUTS[stockout.kind]
        since = stockouts.since(status, site)
        begun = f" (since {since})" if since else ""
        said = stockout.message.strip().rstrip(".")[:DETAIL_LENGTH]
        return reason, f"{sentence.format(place=site.title)}{begun}: {said}.{_why_it_stays(view)}"
    words = [view.observed.supply.words.get(worker.uid) for worker in missing]
    asked = [word.at for word in words if word and word.triggered]
    if asked:
        return names.WAITING_BOOTING, _booting(len(asked), min(asked), site)
    what = f"{_counted(missing, 'waits', 'wait')} for a machine{_inside(site)}"
    said = _sentence(what, missing[0].condition("PodScheduled").get("message", ""))
    return names.WAITING_FOR_MACHINES, said + _why_it_stays_off(status)


def _why_it_stays_off(status: Status) -> str:
    """In a cluster that cannot grow nothing else says why machines that are free are not taken."""
    faulty = sorted(faulty_machines(status))
    return f" The job stays off {', '.join(faulty[:3])}{' and others' * (len(faulty) > 3)}, which failed it." if faulty else ""


def _booting(workers: int, at: float, site: Candidate | None) -> str:
    per_machine = site.fits[0][1] if site and site.fits else 1
    machines = -(-workers // per_machine)
    counted = "1 machine is" if machines == 1 else f"{machines} machines are"
    return f"{counted} booting{_inside(site)} (asked for at {stamp(at)})."


def _inside(site: Candidate | None) -> str:
    return f" in {site.zone}" if site and site.zone not in ("", ANY) else ""


def _why_it_stays(view: JobView) -> str:
    """The reason why the job goes to no other zone."""
    asked, platform = view.job.spec.placement.zone, view.observed.platform
    if asked not in (SINGLE, ANY):
        return f" The job waits there, as placement.zone names {asked}."
    home = home_of(Wish.of(view.job), platform) if platform else None
    return f" The job waits there, as volume {home.name!r} is in {home.zone} alone." if home else ""


def _counted(workers: list[Worker], one: str, many: str) -> str:
    return f"1 worker {one}" if len(workers) == 1 else f"{len(workers)} workers {many}"


def _sentence(what: str, detail: str) -> str:
    short = detail.strip().rstrip(".")[:DETAIL_LENGTH]
    return f"{what} ({short})." if short else f"{what}."


def with_last_figures(view: JobView) -> JobView:
    """With the last figures of the worker that came furthest, as its launcher left them in the pod.

    What is no such message, or says less than is known, changes nothing.
    """
    known = view.observed.progress or view.job.status.progress
    found = [_left_figures(worker.exit_message) for worker, verdict in view.workers if verdict.outcome is Outcome.DONE]
    last = max(found, key=lambda figures: figures.get("step", -1), default={})
    if "step" not in last or (known and last["step"] < known.step):
        return view
    before = known or Progress()
    progress = replace(
        before,
        step=int(last["step"]),
        total_steps=int(last["total_steps"]) if "total_steps" in last else before.total_steps,
        epoch=int(last["epoch"]) if "epoch" in last else before.epoch,
        loss=float(last["loss"]) if "loss" in last else None,  # it diverged: an earlier one is not what the run came to
        samples_per_second=float(last.get("samples_per_second", before.samples_per_second or 0.0)) or None,
    )
    if progress == known:
        return view
    return replace(view, observed=replace(view.observed, progress=replace(progress, at=stamp(view.now))))


def _left_figures(message: str) -> Mapping[str, float]:
    """{} for what is no such message: what a program writes there must not stop a controller."""
    try:
        found: Any = json.loads(message)[names.LAST_FIGURES] if message.startswith("{") else {}
    except (ValueError, KeyError, TypeError, RecursionError):
        return {}
    items = found.items() if isinstance(found, dict) else ()
    return {str(key): value for key, value in items if isinstance(value, int | float) and _fits(value)}


def _fits(value: float) -> bool:
    return not isinstance(value, bool) and math.isfinite(value) and 0 <= abs(value) < 2**63
