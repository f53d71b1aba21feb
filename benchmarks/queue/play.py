"""Plays a trace on a cluster, event by event: who is placed, lent to and stopped is decided by the controller's own code.

    played = play(month(random.Random(1)), FAIR)
    played.waits["robotics"], played.utilisation, played.fairness

The line is queue.py's, the quotas are lending.py's, the shares are those of fair_share.py out of a usage record of usage.py. Only
the rest is simulated: jobs arrive, run for their time and end. A job that is stopped, because what it had was lent, loses
RESTART_SECONDS of its work.
"""

import heapq
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from benchmarks.queue.trace import DAY, HOUR, LONGEST, Ask
from ebb.api.needs import Needs, Wish
from ebb.api.platform import NodeGroup, Platform, Team
from ebb.api.queue import NEXT
from ebb.api.usage import MachineUsage, Standing, Who
from ebb.controller.reconciler.candidates import Candidate
from ebb.controller.reconciler.capacity import OVERDUE_SECONDS, TURN_SECONDS, Claim, Key
from ebb.controller.reconciler.fair_share import divide
from ebb.controller.reconciler.lending import QuotaPool, borrowers
from ebb.controller.reconciler.queue import FreeCapacity, SharedCapacity, SharedLine, queue, sites_for

GPUS_PER_MACHINE = 8
MACHINES = {"zone-a": 8, "zone-b": 4}
GPUS = GPUS_PER_MACHINE * sum(MACHINES.values())
QUOTAS = {"vision": 28, "language": 32, "biology": 16, "audio": 16, "robotics": 4}  # GPUs, of all
EPOCH = 1_800_000_000.0  # the beginning of the month; nothing depends on it
SHARES_SECONDS = 1800.0  # between two looks at a line in which nothing else happens
STOP_SECONDS = 30.0  # a lent job writes its checkpoint and leaves
RESTART_SECONDS = 300.0  # of work that it does again, and of its start
# Nobody who has no machine waits for longer: after a day one job goes first, and the longest job before it ends.
STARVED_SECONDS = OVERDUE_SECONDS + LONGEST + HOUR


@dataclass(frozen=True, kw_only=True)
class Policy:
    """An order of jobs; `lends`: machines that are kept for one are lent meanwhile; `borrow`: GPUs beyond QUOTAS that a team may
    have while others leave them of theirs, None: there are no quotas."""

    name: str
    priority: bool
    shares: bool
    lends: bool
    borrow: int | None = None


FIFO = Policy(name="fifo", priority=False, shares=False, lends=False)
PRIORITY = Policy(name="priority", priority=True, shares=False, lends=False)
UNLENT = Policy(name="fair_share_without_loans", priority=True, shares=True, lends=False)
FAIR = Policy(name="fair_share", priority=True, shares=True, lends=True)
QUOTA = Policy(name="fair_share_with_quotas", priority=True, shares=True, lends=True, borrow=0)
LENT = Policy(name="fair_share_with_lent_quotas", priority=True, shares=True, lends=True, borrow=GPUS)
POLICIES = (FIFO, PRIORITY, UNLENT, FAIR, QUOTA, LENT)


@dataclass(kw_only=True)
class Played:
    """The outcome. Times are in seconds."""

    waits: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))  # by team, of each job in all
    by_size: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))  # the same, by GPUs
    starts: list[tuple[float, str]] = field(default_factory=list)  # each start, also after a stop
    used: float = 0.0  # GPU-seconds within the month that were not done again
    stops: int = 0
    idle_seconds: float = 0.0  # in which machines idled that a waiting job could have used
    never: int = 0  # jobs that are larger than their team may ever have
    lent: float = 0.0  # GPU-seconds beyond a team's quota
    kept_waiting: float = 0.0  # the longest time in which a job waited that its own team's quota had room for
    starved: float = 0.0  # the longest time in which somebody waited who had no machine
    received: dict[str, float] = field(default_factory=lambda: defaultdict(float))  # by team, while somebody waited
    entitled: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    seconds: float = 0.0  # of the month

    @property
    def utilisation(self) -> float:
        return self.used / (GPUS * self.seconds)

    @property
    def fairness(self) -> float:
        """Jain's index of what each team had against what it was entitled to, while somebody waited."""
        return jain([self.received[team] / entitled for team, entitled in sorted(self.entitled.items()) if entitled])


