"""The same work by our controller's decisions: reconcile.plan places, moves, falls back and replaces, second by simulated second.

    played = play(Case(...), cloud, Ours(...))

Simulated are the rest: a scheduler, an autoscaler that gets a refusal from the cloud and tries that group again 300 s later, pods
that leave on a notice, and training. What a change costs the training is what was measured of recovery in memory (PAUSES).
"""

from dataclasses import dataclass
from typing import Any

from benchmarks.spot.cloud import BOOT_SECONDS, NOTICE_SECONDS, Cloud, Machine
from benchmarks.spot.others import GIVES_UP, RESTART_SECONDS, TICK, Case, Played
from ebb.api import contract as names
from ebb.api.clock import stamp
from ebb.api.parts import SPOT_THEN_ON_DEMAND
from ebb.api.platform import ON_DEMAND, SPOT, NodeGroup, Platform
from ebb.api.schema import encode
from ebb.api.spec import Job
from ebb.api.status import Progress
from ebb.controller.reconciler.capacity import ClusterCapacity, GroupState, Supply, Word
from ebb.controller.reconciler.reconcile import plan
from ebb.controller.reconciler.types import CreatePod, DeletePod, Observed, Plan

Object = dict[str, Any]

EPOCH = 1_800_000_000.0  # the beginning; nothing depends on it
# Without a step, docs/results.md: a notice in the demo on Kubernetes (1.2 s), two that join with 1.6 GB of state (3.1 s). Where
# no worker is left, all start from the checkpoint of the notice in the article's time, which includes starting the processes.
NOTICE_PAUSE, JOIN_PAUSE, START_SECONDS = 1.2, 3.1, RESTART_SECONDS
POD_SECONDS = 20.0  # from a machine until a process there is ready to join: its container, imports and data
LEAVES_SECONDS = 30.0  # from SIGTERM until a pod is gone: its checkpoint, with 1.6 GB 10 s, and its end
IDLE_SECONDS = 600.0  # until the autoscaler gives an idle machine up: its default
BACKOFF_SECONDS = 300.0  # of the autoscaler, after a refusal: its default
BACKOFF = "pod didn't trigger scale-up: 1 in backoff after failed scale-up"
STOCKOUT = "InsufficientInstanceCapacity"
STEPS = 100_000  # of the whole training
LOOK_SECONDS = 300.0  # between two readings of progress; the controller has it each few seconds


@dataclass(frozen=True, kw_only=True)
class Ours:
    """The researcher's wishes. `deadline`: the job names one."""

    fallback_after_seconds: int | None = None
    deadline: bool = True


@dataclass(eq=False)
class _Pod:
    body: Object
    machine: Machine | None = None
    joins: float = 0.0  # when its process is ready
    leaves: float | None = None
    word: Word | None = None


def play(case: Case, cloud: Cloud, ours: Ours = Ours()) -> Played:
    """Until the work is done, or the job is given up."""
    return _Play(case, cloud, ours).run()


