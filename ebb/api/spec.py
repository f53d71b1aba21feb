"""The ElasticJob as its author writes it: fields, defaults, rules. crd.py turns this file and parts.py into manifests/crd.yaml.

    job = Job.of(json_object)      # as read from the API server

elastic.pytorch.org/v1alpha1 is upstream's (github.com/pytorch/elastic): its fields keep their meaning where it had one, and say
here what happens where it had none. What the controller writes is in status.py; what pods look like, in pods.py.

    SpecError      no pods are made of the object, although an API server accepted it (an old CRD, a cluster without our admission
                   policy): the message says what to change
"""
# ruff: noqa: RUF009 - described() is dataclasses.field() with a meaning

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from ebb.api.clock import unix
from ebb.api.contract import (
    ANNOTATION_BILLED,
    ANNOTATION_OWNER,
    BACKEND_ETCD,
    BACKEND_ETCD3,
    LABEL_QUEUE,
    LABEL_QUEUE_PRIORITY,
    LABEL_USER,
    MANAGER,
)
from ebb.api.parts import (
    ALL_WORKERS,
    ANY_WORKER,
    AUTOMATIC,
    BACKOFF_LIMIT,
    CLEAN_ALL,
    CLEAN_NONE,
    CLEAN_RUNNING,
    LEAST_BURN_IN_SECONDS,
    LEAST_HOLD_SECONDS,
    MANUAL,
    MOST_BURN_IN_SECONDS,
    MOST_HOLD_SECONDS,
    MOST_WORKERS,
    RESTART_IN_PLACE,
    Budget,
    Data,
    FailurePolicy,
    Group,
    Placement,
    ProgressPolicy,
    ReplicaSpecs,
    SchedulingPolicy,
    WorkerSpec,
)
from ebb.api.schema import FLAG, TEXT, TIME, Schema, count, decode, described, one_of
from ebb.api.shape import misshapen
from ebb.api.status import Status
from ebb.api.template import refusal

Object = dict[str, Any]

# No worker runs, or is to: the job is suspended or held, or has no pods. Rules with it are of the whole object, as only those see
# its status.
_STOPPED = (
    "(has(self.spec.suspend) && self.spec.suspend) || (has(oldSelf.spec.suspend) && oldSelf.spec.suspend)"
    " || !has(oldSelf.status) || !has(oldSelf.status.replicas) || oldSelf.status.replicas == 0 || has(oldSelf.status.hold)"
)


def _rule(rule: str, message: str, expression: str | None = None) -> Schema:
    """A CEL rule; `expression` computes a message with the values in it, `message` stands in where it cannot."""
    return {"rule": rule, "message": message, **({"messageExpression": expression} if expression else {})}


def _fixed(field: str) -> Schema:
    """A field that only a job without workers may change, because running ones were started with it."""
    new, old = f"self.spec.{field}", f"oldSelf.spec.{field}"
    return _rule(
        f"{_STOPPED} || (has({new}) == has({old}) && (!has({new}) || {new} == {old}))",
        f"spec.{field} cannot change while workers run, as they were started with it: set spec.suspend to true first.",
    )


FIXED_RULES: tuple[Schema, ...] = (
    *map(
        _fixed,
        (
            "minReplicas",
            "maxReplicas",
            "rdzvBackend",
            "rdzvEndpoint",
            "nprocPerNode",
            "data",
            "replicaSpecs.Worker.template",
            "holdOnFailureSeconds",
            "burnInSeconds",
        ),
    ),
    # A missing bound is Worker.replicas, and launchers that were told different bounds do not agree on a rendezvous.
    _rule(
        f"{_STOPPED} || (has(self.spec.minReplicas) && has(self.spec.maxReplicas))"
        " || self.spec.replicaSpecs.Worker.replicas == oldSelf.spec.replicaSpecs.Worker.replicas",
        "spec.replicaSpecs.Worker.replicas cannot change while workers run, as it stands for the missing spec.minReplicas or "
        "spec.maxReplicas too: set spec.suspend to true first, or give both when you submit a job that is to be scaled.",
    ),
)


