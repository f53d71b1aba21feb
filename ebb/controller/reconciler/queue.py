"""The order in which jobs get machines, and the job that lets go when two hold half of what both need. Pure.

    line = queue(me, capacity, platform)    # what placed jobs, and jobs that wait before this one, leave of every site
    line.free.room(site)                    # workers of this job for which there is room beside the others' minReplicas
    line.spare.room(site)                   # workers for which there is room meanwhile, on loan
    line.before(me, site)                   # the job for which this one waits there
    starving(me, line, site, now)           # a job before this one that gets no machines there: no other joins it
    yields_to(view, draft, me, site)     # the job for which this one lets go of all that it holds

The order: higher priority, then who used less of what is owed (fair_share.py), then older. Only minReplicas counts: workers
beyond that make room (sizing.py, and their lower priority). Free machines do not count, only what the node groups may grow to:
pods must wait for machines, or none are made. A waiting job that fits nowhere keeps what is left of its roomiest site; else small
jobs behind it could keep it out for ever. As no job behind it takes of that, what is left there only grows, so its place comes.

What is kept for a job that fits nowhere would idle until it does. Nobody knows how long jobs run, so jobs behind it cannot be
chosen by whether they end in time: they get such machines on loan. A loan takes nothing from any job before it, in the whole
walk, so those are placed when they would have been without it; and as soon as one of them has been, where there is no room for
both, the loan ends: its job stops with a checkpoint and waits for its place. So the job before it waits for that stop, of a
worker's grace at most, and for nothing else. A loan becomes a place as any other when the job's own place comes.

Where teams lend their quotas (lending.py), owners go before those that borrow, and what these have is spare to them. Before them
all goes the one job whose turn it is though it is larger than its team's quota.

Shares decide only who gets the next place, not who keeps one: for who lets go of machines the order is that of priority and age,
which never changes (Claim.rank). Two jobs that each hold half of what both need would wait for ever. By that order the first that
waits at a site keeps what it has, and those behind let go one after the other until it has minReplicas. They come back when it
has, or is gone.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ebb.api.needs import Wish
from ebb.api.platform import Platform
from ebb.api.queue import GROUP, MACHINES, NEXT, NOWHERE, REFUSED
from ebb.api.status import Placed
from ebb.controller.reconciler.candidates import Candidate, candidate_of, sites, ways
from ebb.controller.reconciler.capacity import Claim, ClusterCapacity, Key, Order
from ebb.controller.reconciler.lending import Loan, QuotaPool, borrowers, teams, whose_turn
from ebb.controller.reconciler.scheduling import missing_base, waiting_since
from ebb.controller.reconciler.types import JobView, PlanBuilder

Position = tuple[int, Order]
# Before it: the job that has its turn, and owners, to whom what others borrow is spare.
FIRST_TO_BORROW: Position = 1, (-(2**63), 0.0, 0.0, 0.0, ("", ""))
ROUNDING = 1e-6  # machines are shared in fractions


class FreeCapacity:
    """Machines of each node group that no job has, and GPUs of the quotas that teams lend, where they do (`pool`)."""

    def __init__(self, platform: Platform | None, pool: QuotaPool | None = None) -> None:
        self._free = {group.name: float(group.max) for group in (platform.node_groups if platform else ())}
        self.pool = pool

    def room(self, site: Candidate) -> int:
        """Workers of the job whose site it is."""
        machines = sum(int(self._free[group.name] * fits + ROUNDING) for group, fits in site.fits)
        most = self.within_quota(site)
        return machines if most is None else min(machines, most)

    def within_quota(self, site: Candidate) -> int | None:
        """Workers that the quotas let in; None: no limit."""
        if self.pool is None or not site.gpus or site.namespace not in self.pool.teams:
            return None
        return self.pool.gpus(site.namespace) // site.gpus

    def take(self, site: Candidate, workers: int) -> None:
        """Let the cheapest machines have them, as the autoscaler does; as many as fit."""
        asked = workers
        for group, fits in site.fits:
            used = min(workers / fits, self._free[group.name])
            self._free[group.name] -= used
            workers -= int(used * fits + ROUNDING)
        if self.pool:
            self.pool.take(site.namespace, asked * site.gpus)

    def copy(self) -> "FreeCapacity":
        """As it is now, whatever is taken of this one later."""
        copied = FreeCapacity(None, self.pool.copy() if self.pool else None)
        copied._free = dict(self._free)
        return copied


@dataclass(frozen=True, kw_only=True)
class Reservation:
    """Of a job without a place: the site that it will take, or that is kept for it because it fits nowhere now."""

    claim: Claim
    site: Candidate
    blocked: bool
    lent: Candidate | None = None  # where a blocked one may be on loan


@dataclass(frozen=True, kw_only=True)
class Queue:
    """The others, as far as this job must mind them. `holders`: placed jobs. `waiting`: those before it without a place."""

    free: FreeCapacity
    spare: FreeCapacity  # that nobody has or will have soon, though it may be kept for a job that is blocked
    holders: Sequence[tuple[Claim, Candidate]] = ()
    waiting: Sequence[Reservation] = ()
    in_group: int = 0  # jobs of its group that run or go first
    firm: FreeCapacity | None = None  # of a job on loan: what places and the loans before its own leave
    borrowing: Mapping[Key, int] = field(default_factory=dict)  # of all jobs beyond their team's quota: by how many GPUs
    turn: Key | None = None  # of these the one that goes before owners

    def borrows(self, one: Claim) -> bool:
        """Return whether a job gives way to owners."""
        return one.key in self.borrowing and one.key != self.turn

    def loan_words(self, me: Claim) -> str:
        """The GPUs of a job that other teams lend it, in words; "": none."""
        gpus, pool = self.borrowing.get(me.key, 0), self.free.pool
        return f"{gpus} of their GPUs lent by {teams(pool.lenders(me.key[0], gpus))}" if gpus and pool else ""

    def short_of_quota(self, me: Claim, site: Candidate) -> str:
        """The reason why a job cannot borrow what it needs, in a sentence; "" where it can."""
        allowed, pool = self.spare.within_quota(site), self.spare.pool
        return pool.refusal(me) if pool and allowed is not None and allowed < me.least else ""

    def goes_first(self, one: Claim, me: Claim) -> bool:
        """Return whether a job keeps what both need: within its team's quota, by priority, by age."""
        return (self.borrows(one), one.rank) < (self.borrows(me), me.rank)

    def before(self, me: Claim, site: Candidate) -> Claim | None:
        """For whom the job waits at a site: the one right before it in the line, or the first that has machines there."""
        for reserved in reversed(self.waiting):
            if reserved.site.overlaps(site):
                return reserved.claim
        return min((claim for claim, place in self.holders if place.overlaps(site)), key=lambda claim: claim.rank, default=None)


