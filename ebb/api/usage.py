"""The machine usage record: what the machines of each node group did and cost, day by day, and their text. Pure.

    usage = MachineUsage(begun=now, until=now)
    usage.count(standing, since, until)         # a machine stood like this for so long
    usage.fold(now)                             # days that are long over become months
    data = write(usage)                         # of the ConfigMap `ebb-system/ebb-machines`: the controller writes it
    usage = read(data)                          # `ebb cost` reads it; raises MachineUsageError

Days are UTC's. Prices are those of ebb-platform: an assumption, not a bill. A machine counts from the registration of its Node
until that is gone; what a cloud bills before the registration nobody here sees.

The text is one compact JSON document; keys are only added within one schema, and unknown ones are ignored. A ConfigMap may hold
1 MiB: what grows with the number of jobs is cut, oldest day first, and of the newest day the dearest jobs stay. Should the whole
be too large still, the record begins later.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Self, TypeVar

from ebb.api.clock import stamp, unix

HOUR, DAY = 3600.0, 86400.0
DAYS, MONTHS, GAPS = 60, 120, 20  # kept; what is older than the days is in the months
SPENT_MONTHS = 13  # for which it is told what the jobs of each namespace cost
JOB_DAYS = 31  # for which it is told what each job used
LONGEST_USER = 128  # characters; an annotation may have a quarter of a million
BOOT, IDLE, LEAVING = "boot", "idle", "leaving"
NAMESPACE, NAME = "ebb-system", "ebb-machines"
WHERE = f"ConfigMap {NAMESPACE}/{NAME}"
SCHEMA, KEY = "1", "machines.json"
MOST_CHARACTERS = 150_000  # of what each job used: about 800 jobs, however many days those are; the newest day is there always
MOST_JOBS = 3000  # of the newest day
WHOLE_CHARACTERS = 900_000  # of all of it, with room for what others put on a ConfigMap of 1 MiB
FEWEST_JOBS = 500  # of the newest day, before months and days are given up
ASSUMED = "Prices are assumed: those of ebb-platform, spot as on-demand less the group's discount."
USE_CHARACTERS, WHO_CHARACTERS = 95, 90  # about, for what one job used on a day, and for its name
Figures = dict[str, dict[str, float]]
Owner = tuple[str, str]  # team and user
HALF_LIFE = 7 * DAY  # of what owners used; Slurm's PriorityDecayHalfLife: https://slurm.schedmd.com/priority_multifactor.html
MOST_OWNERS = 1000  # those who used most; nobody checks the name of a user
FORGOTTEN = 1.0  # GPU-seconds that need not be kept


@dataclass(frozen=True, kw_only=True)
class Standing:
    """The standing of a machine: its holders, and the use of the rest of it."""

    group: str
    phase: str = IDLE  # of what no job holds: BOOT (it is not ready yet), IDLE, LEAVING (reclaimed, or scaled down)
    usd: float = 0.0  # per hour
    on_demand: float = 0.0  # per hour, had it been bought so
    gpus: int = 0
    held: tuple[tuple[str, float], ...] = ()  # share by job, which is named by the first characters of its UID

    @property
    def share(self) -> float:
        """The share that jobs hold."""
        return sum(share for _, share in self.held)


class Adds:
    """Records of figures that can be added."""

    def __add__(self, other: Self) -> Self:
        return type(self)(**{item.name: getattr(self, item.name) + getattr(other, item.name) for item in fields(self)})  # type: ignore[arg-type]


@dataclass(frozen=True, kw_only=True)
class GroupUsage(Adds):
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
    """A job's use on one day."""

    seconds: float = 0.0
    usd: float = 0.0
    on_demand: float = 0.0
    gpu_seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Who:
    """Whose a job is: what the usage record needs of one that was deleted while no controller was there to write its record."""

    namespace: str
    job: str
    user: str = ""


@dataclass(frozen=True, kw_only=True)
class Gap:
    """A time in which no controller looked. Machines that came and went in it are not recorded."""

    begun: float
    ended: float
    vanished: int  # machines that were there before and not after: counted until they were last seen
    came: int  # machines that were there after: counted from their creation