class SpecError(ValueError):
    """See the module's docstring."""


@dataclass(frozen=True, kw_only=True)
class JobSpec:
    """spec. The run policy is inline, as upstream."""

    RULES: ClassVar[tuple[Schema, ...]] = (
        _rule(
            "!has(self.minReplicas) || self.minReplicas <= self.replicaSpecs.Worker.replicas",
            "spec.replicaSpecs.Worker.replicas is below spec.minReplicas: ask for more workers or lower minReplicas.",
            "'spec.replicaSpecs.Worker.replicas is %d, below spec.minReplicas %d: ask for more workers or lower minReplicas.'"
            ".format([self.replicaSpecs.Worker.replicas, self.minReplicas])",
        ),
        _rule(
            "!has(self.maxReplicas) || self.replicaSpecs.Worker.replicas <= self.maxReplicas",
            "spec.replicaSpecs.Worker.replicas is above spec.maxReplicas: ask for fewer workers or raise maxReplicas.",
            "'spec.replicaSpecs.Worker.replicas is %d, above spec.maxReplicas %d: ask for fewer workers or raise maxReplicas.'"
            ".format([self.replicaSpecs.Worker.replicas, self.maxReplicas])",
        ),
        _rule(
            "!has(self.minReplicas) || !has(self.maxReplicas) || self.minReplicas <= self.maxReplicas",
            "spec.minReplicas is above spec.maxReplicas: swap them, or set both to the size that you want.",
            "'spec.minReplicas is %d, above spec.maxReplicas %d: swap them, or set both to the size that you want.'"
            ".format([self.minReplicas, self.maxReplicas])",
        ),
    )

    rdzv_endpoint: str = described(
        "host:port of the etcd where the workers meet, for example etcd-service:2379.", {"type": "string", "minLength": 1}
    )
    rdzv_backend: str | None = described(
        "How they meet: etcd3, Ebb's own rendezvous, for images with Ebb's trainer package; etcd, torch's older one, for other "
        "images, on a stack with ebb:legacyRendezvous, whose etcd 3.5 is then used in place of the stack's. Default: etcd3; on "
        "such a stack etcd for images that are not the stack's own. A --rdzv_backend in the template's args counts before this.",
        one_of(BACKEND_ETCD3, BACKEND_ETCD),
        default=None,
    )
    replica_specs: ReplicaSpecs = described("How many workers, and what each of them runs.", model=ReplicaSpecs)
    min_replicas: int | None = described(
        "Training runs with at least this many workers, and waits below; default: Worker.replicas.",
        count(1, MOST_WORKERS),
        default=None,
    )
    max_replicas: int | None = described(
        "Never more worker pods than this, those on their way out included; default: Worker.replicas.",
        count(1, MOST_WORKERS),
        default=None,
    )
    clean_pod_policy: str = described(
        "Which pods are deleted when the job ends: Running (default) stops those that run and keeps the logs of the others; All; "
        "None leaves even running ones, which go on costing money.",
        one_of(CLEAN_ALL, CLEAN_RUNNING, CLEAN_NONE),
        default=CLEAN_RUNNING,
    )
    ttl_seconds_after_finished: int | None = described(
        "The job is deleted, with its pods, this many seconds after its end; absent: it stays.", count(), default=None
    )
    active_deadline_seconds: int | None = described(
        "The job fails this many seconds after its first worker was created; suspending it starts the clock anew.",
        count(1),
        default=None,
    )
    backoff_limit: int = described(
        f"How many failures of the program are tolerated (default {BACKOFF_LIMIT}); workers that fail together count once, "
        "reclaims never.",
        count(),
        default=BACKOFF_LIMIT,
    )
    scheduling_policy: SchedulingPolicy | None = described(
        "Accepted for upstream's job files.", model=SchedulingPolicy, default=None
    )
    suspend: bool = described(
        "True stops all workers, within their grace, and gives their machines back; false goes on from the last checkpoint.",
        FLAG,
        default=False,
    )
    managed_by: str = described(
        f"Who runs this job; anything but {MANAGER} makes Ebb's controller leave it alone entirely.",
        {
            "type": "string",
            "x-kubernetes-validations": [_rule("self == oldSelf", "spec.managedBy cannot change: create the job anew.")],
        },
        default=MANAGER,
    )
    nproc_per_node: int | None = described(
        "Training processes per worker; default: the worker's GPUs, or what the launcher does without any.",
        count(1),
        default=None,
    )
    placement: Placement = described("On which machines the workers run.", model=Placement, factory=Placement)
    priority_class_name: str | None = described(
        "PriorityClass of the first minReplicas workers, where the template names none; jobs wait in the order of its value, "
        "and one of lower value stops, with a checkpoint, for one that cannot start otherwise. Workers beyond minReplicas get a "
        "lower one.",
        TEXT,
        default=None,
    )
    scaling: str = described(
        "manual (default): Worker.replicas workers are wanted. automatic: as many as there is room for, from minReplicas to "
        "maxReplicas; Worker.replicas is then where it starts.",
        one_of(MANUAL, AUTOMATIC),
        default=MANUAL,
    )
    success_policy: str = described(
        "AnyWorker (default): the first worker that exits with 0 ends the training, after a grace for the others. AllWorkers: "
        "all of them must, as upstream.",
        one_of(ANY_WORKER, ALL_WORKERS),
        default=ANY_WORKER,
    )
    deadline: str | None = described(
        "At this time the job is stopped, with a checkpoint; a later one lets it go on.", TIME, default=None
    )
    budget: Budget | None = described("What the job may cost.", model=Budget, default=None)
    data: Data | None = described(
        "A bucket that is copied onto a shared volume, once, before the job asks for machines. Credentials are the variables "
        "AWS_*, GOOGLE_* and AZURE_* of the training container.",
        model=Data,
        default=None,
    )
    group: Group | None = described("The sweep that this job belongs to.", model=Group, default=None)
    failure_policy: FailurePolicy | None = described(
        "Rules about failures of the program; without one, restartPolicy and backoffLimit say what happens.",
        model=FailurePolicy,
        default=None,
    )
    hold_on_failure_seconds: int | None = described(
        "Where the program fails, in place of the next try or the end: the job stops, and the machine of the worker that failed "
        "is held for so long, to look into it with `ebb exec`. It costs money meanwhile; budget, deadlines and a reclaim end it. "
        "Afterwards the job stays stopped, and any change of the spec lets it try again. Failures that failurePolicy ignores are "
        "not held. For images with Ebb's trainer package.",
        count(LEAST_HOLD_SECONDS, MOST_HOLD_SECONDS),
        default=None,
    )
    burn_in_seconds: int | None = described(
        "Before a machine begins work, its launcher tests the memory, the matrix products and the copies of its GPUs, and the "
        "links between them, for so long. A broken machine is replaced by another one and spends no try; the job goes there no "
        "more. Once for each machine of the job. For images with Ebb's trainer package.",
        count(LEAST_BURN_IN_SECONDS, MOST_BURN_IN_SECONDS),
        default=None,
    )
    progress: ProgressPolicy = described(
        "When a job that makes no steps is stopped.", model=ProgressPolicy, factory=ProgressPolicy
    )


