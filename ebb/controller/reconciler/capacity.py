"""The rest of the cluster as one job sees it: claims on machines, stockouts, and the autoscaler's reports.

    market = survey(jobs, priorities, now, but=key)      # the others, as their statuses tell

queue.py, candidates.py and placing.py decide with these values; cluster_cache.py collects them. Pure.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from ebb.api import contract as names
from ebb.api.clock import unix
from ebb.api.costs import HOUR
from ebb.api.needs import Needs, Wish
from ebb.api.spec import Job
from ebb.api.status import RECLAIMED, Dry, Quota
from ebb.api.usage import Owner

RECENT_SECONDS = 1800.0  # spot shortages of a zone last minutes to hours; older reclaims say little
HUNGRY = (names.WAITING_FOR_MACHINES, names.WAITING_BOOTING, names.WAITING_DRY, names.WAITING_CLOUD_QUOTA)
REFUSED = (
    names.WAITING_FOR_QUOTA,
    names.WAITING_QUOTA_TOO_SMALL,
    names.WAITING_TEAM_BUDGET,
    names.REASON_CREATE_REFUSED,
    names.WAITING_FOR_RENDEZVOUS,
)
OVERDUE_SECONDS = 24 * 3600.0  # who has waited for so long without a machine goes first
TURN_SECONDS = 24 * 3600.0  # for which a job keeps what it has beyond its team's quota when its turn has come (lending.py)
Key = tuple[str, str]  # namespace and name of a job
Share = tuple[float, float]  # what a job's team, and its user, used against what they are owed (fair_share.py)
OVERDUE: Share = (-1.0, -1.0)
Order = tuple[int, float, float, float, Key]


@dataclass(frozen=True, kw_only=True)
class Claim:
    """Wishes and machines of another job that has not ended, is not suspended and not held."""

    key: Key
    least: int  # minReplicas
    wanted: int
    placed: int  # workers on machines
    zone: str  # "" before it is placed
    gpu_type: str
    capacity_type: str
    priority: int  # the value of its PriorityClass
    created: float  # unix seconds
    wish: Wish
    group: str = ""  # of spec.group, where that has a maxParallel
    group_max: int = 0  # spec.group.maxParallel
    reclaims: int = 0  # recent ones in its zone
    located: bool = False  # it has a placement, which on a cluster without a stack names no zone
    automatic: bool = False  # it lets go of workers beyond minReplicas when others need their machines
    hungry_since: float | None = None  # since when it waits, where it was placed, for machines; None: it does not
    refused: bool = False  # a quota, or a rendezvous that the stack does not have: it holds what it has and gets no more

    pods: int = 0  # that exist, those on their way out included
    quota: Quota | None = None  # that keeps it below minReplicas, though not for good

    waits_behind: bool = False  # it has no place, because others have the machines
    gpu_hours: int = 0  # that it has had, whole ones; machine hours where its workers have no GPU
    owner: Owner = ("", "")  # team and user
    share: Share = (0.0, 0.0)
    elsewhere: bool = False  # it is in a queue of Kueue's, which alone makes it stop
    loan: bool = False  # its place is kept for jobs before it, which cannot start yet
    turn: bool = False  # it has its turn beyond its team's quota
    rested: bool = False  # it has had no such turn for a day

    @property
    def waits(self) -> bool:
        """Fewer than minReplicas of its workers have a machine."""
        return self.placed < self.least

    @property
    def holds(self) -> int:
        """Workers whose machines are not for others."""
        return min(self.placed, self.least) if self.refused else self.least

    @property
    def rank(self) -> tuple[int, float, Key]:
        """Its place among jobs that have machines: smaller goes first. It never changes, so that two jobs of which each holds
        half of what both need do not let go for one another in turn."""
        return -self.priority, self.created, self.key

    @property
    def order(self) -> Order:
        """Its place among jobs that wait for a turn: smaller goes first."""
        return -self.priority, *self.share, self.created, self.key


@dataclass(frozen=True, kw_only=True)
class ClusterCapacity:
    """The other jobs, and where they could not get machines lately."""

    claims: Sequence[Claim] = ()
    dry: tuple[Dry, ...] = ()

    def urgent(self, than: int) -> list[Claim]:
        """The jobs of a higher priority than that which have no place because others have the machines."""
        return [one for one in self.claims if one.waits_behind and one.priority > than]

    def short_of_quota(self, namespace: str) -> list[Claim]:
        """The jobs of a namespace that a quota keeps below minReplicas."""
        return [one for one in self.claims if one.quota is not None and one.key[0] == namespace]


@dataclass(frozen=True, kw_only=True)
class Word:
    """The autoscaler's last word about a pending pod."""

    triggered: bool  # machines are on their way; else: it would not or could not
    message: str
    at: float  # unix seconds