class _Play:
    def __init__(self, case: Case, cloud: Cloud, ours: Ours) -> None:
        self.case, self.cloud = case, cloud
        self.platform = _platform(case, cloud)
        self.job = _job(case, ours)
        self.status: Object | None = None
        self.pods: dict[str, _Pod] = {}
        self.idle: dict[Machine, float] = {}
        self.retry: dict[tuple[str, str], float] = {}
        self.work = self.trained_seconds = 0.0
        self.trains: list[_Pod] = []
        self.resumes = 0.0
        self.seen: tuple[object, ...] = ()
        self.wake = 0.0
        self.uids = 0

    @property
    def now(self) -> float:
        return EPOCH + self.cloud.now

    def run(self) -> Played:
        while self.work < self.case.seconds and self.cloud.now < GIVES_UP * self.case.deadline:
            self._schedule()
            self._look()
            self._train()
            self._advance()
        done = self.work >= self.case.seconds
        return Played(usd=self.cloud.usd, seconds=self.cloud.now if done else None, reclaims=self.cloud.reclaims)

    # --- The world's own ways ---

    def _advance(self) -> None:
        ended = self.cloud.advance(TICK)
        self.pods = {
            name: pod
            for name, pod in self.pods.items()
            if pod.machine not in ended and (pod.leaves is None or self.cloud.now < pod.leaves)
        }
        used = {pod.machine for pod in self.pods.values()}
        self.idle = {one: self.idle.get(one, self.cloud.now) for one in self.cloud.machines if one not in used}
        for one, since in self.idle.items():
            if self.cloud.now - max(since, one.ready) >= IDLE_SECONDS and one.ends is None:
                self.cloud.release(one)

    def _schedule(self) -> None:
        used = {pod.machine for pod in self.pods.values()}
        free = [one for one in self.cloud.machines if one not in used and one.ends is None]
        for pod in self.pods.values():
            if pod.machine or pod.leaves is not None:
                continue
            site = _site(pod.body)
            machine = next((one for one in free if (one.zone, one.capacity) == site), None) or self._ask(pod, site)
            if machine in free:
                free.remove(machine)
            if machine and machine.ready <= self.cloud.now:
                pod.machine, pod.joins = machine, self.cloud.now + POD_SECONDS
                _condition(pod.body, "True", self.now)

    def _ask(self, pod: _Pod, site: tuple[str, str]) -> Machine | None:
        if self.cloud.now < self.retry.get(site, 0.0):
            pod.word = Word(triggered=False, message=BACKOFF, at=self.now)
            return None
        machine = self.cloud.ask(*site)
        if machine is None:
            self.retry[site] = self.cloud.now + BACKOFF_SECONDS
        message = "pod triggered scale-up" if machine else BACKOFF
        pod.word = Word(triggered=machine is not None, message=message, at=self.now)
        return machine

    def _train(self) -> None:
        ready = [pod for pod in self.pods.values() if pod.machine and pod.leaves is None and pod.joins <= self.cloud.now]
        ready = ready if len(ready) >= self.case.least else []
        if ready != self.trains:
            kept = [pod for pod in ready if pod in self.trains]
            pause = START_SECONDS if not kept else JOIN_PAUSE if len(kept) < len(ready) else NOTICE_PAUSE
            self.resumes, self.trains = max(self.resumes, self.cloud.now) + pause, ready
        if ready:
            trained = min(TICK, max(0.0, self.cloud.now + TICK - self.resumes))
            self.work += trained * self.case.rate(len(ready))
            self.trained_seconds += trained

    # --- The controller ---

    def _look(self) -> None:
        basis = (
            [(pod.body["metadata"]["uid"], pod.machine, pod.leaves, pod.joins <= self.cloud.now, pod.machine and pod.machine.ends,
              pod.word and pod.word.triggered) for pod in self.pods.values()],
            int(self.cloud.now / LOOK_SECONDS),
            frozenset(site for site, at in self.retry.items() if self.cloud.now < at),
            id(self.status),
        )  # fmt: skip
        if basis == self.seen and self.now < self.wake:
            return
        self.seen = basis
        job = Job.of({**self.job, **({"status": self.status} if self.status else {})})
        decided = plan(job, self._observed(), self.now)
        self.wake = decided.wake_at or float("inf")
        self._act(decided)
        written = encode(decided.status)
        if written != self.status:
            self.status = written
            self.wake = self.now

    def _observed(self) -> Observed:
        machines = {pod.machine for pod in self.pods.values() if pod.machine}
        nodes = {one.name: _node(one) for one in machines}
        step = int(STEPS * self.work / self.case.seconds)
        progress = Progress(
            step=step, total_steps=STEPS, useful_seconds=self.trained_seconds, checkpoint_step=step, at=stamp(self.now)
        )  # fmt: skip
        bodies = []
        for pod in self.pods.values():
            _phase(pod, ready=pod.machine is not None and pod.joins <= self.cloud.now, now=self.now)
            bodies.append(pod.body)
        backing_off = {
            group.name: GroupState(backing_off=True, message=STOCKOUT)
            for group in self.platform.node_groups
            if self.cloud.now < self.retry.get((group.zone, group.capacity_type), 0.0)
        }
        words = {pod.body["metadata"]["uid"]: pod.word for pod in self.pods.values() if pod.word and not pod.machine}
        return Observed(
            pods=tuple(bodies), nodes=nodes, platform=self.platform, cluster_capacity=ClusterCapacity(),
            supply=Supply(words=words, groups=backing_off), progress=progress if self.trained_seconds else None,
        )  # fmt: skip

    def _act(self, decided: Plan) -> None:
        for action in decided.actions:
            if isinstance(action, CreatePod):
                self.uids += 1
                body = {**action.body, "status": {"phase": "Pending", "conditions": []}}
                body["metadata"] |= {"uid": f"pod-{self.uids}", "creationTimestamp": stamp(self.now)}
                _condition(body, "False", self.now)
                self.pods[body["metadata"]["name"]] = _Pod(body)
            elif isinstance(action, DeletePod) and action.name in self.pods:
                pod = self.pods[action.name]
                if pod.machine is None:
                    del self.pods[action.name]
                elif pod.leaves is None:
                    pod.leaves = self.cloud.now + LEAVES_SECONDS
                    pod.body["metadata"] |= {
                        "deletionTimestamp": stamp(self.now + NOTICE_SECONDS),
                        "deletionGracePeriodSeconds": int(NOTICE_SECONDS),
                    }


