"""A small town for the planner: jobs, a scheduler without a sense for gangs, an autoscaler, and a cloud with few machines.

    town = Town(platform, limits={"a": 3}, rng=random.Random(1))
    town.submit(make_job("one", ...), work=300)
    town.run(3600)                          # seconds; every look of every job is checked
    town.finished                           # names of the jobs that had their work done

A machine holds one worker. A group may have `limits[zone]` machines of the cloud at most, whatever its max says.
"""

import random
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from ebb.api import contract as names
from ebb.api.clock import stamp
from ebb.api.platform import Platform
from ebb.api.schema import encode
from ebb.api.spec import Job
from ebb.controller.rate_limits import Refusals, as_before, without_creations
from ebb.controller.reconciler.capacity import ClusterCapacity, Supply, Word, survey
from ebb.controller.reconciler.reconcile import plan, refused
from ebb.controller.reconciler.types import CreatePod, DeletePod, Event, Observed, Plan
from tests.builders import NOW, make_node

Object = dict[str, Any]

TICK, BOOT, START, LEAVE, IDLE = 10.0, 60.0, 10.0, 20.0, 120.0  # seconds
PRIORITIES = {"": 1000, "ebb-job": 1000, "ebb-replacement": 1000, "ebb-elastic": 100, "urgent": 5000, "low": 10}


