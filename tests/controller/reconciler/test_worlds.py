"""Random worlds for one job, with a controller that is killed between two calls: what must hold after every look.

A world is a seed. A failing one is run again by its id: `pytest "tests/controller/reconciler/test_worlds.py::test_a_world[17]"`.
"""

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from ebb.api import contract as names
from ebb.api.clock import stamp
from ebb.api.schema import encode
from ebb.api.spec import Job
from ebb.api.status import Progress, Status
from ebb.controller.reconciler.capacity import ClusterCapacity, GroupState, Supply, Word
from ebb.controller.reconciler.reconcile import plan
from ebb.controller.reconciler.types import (
    Action,
    CreatePod,
    CreateService,
    DeleteJob,
    DeletePod,
    DeleteService,
    Observed,
    Plan,
)
from tests.builders import NOW, make_group, make_job, make_node, make_platform, make_service
from tests.controller.reconciler.scenes import GPU, claim, cluster_capacity

Object = dict[str, Any]
WORLDS, TURNS, MOST_LOOKS = 24, 40, 12
WAYS = (("spot", "s"), ("on-demand", "o"))
STACK = make_platform(
    *(
        make_group(f"{short}-{z}", zone=f"local-{z}", capacity_type=way, provision_seconds=120)
        for z in "abc"
        for way, short in WAYS
    )
)
WORDS = ("pod didn't trigger scale-up: 1 in backoff after failed scale-up", "max node group size reached", "something else")


def any_job(rng: random.Random) -> Object:
    low = rng.randint(1, 3)
    replicas = rng.randint(low, 4)
    capacity = rng.choice(["spot", "on-demand", "spot-then-on-demand", None])
    placement: Object = {"zone": rng.choice(["single", "any", "local-a"]), **({"capacity": capacity} if capacity else {})}
    if capacity == "spot-then-on-demand":
        placement["fallbackAfterSeconds"] = rng.choice([0, 60, 600])
    maybe: Object = {
        "scaling": "automatic",
        "successPolicy": "AllWorkers",
        "budget": {"maxUSD": rng.choice([0.01, 1, 100])},
        "progress": {"stallTimeoutSeconds": rng.choice([60, 600])},
        "group": {"name": "g", "maxParallel": 1},
        "activeDeadlineSeconds": rng.choice([100, 5000]),
        "ttlSecondsAfterFinished": rng.choice([0, 100]),
    }
    spec = {key: value for key, value in maybe.items() if rng.random() < 0.25}
    policy, clean = rng.choice([None, "ExitCode", "Never", "Always"]), rng.choice(["All", "Running", "None"])
    bounds: Object = {"low": low, "replicas": replicas, "high": rng.randint(replicas, 5)}
    return make_job(container=GPU, policy=policy, cleanPodPolicy=clean, placement=placement, **bounds, **spec)