def _site(body: Object) -> tuple[str, str]:
    asks = body["spec"]["nodeSelector"]
    return asks[names.LABEL_ZONE], asks[names.LABEL_CAPACITY]


def _phase(pod: _Pod, *, ready: bool, now: float) -> None:
    if pod.machine:
        pod.body["spec"]["nodeName"] = pod.machine.name
    if ready and pod.body["status"]["phase"] == "Pending":
        pod.body["status"]["phase"] = "Running"
        state = {"running": {"startedAt": stamp(now)}}
        pod.body["status"]["containerStatuses"] = [{"name": names.WORKER_CONTAINER, "state": state}]


def _condition(body: Object, status: str, now: float) -> None:
    message = "" if status == "True" else "0 nodes are available"
    new = {"type": "PodScheduled", "status": status, "message": message, "lastTransitionTime": stamp(now)}
    body["status"]["conditions"] = [new]


def _node(machine: Machine) -> Object:
    conditions: list[Object] = [{"type": "Ready", "status": "True", "lastTransitionTime": stamp(EPOCH + machine.ready)}]
    if machine.ends is not None:
        message = f"the machine is taken back at {stamp(EPOCH + machine.ends)}"
        conditions.append({"type": names.CONDITION_RECLAIM, "status": "True", "message": message})
    labels = {names.LABEL_NODE_GROUP: _name(machine.zone, machine.capacity), names.LABEL_ZONE: machine.zone}
    created = stamp(EPOCH + machine.ready - BOOT_SECONDS)
    metadata = {"name": machine.name, "uid": machine.name, "labels": labels, "creationTimestamp": created}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": {}, "status": {"conditions": conditions}}


def _name(zone: str, capacity: str) -> str:
    return f"{capacity}-{zone}"


def _platform(case: Case, cloud: Cloud) -> Platform:
    discount = 1 - cloud.spot_usd / cloud.on_demand_usd
    groups = tuple(
        NodeGroup(
            name=_name(zone, capacity), zone=zone, instance_type=f"gpu-{case.gpus_per_machine}", gpu_type="V100",
            gpus_per_node=case.gpus_per_machine, cpu=8.0, memory_gib=61.0, capacity_type=capacity, min=0, max=case.machines,
            taints=(), labels={}, on_demand_usd_per_hour=cloud.on_demand_usd, spot_discount=discount,
            notice_seconds=int(NOTICE_SECONDS) if capacity == SPOT else 0, provision_seconds=int(BOOT_SECONDS),
        )
        for zone in cloud.zones
        for capacity in (SPOT, ON_DEMAND)
    )  # fmt: skip
    return Platform(
        cloud="local", region="simulated", stack="simulated", trainer_image="", jobs_namespace="", etcd_endpoint="etcd:2379",
        volumes=(), node_groups=groups,
    )  # fmt: skip


def _job(case: Case, ours: Ours) -> Object:
    after = {} if ours.fallback_after_seconds is None else {"fallbackAfterSeconds": ours.fallback_after_seconds}
    placement = {"capacity": SPOT_THEN_ON_DEMAND, **after}
    container = {
        "name": names.WORKER_CONTAINER, "image": "trainer", "args": ["-m", "trainer"],
        "resources": {"limits": {"nvidia.com/gpu": case.gpus_per_machine}},
    }  # fmt: skip
    worker = {"replicas": case.machines, "template": {"spec": {"containers": [container]}}}
    spec: Object = {
        "minReplicas": case.least, "maxReplicas": case.machines, "rdzvEndpoint": "etcd:2379", "placement": placement,
        "replicaSpecs": {"Worker": worker},
    }  # fmt: skip
    if ours.deadline:
        spec["deadline"] = stamp(EPOCH + case.deadline)
    metadata = {
        "name": "work", "namespace": "jobs", "uid": "0b8e7a52-1111-4222-8333-444455556666", "generation": 1,
        "resourceVersion": "1", "creationTimestamp": stamp(EPOCH),
    }  # fmt: skip
    return {"apiVersion": names.API_VERSION, "kind": names.KIND, "metadata": metadata, "spec": spec}
