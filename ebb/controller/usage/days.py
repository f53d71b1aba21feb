"""The machine books as values: what the machines of each node group did and cost, day by day. Pure.

    books = Books(begun=now, until=now)
    books.count(standing, since, until)         # a machine stood like this for so long
    books.fold(now)                             # days that are long over become months

Days are UTC's. Prices are those of ebb-platform: an assumption, not a bill. A machine counts from the registration of its Node
until that is gone; what a cloud bills before the registration nobody here sees.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from typing import Self

from ebb.api.clock import stamp

HOUR, DAY = 3600.0, 86400.0
DAYS, MONTHS, GAPS = 60, 120, 20  # kept; what is older than the days is in the months
JOB_DAYS = 31  # for which it is told what each job used
LONGEST_USER = 128  # characters; an annotation may have a quarter of a million
BOOT, IDLE, LEAVING = "boot", "idle", "leaving"


@dataclass(frozen=True, kw_only=True)
class Standing:
    """How a machine stands: whose it is, and what becomes of the rest of it."""

    group: str
    phase: str = IDLE  # of what no job holds: BOOT (it is not ready yet), IDLE, LEAVING (reclaimed, or scaled down)
    usd: float = 0.0  # per hour
    on_demand: float = 0.0  # per hour, had it been bought so
    gpus: int = 0
    held: tuple[tuple[str, float], ...] = ()  # share by job, which is named by the first characters of its UID

    @property
    def share(self) -> float:
        """What jobs hold of it."""
        return sum(share for _, share in self.held)


class Adds:
    """Records of figures that can be added."""

    def __add__(self, other: Self) -> Self:
        return type(self)(**{item.name: getattr(self, item.name) + getattr(other, item.name) for item in fields(self)})  # type: ignore[arg-type]


@dataclass(frozen=True, kw_only=True)
class Line(Adds):
    """A node group on a day, in seconds of one machine and US dollars."""

    seconds: float = 0.0
    usd: float = 0.0
    on_demand: float = 0.0  # what the same machines would have cost on demand
    job_seconds: float = 0.0
    job_usd: float = 0.0
    gpu_seconds: float = 0.0  # of GPUs that jobs held
    boot_seconds: float = 0.0
    idle_seconds: float = 0.0
    leaving_seconds: float = 0.0
    idle_usd: float = 0.0  # of these three
    unseen_seconds: float = 0.0  # charged to jobs for machines that went while no controller looked; not in `seconds`
    unseen_usd: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Use(Adds):
    """What a job used on a day."""

    seconds: float = 0.0
    usd: float = 0.0
    on_demand: float = 0.0
    gpu_seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Who:
    """Whose a job is: what the books need of one that was deleted while no controller was there to write its record."""

    namespace: str
    job: str
    user: str = ""


@dataclass(frozen=True, kw_only=True)
class Gap:
    """A time in which no controller looked. Machines that came and went in it are in no book."""

    begun: float
    ended: float
    vanished: int  # machines that were there before and not after: counted until they were last seen
    came: int  # machines that were there after: counted from their creation


@dataclass(kw_only=True)
class Books:
    """All of it, until a moment."""

    begun: float
    until: float
    days: dict[str, dict[str, Line]] = field(default_factory=dict)  # day -> node group
    months: dict[str, dict[str, Line]] = field(default_factory=dict)
    jobs: dict[str, dict[str, Use]] = field(default_factory=dict)  # day -> job
    cut: str = ""  # the day of which `jobs` holds the dearest only: there were too many
    who: dict[str, Who] = field(default_factory=dict)  # by job
    open: dict[str, Standing] = field(default_factory=dict)  # the machines that there are
    gaps: tuple[Gap, ...] = ()

    def count(self, standing: Standing, since: float, until: float) -> None:
        """A machine stood like this."""
        free = max(0.0, 1 - standing.share)
        for day, seconds in spans(since, until):
            hours = seconds / HOUR
            rest = seconds * free
            line = Line(
                seconds=seconds,
                usd=standing.usd * hours,
                on_demand=standing.on_demand * hours,
                job_seconds=standing.share * seconds,
                job_usd=standing.share * standing.usd * hours,
                gpu_seconds=standing.share * standing.gpus * seconds,
                boot_seconds=rest if standing.phase == BOOT else 0.0,
                idle_seconds=rest if standing.phase == IDLE else 0.0,
                leaving_seconds=rest if standing.phase == LEAVING else 0.0,
                idle_usd=free * standing.usd * hours,
            )
            self._add(day, standing.group, line)
            self._use(day, standing, seconds)

    def miss(self, standing: Standing, since: float, until: float) -> None:
        """A machine went in that time and nobody saw when; to the jobs on it all of it is charged."""
        for day, seconds in spans(since, until):
            charged = standing.share * seconds
            if charged:
                line = Line(unseen_seconds=charged, unseen_usd=charged * standing.usd / HOUR)
                self._add(day, standing.group, line)
                self._use(day, standing, seconds)

    def extend(self, now: float) -> None:
        """All went on as it stood, until now: for a reader, who knows no more."""
        for standing in self.open.values():
            self.count(standing, self.until, now)

    def fold(self, now: float) -> None:
        """Keep it small."""
        for day in [day for day in sorted(self.days) if day < day_of(now - DAYS * DAY)]:
            lines = self.months.setdefault(day[:7], {})
            for group, line in self.days.pop(day).items():
                lines[group] = lines.get(group, Line()) + line
        for month in sorted(self.months)[:-MONTHS]:
            del self.months[month]
        for day in [day for day in self.jobs if day < day_of(now - JOB_DAYS * DAY)]:
            del self.jobs[day]
        used = {job for uses in self.jobs.values() for job in uses} | {job for one in self.open.values() for job, _ in one.held}
        self.who = {job: who for job, who in self.who.items() if job in used}
        self.gaps = self.gaps[-GAPS:]

    def _add(self, day: str, group: str, line: Line) -> None:
        lines = self.days.setdefault(day, {})
        lines[group] = lines.get(group, Line()) + line

    def _use(self, day: str, standing: Standing, seconds: float) -> None:
        uses = self.jobs.setdefault(day, {}) if standing.held else {}
        for job, share in standing.held:
            held = share * seconds
            use = Use(
                seconds=held,
                usd=held * standing.usd / HOUR,
                on_demand=held * standing.on_demand / HOUR,
                gpu_seconds=held * standing.gpus,
            )
            uses[job] = uses.get(job, Use()) + use


def spans(since: float, until: float) -> Iterator[tuple[str, float]]:
    """The days that a time is on, each with the seconds of it; nothing for a clock that went back."""
    while since < until:
        end = min(until, (since // DAY + 1) * DAY)
        yield day_of(since), end - since
        since = end


def day_of(seconds: float) -> str:
    """`2026-11-22`, of UTC."""
    return stamp(seconds)[:10]
