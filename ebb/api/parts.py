"""The parts of an ElasticJob's spec, and the words that its fields may have. spec.py puts them together."""
# ruff: noqa: RUF009 - described() is dataclasses.field() with a meaning

from dataclasses import dataclass
from typing import Any, ClassVar

from ebb.api.schema import OPAQUE, TEXT, Schema, count, described, one_of

Object = dict[str, Any]

BACKOFF_LIMIT = 3  # Kubernetes' Job has 6, for pods that cost little; three starts of a GPU group show whether a crash is chance
ALWAYS, ON_FAILURE, NEVER, EXIT_CODE = "Always", "OnFailure", "Never", "ExitCode"
CLEAN_ALL, CLEAN_RUNNING, CLEAN_NONE = "All", "Running", "None"
SINGLE, ANY = "single", "any"
SPOT, ON_DEMAND, CAPACITY_BLOCK, FLEX_START = "spot", "on-demand", "capacity-block", "flex-start"
SPOT_THEN_ON_DEMAND = "spot-then-on-demand"
FALLBACK_SECONDS = 600  # a spot machine that is to be had comes within minutes (cluster-autoscaler gives up after 15)
MANUAL, AUTOMATIC = "manual", "automatic"
RESTART_JOB, RESTART_WORKER, IGNORE, FAIL_JOB, HOLD_JOB = "RestartJob", "RestartWorker", "Ignore", "FailJob", "HoldJob"
RESTART_IN_PLACE, IN_PLACE_TIMES = "RestartInPlace", 3  # so often in each pod, where the rule does not say
ANY_WORKER, ALL_WORKERS = "AnyWorker", "AllWorkers"
MOST_WORKERS = 1000  # of one job: status.members names each, and an object of the API may have 1.5 MB


@dataclass(frozen=True, kw_only=True)
class WorkerSpec:
    """spec.replicaSpecs.Worker."""

    replicas: int = described(
        "How many workers are wanted now, between minReplicas and maxReplicas; where spec gives both, `kubectl scale` changes it "
        "while the job runs.",
        count(1, MOST_WORKERS),
    )
    template: Object = described(
        "The worker's pod. The image must start a torchrun-compatible launcher. Only a job without workers may change it.",
        OPAQUE,
    )
    restart_policy: str = described(
        "What a failure of the program does: OnFailure (default) and Always start the workers again until backoffLimit is spent; "
        "ExitCode does so only for 130, 137, 138 and 143; Never fails the job. Under all of them workers lost to a reclaim are "
        "replaced, and one that exits with 0 is done. Restarts are new pods: the template's own restartPolicy does not count.",
        one_of(ALWAYS, ON_FAILURE, NEVER, EXIT_CODE),
        default=ON_FAILURE,
    )


@dataclass(frozen=True, kw_only=True)
class ReplicaSpecs:
    """spec.replicaSpecs."""

    worker: WorkerSpec = described("The workers, all alike.", model=WorkerSpec, json="Worker")
    etcd: Object | None = described(
        "Declared upstream, and ignored there as here: spec.rdzvEndpoint names the etcd to use.",
        OPAQUE,
        default=None,
        json="Etcd",
    )


@dataclass(frozen=True, kw_only=True)
class Placement:
    """spec.placement."""

    RULES: ClassVar[tuple[Schema, ...]] = (
        {
            "rule": "!has(self.fallbackAfterSeconds) || (has(self.capacity) && self.capacity == 'spot-then-on-demand')",
            "message": "spec.placement.fallbackAfterSeconds needs capacity spot-then-on-demand: set that, or leave it out.",
        },
    )

    gpu_type: str | None = described(
        "Only machines with this GPU, as the node groups spell it, for example T4.", TEXT, default=None
    )
    zone: str = described(
        "A zone's name; `single` (default): one zone for all workers, chosen by the controller; `any`: workers may be spread.",
        TEXT,
        default=SINGLE,
    )
    capacity: str | None = described(
        "Only machines that are bought like this; the cheapest that fit where this is absent. spot-then-on-demand: on-demand "
        "machines when spot ones cannot be had for fallbackAfterSeconds, and back to spot at a checkpoint when they can.",
        one_of(SPOT, ON_DEMAND, CAPACITY_BLOCK, FLEX_START, SPOT_THEN_ON_DEMAND),
        default=None,
    )
    fallback_after_seconds: int | None = described(
        "How long spot-then-on-demand waits below minReplicas before it falls back. Default: as long as `deadline` permits at "
        f"the speed so far, after which on-demand machines train the rest; without a deadline or figures, {FALLBACK_SECONDS}.",
        count(),
        default=None,
    )


@dataclass(frozen=True, kw_only=True)
class SchedulingPolicy:
    """spec.schedulingPolicy."""

    min_available: int | None = described(
        "Ignored, as upstream: minReplicas is the size that a job needs.", count(), default=None
    )


LEAST_HOLD_SECONDS, MOST_HOLD_SECONDS = 60, 14400  # 4 hours: a machine that is held costs as one that trains
# A GPU's memory, each precision and each link get a few seconds of the first; the last is what operators run over lunch.
LEAST_BURN_IN_SECONDS, MOST_BURN_IN_SECONDS = 10, 3600


@dataclass(frozen=True, kw_only=True)
class Budget:
    """spec.budget."""

    max_usd: float = described(
        "The job is stopped, with a checkpoint, before its machines have cost more than this; raise it to go on.",
        {"type": "number", "exclusiveMinimum": True, "minimum": 0},
        json="maxUSD",
    )