def jain(parts: list[float]) -> float:
    """1 where all are equal, 1/n where one has all: Jain, Chiu, Hawe, DEC-TR-301, 1984, https://arxiv.org/abs/cs/9809099."""
    return sum(parts) ** 2 / (len(parts) * sum(part * part for part in parts)) if any(parts) else 1.0


def max_min(capacity: float, demands: Mapping[str, float]) -> dict[str, float]:
    """An equal part for each, of which nobody gets more than it demands and the others share the rest."""
    left, parts = capacity, {}
    for number, (name, demand) in enumerate(sorted(demands.items(), key=lambda item: (item[1], item[0]))):
        parts[name] = min(demand, left / (len(demands) - number))
        left -= parts[name]
    return parts


def play(asks: Iterable[Ask], policy: Policy, *, days: int = 30, progress: Callable[[float], None] | None = None) -> Played:
    """Until the last job has ended."""
    return _Play(list(asks), policy, days, progress or (lambda _: None)).run()


@dataclass
class _Job:
    ask: Ask
    left: float  # seconds of work
    began: float | None = None  # since when it runs
    waits_since: float = 0.0
    waited: float = 0.0
    tries: int = 0  # an end that was foreseen before it was stopped is none
    turn_until: float | None = None  # of its turn beyond its team's quota


