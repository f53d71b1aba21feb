"""Costs by job, user or day, and beside them the machines' total with what no job used. Pure.

    report = report_of(found, usage, window, By.USER)
    jobs + idle + platform - unseen = machines      # difference: what is missing to that

The jobs' sum is of their own bills, the rest is of the machine usage record; that they agree is a check and no definition.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from ebb.api.clock import stamp
from ebb.api.contract import MANAGER_GROUP
from ebb.api.platform import WHERE, Team
from ebb.api.usage import DAY, DAYS, Gap, GroupUsage, MachineUsage, day_of
from ebb.client.costs.bills import Bill, Window, exact_from

HOUR = 3600.0
STALE_SECONDS = 300.0
NO_PROOF = "USER is the label ebb.dev/user, which `ebb submit` sets to $EBB_USER or the login name: it is no proof."
ASSUMED = f"Prices are those of {WHERE}; spot is assumed to cost on-demand less the group's discount. The bill is the cloud's."


class By(StrEnum):
    """The meaning of a row."""

    JOB = "job"
    USER = "user"
    DAY = "day"


@dataclass(frozen=True, kw_only=True)
class CostRow:
    """A job, a user, or a day."""

    name: str
    user: str
    state: str  # of a job
    jobs: int
    machine_hours: float
    gpu_hours: float | None
    usd: float  # of jobs
    usd_on_demand: float | None  # None for days: the usage record has it of machines, and jobs share those
    idle_usd: float | None  # of days: what no job had
    machines_usd: float | None  # of days: all of it, the platform's own machines too
    divided: bool = False  # by time, for lack of better: a job that began before


@dataclass(frozen=True, kw_only=True)
class Rest:
    """Machine hours of the machines for jobs that no job used."""

    boot_hours: float
    idle_hours: float
    scale_down_hours: float
    usd: float


@dataclass(frozen=True, kw_only=True)
class Whole:
    """Machine hours and dollars."""

    hours: float
    usd: float


@dataclass(frozen=True, kw_only=True)
class TeamCost:
    """Cost of a team in a calendar month, by the sum that its budget is held against; None: nobody knows."""

    name: str
    month: str  # 2026-11, of UTC
    usd: float | None
    usd_per_month: float | None  # None: it has no budget


@dataclass(frozen=True, kw_only=True)
class CostReport:
    """The figures of `ebb cost`. Without a usage record (a stack that is older, or has just begun) all but the rows is None."""

    by: str
    since: str
    until: str
    rows: tuple[CostRow, ...]
    jobs: Whole
    idle: Rest | None
    platform: Whole | None  # the machines that the platform itself runs on
    unseen: Whole | None  # charged to jobs for machines that went while no controller looked
    machines: Whole | None  # by the machine usage record
    difference_usd: float | None
    books_begun: str
    prices_assumed: bool
    notes: tuple[str, ...]
    team: TeamCost | None = None  # of a report about one team


def report_of(found: Iterable[Bill], usage: MachineUsage | None, window: Window, by: By) -> CostReport:
    """`found`: bills(); `usage` up to the window's end."""
    bills = tuple(found)
    jobs = Whole(hours=sum(bill.machine_hours for bill in bills), usd=sum(bill.usd for bill in bills))
    lines = lines_of(usage, window) if usage else {}
    report = CostReport(
        by=by,
        since=stamp(max(window.since, 0)),
        until=stamp(window.now, digits=3),
        rows=_days(lines) if by is By.DAY else _rows(bills, by),
        jobs=jobs,
        idle=None,
        platform=None,
        unseen=None,
        machines=None,
        difference_usd=None,
        books_begun=stamp(usage.begun) if usage else "",
        prices_assumed=True,
        notes=_notes(bills, usage, window, by),
    )
    return _with_machines(report, lines) if usage else report


def of_team(report: CostReport, team: Team, usage: MachineUsage | None, now: float) -> CostReport:
    """A report about the jobs of a team, with the team's month: machines that no job used are no team's."""
    month = stamp(now)[:7]
    spent = usage.spent_in(month).get(team.namespace, 0.0) if usage else None
    return replace(
        report,
        idle=None,
        platform=None,
        unseen=None,
        machines=None,
        difference_usd=None,
        notes=tuple(note for note in report.notes if note != NO_PROOF),
        team=TeamCost(name=team.name, month=month, usd=spent, usd_per_month=team.usd_per_month),
    )


def lines_of(usage: MachineUsage, window: Window) -> dict[str, dict[str, GroupUsage]]:
    """Day, or month where days are no longer known, and node group."""
    told = usage.months if _by_month(usage, window) else {}
    months = {month: lines for month, lines in told.items() if month >= window.first_day[:7]}
    days = {day: lines for day, lines in usage.days.items() if day >= window.first_day}
    return {**months, **days}


def _by_month(usage: MachineUsage, window: Window) -> bool:
    """Return whether it begins before the days that are kept: a month holds only what is older than those."""
    return window.first_day < day_of(usage.until - DAYS * DAY)


