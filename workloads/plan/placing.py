"""Chooses where the workers go, before any pod exists. Pure.

may_create = place(view, draft)         # False: the job waits without new pods, and its condition says for what
"""

from dataclasses import replace

from workloads import contract as names
from workloads.clock import stamp
from workloads.job.status import PLACED, HistoryEntry
from workloads.plan.summary import count
from workloads.plan.values import Draft, View
from workloads.plan.zones import NoZone, choose, unplaced


def place(view: View, draft: Draft) -> bool:
    """Choose the zone before any pod exists. False: the job waits, and its condition says for what."""
    if draft.status.placement is not None:
        return True
    observed, job = view.observed, view.job
    if observed.platform_problem:
        return _wait(view, draft, names.WAITING_FOR_PLATFORM, observed.platform_problem)
    try:
        placed = choose(job, observed.platform, observed.market) if observed.platform else unplaced(job)
    except NoZone as error:
        return _wait(view, draft, names.WAITING_FOR_ZONE, str(error))
    draft.status = replace(draft.status, placement=placed)
    if placed.zone:
        entry = HistoryEntry(at=stamp(view.now, digits=3), what=PLACED, cause=placed.zone)
        draft.remember(entry)
        machines = " ".join(part for part in (placed.capacity_type, placed.gpu_type) if part)
        draft.event(names.REASON_PLACED, f"Workers go to zone {placed.zone}" + (f" ({machines})." if machines else "."))
    return True


def _wait(view: View, draft: Draft, reason: str, message: str) -> bool:
    """The job cannot have pods yet."""
    before = draft.status.condition(names.RUNNING)
    draft.status = count(view, draft.status).with_condition(names.RUNNING, False, reason, message, view.now)
    draft.status = replace(draft.status, state=names.WAITING)
    if before is None or before.message != message:
        draft.event(reason, message, warning=True)
    return False
