"""The ElasticJob as the controller reports it: `kubectl get -o yaml`, the printer columns and the CLI read this.

    status = replace(job.status, state=RUNNING).with_condition(RUNNING, True, REASON_RUNNING, "3 of 3 workers run.", now)

Everything that the planner must remember is here too (members, restarts, time stamps), so that a controller that was killed loses
nothing. Immutable: every change is a new Status.
"""
# ruff: noqa: RUF009 - described() is dataclasses.field() with a meaning

from dataclasses import dataclass, replace

from ebb.api.clock import stamp
from ebb.api.contract import CREATED, DATA_READY, FAILED, RESTARTING, RUNNING, STALLED, SUCCEEDED, SUSPENDED, WAITING
from ebb.api.schema import FLAG, NUMBER, TEXT, TIME, Schema, count, described, one_of

HISTORY_LENGTH = 20  # enough for a day of spot machines; the object must stay small, as it is written often
TEXTS: Schema = {"type": "array", "items": {"type": "string"}}
INDICES: Schema = {"type": "array", "items": {"type": "integer", "format": "int32"}}

RECLAIMED, LEFT, PROGRAM_FAILED, PLACED, STALL, HELD, ENDED = "reclaimed", "left", "failed", "placed", "stalled", "held", "ended"


@dataclass(frozen=True, kw_only=True)
class Condition:
    """One of status.conditions."""

    type: str = described(
        "What this is about.", one_of(CREATED, RUNNING, RESTARTING, SUSPENDED, STALLED, DATA_READY, SUCCEEDED, FAILED)
    )
    status: str = described("Whether it is so.", one_of("True", "False", "Unknown"))
    reason: str = described("Why, in one word for programs.", TEXT, default="")
    message: str = described("Why, in a sentence for people.", TEXT, default="")
    last_update_time: str | None = described("When anything in this condition last changed.", TIME, default=None)
    last_transition_time: str | None = described("When its status last changed.", TIME, default=None)


@dataclass(frozen=True, kw_only=True)
class ReplicaStatus:
    """Counts of workers."""

    active: int = described("Workers that run now.", count(), default=0)
    succeeded: int = described("Workers that finished.", count(), default=0)
    failed: int = described("Failures of the program so far; workers that failed together count once.", count(), default=0)


@dataclass(frozen=True, kw_only=True)
class ReplicaStatuses:
    """status.replicaStatuses."""

    worker: ReplicaStatus = described("The workers.", model=ReplicaStatus, factory=ReplicaStatus, json="Worker")


@dataclass(frozen=True, kw_only=True)
class Placed:
    """status.placement."""

    zone: str = described(
        "The zone of all workers; `any` when they may be spread; empty on a cluster without ebb-platform.", TEXT
    )
    capacity_type: str = described("spot or on-demand; both, when both fit.", TEXT, default="")
    gpu_type: str = described("The GPU of the chosen machines; empty for none.", TEXT, default="")
    network: str = described("The fast network between the workers, such as EFA; empty: TCP.", TEXT, default="")
    since: str | None = described("When this was chosen.", TIME, default=None)
    fallbacks: int = described("How often the job fell back to on-demand machines so far.", count(), default=0)
    on_loan: bool = described(
        "The machines are kept for jobs before this one, which cannot start yet: it gives them back when they can.",
        FLAG,
        default=False,
    )


@dataclass(frozen=True, kw_only=True)
class Progress:
    """status.progress, read from a worker's metrics every few seconds."""

    step: int = described("Optimizer steps done.", {"type": "integer", "format": "int64"}, default=0)
    total_steps: int | None = described("Steps in the whole training.", {"type": "integer", "format": "int64"}, default=None)
    epoch: int | None = described("The epoch being trained, from 0.", count(), default=None)
    loss: float | None = described("The latest loss.", NUMBER, default=None)
    world_size: int | None = described("Training processes in this generation.", count(), default=None)
    generation: int | None = described("The agreed membership, counted from the start.", count(), default=None)
    samples_per_second: float | None = described("Training speed of the whole job.", NUMBER, default=None)
    checkpoint_step: int | None = described(
        "The step of the newest checkpoint.", {"type": "integer", "format": "int64"}, default=None
    )
    useful_seconds: float | None = described(
        "Time in steps that count, over all generations; steps that are done again count once.", NUMBER, default=None
    )
    tracker: str | None = described(
        "Address of the run in the program's own experiment tracker, such as W&B.",
        {"type": "string", "maxLength": 500},
        default=None,
    )
    at: str | None = described("When these figures were read.", TIME, default=None)