@dataclass
class _Book:
    """The sites of wishes, by identity: the jobs of a sweep have one wish (capacity.py sees to it)."""

    platform: Platform
    known: dict[int, list[Candidate]] = field(default_factory=dict)
    spent: dict[int, Candidate] = field(default_factory=dict)

    def sites(self, wish: Wish) -> list[Candidate]:
        """Sites where such a job may get minReplicas."""
        if id(wish) not in self.known:
            self.known[id(wish)] = sites_for(wish, self.platform)
        return self.known[id(wish)]

    def reserve(self, claim: Claim, free: FreeCapacity, spare: FreeCapacity) -> Reservation:
        """Take what a waiting job will have; where nothing is left for such a job, nothing is left for the next."""
        spent, found = self.spent.get(id(claim.wish)), self.sites(claim.wish)
        if spent is not None:
            return Reservation(claim=claim, site=spent, blocked=True)
        reserved = _reserve(claim, found, free, spare)
        if reserved.blocked and not any(free.room(site) or spare.room(site) >= claim.least for site in found):
            self.spent[id(claim.wish)] = reserved.site
        return reserved


class _Walk:
    """The reservations of all jobs without a place, in their order; a job sees those before its own."""

    def __init__(self, claims: Iterable[Claim], platform: Platform | None, me: Claim | None = None) -> None:
        """`me`: one that is not among the claims, though its team's quota counts it."""
        known = tuple(claims)
        located, others = [claim for claim in known if claim.located], [claim for claim in known if not claim.located]
        self._others, self.pool = others, QuotaPool.of(platform)
        self._book = _Book(platform) if platform else None
        free, running = FreeCapacity(platform, self.pool), Counter(map(_group, located))
        everybody = {one.key: one for one in (*known, *([me] if me else ()))}
        self.borrowing, self.turn = self._beyond_quotas(everybody.values(), running)
        self._holders = tuple(_places(located, platform))
        for claim, site in self._holders:
            if not self.lent(claim):
                free.take(site, claim.holds)
        self._firm, spare, for_owners = free.copy(), free.copy(), free.copy()
        loans = (pair for pair in self._holders if self.lent(pair[0]))
        self._loans = sorted(loans, key=lambda pair: self._position(pair[0]))
        self._loan_positions, self._firms = [self._position(claim) for claim, _ in self._loans], [self._firm]  # before each
        for claim, site in self._loans:
            spare.take(site, claim.holds)
            if self._position(claim) < FIRST_TO_BORROW:
                for_owners.take(site, claim.holds)
        self._running = running.copy()
        self._started: dict[tuple[str, str], list[Position]] = {}  # of each group those that will start, in order
        self._reservations: list[Reservation] = []
        self._positions: list[Position] = []  # of the reservations
        # What is left before and after each that takes something.
        self._left, self._taken = [(free.copy(), for_owners.copy())], list[Position]()
        self._reserve_for_all(free, for_owners, spare, running)

    def _reserve_for_all(
        self, free: FreeCapacity, for_owners: FreeCapacity, spare: FreeCapacity, running: Counter[tuple[str, str]]
    ) -> None:
        """Give each job what it takes, when all before it have theirs."""
        lent = {claim.key: site for claim, site in self._loans}
        line = [(self._position(claim), claim) for claim in (*self._others, *(claim for claim, _ in self._loans))]
        line.sort(key=lambda pair: pair[0])
        first = bisect_left(line, FIRST_TO_BORROW, key=lambda pair: pair[0])
        for loans_of, part in ((for_owners, line[:first]), (spare, line[first:])):
            if loans_of is spare:
                self._taken.append(FIRST_TO_BORROW)
                self._left.append((free.copy(), spare.copy()))
            for position, claim in part:
                if claim.key in lent:
                    free.take(lent[claim.key], claim.holds)  # when its own place comes, it is where it is
                    self._taken.append(position)
                    self._left.append((free.copy(), loans_of.copy()))
                    continue
                if self._never(claim, running):
                    continue
                running[_group(claim)] += 1
                self._started.setdefault(_group(claim), []).append(position)
                if self._book:
                    takes = id(claim.wish) not in self._book.spent
                    reserved = self._book.reserve(claim, free, loans_of)
                    self._reservations.append(reserved)
                    self._positions.append(position)
                    if takes:
                        if loans_of is not spare and (reserved.lent or not reserved.blocked):
                            spare.take(reserved.lent or reserved.site, claim.least)
                        self._taken.append(position)
                        self._left.append((free.copy(), loans_of.copy()))

    def _beyond_quotas(
        self, claims: Collection[Claim], running: Mapping[tuple[str, str], int]
    ) -> tuple[Mapping[Key, int], Key | None]:
        """The jobs beyond their team's quota, and the one that goes before owners all the same."""
        if self.pool is None:
            return {}, None
        found = borrowers(claims, self.pool)
        able = (one for one in claims if one.key in found and (one.located or not self._never(one, running)))
        return found, whose_turn(able, found, self.pool)

    def _never(self, claim: Claim, running: Mapping[tuple[str, str], int]) -> bool:
        """Return whether a job cannot start, whatever becomes free."""
        full = claim.group and running[_group(claim)] >= claim.group_max
        nowhere = self._book and not self._book.sites(claim.wish)
        return bool(full or nowhere or claim.refused or (self.pool and self.pool.beyond(claim)))

    def lent(self, claim: Claim) -> bool:
        """Return whether a job's place is kept for jobs before it: its machines, or its GPUs by another team's quota."""
        return claim.loan or claim.key in self.borrowing

    def _position(self, claim: Claim) -> Position:
        """Its place among jobs without a place and those on loan. Who waits to borrow takes nothing from who borrows already."""
        if claim.key == self.turn:
            return -1, claim.order
        if claim.key not in self.borrowing:
            return 0, claim.order
        if claim.located and not claim.loan:
            return 1, (-claim.priority, 0.0, 0.0, claim.created, claim.key)  # as Claim.rank
        return 2, claim.order

    def stuck(self) -> frozenset[Key]:
        """Jobs without a place for which there is none now. Not among them: the first that is blocked, as people look at what it
        waits for, and whoever may get something in another way than from the line: by a fallback, or when a quota is raised."""
        stuck = {one.claim.key: one.blocked and not one.lent for one in self._reservations}
        first = next((one.claim.key for one in self._reservations if one.blocked), None)
        return frozenset(
            claim.key
            for claim in self._others
            if stuck.get(claim.key, True) and claim.key != first and not claim.refused and len(ways(claim.wish)) == 1
        )

    def loan_of(self, claim: Claim) -> Loan | None:
        """The GPUs that other teams lend a job, or will when it gets its place; None: it is within its team's quota."""
        gpus, pool = self.borrowing.get(claim.key, 0), self._left[bisect_left(self._taken, self._position(claim))][0].pool
        return Loan(gpus=gpus, lenders=tuple(pool.lenders(claim.key[0], gpus))) if gpus and pool else None

    def loans(self) -> Iterator[tuple[Claim, Loan]]:
        """The jobs with a place that borrow."""
        for claim, _ in self._loans:
            loan = self.loan_of(claim)
            if loan:
                yield claim, loan

    def all(self) -> Iterator[tuple[Claim, str, Loan | None]]:
        """All jobs without a place in their order, and why each waits, in the words of ebb/api/queue.py."""
        reservations = {one.claim.key: one for one in self._reservations}
        for claim in sorted(self._others, key=self._position):
            reserved = reservations.get(claim.key)
            if reserved is not None:
                why = MACHINES if reserved.blocked and not reserved.lent else NEXT
            elif claim.refused:
                why = REFUSED
            else:
                group = _group(claim)
                begun = self._running[group] + len(self._started.get(group, ()))
                why = GROUP if claim.group and begun >= claim.group_max else NOWHERE
            yield claim, why, self.loan_of(claim)

    def before(self, me: Claim) -> Queue:
        """The line as this job sees it."""
        group, position, lent = _group(me), self._position(me), me.located and self.lent(me)
        in_group = self._running[group] + bisect_left(self._started.get(group, ()), position) if me.group else 0
        free, spare = self._left[bisect_left(self._taken, position)]
        return Queue(
            free=free,
            spare=spare,
            holders=[one for one in self._holders if one[0].key != me.key] if lent else self._holders,
            waiting=self._reservations[: bisect_left(self._positions, position)],
            in_group=in_group,
            firm=self._firm_before(position) if lent else None,
            borrowing=self.borrowing,
            turn=self.turn,
        )

    def _firm_before(self, position: Position) -> FreeCapacity:
        number = bisect_left(self._loan_positions, position)
        for claim, site in self._loans[len(self._firms) - 1 : number]:
            firm = self._firms[-1].copy()
            # One for which there is no room ends, and takes nothing from those behind it.
            if firm.room(site) >= claim.holds:
                firm.take(site, claim.holds)
            self._firms.append(firm)
        return self._firms[number]


