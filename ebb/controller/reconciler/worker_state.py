"""The outcome of a worker, judged before anything is counted: lives, leaves by plan, done, reclaimed, or failed.

    verdict = judge(Worker.of(pod), node, unready_seconds)

The order matters: whatever the machine or somebody outside did is looked at before the exit code, because a launcher that is
stopped by SIGTERM exits with 1, 143 or 138, and a killed machine reports no code at all. Where both may be so, it is a reclaim: a
program that is at fault fails again on its next machine, and is counted there. Two verdicts of the kubelet are believed whatever
came after: that the pod went beyond its own limits, and that the program ended with 0. That a loss is the controller's own doing
(scaled down, suspended) is the planner's knowledge, not a pod's. Pure.
"""

import enum
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ebb.api import contract as names
from ebb.api.clock import find, unix
from ebb.api.contract import EXIT_FINISHED, EXIT_HARDWARE, EXIT_RECLAIMED
from ebb.api.platform import Platform
from ebb.api.template import worker_container

Object = Mapping[str, Any]

CONFIRM_SECONDS = 5.0  # after a pod's grace, for its kubelet to say that it ended; and clocks differ
NOT_READY_SECONDS = 5.0  # a kubelet that restarts says NotReady for a second or two, and its pods live on
# Reasons of a pod that the kubelet stopped with its machine, or for pods that the machine cannot be without.
SHUTDOWN_REASONS = frozenset({"NodeShutdown", "Shutdown", "Terminated", "NodeLost", "Preempting"})
# Reasons of a pod that the kubelet would not take, although the scheduler sent it there; also OutOf<resource>. The machine had
# changed meanwhile (labels, taints, devices, other pods): pkg/kubelet/lifecycle/predicate.go and cm/topologymanager.
REFUSED_REASONS = frozenset(
    {"NodeAffinity", "NodePorts", "TaintToleration", "TopologyAffinityError", "UnexpectedAdmissionError", "InvalidNodeInfo"}
)
EVICTED = "Evicted"
# What the kubelet says of a pod that it stopped for the pod's own limits on disks (pkg/kubelet/eviction/helpers.go). It sets no
# DisruptionTarget then; for a machine that runs out of something it does since 1.26, and says "The node ...".
OWN_LIMITS = ("exceeds the limit", "exceeds the total limit", "exceeded its local ephemeral storage limit")
OF_THE_NODE = "The node "
# Reasons of a container whose end nobody saw, because its machine started anew: the kubelet's, with code 137, and containerd's,
# with 255. A program that ends by itself has Completed, Error or OOMKilled here.
UNSEEN_REASONS = frozenset({"ContainerStatusUnknown", "Unknown"})
BY_SCHEDULER = "PreemptionByScheduler"  # reason of DisruptionTarget
MESSAGE_LENGTH = 300
LAUNCHER = re.compile(r"^\[launcher [\d:]*\] ")  # before its own lines in a worker's log
# Of a machine's age. Machines that booted together grow old together, so workers leave them one after the other, the first at a
# quarter of the age before its end and the last at 5 %: a job of n workers is at most one short, as long as a machine comes
# within a fifth of the age, divided by n. A Node is a minute or two younger than its machine, and a worker needs its grace to
# leave: of 24 hours the last 5 % are 72 minutes.
FIRST_LEAVES, LAST_LEAVES = 0.75, 0.95
SHUNNED = 0.7


class Outcome(enum.Enum):
    """Outcomes of a worker."""

    LIVES = "lives"  # pending or running; may become any of the others
    LEAVES = "leaves"  # well, but its machine is nearly too old: to be replaced; neither a reclaim nor a failure
    DONE = "done"  # exited with 0; final for this index
    RECLAIMED = "reclaimed"  # lost to the machine or to somebody outside; to be replaced, nothing is spent
    FAILED = "failed"  # its program failed; may spend one of backoffLimit


@dataclass(frozen=True, kw_only=True)
class WorkerVerdict:
    """A worker's outcome. `force`: its machine is dead, so only a deletion without grace frees the name."""

    outcome: Outcome
    cause: str = ""
    message: str = ""
    force: bool = False
    notice_until: float | None = None  # unix seconds; when the machine goes away, as far as the notice says


