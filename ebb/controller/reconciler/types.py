"""Values that the planner takes and returns. reconcile.py decides, controller.py and executor.py carry out.

Plan(status=..., actions=(CreatePod(body), DeletePod(name="a-worker-1", uid="...")), events=(...), wake_at=1700000000.0)
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from ebb.api.halving import Siblings
from ebb.api.platform import Platform
from ebb.api.spec import Job
from ebb.api.status import GpuUse, HistoryEntry, Progress, Status
from ebb.controller.reconciler.capacity import ClusterCapacity, Share, Supply
from ebb.controller.reconciler.worker_state import Crash, Outcome, Worker, WorkerVerdict, judge, leave_at

Object = dict[str, Any]


@dataclass(frozen=True)
class CreatePod:
    """Create the pod, unless it exists already."""

    body: Object


@dataclass(frozen=True)
class CreateService:
    """Create the Service, unless it exists already."""

    body: Object


@dataclass(frozen=True, kw_only=True)
class CreateRun:
    """Create the folder in an older etcd that torch's own rendezvous will use, before any pod that does, unless it
    exists already."""

    endpoint: str
    folder: str


@dataclass(frozen=True, kw_only=True)
class DeletePod:
    """Delete exactly this pod, unless it is gone already. grace_seconds None: the pod's own; 0: its machine is dead.
    `once_written`: only when the status says why, or a controller that finds the pod gone could not know it."""

    name: str
    uid: str
    grace_seconds: int | None = None
    once_written: bool = False


@dataclass(frozen=True, kw_only=True)
class DeleteService:
    """Delete exactly this Service."""

    name: str
    uid: str


@dataclass(frozen=True)
class CreateRecord:
    """Create the record of a deleted job and its cost, a ConfigMap. It is not created twice."""

    body: Object


@dataclass(frozen=True)
class CreateWorkload:
    """Create the Workload by which Kueue knows the job, unless it exists already."""

    body: Object


@dataclass(frozen=True)
class ReplaceWorkload:
    """Write metadata and spec of the Workload, of exactly this version."""

    body: Object


@dataclass(frozen=True)
class WriteWorkloadStatus:
    """Write the status of the Workload, of exactly this version."""

    body: Object


@dataclass(frozen=True, kw_only=True)
class DeleteWorkload:
    """Delete exactly this Workload, and so give its quota back."""

    name: str
    uid: str


@dataclass(frozen=True)
class DeleteJob:
    """Delete the job itself, and by its ownership all that is left of it."""


OfWorkload = CreateWorkload | ReplaceWorkload | WriteWorkloadStatus | DeleteWorkload
Action = CreatePod | CreateRun | CreateService | CreateRecord | DeletePod | DeleteService | DeleteJob | OfWorkload


@dataclass(frozen=True)
class Event:
    """A line for `kubectl describe`; `warning` if somebody may have to act."""

    reason: str
    message: str
    warning: bool = False


@dataclass(frozen=True, kw_only=True)
class Kueue:
    """Kueue's objects, of a job that names a queue of Kueue's. `known`: the controller can see them."""

    known: bool = False
    workload: Object | None = None
    flavors: Mapping[str, Object] = field(default_factory=dict)
    priorities: Mapping[str, int] = field(default_factory=dict)  # WorkloadPriorityClass -> its value


@dataclass(frozen=True, kw_only=True)
class Admission:
    """Kueue's answer to a job, or that of its team's quota. `wait`: reason and sentence why it may have no workers now; else it
    may have `most`, None: as many as it wants."""

    wait: tuple[str, str] | None = None
    most: int | None = None
    unknown: bool = False  # the controller cannot see Kueue's objects, and the job has workers: nothing may be changed
    cluster_queue: str = ""
    selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Object, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Observed:
    """The cluster around one job, read once."""

    pods: tuple[Object, ...] = ()  # owned by the job, by UID
    services: tuple[Object, ...] = ()
    copies: tuple[Object, ...] = ()  # pods of the job that copy its data
    taken: frozenset[str] = frozenset()  # names of workers that pods of somebody else hold
    nodes: Mapping[str, Object] = field(default_factory=dict)
    gone: frozenset[str] = frozenset()  # nodes that the API server was asked about and does not have
    silent: frozenset[str] = frozenset()  # nodes whose Lease the controller has not seen renewed for too long
    answering: frozenset[str] = frozenset()  # nodes that look lost, but of which the job's worker answers
    unready: Mapping[str, float] = field(default_factory=dict)  # nodes that are not ready: seconds since the controller saw it
    shunned: frozenset[str] = frozenset()  # nodes of the cluster that no new worker shall go to: silent, or on their way out
    doubt: str = ""  # why silence proves nothing now, so that no worker may be deleted with force for it; "": it does
    platform: Platform | None = None  # None: a cluster that no stack of ours describes
    platform_problem: str = ""
    cluster_capacity: ClusterCapacity = field(default_factory=ClusterCapacity)
    share: Share = (0.0, 0.0)  # by which the job takes its turn
    supply: Supply = field(default_factory=Supply)
    priorities: Mapping[str, int] = field(default_factory=dict)  # PriorityClass -> its value
    progress: Progress | None = None
    gpus: tuple[GpuUse, ...] = ()  # of the workers that run, as far as they were read
    crashes: Mapping[str, Crash] = field(default_factory=dict)  # pod's uid -> its program's end, where the launcher holds it
    kueue: Kueue = field(default_factory=Kueue)
    siblings: Siblings = field(default_factory=Siblings)  # the other runs of its sweep
    spent: float | None = 0.0  # USD that the jobs of its namespace have cost in this month; None: not known yet


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Do the actions, then write the status if it changed, then do what waits for that, then send the events; look again at
    `wake_at` (unix seconds)."""

    status: Status
    actions: tuple[Action, ...] = ()
    events: tuple[Event, ...] = ()
    happened: tuple[HistoryEntry, ...] = ()  # what is new in the status's history, all of it
    num_again: int = 0  # of what happened and is told: those that the next look finds again, if this status is not written
    wake_at: float | None = None

    @property
    def can_wait(self) -> bool:
        """Return whether all that happened and is told is found again: it follows from the written status and what is there."""
        return self.num_again == len(self.happened) + len(self.events)

    @property
    def at_once(self) -> tuple[Action, ...]:
        """Actions that may be done before the status is written."""
        return tuple(action for action in self.actions if not (isinstance(action, DeletePod) and action.once_written))

    @property
    def once_written(self) -> tuple[Action, ...]:
        """Actions that may be done only then."""
        return tuple(action for action in self.actions if isinstance(action, DeletePod) and action.once_written)