MOST_GPUS = 64  # in the status, which is to stay small
IDLE_SECONDS = 600


@dataclass(frozen=True, kw_only=True)
class GpuUse:
    """One of status.gpus, as the launcher reads it from NVIDIA's management library."""

    worker: int = described("The index of the worker that has it.", count())
    gpu: int = described("Its number among those of that worker.", count())
    ranks: tuple[int, ...] = described("The training processes on it, taken to be those of that local rank.", INDICES, default=())
    utilization: int | None = described(
        "Percent of the last 30 s in which a kernel ran on it; absent where it does not tell, as under MIG.",
        count(0, 100),
        default=None,
    )
    memory_used_bytes: int | None = described("Memory in use.", {"type": "integer", "format": "int64"}, default=None)
    memory_total_bytes: int | None = described("Its memory.", {"type": "integer", "format": "int64"}, default=None)
    idle_seconds: int = described("For how long its utilization has been below 10 percent.", count(), default=0)

    @property
    def is_idle(self) -> bool:
        """Return whether people are warned of it."""
        return self.idle_seconds >= IDLE_SECONDS


@dataclass(frozen=True, kw_only=True)
class Cost:
    """status.cost: assumed prices, for the time from a worker's placement on a machine until its pod is gone."""

    usd_spent: float = described("US dollars until `at`.", NUMBER, default=0.0, json="usdSpent")
    usd_per_hour: float = described("US dollars per hour since `at`.", NUMBER, default=0.0, json="usdPerHour")
    usd_on_demand: float = described(
        "What the same machines would have cost on demand until `at`.", NUMBER, default=0.0, json="usdOnDemand"
    )
    usd_on_demand_per_hour: float = described("The same per hour since `at`.", NUMBER, default=0.0, json="usdOnDemandPerHour")
    machine_seconds: float = described("Machine time until `at`, in seconds of one machine.", NUMBER, default=0.0)
    useful_machine_seconds: float = described(
        "Machine time in steps that count, as far as progress was read: its share of machineSeconds is the job's goodput.",
        NUMBER,
        default=0.0,
    )
    machines: float = described("Machines held since `at`; a worker that shares one counts for its share.", NUMBER, default=0.0)
    at: str | None = described("Until when the sums count; add the rates for the time since.", TIME, default=None)


@dataclass(frozen=True, kw_only=True)
class HeldMachine:
    """status.hold.machine: where the program failed, kept for people to look into it (spec.holdOnFailureSeconds)."""

    worker: int = described("The index of the worker that failed.", count())
    uid: str = described("The UID of its pod.", TEXT)
    until: str = described("When it is given back.", TIME)


@dataclass(frozen=True, kw_only=True)
class Hold:
    """status.hold: the controller stopped the job; any change of the spec lets it try again."""

    reason: str = described("Why, in one word.", TEXT)
    message: str = described("Why, and what to do.", TEXT)
    generation: int = described("The generation of the spec that was stopped.", {"type": "integer"})
    at: str = described("When.", TIME)
    machine: HeldMachine | None = described(
        "The machine of the worker that failed, while it is held to look into it.", model=HeldMachine, default=None
    )


@dataclass(frozen=True, kw_only=True)
class Rung:
    """One of status.sweep.rungs."""

    step: int = described("The step at which runs are compared.", {"type": "integer", "format": "int64"})
    value: float | None = described("What the run had there; absent: no number, as after a divergence.", NUMBER, default=None)


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """status.sweep: the run among the others of its sweep (spec.group.halving)."""

    rungs: tuple[Rung, ...] = described("Where it was compared, and with what.", model=Rung, many=True, default=())
    promotions: int = described("Under asha: how often it went on after a pause, or without one.", count(), default=0)


@dataclass(frozen=True, kw_only=True)
class Quota:
    """status.quota: a ResourceQuota keeps the job below minReplicas."""

    since: str = described("Since when it refuses workers; or when the job last tried again.", TIME)
    generation: int = described("The generation of the spec whose workers it refuses.", {"type": "integer"})
    message: str = described("The API server's words; empty while the job tries again.", TEXT, default="")
    too_small: bool = described("Whether minReplicas is more than it allows at all.", FLAG, default=False)
    room: float | None = described(
        "What it leaves to the jobs of the namespace, of the resource in question.", NUMBER, default=None
    )
    at: str | None = described("When the job gave its workers back; absent: it has some.", TIME, default=None)
    times: int = described("How often in a row it gave them back.", count(), default=0)