@dataclass(frozen=True, kw_only=True)
class Crash:
    """The end of a program whose launcher stays, so that people can look into its machine (spec.holdOnFailureSeconds)."""

    exit_code: int  # with which the launcher will end
    message: str  # its last words
    until: float  # unix seconds; then the launcher ends

    def judge(self, worker: "Worker", verdict: WorkerVerdict) -> tuple["Worker", WorkerVerdict]:
        """As if its container had ended; what became of its machine or its pod counts more."""
        if verdict.outcome not in (Outcome.LIVES, Outcome.LEAVES) or worker.leaving:
            return worker, verdict
        ended = replace(worker, exit_code=self.exit_code, exit_reason="Error", exit_message=self.message, started=False)
        return ended, _ended(ended) or verdict


LIVES = WorkerVerdict(outcome=Outcome.LIVES)
TOO_OLD = WorkerVerdict(
    outcome=Outcome.LEAVES, cause=names.CAUSE_AGE, message="its machine is nearly as old as the cloud lets it get"
)


@dataclass(frozen=True, kw_only=True)
class Worker:
    """The parts of a worker's pod that the planner needs."""

    index: int
    name: str
    uid: str
    node: str  # "" before it is scheduled
    phase: str
    attempt: int
    spec: str  # the hash of what it was started with; "": an older controller made it
    ip: str
    grace_seconds: int
    deleted_at: float | None  # when its deletion was asked for, unix seconds
    overdue_at: float | None  # when a kubelet that is there would have confirmed its end
    exit_code: int | None  # of the training container
    exit_reason: str
    exit_message: str
    finished_at: float | None
    started: bool  # the training container runs
    started_at: float  # since when it runs or ran, by the kubelet's clock, unix seconds; 0: never, or nobody says
    pod: Object

    @classmethod
    def of(cls, pod: Object) -> "Worker":
        """`pod` must carry the labels of pods.worker_labels."""
        metadata, spec, status = pod["metadata"], pod["spec"], pod.get("status") or {}
        annotations = metadata.get("annotations") or {}
        trains = worker_container(spec["containers"]).get("name")
        states = status.get("containerStatuses") or ()
        state: Object = next((item.get("state") or {} for item in states if item.get("name") == trains), {})
        ended = state.get("terminated") or {}
        # deletionTimestamp is when the grace ends; the deletion was asked for that much earlier.
        grace_ends = unix(metadata.get("deletionTimestamp"))
        deleted_at = None if grace_ends is None else grace_ends - metadata.get("deletionGracePeriodSeconds", 0)
        return cls(
            index=int(metadata["labels"][names.LABEL_INDEX]),
            name=metadata["name"],
            uid=metadata["uid"],
            node=spec.get("nodeName", ""),
            phase=status.get("phase", "Pending"),
            attempt=int(annotations.get(names.ANNOTATION_ATTEMPT, 0)),
            spec=annotations.get(names.ANNOTATION_SPEC, ""),
            ip=status.get("podIP", ""),
            grace_seconds=spec.get("terminationGracePeriodSeconds", 30),
            deleted_at=deleted_at,
            overdue_at=None if grace_ends is None else grace_ends + CONFIRM_SECONDS,
            exit_code=ended.get("exitCode"),
            exit_reason=ended.get("reason", ""),
            exit_message=ended.get("message", ""),
            finished_at=unix(ended.get("finishedAt")),
            started="running" in state,
            started_at=unix((state.get("running") or ended).get("startedAt")) or 0.0,
            pod=pod,
        )

    @property
    def leaving(self) -> bool:
        """Its deletion was asked for, by whomever."""
        return self.deleted_at is not None

    @property
    def finished(self) -> bool:
        """No process of it runs any more."""
        return self.phase in ("Succeeded", "Failed")

    def condition(self, kind: str) -> Object:
        """The pod's condition of that type; {} if there is none."""
        conditions = (self.pod.get("status") or {}).get("conditions") or ()
        return next((condition for condition in conditions if condition.get("type") == kind), {})


def numbered(indices: Sequence[int]) -> str:
    """'worker 3', 'workers 0-2, 5'."""
    runs: list[list[int]] = []
    for index in sorted(indices):
        if runs and runs[-1][-1] == index - 1:
            runs[-1].append(index)
        else:
            runs.append([index])
    shown = ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
    return ("worker " if len(indices) == 1 else "workers ") + shown