class SharedLine:
    """The line of all jobs, walked once for as long as no claim changes: some thousand jobs that wait are looked at every half
    minute, and each sees the others."""

    def __init__(self, claims: Iterable[Claim]) -> None:
        self._claims = {claim.key: claim for claim in claims}
        self._walked: tuple[Platform | None, _Walk] | None = None

    def before(self, me: Claim, platform: Platform | None) -> Queue | None:
        """None: the job has a place, or another rank, in this line, which therefore must be walked without it."""
        own = self._claims.get(me.key, me)
        if me.located and not me.loan and QuotaPool.of(platform) is None:
            return None
        walk = self._walk(platform)
        if (me.located and not walk.lent(own)) or (own.located, own.loan, own.order) != (me.located, me.loan, me.order):
            return None
        # Of a newcomer the walk does not know whether it is within its team's quota.
        return None if walk.pool and me.key not in self._claims else walk.before(me)

    def stuck(self, platform: Platform | None) -> frozenset[Key]:
        """The jobs without a place that need not be looked at whatever became free; without a stack nobody can tell."""
        return self._walk(platform).stuck() if platform else frozenset()

    def all(self, platform: Platform) -> Iterator[tuple[Claim, str, Loan | None]]:
        """The jobs without a place, in their order, why each waits, and what other teams are to lend it."""
        return self._walk(platform).all()

    def loans(self, platform: Platform) -> Iterator[tuple[Claim, Loan]]:
        """The jobs with a place that borrow."""
        return self._walk(platform).loans()

    def turn(self, platform: Platform) -> Key | None:
        """The job larger than its team's quota that goes before owners."""
        return self._walk(platform).turn

    def borrowing(self, platform: Platform | None) -> Mapping[Key, int]:
        """The jobs that are or would be beyond their team's quota."""
        return self._walk(platform).borrowing if QuotaPool.of(platform) else {}

    def _walk(self, platform: Platform | None) -> _Walk:
        if self._walked is None or self._walked[0] is not platform:
            self._walked = platform, _Walk(self._claims.values(), platform)
        return self._walked[1]