@dataclass(frozen=True, kw_only=True)
class JobView:
    """One job with everything observed about it, every worker judged."""

    job: Job
    observed: Observed
    now: float
    workers: tuple[tuple[Worker, WorkerVerdict], ...]
    admission: Admission = Admission()

    @classmethod
    def of(cls, job: Job, observed: Observed, now: float, admission: Admission = Admission()) -> "JobView":
        workers = sorted((Worker.of(pod) for pod in observed.pods), key=lambda worker: worker.index)
        view = cls(job=job, observed=observed, now=now, workers=(), admission=admission)
        # One whose workers serve no metrics has no other sign of life than its machine's Lease, nor other proof of its end.
        mute = observed.progress is None and job.status.progress is None
        judged = []
        for worker in workers:
            overdue = worker.overdue_at is not None and now >= worker.overdue_at
            leaves_at = view.leaves_at(worker)
            verdict = judge(
                worker,
                observed.nodes.get(worker.node),
                observed.unready.get(worker.node, 0.0),
                node_gone=worker.node in observed.gone,
                silent=worker.node in observed.silent,
                unconfirmed=mute and not overdue,
                doubt=bool(observed.doubt) or worker.node in observed.answering,
                too_old=leaves_at is not None and now >= leaves_at,
            )
            crash = observed.crashes.get(worker.uid)
            judged.append(crash.judge(worker, verdict) if crash else (worker, verdict))
        return replace(view, workers=tuple(judged))

    @property
    def wanted(self) -> int:
        """Workers wanted now, as far as Kueue lets the job have them."""
        if self.job.automatic and self.job.status.target is not None:
            return min(max(self.job.status.target, self.job.min_replicas), self.most)
        return min(self.job.worker.replicas, self.most)

    @property
    def most(self) -> int:
        """Workers that there may be at all."""
        return min(self.job.max_replicas, self.admission.most or self.job.max_replicas)

    @cached_property
    def placed(self) -> frozenset[str]:
        """UIDs of the pods of which the written status says that they had a machine."""
        return frozenset(member.uid for member in self.job.status.members if member.node)

    def trains(self, status: Status) -> bool:
        """Return whether minReplicas workers run or have finished."""
        return len(self.running) + self.finished(status) >= self.job.min_replicas

    def finished(self, status: Status) -> int:
        """Workers that are wanted and have finished: what was scaled away does not count for the others."""
        return sum(1 for index in status.succeeded_indices if index < self.wanted)

    def leaves_at(self, worker: Worker) -> float | None:
        """The time at which it leaves its machine by plan, before that is too old; None: never."""
        node = self.observed.nodes.get(worker.node)
        return leave_at(node, self.observed.platform, index=worker.index, workers=self.wanted) if node else None

    @property
    def running(self) -> tuple[Worker, ...]:
        """Workers that train, or could."""
        return tuple(worker for worker, verdict in self.workers if verdict.outcome is Outcome.LIVES and worker.started)


class PlanBuilder:
    """A plan in the making: the planner's stages add to it. Never leaves reconcile.plan."""

    def __init__(self, status: Status) -> None:
        self.status = status
        self.actions: list[Action] = []
        self.events: list[Event] = []
        self.happened: list[HistoryEntry] = []
        self.wakes: list[float] = []
        self._again = 0  # of what happened and of what is told
        self._deleted: set[str] = set()  # UIDs
        self._settled: dict[str, str] = {}  # pod's UID -> why it is stopped

    def delete(self, worker: Worker, grace_seconds: int | None = None, *, once_written: bool = False) -> None:
        """Ask for a pod's deletion, once per plan."""
        if worker.uid not in self._deleted:
            self._deleted.add(worker.uid)
            action = DeletePod(name=worker.name, uid=worker.uid, grace_seconds=grace_seconds, once_written=once_written)
            self.actions.append(action)

    def settle(self, uid: str, why: str) -> None:
        """Whatever becomes of this pod is not counted, if nothing was yet."""
        self._settled.setdefault(uid, why)

    def event(self, reason: str, message: str, *, warning: bool = False, again: bool = False) -> None:
        """`again`: see Plan.num_again."""
        self.events.append(Event(reason, message, warning))
        self._again += again

    def remember(self, entry: HistoryEntry, *, again: bool = False) -> None:
        """Write something into the job's history."""
        self.happened.append(entry)
        self.status = self.status.with_history(entry)
        self._again += again

    def plan(self) -> Plan:
        if self._settled:
            members = (
                item if item.settled or item.uid not in self._settled else replace(item, settled=self._settled[item.uid])
                for item in self.status.members
            )
            self.status = replace(self.status, members=tuple(members))
        return Plan(
            status=self.status,
            num_again=self._again,
            actions=tuple(self.actions),
            events=tuple(self.events),
            happened=tuple(self.happened),
            wake_at=min(self.wakes, default=None),
        )