def judge(
    worker: Worker,
    node: Object | None,
    unready_seconds: float,
    *,
    node_gone: bool = False,
    silent: bool = False,
    unconfirmed: bool = False,
    doubt: bool = False,
    too_old: bool = False,
) -> WorkerVerdict:
    """`node` is the worker's Node (None: not known yet), not ready for so long; `node_gone`: the API server says that it does not
    exist; `silent`: the controller has not seen it renew its Lease for too long; `unconfirmed`: nothing else says that it is
    dead, which does not allow force. `doubt`: silence proves nothing now, as while
    the worker itself answers, nor does it allow force. `too_old`: the worker is to leave its machine before the cloud takes that
    for its age."""
    lost = None
    if worker.node and node_gone:
        lost = _reclaimed(names.CAUSE_NODE_GONE, "its machine is gone", force=not doubt)
    elif worker.node and node:
        lost = node_trouble(node, unready_seconds, silent=silent, unconfirmed=unconfirmed, doubt=doubt)
    if _finished_before_deletion(worker):
        return WorkerVerdict(outcome=Outcome.DONE, force=lost is not None and lost.force)
    return _beyond_its_limits(worker) or lost or _lost_alone(worker) or _ended(worker) or (TOO_OLD if too_old else LIVES)


def node_trouble(
    node: Object, unready_seconds: float, *, silent: bool = False, unconfirmed: bool = False, doubt: bool = False
) -> WorkerVerdict | None:
    """The verdict that a machine's own state means for its workers; None if it is well."""
    ready = _condition(node, "Ready")
    if (silent or is_unknown(node)) and not doubt:
        force = is_unknown(node) or not unconfirmed
        return _reclaimed(names.CAUSE_NODE_SILENT, "its machine stopped reporting", force=force)
    if has_notice(node):
        message = _condition(node, names.CONDITION_RECLAIM).get("message") or "the cloud takes its machine back"
        return _reclaimed(names.CAUSE_NOTICE, message, until=find(message))
    if ready.get("status") == "False" and unready_seconds >= NOT_READY_SECONDS:
        return _reclaimed(names.CAUSE_NODE_NOT_READY, ready.get("message", "its machine is not ready"))
    return None


def is_unknown(node: Object) -> bool:
    """Return whether Kubernetes itself has not heard of a machine for too long."""
    return readiness(node) == "Unknown"


def readiness(node: Object) -> str:
    """The status of a machine's condition Ready: True, False or Unknown; "" for none."""
    return str(_condition(node, "Ready").get("status") or "")


def has_notice(node: Object) -> bool:
    """Return whether a machine is about to be taken back."""
    taints = (node.get("spec") or {}).get("taints") or ()
    noticed = _condition(node, names.CONDITION_RECLAIM).get("status") == "True"
    return noticed or any(taint.get("key") in names.TAINTS_RECLAIM for taint in taints)


def _finished_before_deletion(worker: Worker) -> bool:
    """A program that exits with 0 upon SIGTERM has not finished its training: only what ended before the deletion counts."""
    if worker.exit_code != EXIT_FINISHED:
        return worker.phase == "Succeeded" and not worker.leaving
    return worker.deleted_at is None or (worker.finished_at is not None and worker.finished_at < worker.deleted_at)


def _beyond_its_limits(worker: Worker) -> WorkerVerdict | None:
    """A pod that the kubelet stopped for the pod's own limits, whoever deleted it since."""
    status = worker.pod.get("status") or {}
    message = status.get("message", "").strip()
    if status.get("reason") != EVICTED or not any(words in message for words in OWN_LIMITS):
        return None
    return WorkerVerdict(outcome=Outcome.FAILED, cause=names.CAUSE_PROGRAM, message=f"{EVICTED}: {message[:MESSAGE_LENGTH]}")