@dataclass(frozen=True, kw_only=True)
class SharedCapacity(ClusterCapacity):
    """The other jobs, and the line of all that is walked for all of them."""

    line: SharedLine


def sites_for(wish: Wish, platform: Platform) -> list[Candidate]:
    """Sites that hold minReplicas of such a job, on machines bought in the first way that has any."""
    found = (sites(wish, platform, way) for way in ways(wish))
    able = ([site for site in some if site.room >= wish.least] for some in found)
    return next((some for some in able if some), [])


def queue(me: Claim, cluster_capacity: ClusterCapacity, platform: Platform | None) -> Queue:
    """The line as this job sees it."""
    shared = cluster_capacity.line.before(me, platform) if isinstance(cluster_capacity, SharedCapacity) else None
    if shared is not None:
        return shared
    others: Iterable[Claim] = cluster_capacity.claims
    # Where teams lend their quotas, some behind it in the order may go first.
    placed = me.located and not me.loan
    if QuotaPool.of(platform) is None or (placed and not borrows(me, cluster_capacity, platform)):
        others = (claim for claim in others if claim.located or claim.order < me.order)
    return _Walk(others, platform, me).before(me)


def borrows(me: Claim, cluster_capacity: ClusterCapacity, platform: Platform | None) -> bool:
    """Return whether a job is beyond its team's quota."""
    pool = QuotaPool.of(platform)
    if pool is None or not pool.has(me):
        return False
    if isinstance(cluster_capacity, SharedCapacity):
        return me.key in cluster_capacity.line.borrowing(platform)
    return me.key in borrowers((*cluster_capacity.claims, me), pool)