@dataclass(kw_only=True)
class MachineUsage:
    """The machine usage record, up to a moment."""

    begun: float
    until: float
    days: dict[str, dict[str, GroupUsage]] = field(default_factory=dict)  # day -> node group
    months: dict[str, dict[str, GroupUsage]] = field(default_factory=dict)
    jobs: dict[str, dict[str, Use]] = field(default_factory=dict)  # day -> job
    cut: str = ""  # the day of which `jobs` holds the dearest only: there were too many
    who: dict[str, Who] = field(default_factory=dict)  # by job
    open: dict[str, Standing] = field(default_factory=dict)  # the machines that there are
    gaps: tuple[Gap, ...] = ()
    record_days: float = 0.0  # how long the controller keeps the records of jobs; 0: for ever, or nobody knows
    owners: dict[Owner, float] = field(default_factory=dict)  # GPU-seconds, halved every HALF_LIFE until `until`
    spent: dict[str, dict[str, float]] = field(default_factory=dict)  # month -> namespace -> USD of its jobs

    def count(self, standing: Standing, since: float, until: float) -> None:
        """A machine stood like this."""
        free = max(0.0, 1 - standing.share)
        for day, seconds in spans(since, until):
            hours = seconds / HOUR
            rest = seconds * free
            line = GroupUsage(
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
        self._charge(standing, since, until)

    def miss(self, standing: Standing, since: float, until: float) -> None:
        """A machine went in that time and nobody saw when; to the jobs on it all of it is charged."""
        for day, seconds in spans(since, until):
            charged = standing.share * seconds
            if charged:
                line = GroupUsage(unseen_seconds=charged, unseen_usd=charged * standing.usd / HOUR)
                self._add(day, standing.group, line)
                self._use(day, standing, seconds)
        self._charge(standing, since, until)

    def advance(self, now: float) -> None:
        """All that was counted counts until now; what owners used before has faded meanwhile."""
        faded = _faded(max(0.0, now - self.until))  # a clock that went back adds nothing
        known = sorted(((owner, used * faded) for owner, used in self.owners.items()), key=lambda item: (-item[1], item[0]))
        self.owners = {owner: used for owner, used in known[:MOST_OWNERS] if used >= FORGOTTEN}
        self.until = now

    def extend(self, now: float) -> None:
        """All went on as it stood, until now: for a reader, who knows no more."""
        for standing in self.open.values():
            self.count(standing, self.until, now)

    def fold(self, now: float) -> None:
        """Keep it small."""
        for day in [day for day in sorted(self.days) if day < day_of(now - DAYS * DAY)]:
            lines = self.months.setdefault(day[:7], {})
            for group, line in self.days.pop(day).items():
                lines[group] = lines.get(group, GroupUsage()) + line
        for month in sorted(self.months)[:-MONTHS]:
            del self.months[month]
        for day in [day for day in self.jobs if day < day_of(now - JOB_DAYS * DAY)]:
            del self.jobs[day]
        used = {job for uses in self.jobs.values() for job in uses} | {job for one in self.open.values() for job, _ in one.held}
        self.who = {job: who for job, who in self.who.items() if job in used}
        self.gaps = self.gaps[-GAPS:]
        self.spent = {month: self.spent[month] for month in sorted(self.spent)[-SPENT_MONTHS:]}

    def spent_in(self, month: str) -> dict[str, float]:
        """Namespace -> what its jobs have cost in a month, `2026-11`, of UTC."""
        return dict(self.spent.get(month, {}))

    def _charge(self, standing: Standing, since: float, until: float) -> None:
        """Add it to what its owners used, as if it had been used at `until` of the record: advance() fades all alike. A machine
        without GPUs counts as one GPU: it is as little there for others."""
        for job, share in standing.held:
            who = self.who.get(job)
            if who is not None and until > since:
                owner = who.namespace, who.user
                used = share * max(1, standing.gpus) * (until - since) / _faded((since + until) / 2 - self.until)
                self.owners[owner] = self.owners.get(owner, 0.0) + used

    def _add(self, day: str, group: str, line: GroupUsage) -> None:
        lines = self.days.setdefault(day, {})
        lines[group] = lines.get(group, GroupUsage()) + line

    def _use(self, day: str, standing: Standing, seconds: float) -> None:
        uses = self.jobs.setdefault(day, {}) if standing.held else {}
        month = self.spent.setdefault(day[:7], {}) if standing.held else {}
        for job, share in standing.held:
            held = share * seconds
            namespace = self.who[job].namespace if job in self.who else ""
            month[namespace] = month.get(namespace, 0.0) + held * standing.usd / HOUR
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


T = TypeVar("T", GroupUsage, Use)


class MachineUsageError(ValueError):
    """The ConfigMap is not one that this version understands; the message names the key and the fix."""


def write(usage: MachineUsage) -> dict[str, str]:
    """The ConfigMap's data."""
    kept = _recent(usage)
    text = _text(_document(kept))
    while len(text) > WHOLE_CHARACTERS:
        less = _less(kept, len(text) - WHOLE_CHARACTERS)
        if less is None:
            break  # so many machines that are there now: the API server says what it thinks of that
        kept, text = less, _text(_document(less))
    return {"schema": SCHEMA, KEY: text}


def _document(usage: MachineUsage) -> dict[str, Any]:
    named = {job for uses in usage.jobs.values() for job in uses} | {job for one in usage.open.values() for job, _ in one.held}
    return {
        "note": ASSUMED,
        "begun": stamp(usage.begun, digits=3),
        "until": stamp(usage.until, digits=3),
        "days": _lines(usage.days),
        "months": _lines(usage.months),
        "jobs": _lines(usage.jobs),
        **({"cut": usage.cut} if usage.cut else {}),
        "who": {job: asdict(who) for job, who in sorted(usage.who.items()) if job in named},
        "open": {name: {**asdict(one), "held": dict(one.held)} for name, one in usage.open.items()},
        **({"recordDays": usage.record_days} if usage.record_days else {}),
        **({"owners": {"/".join(owner): round(used, 1) for owner, used in usage.owners.items()}} if usage.owners else {}),
        **({"spent": {month: _rounded(there) for month, there in sorted(usage.spent.items())}} if usage.spent else {}),
        "gaps": [{**asdict(gap), "begun": stamp(gap.begun, digits=3), "ended": stamp(gap.ended, digits=3)} for gap in usage.gaps],
    }


def _faded(seconds: float) -> float:
    """The part of a use that is left after that time."""
    return float(0.5 ** (seconds / HALF_LIFE))


def read(data: Mapping[str, str]) -> MachineUsage:
    """Raises MachineUsageError."""
    if data.get("schema") != SCHEMA:
        raise MachineUsageError(
            f"{WHERE}: schema is {data.get('schema')!r}, this version of Ebb reads {SCHEMA!r}: bring `ebb` and the stack to one "
            "version, then run `pulumi up`."
        )
    try:
        root = json.loads(data[KEY])
        return MachineUsage(
            begun=_time(root["begun"]),
            until=_time(root["until"]),
            days=_read(root["days"], GroupUsage),
            months=_read(root["months"], GroupUsage),
            jobs=_read(root["jobs"], Use),
            cut=str(root.get("cut", "")),
            who={
                job: Who(namespace=one["namespace"], job=one["job"], user=one.get("user", "")[:LONGEST_USER])
                for job, one in root.get("who", {}).items()
            },
            open={name: _standing(value) for name, value in root["open"].items()},
            gaps=tuple(
                Gap(begun=_time(gap["begun"]), ended=_time(gap["ended"]), vanished=gap["vanished"], came=gap["came"])
                for gap in root["gaps"]
            ),
            record_days=float(root.get("recordDays", 0)),
            owners={_owner(name): float(used) for name, used in root.get("owners", {}).items()},
            spent={
                month: {namespace: float(usd) for namespace, usd in there.items()}
                for month, there in root.get("spent", {}).items()
            },
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise MachineUsageError(
            f"{WHERE}: {KEY} is not what the controller writes ({type(error).__name__}: {error}): delete the ConfigMap, and the "
            "controller begins a new record."
        ) from error


def _owner(text: str) -> Owner:
    team, _, user = text.partition("/")  # a namespace has no slash
    return team, user


def _rounded(there: Mapping[str, float]) -> dict[str, float]:
    return {namespace: round(usd, 6) for namespace, usd in sorted(there.items())}


def _lines(days: Mapping[str, Mapping[str, GroupUsage | Use]]) -> dict[str, Figures]:
    return {day: _day(lines) for day, lines in sorted(days.items())}


def _day(lines: Mapping[str, GroupUsage | Use]) -> Figures:
    return {name: _figures(line) for name, line in sorted(lines.items())}


def _figures(line: GroupUsage | Use) -> dict[str, float]:
    """The fields that are not zero; seconds to the millisecond. (asdict() would take ten times as long.)"""
    rounded = ((item.name, round(getattr(line, item.name), 3 if item.name.endswith("seconds") else 8)) for item in fields(line))
    return {name: value for name, value in rounded if value}


def _recent(usage: MachineUsage) -> MachineUsage:
    """With as many days of jobs as there is room for, the newest."""
    room, kept = MOST_CHARACTERS, 0
    newest_first = sorted(usage.jobs, reverse=True)
    for day in newest_first:
        room -= (USE_CHARACTERS + WHO_CHARACTERS) * len(usage.jobs[day])
        if room < 0:
            break
        kept += 1
    return _with_jobs(usage, newest_first[: max(kept, 1)], MOST_JOBS)


def _with_jobs(usage: MachineUsage, days: list[str], most: int) -> MachineUsage:
    """Only of these days, and of the newest one the dearest; `cut` says when there were more."""
    jobs, newest = {day: usage.jobs[day] for day in days}, max(days, default="")
    there = jobs.get(newest, {})
    if len(there) > most:
        dearest = sorted(there.items(), key=lambda item: (-item[1].usd, -item[1].seconds, item[0]))[:most]
        return replace(usage, jobs={**jobs, newest: dict(dearest)}, cut=newest)
    return replace(usage, jobs=jobs, cut=usage.cut if usage.cut in jobs else "")


def _less(usage: MachineUsage, over: int) -> MachineUsage | None:
    """The same with about so many characters less: of jobs first, then of the oldest times; None: nothing is left to cut."""
    if len(usage.jobs) > 1:
        old = sorted(usage.jobs)[:-1]
        return _with_jobs(usage, sorted(usage.jobs)[_first(old, usage.jobs, over) :], MOST_JOBS)
    there = max(map(len, usage.jobs.values()), default=0)
    if there > FEWEST_JOBS:
        return _with_jobs(usage, list(usage.jobs), max(FEWEST_JOBS, there - over // USE_CHARACTERS - 1))
    if usage.months:
        months = sorted(usage.months)[_first(sorted(usage.months), usage.months, over) :]
        return _begin(replace(usage, months={month: usage.months[month] for month in months}))
    if len(usage.days) > 1:
        days = sorted(usage.days)[_first(sorted(usage.days)[:-1], usage.days, over) :]
        return _begin(replace(usage, days={day: usage.days[day] for day in days}))
    return None


def _first(times: list[str], held: Mapping[str, Mapping[str, GroupUsage | Use]], over: int) -> int:
    """The number of these, which are sorted, to leave out; at least one."""
    for count, time in enumerate(times, 1):
        over -= len(_text(_day(held[time])))
        if over <= 0:
            return count
    return len(times)


def _begin(usage: MachineUsage) -> MachineUsage:
    """The record, beginning with the first time that is left."""
    first = min([*usage.months, *usage.days], default=stamp(usage.begun)[:10])
    day = first if len(first) > len("2026-11") else f"{first}-01"
    return replace(usage, begun=max(usage.begun, unix(f"{day}T00:00:00Z") or 0.0))


def _read(days: Mapping[str, Any], kind: type[T]) -> dict[str, dict[str, T]]:
    known = {item.name for item in fields(kind)}
    return {
        day: {name: kind(**{key: float(value) for key, value in line.items() if key in known}) for name, line in lines.items()}
        for day, lines in days.items()
    }


def _standing(value: Mapping[str, Any]) -> Standing:
    return Standing(
        group=value["group"],
        phase=value["phase"],
        usd=float(value["usd"]),
        on_demand=float(value["on_demand"]),
        gpus=int(value["gpus"]),
        held=tuple(sorted((job, float(share)) for job, share in value["held"].items())),
    )


def _time(text: str) -> float:
    found = unix(text)
    if found is None:
        raise ValueError("a time is missing")
    return found


def _text(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))