@dataclass(frozen=True, kw_only=True)
class Preemption:
    """status.preemption: on a cluster without ebb-platform, the scheduler gave machines of the job to one of higher priority."""

    at: str = described("When the job let go of the rest.", TIME)
    taken: int = described("Workers that jobs of higher priority had then.", count(), default=0)
    times: int = described("How often in a row.", count(1), default=1)


@dataclass(frozen=True, kw_only=True)
class Stall:
    """status.stall: what the controller remembers to notice a job that pays for machines and trains nothing."""

    step: int | None = described("The highest step seen.", {"type": "integer", "format": "int64"}, default=None)
    step_at: str | None = described("When a step was last made, or the workers began to run.", TIME, default=None)
    generation: int | None = described("The newest generation seen.", count(), default=None)
    generations: int = described("New generations since that step.", count(), default=0)
    broken_at: str | None = described("Since when a container cannot start.", TIME, default=None)
    creating_at: str | None = described("Since when containers are being created.", TIME, default=None)
    restarts: int = described(
        "How often all workers were started again for this; the second time the job is held.", count(), default=0
    )


@dataclass(frozen=True, kw_only=True)
class Dry:
    """status.dry: where the job could not get machines."""

    zone: str = described("The zone.", TEXT)
    gpu_type: str = described("The GPU type.", TEXT, default="")
    capacity_type: str = described("spot or on-demand.", TEXT, default="")
    since: str = described("Since when.", TIME)
    at: str = described("When it was last so.", TIME)
    message: str = described("In the words of the cloud or the autoscaler.", TEXT, default="")


@dataclass(frozen=True, kw_only=True)
class Member:
    """A worker pod that the controller has seen: how it notices one that vanished, and counts each loss once."""

    index: int = described("The worker's index.", count())
    uid: str = described("The pod's UID.", TEXT)
    node: str = described("The machine that it was placed on; empty before that.", TEXT, default="")
    settled: str = described("Why it was lost or stopped, once that is counted; empty while it lives.", TEXT, default="")


@dataclass(frozen=True, kw_only=True)
class ShortLived:
    """status.shortLived: a worker that was lost soon after it came, time after time."""

    index: int = described("The worker's index.", count())
    times: int = described("How often in a row.", count(1))
    at: str = described("When it was last so.", TIME)
    node: str = described("On which machine.", TEXT, default="")
    message: str = described("Why.", TEXT, default="")


@dataclass(frozen=True, kw_only=True)
class RuleUse:
    """status.failureRules: how often a rule of spec.failurePolicy was used."""

    rule: int = described("Its place in the list, from 1.", count(1))
    times: int = described("How often.", count(1))


@dataclass(frozen=True, kw_only=True)
class HistoryEntry:
    """Something that happened to the job."""

    at: str = described("When the controller noticed.", TIME)
    what: str = described(
        "What happened; left: by plan, before the machine reached its maximum age.",
        one_of(RECLAIMED, LEFT, PROGRAM_FAILED, PLACED, STALL, HELD, ENDED),
    )
    worker: int | None = described("The worker's index, where it is about one.", count(), default=None)
    node: str | None = described("The machine.", TEXT, default=None)
    cause: str | None = described("Why.", TEXT, default=None)