def _lost_alone(worker: Worker) -> WorkerVerdict | None:
    disruption = worker.condition(names.CONDITION_DISRUPTION)
    if disruption.get("status") == "True":
        message = disruption.get("message") or disruption.get("reason", "")
        if disruption.get("reason") == BY_SCHEDULER:
            return _reclaimed(names.CAUSE_PREEMPTED, f"its place went to a pod of higher priority: {message}")
        return _reclaimed(names.CAUSE_DISRUPTED, message)
    said = _said_by_kubelet(worker.pod.get("status") or {})
    if said:
        return _reclaimed(names.CAUSE_DISRUPTED, said)
    if worker.leaving:
        return _reclaimed(names.CAUSE_DELETED, "somebody deleted the pod")
    if worker.exit_reason in UNSEEN_REASONS:
        return _reclaimed(names.CAUSE_DISRUPTED, "its machine started anew and lost the container")
    return _judge_exit(worker)


def _judge_exit(worker: Worker) -> WorkerVerdict | None:
    """A launcher that says by its exit code that it was not the program."""
    words = f"the launcher left with exit code {worker.exit_code}"
    if worker.exit_code == EXIT_RECLAIMED:
        return _reclaimed(names.CAUSE_LEFT, words)
    if worker.exit_code == EXIT_HARDWARE:
        return _reclaimed(names.CAUSE_HARDWARE, _last_words(worker) or words)
    return None


def _said_by_kubelet(status: Object) -> str:
    """The kubelet's reason to stop or refuse the pod, if that was the machine's doing; "" else."""
    reason, message = status.get("reason", ""), status.get("message", "")
    if reason == EVICTED:
        # Without the condition: before 1.26, or the machine had run out of something already when the pod came.
        return message if message.startswith(OF_THE_NODE) else ""
    of_the_machine = reason in SHUTDOWN_REASONS | REFUSED_REASONS or reason.startswith("OutOf")
    return (message or reason) if of_the_machine else ""


def _ended(worker: Worker) -> WorkerVerdict | None:
    if worker.exit_code is None and worker.phase != "Failed":
        return None
    what = (worker.pod.get("status") or {}).get("reason") or worker.exit_reason or "Error"
    code = f"exit code {worker.exit_code}" if worker.exit_code is not None else "no exit code"
    words = _last_words(worker)
    return WorkerVerdict(
        outcome=Outcome.FAILED, cause=names.CAUSE_PROGRAM, message=f"{what}, {code}" + (f": {words}" if words else "")
    )


def _last_words(worker: Worker) -> str:
    """The last line of a traceback is the error; the rest is in the log."""
    message = worker.exit_message or (worker.pod.get("status") or {}).get("message") or ""
    return LAUNCHER.sub("", str(message).strip().rpartition("\n")[2])[-MESSAGE_LENGTH:]


def _reclaimed(cause: str, message: str, *, force: bool = False, until: float | None = None) -> WorkerVerdict:
    return WorkerVerdict(outcome=Outcome.RECLAIMED, cause=cause, message=message, force=force, notice_until=until)


def _condition(node: Object, kind: str) -> Object:
    conditions = (node.get("status") or {}).get("conditions") or ()
    return next((condition for condition in conditions if condition.get("type") == kind), {})


def leave_at(node: Object, platform: Platform | None, *, index: int, workers: int) -> float | None:
    """The time at which worker `index` of so many leaves this machine, as unix seconds."""
    oldest, born = _oldest(node, platform), unix(node["metadata"].get("creationTimestamp"))
    if not oldest or born is None:
        return None
    share = LAST_LEAVES - (LAST_LEAVES - FIRST_LEAVES) * min(index, workers) / max(1, workers)
    return born + oldest * share


def aged(nodes: Iterable[Object], platform: Platform | None, now: float) -> frozenset[str]:
    """The names of those that are too old for new workers."""
    if platform is None or not any(group.max_age_seconds for group in platform.node_groups):
        return frozenset()  # no look at all nodes where nothing depends on it
    found = set()
    for node in nodes:
        oldest, born = _oldest(node, platform), unix(node["metadata"].get("creationTimestamp"))
        if oldest and born is not None and now >= born + oldest * SHUNNED:
            found.add(node["metadata"]["name"])
    return frozenset(found)


def _oldest(node: Object, platform: Platform | None) -> int:
    group = (node["metadata"].get("labels") or {}).get(names.LABEL_NODE_GROUP)
    return next((one.max_age_seconds for one in platform.node_groups if one.name == group), 0) if platform else 0