class World:
    """`ahead`: how far the controller's clock is before those of the API server and the machines."""

    def __init__(self, seed: int, ahead: float) -> None:
        self.rng, self.ahead, self.now = random.Random(seed), ahead, NOW
        self.job = any_job(self.rng)
        self.platform = STACK if self.rng.random() < 0.8 else None
        self.priorities = {"": 1000, "ebb-elastic": 100} if self.rng.random() < 0.7 else {}
        self.pods: dict[str, Object] = {}
        self.nodes: dict[str, Object] = {}
        self.gone: set[str] = set()
        self.services: list[Object] = []
        self.supply, self.cluster_capacity, self.progress = Supply(), ClusterCapacity(), Progress()
        self.count = self.failures = 0
        self.seen: set[str] = set()  # UIDs of the pods that there were when the controller looked
        self.lost: set[str] = set()  # UIDs of the pods that somebody else than the controller took away
        self.zeros, self.final, self.deleted = False, "", False

    # --- What happens ---

    def their_now(self) -> str:
        return stamp(self.now - self.ahead)

    def alive(self, phase: str) -> list[Object]:
        pods = [pod for pod in self.pods.values() if "deletionTimestamp" not in pod["metadata"]]
        return [pod for pod in pods if pod["status"]["phase"] == phase]

    def boot(self) -> None:
        for pod in self.alive("Pending"):
            if "nodeName" not in pod["spec"] and self.rng.random() < 0.7:
                self.count += 1
                node = f"n{self.count}"
                zone = (pod["spec"].get("nodeSelector") or {}).get(names.LABEL_ZONE, "local-a")
                self.nodes[node] = make_node(node)
                self.nodes[node]["metadata"]["labels"] = {names.LABEL_NODE_GROUP: f"s-{zone[-1]}"}
                pod["spec"]["nodeName"] = node
                placed = {"type": "PodScheduled", "status": "True", "lastTransitionTime": self.their_now()}
                self.to(pod, "Pending", {"waiting": {"reason": "ContainerCreating"}}, placed)

    def start(self) -> None:
        for pod in self.alive("Pending"):
            if "nodeName" in pod["spec"] and self.rng.random() < 0.8:
                broken = self.rng.random() < 0.3
                state = {"waiting": {"reason": "ErrImagePull"}} if broken else {"running": {}}
                self.to(pod, "Pending" if broken else "Running", state)

    def end(self) -> None:
        code = self.rng.choice([0, 1, 1, 137, 138])
        victims = self.alive("Running")[: self.rng.randint(1, 3)]
        self.failures += bool(victims) and code in (1, 137)
        self.zeros |= bool(victims) and code == 0
        for pod in victims:
            self.lost |= {pod["metadata"]["uid"]} if code == names.EXIT_RECLAIMED else set()
            ended = {"exitCode": code, "reason": "Error", "finishedAt": self.their_now()}
            self.to(pod, "Failed" if code else "Succeeded", {"terminated": ended})

    def to(self, pod: Object, phase: str, state: Object, *conditions: Object) -> None:
        status = pod["status"]
        containers = [{"name": names.WORKER_CONTAINER, "state": state}]
        pod["status"] = {
            **status, "phase": phase, "containerStatuses": containers, "conditions": [*status["conditions"], *conditions]
        }  # fmt: skip

    def reclaim(self) -> None:
        for node in [*self.nodes][: self.rng.randint(1, 2)]:
            self.lose(node)
            del self.nodes[node]
            self.gone.add(node)

    def notice(self) -> None:
        for node in [*self.nodes][:1]:
            self.lose(node)
            self.nodes[node] = make_node(node, notice=f"away at {stamp(self.now + 20)}", taint=names.TAINT_RECLAIM)

    def vanish(self) -> None:
        for name in [*self.pods][:1]:
            self.lost.add(self.pods[name]["metadata"]["uid"])
            del self.pods[name]

    def lose(self, node: str) -> None:
        self.lost |= {pod["metadata"]["uid"] for pod in self.pods.values() if pod["spec"].get("nodeName") == node}

    def leave(self) -> None:
        self.pods = {name: pod for name, pod in self.pods.items() if "deletionTimestamp" not in pod["metadata"]}

    def edit(self) -> None:
        spec, worker = self.job["spec"], self.job["spec"]["replicaSpecs"]["Worker"]
        replicas = self.rng.randint(spec["minReplicas"], spec["maxReplicas"])
        changed = {"suspend": self.rng.random() < 0.3, "replicaSpecs": {"Worker": {**worker, "replicas": replicas}}}
        metadata = {**self.job["metadata"], "generation": self.job["metadata"]["generation"] + 1}
        self.job = {**self.job, "metadata": metadata, "spec": {**spec, **changed}}

    def dry(self) -> None:
        said = {
            pod["metadata"]["uid"]: Word(triggered=self.rng.random() < 0.4, message=self.rng.choice(WORDS), at=self.now)
            for pod in self.alive("Pending")
        }
        states = {
            group.name: GroupState(backing_off=True, message="quota") for group in STACK.node_groups if self.rng.random() < 0.5
        }
        self.supply = Supply(words=said, groups=states)

    def others(self) -> None:
        self.cluster_capacity = cluster_capacity(
            *(
                claim(
                    f"other-{number}",
                    self.rng.choice(["", "local-a", "local-b"]),
                    least=self.rng.randint(1, 4),
                    placed=self.rng.randint(0, 2),
                    hungry_since=self.rng.choice([None, self.now - 1000]),
                    created=self.rng.choice([0.0, NOW * 2]),
                )
                for number in range(self.rng.randint(0, 4))
            )
        )

    def train(self) -> None:
        step = self.progress.step + self.rng.randint(0, 3)
        self.progress = Progress(step=step, generation=self.count // 3, checkpoint_step=step // 2 * 2, at=stamp(self.now))

    # --- What the controller does ---

    def decide(self, now: float) -> Plan:
        observed = Observed(
            pods=tuple(self.pods.values()), services=tuple(self.services), nodes=self.nodes, gone=frozenset(self.gone),
            platform=self.platform, cluster_capacity=self.cluster_capacity,
            supply=self.supply, priorities=self.priorities, progress=self.progress,
        )  # fmt: skip
        return plan(Job.of(self.job), observed, now)

    def act(self, action: object) -> None:
        if isinstance(action, CreatePod):
            name = action.body["metadata"]["name"]
            assert name not in self.pods, "two pods of one name"
            self.count += 1
            metadata = {**action.body["metadata"], "uid": f"u{self.count}", "creationTimestamp": self.their_now()}
            self.pods[name] = {**action.body, "metadata": metadata, "status": {"phase": "Pending", "conditions": []}}
        elif isinstance(action, DeletePod):
            pod = self.pods[action.name]
            assert pod["metadata"]["uid"] == action.uid
            if action.grace_seconds == 0 or "nodeName" not in pod["spec"] or self.rng.random() < 0.5:  # it may be quick
                del self.pods[action.name]
            elif "deletionTimestamp" not in pod["metadata"]:
                until = {"deletionTimestamp": stamp(self.now - self.ahead + 30), "deletionGracePeriodSeconds": 30}
                pod["metadata"] = {**pod["metadata"], **until}
        elif isinstance(action, CreateService | DeleteService):
            self.services = [make_service(self.job)] if isinstance(action, CreateService) else []
        elif isinstance(action, DeleteJob):
            self.deleted = True

    def settle(self) -> Plan:
        """Look until nothing is done and nothing is written any more."""
        for number in range(MOST_LOOKS):
            old, self.seen = Job.of(self.job).status, {pod["metadata"]["uid"] for pod in self.pods.values()}
            decided = self.decide(self.now)
            written = encode(decided.status)
            rested = not decided.actions and written == self.job.get("status")
            killed = number < 4 and self.rng.random() < 0.4
            unwritten = self._some(decided.at_once) if killed and self.rng.random() < 0.5 else None
            for action in decided.at_once if unwritten is None else unwritten:
                self.act(action)
            if unwritten is None:
                self.job = {**self.job, "status": written}
                self.final = decided.status.state if decided.status.ended else self.final
                for action in self._some(decided.once_written) if killed else decided.once_written:
                    self.act(action)
            self.check(decided, old)
            if self.deleted or (rested and not killed):
                return decided
        raise AssertionError("no rest: it does or writes something without end")

    def _some(self, actions: Sequence[Action]) -> list[Action]:
        """What was done of it in parallel before the controller was killed."""
        return self.rng.sample(actions, self.rng.randint(0, len(actions)))

    def check(self, decided: Plan, old: Status) -> None:
        status, most = decided.status, self.job["spec"]["maxReplicas"]
        lost = self.lost & ({member.uid for member in old.members if not member.settled} | self.seen)
        zones = {(pod["spec"].get("nodeSelector") or {}).get(names.LABEL_ZONE) for pod in self.pods.values()}
        assert len(self.pods) <= most, "more than maxReplicas pods"
        assert len(zones) <= 1, f"pods in {zones}"
        assert status.failures <= self.failures, "something else than a program spent the budget"
        assert status.reclaims - old.reclaims <= len(lost), "a pod that the controller took away was counted as lost"
        assert not self.final or status.state == self.final, "an ended job came back"
        assert status.state != "Succeeded" or self.zeros, "succeeded without a worker that did"
        assert (len(status.history), len(status.dry), len(status.members)) <= (20, 6, most)

    def rests(self, decided: Plan) -> None:
        """Nothing is done, told or written soon, before the time that the planner named."""
        left = 10.0 if decided.wake_at is None else (decided.wake_at - self.now) / 2
        later = self.decide(self.now + min(10.0, left) if left > 0.01 else self.now)
        assert (later.actions, later.events, told(later.status)) == ((), (), told(Job.of(self.job).status))


def told(status: Status) -> Status:
    """Without where machines could not be had lately, which is forgotten and said again as time goes by."""
    return replace(status, dry=(), last_reconcile_time=None, cost=None)


@pytest.mark.parametrize("seed", range(WORLDS))
def test_a_world(seed: int) -> None:
    world = World(seed, ahead=(0.0, 7200.0, -7200.0)[seed % 3])
    once = [world.reclaim, world.notice, world.vanish, world.edit, world.dry, world.others]
    for _ in range(TURNS):
        world.now += world.rng.choice([0.3, 1, 5, 30, 130, 400, 2000])
        world.rng.choice([world.boot, world.start, *once, world.end, world.boot, world.start, world.leave, world.train])()
        decided = world.settle()
        if world.deleted:
            return
        world.rests(decided)
