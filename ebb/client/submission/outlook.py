"""Outlook for a job if it were sent now: whether machines are free, how long others take to boot, what it may cost at most.

    seen = outlook(request, fit, await gpus(ebb), now=time.time())
    seen.fits_now, seen.sentence, seen.usd_at_most

A look, no promise: somebody else may be faster, and the controller has newer knowledge.
"""

import math
from dataclasses import dataclass

from ebb.api.clock import unix
from ebb.client.gpus import GpuGroup, GpuReport
from ebb.client.submission.fit import Fit
from ebb.client.submission.request import Request


@dataclass(frozen=True, kw_only=True)
class Outlook:
    """`fits_now` None: one may not look at machines. Machines are those that the wanted workers need."""

    fits_now: bool | None
    machines: int
    machines_free: int  # of those, in the zone that has most
    zone: str
    boot_seconds: int  # until the missing ones take workers, at most; 0 where none is missing
    may_come: bool  # whether the node groups may grow so far now
    usd_at_most: float | None  # None: nothing limits it

    @property
    def sentence(self) -> str:
        """For people."""
        missing = self.machines - self.machines_free
        if self.fits_now is None:
            return ""
        if self.fits_now:
            free = "1 machine is" if self.machines == 1 else f"{self.machines} machines are"
            return f"fits now: {free} free in {self.zone}"
        if not self.may_come:
            return "waits for other jobs: no zone has so many machines left now"
        what = "1 machine that is" if missing == 1 else f"{missing} machines that are"
        return f"needs {what} booted in about {max(1, round(self.boot_seconds / 60))} min"


def outlook(request: Request, fit: Fit, report: GpuReport, *, now: float) -> Outlook:
    """Pure. `now` is unix time."""
    names = {group.name for group in fit.groups}
    groups = [one for one in report.groups if one.group.name in names]
    zones = sorted({(one.group.zone, one.group.capacity_type) for one in groups})
    rooms = [_room(fit, [one for one in groups if (one.group.zone, one.group.capacity_type) == zone]) for zone in zones]
    best = max(rooms, key=lambda room: (min(room.free, fit.workers), room.free + room.coming, -room.boot_seconds))
    machines = math.ceil(fit.workers / best.workers_per_machine)
    fits = best.free >= fit.workers
    return Outlook(
        fits_now=fits if best.known else None,
        machines=machines,
        machines_free=min(machines, math.floor(best.free / best.workers_per_machine)),
        zone=best.zone,
        boot_seconds=0 if fits else best.boot_seconds,
        may_come=any(room.free + room.coming >= fit.workers for room in rooms),
        usd_at_most=_at_most(request, fit, now),
    )


@dataclass(frozen=True, kw_only=True)
class _Room:
    """A zone's for one kind of machines, in workers."""

    known: bool
    zone: str
    free: int
    coming: int
    workers_per_machine: int
    boot_seconds: int


def _room(fit: Fit, groups: list[GpuGroup]) -> _Room:
    """Of groups of one zone: a job may use all of them."""
    return _Room(
        known=all(one.gpus_free is not None for one in groups),
        zone=groups[0].group.zone,
        free=sum(gpus // fit.gpus_per_worker for one in groups for gpus in one.free_by_machine),
        coming=sum((one.gpus_to_come or 0) // fit.gpus_per_worker for one in groups),
        workers_per_machine=min(one.group.gpus_per_node // fit.gpus_per_worker for one in groups),
        boot_seconds=max(one.boot_seconds for one in groups),
    )


def _at_most(request: Request, fit: Fit, now: float) -> float | None:
    """The budget, or the deadline at the highest price and the largest size: whichever ends it first."""
    limits = [] if request.max_cost is None else [request.max_cost]
    if request.deadline is not None:
        hours = max(0.0, (unix(request.deadline) or now) - now) / 3600
        dearest = max(group.usd_per_hour / (group.gpus_per_node // fit.gpus_per_worker) for group in fit.groups)
        limits.append(hours * dearest * fit.max_workers)
    return min(limits, default=None)