def _group(claim: Claim) -> tuple[str, str]:
    return claim.key[0], claim.group


def _places(located: list[Claim], platform: Platform | None) -> Iterator[tuple[Claim, Candidate]]:
    known: dict[tuple[int, str, str, str], Candidate] = {}
    for claim in located:
        key = id(claim.wish), claim.zone, claim.gpu_type, claim.capacity_type
        if key not in known:
            placed = Placed(zone=claim.zone, gpu_type=claim.gpu_type, capacity_type=claim.capacity_type)
            known[key] = candidate_of(claim.wish, placed, platform)
        yield claim, known[key]


def _reserve(claim: Claim, found: list[Candidate], free: FreeCapacity, spare: FreeCapacity) -> Reservation:
    """Take what a waiting job will have; else what is left of its roomiest site, and meanwhile a loan."""
    site = _cheapest(claim, found, free)
    lent = None if site else _cheapest(claim, found, spare)
    blocked = site is None
    site = site or max(found, key=lambda site: (free.room(site), site.zone, site.gpu_type))
    free.take(site, claim.least)
    if lent or not blocked:
        spare.take(lent or site, claim.least)
    return Reservation(claim=claim, site=site, blocked=blocked, lent=lent)


def _cheapest(claim: Claim, found: list[Candidate], free: FreeCapacity) -> Candidate | None:
    fitting = [site for site in found if free.room(site) >= claim.least]
    return min(fitting, key=lambda site: (site.usd_per_worker_hour, site.zone, site.gpu_type), default=None)


def starving(me: Claim, line: Queue, site: Candidate, now: float) -> Claim | None:
    """The first of the jobs before this one that has waited there for longer than a machine takes."""
    latest = now - site.patience_seconds
    found = [
        claim
        for claim, place in line.holders
        if claim.hungry_since is not None and claim.hungry_since <= latest and line.goes_first(claim, me) and place.overlaps(site)
    ]
    return min(found, key=lambda claim: claim.rank, default=None)


def yields_to(view: JobView, draft: PlanBuilder, me: Claim, site: Candidate) -> Claim | None:
    """Only of a job that has waited for so long itself: before that its machines may still come."""
    begun = waiting_since(view, missing_base(view))
    if begun is None:
        return None
    due = begun + site.patience_seconds
    if view.now < due:
        draft.wakes.append(due)
        return None
    cluster_capacity, platform = view.observed.cluster_capacity, view.observed.platform
    alone = queue(me, cluster_capacity, platform)
    return starving(me, alone, site, view.now) or _kept_out(me, cluster_capacity, alone, view)


def _kept_out(me: Claim, cluster_capacity: ClusterCapacity, alone: Queue, view: JobView) -> Claim | None:
    """A job before this one, by its share and by its age, that has no place, and would have one without it."""
    with_me = queue(me, ClusterCapacity(claims=(*cluster_capacity.claims, me)), view.observed.platform)
    blocked = {one.claim.key for one in alone.waiting if one.blocked}
    kept = (one.claim for one in with_me.waiting if one.blocked and one.claim.key not in blocked)
    return next((claim for claim in kept if with_me.goes_first(claim, me)), None)