@dataclass(frozen=True, kw_only=True)
class Data:
    """spec.data."""

    url: str = described(
        "The bucket and the folder in it: s3://bucket/folder, gs://bucket/folder or az://container/folder.",
        {"type": "string", "pattern": "^(s3|gs|az)://[a-z0-9].*$", "maxLength": 1024},
    )
    path: str = described(
        "The folder for the copy, on one of the stack's volumes; a copy of the same bucket that is there is used as it is.",
        {"type": "string", "pattern": "^/.+", "maxLength": 1024},
    )


STOP_WORST, ASHA = "stop-worst", "asha"


@dataclass(frozen=True, kw_only=True)
class Halving:
    """spec.group.halving."""

    algorithm: str = described(
        "stop-worst: a run among the worst `fraction` of those that got as far is stopped. asha: each run pauses at its rung, "
        "and the best of every `factor` runs that came there go on to the next.",
        one_of(STOP_WORST, ASHA),
    )
    after: int = described(
        "The step of the first rung; each further rung is at `factor` times as many.",
        {"type": "integer", "format": "int64", "minimum": 1},
    )
    metric: str = described(
        "By which runs are compared: loss (the less the better) or samples_per_second (the more).",
        one_of("loss", "samples_per_second"),
        default="loss",
    )
    factor: int = described("How far rungs are apart (default 2).", count(2), default=2)
    fraction: float = described(
        "Under stop-worst the share of the runs that is stopped at each rung (default 0.5).",
        {"type": "number", "minimum": 0, "exclusiveMinimum": True, "maximum": 1, "exclusiveMaximum": True},
        default=0.5,
    )


@dataclass(frozen=True, kw_only=True)
class Group:
    """spec.group."""

    name: str = described("Jobs of one namespace with the same name here are one sweep.", {"type": "string", "minLength": 1})
    max_parallel: int | None = described(
        "At most this many jobs of the group run at once; the others wait in the order of their priority and age.",
        count(1),
        default=None,
    )
    halving: Halving | None = described(
        "Stop or pause runs that do worse than the others. A run without it is compared no more: that is how one that was "
        "stopped for this goes on.",
        model=Halving,
        default=None,
    )


@dataclass(frozen=True, kw_only=True)
class ProgressPolicy:
    """spec.progress."""

    stall_timeout_seconds: int | None = described(
        "A job that runs without a new step for this long is started again once, then stopped; absent: only a job that makes "
        "no step over several generations is.",
        count(1),
        default=None,
    )


@dataclass(frozen=True, kw_only=True)
class FailureRule:
    """One of spec.failurePolicy.rules."""

    RULES: ClassVar[tuple[Schema, ...]] = (
        {
            "rule": "has(self.onExitCodes) || has(self.onReasons) || has(self.onMessage)",
            "message": "a rule of spec.failurePolicy has to say what it is for: give onExitCodes, onReasons or onMessage.",
        },
        {
            "rule": "self.action != 'RestartInPlace' || !has(self.onReasons)",
            "message": "RestartInPlace is done inside the worker, which knows no onReasons: give onExitCodes or onMessage.",
        },
    )

    action: str = described(
        "RestartJob: all workers start again, which spends one of backoffLimit, whatever restartPolicy says. RestartWorker: only "
        "those that failed do, and it spends one too. Ignore: they are replaced as after a reclaim, with pauses where they fail "
        "at once, and nothing is spent. FailJob: the job fails. HoldJob: it is stopped, and any change of the spec lets it try "
        "again. RestartInPlace: the program starts again in the same worker, unless its machine is at fault; there is no new "
        "pod, and nothing is spent. For images with Ebb's trainer package; for others there is no such rule.",
        one_of(RESTART_JOB, RESTART_WORKER, IGNORE, FAIL_JOB, HOLD_JOB, RESTART_IN_PLACE),
    )
    on_exit_codes: tuple[int, ...] = described(
        "Exit codes of the worker's container; 128 and a signal's number for one that a signal ended (SIGSEGV: 139).",
        {"type": "array", "minItems": 1, "maxItems": 255, "items": count(1, 255)},
        default=(),
    )
    on_reasons: tuple[str, ...] = described(
        "Kubernetes' reasons for the end of the container or pod, for example OOMKilled or Evicted.",
        {"type": "array", "minItems": 1, "maxItems": 20, "items": {"type": "string", "minLength": 1}},
        default=(),
    )
    on_message: str | None = described(
        "Words that the end of the worker's log has, for example DataLoader worker; for RestartInPlace, that the program's "
        "exception has. Capitals count.",
        {"type": "string", "minLength": 1, "maxLength": 200},
        default=None,
    )
    times: int | None = described(
        f"The rule counts so often, RestartInPlace in each pod; after that the next one does. Default: without a limit, "
        f"RestartInPlace {IN_PLACE_TIMES}.",
        count(1),
        default=None,
    )


@dataclass(frozen=True, kw_only=True)
class FailurePolicy:
    """spec.failurePolicy."""

    rules: tuple[FailureRule, ...] = described(
        "The first rule that fits counts, for all workers that fail together by the one that failed first. Reclaims never come "
        "here.",
        model=FailureRule,
        many=True,
        most=20,
        default=(),
    )
