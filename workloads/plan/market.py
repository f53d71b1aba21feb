"""What the rest of the cluster means for one job: who claims which machines, which zones are dry, what the autoscaler says.

    market = survey(jobs, priorities, now, but=key)      # the others, as their statuses tell

zones.py and placing.py decide with these values; control/world.py collects them. Pure.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from workloads.clock import unix
from workloads.job.spec import Job
from workloads.job.status import RECLAIMED, Dry

RECENT_SECONDS = 1800.0  # spot shortages of a zone last minutes to hours; older reclaims say little
Key = tuple[str, str]  # namespace and name of a job


@dataclass(frozen=True, kw_only=True)
class Claim:
    """What another job that has not ended, is not suspended and not held wants or has."""

    key: Key
    least: int  # minReplicas
    wanted: int
    placed: int  # workers on machines
    zone: str  # "" before it is placed
    gpu_type: str
    capacity_type: str
    priority: int  # the value of its PriorityClass
    created: float  # unix seconds
    group: str = ""  # of spec.group
    reclaims: int = 0  # recent ones in its zone

    @property
    def waits(self) -> bool:
        """Fewer than minReplicas of its workers have a machine."""
        return self.placed < self.least


@dataclass(frozen=True, kw_only=True)
class Market:
    """The other jobs, and where they could not get machines lately."""

    claims: tuple[Claim, ...] = ()
    dry: tuple[Dry, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Word:
    """What the autoscaler last said about a pending pod."""

    triggered: bool  # machines are on their way; else: it would not or could not
    message: str
    at: float  # unix seconds


@dataclass(frozen=True, kw_only=True)
class GroupState:
    """What the autoscaler's status says about a node group."""

    backing_off: bool = False  # the last attempt to get machines failed
    message: str = ""  # in the cloud's words


@dataclass(frozen=True, kw_only=True)
class Supply:
    """What the autoscaler says: by UID of a pod, and by name of a node group."""

    words: Mapping[str, Word] = field(default_factory=dict)
    groups: Mapping[str, GroupState] = field(default_factory=dict)


def survey(jobs: Iterable[Job], priorities: Mapping[str, int], now: float, *, but: Key) -> Market:
    """The market as the statuses of all jobs tell it; `but` is the job that asks."""
    others = [job for job in jobs if (job.namespace, job.name) != but and not job.status.ended and not job.deleting]
    claims = tuple(_claim(job, priorities, now) for job in others if not job.spec.suspend and job.status.hold is None)
    dry = tuple(entry for job in others for entry in job.status.dry if now - (unix(entry.at) or 0) < RECENT_SECONDS)
    return Market(claims=claims, dry=dry)


def _claim(job: Job, priorities: Mapping[str, int], now: float) -> Claim:
    placed = job.status.placement
    recent = [entry for entry in job.status.history if entry.what == RECLAIMED and now - (unix(entry.at) or 0) < RECENT_SECONDS]
    return Claim(
        key=(job.namespace, job.name),
        least=job.min_replicas,
        wanted=job.worker.replicas,
        placed=sum(1 for member in job.status.members if member.node and not member.settled),
        zone=placed.zone if placed else "",
        gpu_type=placed.gpu_type if placed else "",
        capacity_type=placed.capacity_type if placed else "",
        priority=priorities.get(job.spec.priority_class_name or "", 0),
        created=job.created,
        group=job.spec.group.name if job.spec.group else "",
        reclaims=len(recent),
    )