@dataclass(frozen=True, kw_only=True)
class Status:
    """status."""

    state: str = described(
        "The job in one word; conditions say more.",
        one_of(WAITING, RUNNING, RESTARTING, SUSPENDED, SUCCEEDED, FAILED),
        default=WAITING,
    )
    ready: str = described("Workers that run, out of those wanted.", TEXT, default="")
    conditions: tuple[Condition, ...] = described("What is so, and why.", model=Condition, many=True, key="type", default=())
    replica_statuses: ReplicaStatuses = described("Counts of workers.", model=ReplicaStatuses, factory=ReplicaStatuses)
    start_time: str | None = described("When workers were first created; anew after a suspension.", TIME, default=None)
    completion_time: str | None = described("When the job succeeded or failed.", TIME, default=None)
    last_reconcile_time: str | None = described("When this status was written.", TIME, default=None)
    observed_generation: int | None = described(
        "The generation of the spec that this status is about.", {"type": "integer"}, default=None
    )
    replicas: int = described("Worker pods that exist, for the scale subresource.", count(), default=0)
    selector: str = described("Label selector of the worker pods, for the scale subresource.", TEXT, default="")
    placement: Placed | None = described("Where the workers run.", model=Placed, default=None)
    progress: Progress | None = described("How far the training is.", model=Progress, default=None)
    gpus: tuple[GpuUse, ...] = described(
        f"How busy and how full its GPUs are; of more than {MOST_GPUS} the least busy ones.", model=GpuUse, many=True, default=()
    )
    reclaims: int = described(
        "Workers lost because their machine was reclaimed or died; never counted against backoffLimit. Not those that left by "
        "plan, before their machine reached its maximum age.",
        count(),
        default=0,
    )
    failures: int = described("Failures of the program, counted against backoffLimit.", count(), default=0)
    restarts: int = described(
        "How often all workers were started again: after a failure of the program, for making no progress, with a changed spec.",
        count(),
        default=0,
    )
    last_failure_time: str | None = described("When the program last failed; the next start waits a little.", TIME, default=None)
    waiting_since: str | None = described("Since when fewer than minReplicas workers run.", TIME, default=None)
    turn_until: str | None = described(
        "Until when a job that is larger than its team's quota keeps what other teams lend it.", TIME, default=None
    )
    seconds_lost: float = described(
        "Time after the first start in which fewer than minReplicas workers ran, until waitingSince.", NUMBER, default=0.0
    )
    target: int | None = described("Workers wanted now, where scaling is automatic.", count(1), default=None)
    target_time: str | None = described("When the target last changed.", TIME, default=None)
    cost: Cost | None = described("What the machines cost.", model=Cost, default=None)
    budget_warned: float | None = described(
        "The spec.budget.maxUSD of which people were told that it is nearly spent.", NUMBER, default=None
    )
    hold: Hold | None = described("Why the controller stopped the job, if it did.", model=Hold, default=None)
    sweep: Sweep | None = described("How it compares with the other runs of its sweep.", model=Sweep, default=None)
    quota: Quota | None = described("The quota that keeps the job below minReplicas.", model=Quota, default=None)
    preemption: Preemption | None = described(
        "Why the job waits for jobs of higher priority, without ebb-platform.", model=Preemption, default=None
    )
    stall: Stall | None = described("The watch over the job's progress.", model=Stall, default=None)
    dry: tuple[Dry, ...] = described("Where machines could not be had lately.", model=Dry, many=True, default=())
    short_lived: tuple[ShortLived, ...] = described(
        "Workers that are lost as soon as they come; their replacements wait longer each time.",
        model=ShortLived,
        many=True,
        default=(),
    )
    failure_rules: tuple[RuleUse, ...] = described(
        "How often each rule of spec.failurePolicy was used.", model=RuleUse, many=True, default=()
    )
    notified: tuple[str, ...] = described(
        "Notifications that the stack's webhook took: the latest of each kind; the controller's memory.", TEXTS, default=()
    )
    recorded: bool = described("Whether the record of the ended job was written.", FLAG, default=False)
    first_success_time: str | None = described(
        "When the first worker finished; the others have a grace to do so too.", TIME, default=None
    )
    succeeded_indices: tuple[int, ...] = described("Workers that finished; they are never started again.", INDICES, default=())
    history: tuple[HistoryEntry, ...] = described(
        f"The last {HISTORY_LENGTH} events that shaped the job.", model=HistoryEntry, many=True, default=()
    )
    members: tuple[Member, ...] = described(
        "The worker pods as last seen; the controller's memory.", model=Member, many=True, default=()
    )

    def condition(self, kind: str) -> Condition | None:
        """The condition of that type, if it was ever set."""
        return next((condition for condition in self.conditions if condition.type == kind), None)

    def is_true(self, kind: str) -> bool:
        """Return whether the condition is set and True."""
        condition = self.condition(kind)
        return condition is not None and condition.status == "True"

    @property
    def ended(self) -> bool:
        """Succeeded or failed, for good."""
        return self.is_true(SUCCEEDED) or self.is_true(FAILED)

    def with_condition(self, kind: str, value: bool, reason: str, message: str, now: float) -> "Status":
        """Set a condition; times move only when something else does."""
        old, word = self.condition(kind), str(value)
        if old and (old.status, old.reason, old.message) == (word, reason, message):
            return self
        at = stamp(now)
        flipped = at if old is None or old.status != word else old.last_transition_time
        new = Condition(type=kind, status=word, reason=reason, message=message, last_update_time=at, last_transition_time=flipped)
        others = self.conditions if old is None else tuple(item for item in self.conditions if item is not old)
        position = self.conditions.index(old) if old else len(others)
        return replace(self, conditions=(*others[:position], new, *others[position:]))

    def with_history(self, entry: HistoryEntry) -> "Status":
        """Append to the history, forgetting the oldest."""
        return replace(self, history=(*self.history, entry)[-HISTORY_LENGTH:])
