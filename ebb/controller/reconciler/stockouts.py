"""Sites without machines: the autoscaler's and the clock's word on them, and what status.dry keeps of it. Pure.

    stockout = find(view, site)                      # why the missing workers get no machine now; None: they may
    remember(view, draft, site, stockout)            # into status.dry; forgets what is old or disproved
    lasting(view, draft.status, site, stockout)      # whether it has been so for long enough to leave
    seen(view, draft.status, other_site)             # when a site was last seen dry, by whichever job; None: not lately

A site counts as dry when all its node groups back off, when the autoscaler said of the job's pods that it would not make machines
for them, or when none came for the time that one takes. Where the groups are merely at their maximum it is full: the consequence
is the same, the words are not, and it is forgotten sooner.
"""

import enum
from dataclasses import dataclass, replace

from ebb.api.clock import stamp, unix
from ebb.api.status import Dry, Status
from ebb.controller.reconciler.candidates import Candidate
from ebb.controller.reconciler.capacity import RECENT_SECONDS
from ebb.controller.reconciler.scheduling import last_scheduled_at, missing_base, waiting_since
from ebb.controller.reconciler.types import JobView, PlanBuilder
from ebb.controller.reconciler.worker_state import Worker

LASTS_SECONDS = 30.0  # the autoscaler may find another way at its next look, 10 s later
FULL_RECENT_SECONDS = 600.0  # machines of other jobs come free at any time
REFRESH_SECONDS = 240.0  # status.dry says again that it is still so at most this often: each time is a write
KEPT = 6  # sites of one job
MESSAGE_LENGTH = 300


class Kind(enum.Enum):
    """The obstacle."""

    QUOTA = "quota"  # the account may not have more
    DRY = "dry"  # the cloud has no more
    FULL = "full"  # the node groups may not grow


# As cloud-provider errors and cluster-autoscaler 1.35 have them, and the devcluster: "quota exceeded", QUOTA_EXCEEDED (GCE),
# MaxSpotInstanceCountExceeded, VcpuLimitExceeded (EC2), OperationNotAllowed ... quota (Azure).
QUOTA_WORDS = ("quota", "maxspotinstancecountexceeded", "vcpulimitexceeded", "instancelimitexceeded")
DRY_WORDS = ("in backoff after failed scale-up", "out of capacity", "insufficientinstancecapacity", "resource_pool_exhausted")
FULL_WORDS = ("max node group size reached", "max cluster", "max limit reached")


@dataclass(frozen=True, kw_only=True)
class Stockout:
    """The reason why no machine comes. `sure`: the cloud's own error, or time enough has passed; else it may pass by itself."""

    kind: Kind
    message: str
    sure: bool


def kind_of(message: str) -> Kind | None:
    """The kind that a sentence of the cloud or the autoscaler means; None: something else."""
    said = message.lower()
    for kind, words in ((Kind.QUOTA, QUOTA_WORDS), (Kind.DRY, DRY_WORDS), (Kind.FULL, FULL_WORDS)):
        if any(word in said for word in words):
            return kind
    return None


def find(view: JobView, site: Candidate, wakes: list[float] | None = None) -> Stockout | None:
    """See the module's docstring. `wakes` gets the time at which it counts as dry if nothing comes."""
    missing = missing_base(view)
    if not missing:
        return None
    return _backing_off(view, site, missing) or _refused(view, missing) or _late(view, site, missing, wakes)


def remember(view: JobView, draft: PlanBuilder, site: Candidate, stockout: Stockout | None) -> None:
    """Bring status.dry up to now."""
    entries = [entry for entry in draft.status.dry if _recent(entry, view.now) and not _disproved(view, entry, site)]
    if stockout:
        entries = _noted(entries, view.now, site, stockout)
    newest = sorted(entries, key=lambda entry: entry.at)[-KEPT:]
    if tuple(newest) != draft.status.dry:
        draft.status = replace(draft.status, dry=tuple(newest))


def lasting(view: JobView, draft: PlanBuilder, site: Candidate, stockout: Stockout) -> bool:
    """Return whether the job shall not wait there any longer."""
    entry = next((entry for entry in draft.status.dry if _about(entry, site)), None)
    ripe = (unix(entry.since) or view.now) + LASTS_SECONDS if entry else view.now
    if stockout.sure or view.now >= ripe:
        return True
    draft.wakes.append(ripe)
    return False


def seen(view: JobView, status: Status, site: Candidate) -> float | None:
    """Each way of buying must be dry, where the job may use several."""
    if _groups_back_off(view, site):
        return view.now
    ways = {group.capacity_type for group, _ in site.fits}
    times = [_last(view, status, site, way) for way in ways]
    known = [time for time in times if time is not None]
    return min(known) if known and len(known) == len(times) else None