class _Play:
    def __init__(self, asks: list[Ask], policy: Policy, days: int, progress: Callable[[float], None]) -> None:
        self.policy, self.progress, self.days = policy, progress, days
        self.platform = Platform(
            cloud="local", region="local", stack="simulated", trainer_image="", jobs_namespace="", etcd_endpoint="", volumes=(),
            node_groups=tuple(_group(zone, count) for zone, count in MACHINES.items()), teams=tuple(_teams(policy.borrow)),
        )  # fmt: skip
        self.jobs: dict[Key, _Job] = {}
        self.claims: dict[Key, Claim] = {}
        self.asks = sorted(asks, key=lambda ask: ask.at, reverse=True)
        self.ends: list[tuple[float, Key, int]] = []
        self.wishes: dict[tuple[str, int, int], Wish] = {}
        self.sites: dict[int, list[Candidate]] = {}
        self.usage = MachineUsage(begun=EPOCH, until=EPOCH)
        self.now, self.played = 0.0, Played(seconds=days * DAY)
        self.idles = False
        self.borrowing: Mapping[Key, int] = {}
        self.owners: dict[Key, float] = {}  # jobs that wait within their team's quota, and since when
        self.without: dict[tuple[str, str], float] = {}  # owners who wait and have no machine, and since when

    def run(self) -> Played:
        while self.asks or self.claims:
            self._advance(self._next())
            self._end_jobs()
            while self.asks and self.asks[-1].at <= self.now:
                self._arrive(self.asks.pop())
            self._settle()
            self._look()
            self.progress(self.now)
        return self.played

    def _next(self) -> float:
        while self.ends and self._stale(self.ends[0]):
            heapq.heappop(self.ends)
        times = [self.ends[0][0]] if self.ends else []
        times += [self.asks[-1].at] if self.asks else []
        if self.policy.shares and any(not one.located for one in self.claims.values()):
            times.append(self.now + SHARES_SECONDS)
        return min(times)

    def _stale(self, end: tuple[float, Key, int]) -> bool:
        job = self.jobs.get(end[1])
        return job is None or job.began is None or job.tries != end[2]

    def _advance(self, until: float) -> None:
        """Count what is held until then."""
        held: defaultdict[str, float] = defaultdict(float)
        demand: defaultdict[str, float] = defaultdict(float)
        owners: defaultdict[tuple[str, str], float] = defaultdict(float)
        waits = False
        for key, one in self.claims.items():
            gpus = self.jobs[key].ask.gpus
            demand[one.owner[0]] += gpus
            if one.located:
                held[one.owner[0]] += gpus
                owners[one.owner] += gpus / GPUS_PER_MACHINE
            waits = waits or not one.located
        self.played.idle_seconds += self.idles * (until - self.now)
        self.played.lent += (until - self.now) * sum(
            gpus for key, gpus in self.borrowing.items() if key in self.claims and self.claims[key].located
        )
        if waits:
            for team, part in max_min(GPUS, demand).items():
                self.played.entitled[team] += part * (until - self.now)
                self.played.received[team] += held[team] * (until - self.now)
        self.usage.who = {"/".join(owner): Who(namespace=owner[0], job="", user=owner[1]) for owner in owners}
        shares = tuple(("/".join(owner), machines) for owner, machines in sorted(owners.items()))
        standing = Standing(group="all", gpus=GPUS_PER_MACHINE, held=shares)
        self.usage.count(standing, EPOCH + self.now, EPOCH + until)
        self.usage.advance(EPOCH + until)
        self.now = until

    def _arrive(self, ask: Ask) -> None:
        key = (ask.team, ask.name)
        shape = ask.team, ask.workers, ask.gpus_per_worker
        needs = Needs(gpus=ask.gpus_per_worker, cpu=0.0, memory_bytes=0.0)
        # One for all of a shape, as the controller has it.
        wish = self.wishes.setdefault(
            shape, Wish(needs=needs, least=ask.workers, zone="single", gpu_type=None, capacity=None, namespace=ask.team)
        )
        one = Claim(
            key=key, least=ask.workers, wanted=ask.workers, placed=0, zone="", gpu_type="", capacity_type="",
            priority=int(ask.urgent and self.policy.priority), created=EPOCH + ask.at, wish=wish, owner=(ask.team, ask.user),
        )  # fmt: skip
        pool = QuotaPool.of(self.platform)
        if pool and pool.beyond(one):
            self.played.never += 1
            return
        self.jobs[key], self.claims[key] = _Job(ask, ask.seconds, waits_since=self.now), one

    def _end_jobs(self) -> None:
        while self.ends and self.ends[0][0] <= self.now:
            end = heapq.heappop(self.ends)
            if not self._stale(end):
                job = self.jobs.pop(end[1])
                del self.claims[end[1]]
                self._count_work(job)
                self.played.waits[job.ask.team].append(job.waited)
                self.played.by_size[job.ask.gpus].append(job.waited)

    def _count_work(self, job: _Job) -> None:
        assert job.began is not None
        within = min(self.now, self.played.seconds) - min(job.began, self.played.seconds)
        self.played.used += job.ask.gpus * max(0.0, within)

    def _settle(self) -> None:
        """All take their turns, until nothing changes."""
        if self.policy.shares:
            shares = divide(self.usage.owners, self.claims.values(), EPOCH + self.now)
            for key, one in self.claims.items():
                if (one.loan or not one.located) and one.share != shares.of(one):
                    self.claims[key] = replace(one, share=shares.of(one))
        if self.policy.borrow is not None:
            for key, one in self.claims.items():
                until = self.jobs[key].turn_until
                turn = until is not None and self.now < until
                rested = self.now - (self.jobs[key].ask.at if until is None else until) >= OVERDUE_SECONDS
                if (one.turn, one.rested) != (turn, rested):
                    self.claims[key] = replace(one, turn=turn, rested=rested)
        begins: list[Key] = []
        stopped, changed = False, True
        while changed:
            line = SharedLine(self.claims.values())
            # Who is in the shared line needs no other claims.
            capacity = SharedCapacity(line=line)
            lent = line.borrowing(self.platform)
            ended = [
                one
                for one in self.claims.values()
                if one.located and (one.loan or one.key in lent) and not self._keeps(one, capacity)
            ]
            for one in ended:
                self._stop(one.key)
                stopped = True
                begins = [key for key in begins if key != one.key]
            placed = (
                []
                if ended
                else [one.key for one, why, _ in line.all(self.platform) if why == NEXT and self._place(one, capacity)]
            )
            begins += placed
            changed = bool(ended or placed)
        for key in begins:
            own = not self.claims[key].loan
            self._begin(key, self.now + (STOP_SECONDS if stopped and own else 0.0))

    def _keeps(self, one: Claim, capacity: SharedCapacity) -> bool:
        """A job on loan: its place becomes its own, it stays on loan, or it must go."""
        seen, site = queue(one, capacity, self.platform), self._here(one)
        if one.loan and seen.free.room(site) >= one.least:
            self.claims[one.key] = replace(one, loan=False)
            return True
        return seen.firm is None or seen.firm.room(site) >= one.least

    def _here(self, one: Claim) -> Candidate:
        return next(site for site in self._sites(one.wish) if site.zone == one.zone)

    def _sites(self, wish: Wish) -> list[Candidate]:
        if id(wish) not in self.sites:
            self.sites[id(wish)] = sites_for(wish, self.platform)
        return self.sites[id(wish)]

    def _place(self, one: Claim, capacity: SharedCapacity) -> bool:
        seen = queue(one, capacity, self.platform)
        turn = seen.turn == one.key
        for left, loan in ((seen.free, False), *([(seen.spare, True)] if self.policy.lends else [])):
            for site in self._sites(one.wish):
                if left.room(site) >= one.least:
                    if turn and not one.turn:
                        self.jobs[one.key].turn_until = self.now + TURN_SECONDS
                    self.claims[one.key] = replace(
                        one, located=True, zone=site.zone, gpu_type=site.gpu_type, capacity_type=site.capacity_type,
                        placed=one.least, loan=loan, turn=turn,
                    )  # fmt: skip
                    return True
        return False

    def _begin(self, key: Key, at: float) -> None:
        job = self.jobs[key]
        job.began = at
        job.tries += 1
        job.waited += at - job.waits_since
        self.played.starts.append((at, job.ask.name))
        heapq.heappush(self.ends, (at + job.left, key, job.tries))

    def _stop(self, key: Key) -> None:
        job = self.jobs[key]
        if job.began is not None:
            done = max(0.0, self.now - job.began - RESTART_SECONDS)
            self.played.used += job.ask.gpus * min(done, max(0.0, self.played.seconds - job.began))
            job.left -= done
            job.waits_since, job.began = self.now, None
            self.played.stops += 1
        self.claims[key] = replace(self.claims[key], located=False, loan=False, zone="", placed=0)

    def _look(self) -> None:
        """Keep in mind what was promised: nobody starves, and no machine idles that somebody could use."""
        waiting = [one for one in self.claims.values() if not one.located]
        served = {one.owner for one in self.claims.values() if one.located}
        pool = QuotaPool.of(self.platform)
        self.without = {one.owner: self.without.get(one.owner, self.now) for one in waiting if one.owner not in served}
        self.idles = False
        self.played.starved = max([self.played.starved, *(self.now - since for since in self.without.values())])
        if pool:
            self.borrowing = borrowers(self.claims.values(), pool)
            owners = [one.key for one in waiting if one.key not in self.borrowing]
            self.owners = {key: self.owners.get(key, self.now) for key in owners}
            self.played.kept_waiting = max([self.played.kept_waiting, *(self.now - since for since in self.owners.values())])
        free = FreeCapacity(self.platform, pool)
        for one in self.claims.values():
            if one.located:
                free.take(self._here(one), one.least)
        for wish in {id(one.wish): one.wish for one in waiting}.values():
            if any(free.room(site) >= wish.least for site in self._sites(wish)):
                self.idles = True


def _teams(borrow: int | None) -> Iterator[Team]:
    if borrow is not None:
        for name, gpus in QUOTAS.items():
            yield Team(name=name, namespace=name, gpus=gpus, borrow=borrow)
        yield Team(name="nobody", namespace="nobody", gpus=0, borrow=1)  # else quotas are not of the line


def _group(zone: str, machines: int) -> NodeGroup:
    return NodeGroup(
        name=zone, zone=zone, instance_type="", gpu_type="A100", gpus_per_node=GPUS_PER_MACHINE, cpu=96.0, memory_gib=1000.0,
        capacity_type="spot", min=0, max=machines, taints=(), labels={}, on_demand_usd_per_hour=1.0, spot_discount=0.7,
        notice_seconds=30,
    )  # fmt: skip