@dataclass(frozen=True, kw_only=True)
class GroupState:
    """The autoscaler's status of a node group."""

    backing_off: bool = False  # the last attempt to get machines failed
    message: str = ""  # in the cloud's words


@dataclass(frozen=True, kw_only=True)
class Supply:
    """The autoscaler's words: by UID of a pod, and by name of a node group."""

    words: Mapping[str, Word] = field(default_factory=dict)
    groups: Mapping[str, GroupState] = field(default_factory=dict)


def survey(jobs: Iterable[Job], priorities: Mapping[str, int], now: float, *, but: Key) -> ClusterCapacity:
    """The other jobs as their statuses describe them; `but` is the job that asks."""
    ours = [job for job in jobs if (job.namespace, job.name) != but and job.spec.managed_by == names.MANAGER]
    others = [job for job in ours if not job.status.ended and not job.deleting]
    active = [job for job in others if not job.spec.suspend and job.status.hold is None]
    # One that waits for Kueue is in no line of ours; one that Kueue has admitted has its machines.
    claims = tuple(claim(job, priorities, now) for job in active if not job.queue or job.status.placement)
    dry = tuple(entry for job in others for entry in job.status.dry if now - (unix(entry.at) or 0) < RECENT_SECONDS)
    return ClusterCapacity(claims=claims, dry=dry)


def claim(job: Job, priorities: Mapping[str, int], now: float) -> Claim:
    """One job's claim. Where it names no PriorityClass, the one under "" counts: that of pods that name none."""
    placed, template, quota = job.status.placement, job.worker.template["spec"], job.status.quota
    running, wish, turn = job.status.condition(names.RUNNING), _one(Wish.of(job)), unix(job.status.turn_until)
    recent = [entry for entry in job.status.history if entry.what == RECLAIMED and now - (unix(entry.at) or 0) < RECENT_SECONDS]
    return Claim(
        key=(job.namespace, job.name),
        least=job.min_replicas,
        wanted=job.worker.replicas,
        placed=sum(1 for member in job.status.members if member.node and not member.settled),
        zone=placed.zone if placed else "",
        gpu_type=placed.gpu_type if placed else "",
        capacity_type=placed.capacity_type if placed else "",
        priority=priorities.get(template.get("priorityClassName") or job.spec.priority_class_name or "", 0),
        created=job.created,
        group=job.spec.group.name if job.spec.group and job.spec.group.max_parallel else "",
        group_max=(job.spec.group.max_parallel or 0) if job.spec.group else 0,
        reclaims=len(recent),
        located=placed is not None,
        automatic=job.automatic,
        hungry_since=_hungry_since(job),
        refused=running is not None and running.status != "True" and running.reason in REFUSED,
        wish=wish,
        pods=job.status.replicas,
        waits_behind=placed is None and running is not None and running.reason == names.WAITING_BEHIND,
        gpu_hours=_gpu_hours(job, wish.needs),
        quota=quota if quota and quota.message and not quota.too_small else None,
        owner=owner_of(job),
        elsewhere=bool(job.queue),
        loan=placed is not None and placed.on_loan,
        turn=turn is not None and now < turn,
        rested=now - (turn or job.created) >= OVERDUE_SECONDS,
    )


def owner_of(job: Job) -> Owner:
    """The team and the user who are charged for a job's use of machines."""
    return job.namespace, job.submitted_by


@lru_cache(maxsize=1024)
def _one(wish: Wish) -> Wish:
    """The first of all that are equal: queue.py compares hundreds of them in every look, by identity."""
    return wish


def _gpu_hours(job: Job, each: Needs) -> int:
    """As its status says it: all jobs must see the same."""
    spent = job.status.cost
    return int(spent.machine_seconds * max(1, each.gpus) // HOUR) if spent else 0


def _hungry_since(job: Job) -> float | None:
    """Since when it lacks machines at the place where it is now."""
    placed, running = job.status.placement, job.status.condition(names.RUNNING)
    if placed is None or running is None or running.status == "True" or running.reason not in HUNGRY:
        return None
    since, moved = unix(job.status.waiting_since), unix(placed.since)
    return max(since, moved or since) if since is not None else None