@dataclass(frozen=True, kw_only=True)
class Job:
    """An ElasticJob as read, with the defaults of the spec filled in."""

    name: str
    namespace: str
    uid: str
    generation: int
    created: float  # unix seconds
    deleting: bool
    spec: JobSpec
    status: Status
    submitted_by: str = ""  # who is named in the record of what it cost
    owner: str = ""  # the user as the API server knows them; "" outside of teams' namespaces
    queue: str = ""  # of Kueue: that decides when the job may have machines; "": the controller's own queue does
    queue_priority: str = ""  # Kueue's class of priority
    admitted_worker: WorkerSpec | None = None  # with what Kueue adds to it; None: as the author wrote it

    @classmethod
    def of(cls, value: Mapping[str, Any]) -> "Job":
        """Raises SpecError for a spec that breaks the rules above; `metadata` must be the API server's."""
        metadata = value["metadata"]
        labels = metadata.get("labels") or {}
        return cls(
            name=metadata["name"],
            namespace=metadata["namespace"],
            uid=metadata["uid"],
            generation=metadata.get("generation", 1),
            created=unix(metadata.get("creationTimestamp")) or 0.0,
            deleting="deletionTimestamp" in metadata,
            spec=parse_spec(value.get("spec") or {}),
            status=decode(Status, value.get("status") or {}),
            submitted_by=user_of(metadata),
            owner=str((metadata.get("annotations") or {}).get(ANNOTATION_OWNER, "")),
            queue=str(labels.get(LABEL_QUEUE, "")),
            queue_priority=str(labels.get(LABEL_QUEUE_PRIORITY, "")),
        )

    @property
    def worker(self) -> WorkerSpec:
        return self.admitted_worker or self.spec.replica_specs.worker

    @property
    def min_replicas(self) -> int:
        return self.spec.min_replicas or self.worker.replicas

    @property
    def max_replicas(self) -> int:
        return self.spec.max_replicas or self.worker.replicas

    @property
    def automatic(self) -> bool:
        """Return whether the controller chooses how many workers are wanted."""
        return self.spec.scaling == AUTOMATIC

    @property
    def short_uid(self) -> str:
        """Eight characters that tell this job from an earlier one of the same name."""
        return self.uid[:8]