class Town:
    """See the module's docstring. `dry`: zones that give no more machines now. `quota`: GPUs that the namespace may ask for.
    `preempts`: the scheduler ends pods of lower priority for those of higher."""

    def __init__(
        self,
        platform: Platform | None,
        *,
        limits: Mapping[str, int],
        rng: random.Random,
        quota: int | None = None,
        preempts: bool = False,
    ) -> None:
        self.platform, self.limits, self.rng = platform, dict(limits), rng
        self.now = NOW
        self.jobs: dict[str, Object] = {}
        self.pods: dict[str, dict[str, Object]] = {}  # job -> name -> pod
        self.work: dict[str, float] = {}
        self.machines: dict[str, tuple[str, float]] = {}  # name -> zone, ready at
        self.idle: dict[str, float] = {}
        self.words: dict[str, Word] = {}
        self.finished: list[str] = []
        self.events: list[tuple[float, str, Event]] = []
        self.writes = 0
        self.dry: set[str] = set()
        self.quota, self._refusals = quota, Refusals()
        self.preempts, self._nominated = preempts, set[str]()  # by UID, pods for which the scheduler has ended another
        self._count = 0
        self._parsed: dict[str, tuple[Object, Job]] = {}
        self._markets: dict[str, tuple[Job, int, ClusterCapacity]] = {}
        self._seen: dict[str, tuple[object, float]] = {}  # what a job was decided upon, and when it asked to be looked at again

    def submit(self, job: Object, *, work: float) -> None:
        """A job that needs `work` seconds with minReplicas workers."""
        name = job["metadata"]["name"]
        job["metadata"]["creationTimestamp"] = stamp(self.now)
        self.jobs[name], self.work[name], self.pods[name] = job, work, {}

    def run(self, seconds: float) -> None:
        """Until then, or until all jobs are done."""
        end = self.now + seconds
        while self.now < end and self.jobs:
            self.tick()

    def tick(self) -> None:
        self.now += TICK
        self._clean()
        self._schedule()
        self._scale()
        for name in self.rng.sample(sorted(self.jobs), len(self.jobs)):
            self._look(name)
        self._train()

    def state(self, name: str) -> Job:
        """The job as last written."""
        value, job = self._parsed.get(name, (None, None))
        if job is None or value is not self.jobs[name]:
            job = Job.of(self.jobs[name])
            self._parsed[name] = self.jobs[name], job
        return job

    def _market(self, name: str) -> ClusterCapacity:
        """What the job is to the others; made anew when it was written, and every few minutes, as it forgets."""
        job, age = self.state(name), int(self.now // 300)
        known = self._markets.get(name)
        if known is None or known[0] is not job or known[1] != age:
            known = self._markets[name] = job, age, survey([job], PRIORITIES, self.now, but=("", ""))
        return known[2]

    def running(self, name: str) -> int:
        return sum(pod["status"]["phase"] == "Running" and not _leaves(pod) for pod in self.pods[name].values())

    def reclaim(self, zone: str) -> None:
        """All machines of the zone go, and the pods on them."""
        gone = {name for name, (place, _) in self.machines.items() if place == zone}
        self.machines = {name: machine for name, machine in self.machines.items() if name not in gone}
        for pods in self.pods.values():
            for name in [name for name, pod in pods.items() if pod["spec"].get("nodeName") in gone]:
                del pods[name]

    def told(self, reason: str) -> list[str]:
        """Messages of all events with that reason."""
        return [event.message for _, _, event in self.events if event.reason == reason]

    # --- The world's own ways ---

    def _clean(self) -> None:
        for pods in self.pods.values():
            for name in [name for name, pod in pods.items() if _leaves(pod) and self.now >= pod["left"]]:
                del pods[name]

    def _all_pods(self) -> list[Object]:
        return [pod for pods in self.pods.values() for pod in pods.values()]

    def _free(self) -> list[str]:
        taken = {pod["spec"].get("nodeName") for pod in self._all_pods()}
        return [name for name, (_, ready) in self.machines.items() if ready <= self.now and name not in taken]

    def _schedule(self) -> None:
        pending = [pod for pod in self._all_pods() if not pod["spec"].get("nodeName") and not _leaves(pod)]
        self.rng.shuffle(pending)
        pending.sort(key=lambda pod: -PRIORITIES[pod["spec"].get("priorityClassName", "")])
        for pod in pending:
            place = next((name for name in self._free() if self._admits(pod, self.machines[name][0])), None)
            if place is None:
                self._set(pod, "PodScheduled", "False", "0 nodes are available.")
                self._preempt(pod)
                continue
            pod["spec"]["nodeName"] = place
            pod["started"] = self.now + START
            self._set(pod, "PodScheduled", "True", "")
        for pod in self._all_pods():
            if pod["status"]["phase"] == "Pending" and pod.get("started", self.now + 1) <= self.now:
                pod["status"] |= {"phase": "Running"}
                pod["status"]["containerStatuses"] = [{"name": "elasticjob-worker", "state": {"running": {}}}]

    def _preempt(self, pod: Object) -> None:
        """End the newest pod of those of the lowest priority, if that is lower than this one's."""

        def rank(other: Object) -> int:
            return PRIORITIES[other["spec"].get("priorityClassName", "")]

        never = pod["spec"].get("priorityClassName") in ("ebb-elastic", "ebb-replacement")
        if not self.preempts or never or pod["metadata"]["uid"] in self._nominated:
            return
        zones = {name: zone for name, (zone, _) in self.machines.items()}
        able = [other for other in self._all_pods() if other["spec"].get("nodeName") and not _leaves(other)]
        able = [one for one in able if rank(one) < rank(pod) and self._admits(pod, zones.get(one["spec"]["nodeName"], ""))]
        if able:
            victim = min(able, key=lambda one: (rank(one), -one["started"], one["metadata"]["uid"]))
            self._nominated.add(pod["metadata"]["uid"])
            victim["metadata"] |= {"deletionTimestamp": stamp(self.now + 30), "deletionGracePeriodSeconds": 30}
            victim["left"] = self.now + LEAVE
            lost = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler", "message": "preempting"}
            victim["status"]["conditions"].append({**lost, "lastTransitionTime": stamp(self.now)})

    def _scale(self) -> None:
        """Machines for pods that wait, beyond those that boot for them; machines that idle go."""
        free = set(self._free())
        self.idle = {name: self.idle.get(name, self.now) for name in free}
        for name, since in self.idle.items():
            if self.now - since >= IDLE:
                del self.machines[name]
        zones = [zone for zone, ready in self.machines.values() if ready > self.now]
        for pod in self._all_pods():
            if pod["spec"].get("nodeName") or _leaves(pod):
                continue
            zone = pod["spec"].get("nodeSelector", {}).get(names.LABEL_ZONE) or min(self.limits)
            if zone in zones:
                zones.remove(zone)
                continue
            uid = pod["metadata"]["uid"]
            if zone in self.dry:
                message = "pod didn't trigger scale-up: 1 in backoff after failed scale-up"
                self.words[uid] = Word(triggered=False, message=message, at=self.now)
            elif sum(place == zone for place, _ in self.machines.values()) < self.limits[zone]:
                self._count += 1
                self.machines[f"m{self._count}"] = (zone, self.now + BOOT)
                self.words[uid] = Word(triggered=True, message="pod triggered scale-up", at=self.now)
            else:
                message = "pod didn't trigger scale-up: 1 max node group size reached"
                self.words[uid] = Word(triggered=False, message=message, at=self.now)

    def _admits(self, pod: Object, zone: str) -> bool:
        return bool((pod["spec"].get("nodeSelector") or {}).get(names.LABEL_ZONE, zone) == zone)

    def _set(self, pod: Object, kind: str, status: str, message: str) -> None:
        old = next((item for item in pod["status"]["conditions"] if item["type"] == kind), None)
        at = old["lastTransitionTime"] if old and old["status"] == status else stamp(self.now)
        new = {"type": kind, "status": status, "message": message, "lastTransitionTime": at}
        pod["status"]["conditions"] = [item for item in pod["status"]["conditions"] if item is not old] + [new]

    def _train(self) -> None:
        for name in list(self.jobs):
            if self.running(name) >= self.state(name).min_replicas:
                self.work[name] -= TICK
            if self.work[name] <= 0:
                self.finished.append(name)
                del self.jobs[name], self.pods[name]

    # --- The controller ---

    def _look(self, name: str) -> None:
        job, others = self.state(name), [self._market(other) for other in self.jobs if other != name]
        cluster_capacity = ClusterCapacity(
            claims=tuple(claim for one in others for claim in one.claims), dry=tuple(entry for one in others for entry in one.dry)
        )
        nodes = {machine: make_node(machine) for machine in self.machines}
        seen = tuple(self.pods[name].values())
        gone = {pod["spec"].get("nodeName", "") for pod in seen} - {*nodes, ""}
        observed = Observed(
            pods=seen, nodes=nodes, gone=frozenset(gone), platform=self.platform, cluster_capacity=cluster_capacity,
            supply=Supply(words=self.words), priorities=PRIORITIES,
        )  # fmt: skip
        # As the controller does: it looks again when something has changed, or when it was asked to.
        basis = (id(self.jobs[name]), [*map(id, others)], gone, [self._signs(pod) for pod in seen])
        known, wake = self._seen.get(name, (None, 0.0))
        if known == basis and self.now < wake:
            return
        decided = plan(job, observed, self.now)
        decided, again_at = self._act(name, job, decided)
        self._seen[name] = basis, min(decided.wake_at or float("inf"), again_at)
        self._write(name, decided)

    def _signs(self, pod: Object) -> tuple[object, ...]:
        """All of a pod that changes here."""
        conditions = [(item["type"], item["status"], item["lastTransitionTime"]) for item in pod["status"]["conditions"]]
        word = self.words.get(pod["metadata"]["uid"])
        said = word and (word.triggered, word.message)  # a refusal is said again and again
        return pod["metadata"]["uid"], pod["spec"].get("nodeName"), pod["status"]["phase"], _leaves(pod), conditions, said

    def _act(self, name: str, job: Job, decided: Plan) -> tuple[Plan, float]:
        """As Controller._act: what came of it, and when what was refused is tried again."""
        key = (job.namespace, job.name)
        wait, problems = self._refusals.resting(key, self.now)
        stripped = without_creations(decided)
        if not wait or stripped.actions == decided.actions:
            problems = tuple(self._do(name, decided))
            if not problems:
                self._refusals.forget(key)
                return decided, float("inf")
        else:
            tuple(self._do(name, stripped))
        told = refused(job, stripped, problems, self.now)
        told = replace(told, events=stripped.events) if self._refusals.repeats(key, problems) else told
        again = self.now + (wait or self._refusals.refused(key, problems, self.now))
        return as_before(job.status, told), again

    def _do(self, name: str, decided: Plan) -> Iterator[str]:
        """The refusals. Under a quota one pod gets in at a look, as jobs create theirs side by side."""
        created = 0
        for action in decided.actions:
            if isinstance(action, DeletePod) and action.name in self.pods[name]:
                pod = self.pods[name][action.name]
                if not pod["spec"].get("nodeName") or action.grace_seconds == 0:
                    del self.pods[name][action.name]
                elif not _leaves(pod):
                    pod["metadata"] |= {"deletionTimestamp": stamp(self.now + 30), "deletionGracePeriodSeconds": 30}
                    pod["left"] = self.now + LEAVE
            elif isinstance(action, CreatePod):
                if self.quota is not None and created:
                    continue
                created, used = created + 1, len(self._all_pods())
                if self.quota is None or used < self.quota:
                    self._create(name, action.body)
                    continue
                gpus = "requests.nvidia.com/gpu"
                yield (
                    f'pods "{action.body["metadata"]["name"]}" is forbidden: exceeded quota: gpus, requested: {gpus}=1, '
                    f"used: {gpus}={used}, limited: {gpus}={self.quota}"
                )

    def _write(self, name: str, decided: Plan) -> None:
        self.events += [(self.now, name, event) for event in decided.events]
        if encode(decided.status) != self.jobs[name].get("status"):
            self.writes += 1
            self.jobs[name] = {**self.jobs[name], "status": encode(decided.status)}
        self.check(name)

    def _create(self, name: str, body: Object) -> None:
        self._count += 1
        pod = {**body, "status": {"phase": "Pending", "conditions": []}}
        pod["metadata"] |= {"uid": f"pod-{self._count}", "creationTimestamp": stamp(self.now)}
        assert body["metadata"]["name"] not in self.pods[name], "a name was used twice"
        self.pods[name][body["metadata"]["name"]] = pod

    def check(self, name: str) -> None:
        """What must hold after every look."""
        pods = self.pods[name].values()
        assert len(pods) <= self.state(name).max_replicas, f"{name} has more than maxReplicas pods"
        zones = {(pod["spec"].get("nodeSelector") or {}).get(names.LABEL_ZONE) for pod in pods}
        assert len(zones) <= 1, f"{name} is in {zones}"


def _leaves(pod: Object) -> bool:
    return "deletionTimestamp" in pod["metadata"]