def since(status: Status, site: Candidate) -> str:
    """Since when the job has found the site dry; "" if it has not."""
    return next((entry.since for entry in status.dry if _about(entry, site)), "")


def _groups_back_off(view: JobView, site: Candidate) -> bool:
    states = [view.observed.supply.groups.get(group.name) for group, _ in site.fits]
    return bool(states) and all(state is not None and state.backing_off for state in states)


def _backing_off(view: JobView, site: Candidate, missing: list[Worker]) -> Stockout | None:
    """Machines that are there may have room: the scheduler must have said that they have not."""
    refused = any(worker.condition("PodScheduled").get("status") == "False" for worker in missing)
    if not refused or not _groups_back_off(view, site):
        return None
    said = [view.observed.supply.groups[group.name].message for group, _ in site.fits]
    message = next((words for words in said if words), "")
    kind = kind_of(message) or Kind.DRY
    sure = bool(message) and kind is not Kind.FULL  # a machine of the group that is just being removed makes room
    return Stockout(kind=kind, message=message or "the last attempts to get machines failed", sure=sure)


def _refused(view: JobView, missing: list[Worker]) -> Stockout | None:
    """The autoscaler's refusals of the job's own pods. They are made anew wherever the job goes, so it is about this site."""
    words = [view.observed.supply.words.get(worker.uid) for worker in missing]
    said = [word.message for word in words if word and not word.triggered and kind_of(word.message)]
    if not said:
        return None
    kind = min((kind_of(message) or Kind.FULL for message in said), key=list(Kind).index)
    message = next(message for message in said if kind_of(message) is kind)
    return Stockout(kind=kind, message=message, sure=False)


def _late(view: JobView, site: Candidate, missing: list[Worker], wakes: list[float] | None) -> Stockout | None:
    """No machine came, nor is one announced. Only a stack says how long one takes; elsewhere people may add them by hand."""
    if view.observed.platform is None:
        return None
    words = [view.observed.supply.words.get(worker.uid) for worker in missing]
    asked = [word.at for word in words if word and word.triggered and word.at <= view.now]  # else of another clock
    begun = waiting_since(view, missing)
    late = max([view.now if begun is None else begun, last_scheduled_at(view), *asked]) + site.patience_seconds
    if view.now < late:
        if wakes is not None:
            wakes.append(late)
        return None
    last = max((word for word in words if word), key=lambda word: word.at, default=None)
    detail = f" ({last.message})" if last else ""
    return Stockout(kind=Kind.DRY, message=f"no machine came for {site.patience_seconds:.0f} s{detail}", sure=True)


def _noted(entries: list[Dry], now: float, site: Candidate, stockout: Stockout) -> list[Dry]:
    at, message = stamp(now), stockout.message[:MESSAGE_LENGTH]
    old = next((entry for entry in entries if _about(entry, site)), None)
    if old is None:
        new = Dry(zone=site.zone, gpu_type=site.gpu_type, capacity_type=site.capacity_type, since=at, at=at, message=message)
        return [*entries, new]
    age = now - (unix(old.at) or 0)
    if age < REFRESH_SECONDS and kind_of(old.message) == kind_of(message):
        return entries
    # After a longer pause it is another stockout.
    begun = old.since if age < 2 * REFRESH_SECONDS else at
    return [*(entry for entry in entries if entry is not old), replace(old, since=begun, at=at, message=message)]


def _recent(entry: Dry, now: float) -> bool:
    limit = FULL_RECENT_SECONDS if kind_of(entry.message) is Kind.FULL else RECENT_SECONDS
    return now - (unix(entry.at) or 0) < limit


def _disproved(view: JobView, entry: Dry, site: Candidate) -> bool:
    """A worker got a machine there afterwards."""
    return _about(entry, site) and last_scheduled_at(view) > (unix(entry.at) or 0)


def _about(entry: Dry, site: Candidate) -> bool:
    return (entry.zone, entry.gpu_type, entry.capacity_type) == (site.zone, site.gpu_type, site.capacity_type)


def _last(view: JobView, status: Status, site: Candidate, way: str) -> float | None:
    times = [
        unix(entry.at)
        for entry in (*status.dry, *view.observed.cluster_capacity.dry)
        if (entry.zone, entry.gpu_type) == (site.zone, site.gpu_type)
        and way in entry.capacity_type.split(", ")
        and _recent(entry, view.now)
    ]
    return max((time for time in times if time), default=None)