def user_of(metadata: Mapping[str, Any]) -> str:
    """The user who is to pay: the owner, where the job has one, as the API server demands the truth of that. Else by annotation,
    which may hold a mail address, or by label; else the user who ran `ebb`. Nobody checks any of these."""
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    if owner := annotations.get(ANNOTATION_OWNER):
        return str(owner)
    written = {**labels, **annotations}
    return str(written.get(ANNOTATION_BILLED) or labels.get(LABEL_USER, ""))


def parse_spec(value: Mapping[str, Any]) -> JobSpec:
    """Raises SpecError."""
    try:
        spec = decode(JobSpec, value)
    except KeyError as error:
        raise SpecError(f"spec: {error.args[0]!r} is missing: add it and apply the job again.") from error
    problem = _problem(spec) if spec.managed_by == MANAGER else ""  # what others run is theirs to judge
    if problem:
        raise SpecError(problem)
    return spec


def _problem(spec: JobSpec) -> str:
    """The reason why no pods can be made of it; "" if they can."""
    worker = spec.replica_specs.worker
    low, high = spec.min_replicas or worker.replicas, spec.max_replicas or worker.replicas
    if not 1 <= low <= worker.replicas <= high <= MOST_WORKERS:
        return (
            f"spec: minReplicas {low}, Worker.replicas {worker.replicas} and maxReplicas {high} must not fall: "
            f"change them so that 1 <= minReplicas <= replicas <= maxReplicas <= {MOST_WORKERS}."
        )
    problem = misshapen(worker.template, "spec.replicaSpecs.Worker.template") or _never(spec.deadline)
    for index, rule in enumerate(spec.failure_policy.rules if spec.failure_policy else ()):
        if not (rule.on_exit_codes or rule.on_reasons or rule.on_message):
            problem = problem or (
                f"spec.failurePolicy.rules[{index}] has to say what it is for: give onExitCodes, onReasons or onMessage."
            )
        if rule.action == RESTART_IN_PLACE and rule.on_reasons:
            problem = problem or (
                f"spec.failurePolicy.rules[{index}]: RestartInPlace is done inside the worker, which knows no onReasons: give "
                "onExitCodes or onMessage."
            )
    if problem:
        return problem
    if not ((worker.template.get("spec") or {}).get("containers")):
        return "spec.replicaSpecs.Worker.template.spec.containers is empty: name the image to run."
    return refusal(worker.template, spec.priority_class_name)


def _never(deadline: str | None) -> str:
    """The API server takes times that no calendar has, such as the year 0 or an offset of 99 hours."""
    try:
        unix(deadline)
    except ValueError:
        return f"spec.deadline {deadline!r} is no time: write it like 2026-11-21T07:00:00Z."
    return ""
