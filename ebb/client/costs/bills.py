"""Cost of each job in a window of days: by the job itself, by its record when it is gone, else by the machine usage record. Pure.

    found = bills(jobs, records, usage, window)     # ElasticJobs, record.json's; usage until the window's end

A job whose whole life is in the window costs what its own bill says. Of one that began before, the usage record knows what
it used on each day, for about a month; further back its bill is divided by time, and marked so.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ebb.api import contract as names
from ebb.api.clock import unix
from ebb.api.costs import sums
from ebb.api.schema import decode
from ebb.api.spec import user_of
from ebb.api.status import Cost
from ebb.api.usage import DAY, MachineUsage, Use, day_of
from ebb.client.jobs.view import FAILED_STATE, FINISHED, view

Object = Mapping[str, Any]
DELETED = "deleted"
OVER = {names.SUCCEEDED: FINISHED, names.FAILED: FAILED_STATE}


@dataclass(frozen=True, kw_only=True)
class Window:
    """Whole days of UTC up to now; unix seconds."""

    since: float
    now: float

    @property
    def first_day(self) -> str:
        return day_of(self.since)


@dataclass(frozen=True, kw_only=True)
class Bill:
    """Cost of a job in the window. Times are RFC 3339, "" where nobody knows."""

    uid: str  # its first characters
    namespace: str
    job: str
    user: str  # who says to have submitted it: no proof
    state: str
    there: bool  # the job still exists
    created: str
    ended: str
    machine_hours: float
    gpu_hours: float | None  # None: from before the usage record
    usd: float
    usd_on_demand: float
    divided: bool  # by time, for lack of better: it began before the window


def bills(jobs: Iterable[Object], records: Iterable[Object], usage: MachineUsage | None, window: Window) -> tuple[Bill, ...]:
    """Of all jobs that held a machine in the window, the dearest first."""
    own = {str(told["uid"]): _of_record(told) for told in records}
    own |= {str(job["metadata"]["uid"]): _of_job(job, window.now) for job in jobs}  # of an ended one there are both
    if usage is not None:
        own |= {uid: _nobodys(uid, usage) for uid in _used(usage) - {bill.uid for bill in own.values()}}
    found = [_in_window(bill, usage, window) for bill in own.values()]
    return tuple(sorted((bill for bill in found if bill.machine_hours > 0), key=lambda bill: (-bill.usd, bill.created, bill.uid)))


def _of_job(job: Object, now: float) -> Bill:
    metadata, status = job["metadata"], job.get("status") or {}
    cost = sums(decode(Cost, status.get("cost") or {}), now)
    return Bill(
        uid=metadata["uid"][:8],
        namespace=metadata["namespace"],
        job=metadata["name"],
        user=user_of(metadata),
        state=view(dict(job)).state,
        there=True,
        created=metadata.get("creationTimestamp") or "",
        ended=status.get("completionTime") or "",
        machine_hours=cost.machine_seconds / 3600,
        gpu_hours=None,
        usd=cost.usd_spent,
        usd_on_demand=cost.usd_on_demand,
        divided=False,
    )


def _of_record(told: Object) -> Bill:
    return Bill(
        uid=told["uid"][:8],
        namespace=told["namespace"],
        job=told["job"],
        user=told.get("submittedBy") or "",
        state=OVER.get(told.get("state") or "", DELETED),
        there=False,
        created=told.get("created") or "",
        ended=told.get("ended") or "",
        machine_hours=told["machineSeconds"] / 3600,
        gpu_hours=None,
        usd=told["usdSpent"],
        usd_on_demand=told["usdOnDemand"],
        divided=False,
    )


def _nobodys(uid: str, usage: MachineUsage) -> Bill:
    """Of another team's namespace, or deleted while no controller was there to write its record: all that is known is what it
    used."""
    who = usage.who.get(uid)
    empty = Bill(
        uid=uid,
        namespace=who.namespace if who else "",
        job=who.job if who else uid,
        user=who.user if who else "",
        state="",
        there=False,
        created="",
        ended="",
        machine_hours=0,
        gpu_hours=None,
        usd=0,
        usd_on_demand=0,
        divided=False,
    )
    return _as_used(empty, use_of(usage, uid, ""))


def _in_window(bill: Bill, usage: MachineUsage | None, window: Window) -> Bill:
    """The part of it that is in the window."""
    ended = unix(bill.ended) or window.now
    if bill.ended and ended < window.since:
        return replace(bill, machine_hours=0.0)
    began = unix(bill.created)
    if usage is not None:
        bill = replace(bill, gpu_hours=_gpu_hours(bill, use_of(usage, bill.uid, "")))
        if began is None or (began < window.since and exact_from(usage) <= window.since):
            return _as_used(bill, use_of(usage, bill.uid, window.first_day))
    if began is None or began >= window.since:
        return bill
    part = (ended - window.since) / max(ended - began, 1.0)
    return replace(
        bill,
        machine_hours=bill.machine_hours * part,
        gpu_hours=None if bill.gpu_hours is None else bill.gpu_hours * part,
        usd=bill.usd * part,
        usd_on_demand=bill.usd_on_demand * part,
        divided=True,
    )


def use_of(usage: MachineUsage, uid: str, first_day: str) -> Use:
    """Return what a job used from that day on."""
    return sum((uses[uid] for day, uses in usage.jobs.items() if day >= first_day and uid in uses), Use())


def _used(usage: MachineUsage) -> set[str]:
    return {uid for uses in usage.jobs.values() for uid in uses}


def _as_used(bill: Bill, use: Use) -> Bill:
    return replace(
        bill,
        machine_hours=use.seconds / 3600,
        gpu_hours=use.gpu_seconds / 3600,
        usd=use.usd,
        usd_on_demand=use.on_demand,
    )


def _gpu_hours(bill: Bill, use: Use) -> float | None:
    return bill.machine_hours * use.gpu_seconds / use.seconds if use.seconds else None


def exact_from(usage: MachineUsage) -> float:
    """The time from which the usage record has every job's use.

    Days before it are forgotten, and a day with very many jobs holds only the dearest."""
    if not usage.jobs:
        return usage.until
    if usage.cut in usage.jobs:
        return (unix(f"{usage.cut}T00:00:00Z") or 0.0) + DAY
    first = min(usage.jobs)
    forgot = any(line.job_seconds for day, lines in usage.days.items() if day < first for line in lines.values())
    return max(usage.begun, unix(f"{first}T00:00:00Z") or 0.0) if forgot or usage.months else usage.begun