def _with_machines(report: CostReport, lines: Mapping[str, Mapping[str, GroupUsage]]) -> CostReport:
    own, theirs = _split(line for day in lines.values() for line in day.items())
    total = own + theirs
    idle_usd, unseen = theirs.idle_usd, Whole(hours=total.unseen_seconds / HOUR, usd=total.unseen_usd)
    # A job may have got onto a machine of the platform: that part of it is the job's.
    platform = Whole(hours=(own.seconds - own.job_seconds) / HOUR, usd=own.usd - own.job_usd)
    return replace(
        report,
        idle=Rest(
            boot_hours=theirs.boot_seconds / HOUR,
            idle_hours=theirs.idle_seconds / HOUR,
            scale_down_hours=theirs.leaving_seconds / HOUR,
            usd=idle_usd,
        ),
        platform=platform,
        unseen=unseen,
        machines=Whole(hours=total.seconds / HOUR, usd=total.usd),
        difference_usd=total.usd - (report.jobs.usd + idle_usd + platform.usd - unseen.usd),
    )


def _split(lines: Iterable[tuple[str, GroupUsage]]) -> tuple[GroupUsage, GroupUsage]:
    """Of the platform's own machines, and of those for jobs."""
    own, theirs = GroupUsage(), GroupUsage()
    for group, line in lines:
        own, theirs = (own + line, theirs) if group == MANAGER_GROUP else (own, theirs + line)
    return own, theirs


def _rows(bills: tuple[Bill, ...], by: By) -> tuple[CostRow, ...]:
    rows: dict[str, CostRow] = {}
    for bill in bills:
        row = CostRow(
            name=bill.job if by is By.JOB else bill.user,
            user=bill.user,
            state=bill.state if by is By.JOB else "",
            jobs=1,
            machine_hours=bill.machine_hours,
            gpu_hours=bill.gpu_hours,
            usd=bill.usd,
            usd_on_demand=bill.usd_on_demand,
            idle_usd=None,
            machines_usd=None,
            divided=bill.divided,
        )
        key = bill.uid if by is By.JOB else bill.user
        rows[key] = _sum(rows[key], row) if key in rows else row
    return tuple(sorted(rows.values(), key=lambda row: -row.usd))


def _sum(one: CostRow, other: CostRow) -> CostRow:
    known = one.gpu_hours is not None and other.gpu_hours is not None
    return replace(
        one,
        divided=one.divided or other.divided,
        jobs=one.jobs + other.jobs,
        machine_hours=one.machine_hours + other.machine_hours,
        gpu_hours=(one.gpu_hours or 0.0) + (other.gpu_hours or 0.0) if known else None,
        usd=one.usd + other.usd,
        usd_on_demand=(one.usd_on_demand or 0.0) + (other.usd_on_demand or 0.0),
    )


def _days(lines: Mapping[str, Mapping[str, GroupUsage]]) -> tuple[CostRow, ...]:
    return tuple(_day(day, lines[day]) for day in sorted(lines, reverse=True))


def _day(day: str, groups: Mapping[str, GroupUsage]) -> CostRow:
    own, theirs = _split(groups.items())
    total = own + theirs
    return CostRow(
        name=day,
        user="",
        state="",
        jobs=0,
        machine_hours=(total.job_seconds + total.unseen_seconds) / HOUR,
        gpu_hours=total.gpu_seconds / HOUR,
        usd=total.job_usd + total.unseen_usd,
        usd_on_demand=None,
        idle_usd=theirs.idle_usd,
        machines_usd=total.usd,
    )


def _notes(bills: tuple[Bill, ...], usage: MachineUsage | None, window: Window, by: By) -> tuple[str, ...]:
    said = [ASSUMED]
    if by is not By.DAY:
        said.append(NO_PROOF)
    if usage is None:
        return (*said, "There is no machine usage record: what machines cost that no job had is not known.")
    if usage.begun > window.since:
        said.append(f"The machine usage record begins at {stamp(usage.begun)}: before that only jobs are known.")
    if usage.jobs and max(window.since, usage.begun) < exact_from(usage):
        said.append(f"Jobs of other namespaces, and jobs deleted while no controller ran, are known from {_known_from(usage)}.")
    kept_from = window.now - usage.record_days * DAY
    if usage.record_days and window.since < kept_from:
        said.append(
            f"Records of jobs are kept for {usage.record_days:g} days: there are none of jobs that ended before"
            f" {stamp(kept_from)}."
        )
    if usage.until < window.now - STALE_SECONDS:
        said.append(
            f"The machine usage record ends at {stamp(usage.until)}: does the controller run? Later use is assumed unchanged."
        )
    if _by_month(usage, window):
        said.append(f"Days further back than {DAYS} are shown by month, the first month as a whole.")
    if any(bill.divided for bill in bills):
        said.append("Jobs marked ~ began before this: their cost is divided by time.")
    return (*said, *map(_gap, (gap for gap in usage.gaps if gap.ended > window.since and (gap.vanished or gap.came))))


def _known_from(usage: MachineUsage) -> str:
    if usage.cut in usage.jobs:
        return f"{usage.cut} on, of that day the {len(usage.jobs[usage.cut])} dearest: there were more than the record can hold"
    return f"{min(usage.jobs)} on"


def _gap(gap: Gap) -> str:
    return (
        f"No controller looked from {stamp(gap.begun)} for {gap.ended - gap.begun:.0f} s: machines that went meanwhile "
        f"({gap.vanished}) count until then, those that came ({gap.came}) from their creation; one that did both is unknown."
    )


def whole_days(now: float, seconds: float) -> Window:
    """A window that begins with the day on which so many seconds ago was."""
    return Window(since=max(0.0, now - seconds) // DAY * DAY, now=now)
