"""Programs that train in fake time under the real controller: machines, steps, checkpoints, reclaims, and the files of the runs.

async with started() as world:
    town = Town(world, machines=2, curve=lambda lr, step: lr + 1 / step, total_steps=81)
    await town.submit(bodies)
    await town.until_over(names)
"""

import asyncio
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from ebb.api import contract as names
from ebb.api.clock import stamp
from ebb.client.logs.sources import job_folder
from ebb.client.sweep.view import ANNOTATION_POINT
from ebb.kube import ELASTIC_JOBS, NODES, PODS, Object
from tests.builders import make_node
from tests.world import FakeCluster

NS = "elastic-job"
SECOND = 1.0


@dataclass
class _Run:
    """A job's training. The checkpoint is what a reclaim leaves."""

    job: Object
    address: str
    step: int = 0
    checkpoint: int = 0
    lines: list[str] = field(default_factory=list)


class Town:
    """`curve`: (the run's lr, step) -> loss. Every second each run that has a machine makes `speed` steps."""

    def __init__(
        self, world: FakeCluster, *, machines: int, curve: Callable[[float, int], float], total_steps: int, speed: int = 1
    ) -> None:
        self.world, self._curve, self._total, self._speed = world, curve, total_steps, speed
        self.runs: dict[str, _Run] = {}
        self.started: list[str] = []  # runs in the order of their first steps
        self.most_at_once = 0
        self._every, self._made = 10, machines
        for number in range(machines):
            world.api.put(NODES, make_node(f"n{number}"))

    async def submit(self, bodies: Iterable[Object]) -> list[str]:
        """Return the names of the jobs."""
        found = []
        for body in bodies:
            await self.world.api.create(ELASTIC_JOBS, NS, body)
            name = body["metadata"]["name"]
            job = self.world.job(name)
            self.runs[name] = _Run(job=job, address=f"10.0.0.{len(self.runs) + 1}")
            found.append(name)
        return found

    async def until(self, done: Callable[[], bool], *, within: float = 7200) -> None:
        """Train until that is so, and the controller has had the time to see it."""
        for _ in range(int(within)):
            await self.second()
            if done():
                return
        raise AssertionError(f"not within {within:g} s: {self.states()}")

    async def second(self) -> None:
        await asyncio.sleep(SECOND)
        api = self.world.api
        taken = {pod["spec"].get("nodeName") for pod in api.all(PODS) if pod["status"]["phase"] in ("Pending", "Running")}
        free = [name for name in api.names(NODES) if name not in taken]
        for pod in api.all(PODS):
            name, run = pod["metadata"]["name"], self.runs[pod["metadata"]["name"].removesuffix("-worker-0")]
            if "deletionTimestamp" in pod["metadata"]:
                run.checkpoint = run.step
                api.pod_ends(name, names.EXIT_RECLAIMED)
            elif pod["status"]["phase"] == "Pending" and free:
                self._start(name, run, free.pop(0))
            elif pod["status"]["phase"] == "Running" and pod["spec"]["nodeName"] in api.names(NODES):
                self._train(name, run)

    def reclaim(self, name: str) -> bool:
        """Take the run's machine away without notice, and bring another one; False where it has none."""
        api = self.world.api
        pods = [pod for pod in api.all(PODS) if pod["metadata"]["name"] == f"{name}-worker-0"]
        if not pods or pods[0]["status"]["phase"] != "Running":
            return False
        api.lose_node(pods[0]["spec"]["nodeName"])
        api.put(NODES, make_node(f"n{self._made}"))
        self._made += 1
        run = self.runs[name]
        run.step = run.checkpoint
        self.world.metrics_text.pop(run.address, None)
        return True

    def states(self) -> dict[str, str]:
        """Each run as its condition of suspension, or its state, says."""
        found = {}
        for name in self.runs:
            status = self.world.status(name)
            found[name] = (status.get("hold") or {}).get("reason") or str(status.get("state"))
        return found

    def files(self) -> dict[str, bytes]:
        """The files that the gateway serves."""
        return {
            f"{job_folder(run.job)}/metrics.jsonl": "".join(f"{line}\n" for line in run.lines).encode()
            for run in self.runs.values()
        }

    def loss(self, name: str, step: int) -> float:
        return self._curve(float(json.loads(self.runs[name].job["metadata"]["annotations"][ANNOTATION_POINT])["lr"]), step)

    def _start(self, pod: str, run: _Run, node: str) -> None:
        self.world.api.pod_runs(pod, node)
        self.world.api.change(PODS, pod, lambda value: value["status"].update(podIP=run.address))
        run.step = run.checkpoint
        name = pod.removesuffix("-worker-0")
        if name not in self.started:
            self.started.append(name)
        self.most_at_once = max(self.most_at_once, sum(each["status"]["phase"] == "Running" for each in self.world.api.all(PODS)))

    def _train(self, pod: str, run: _Run) -> None:
        name = pod.removesuffix("-worker-0")
        for _ in range(self._speed):
            run.step += 1
            if run.step % self._every == 0 or run.step == self._total:
                self._log(name, run)
        loss = self.loss(name, run.step)
        self.world.metrics_text[run.address] = (
            f"{names.METRIC_STEP} {run.step}\n{names.METRIC_TOTAL_STEPS} {self._total}\n{names.METRIC_LOSS} {loss}\n"
        )
        if run.step >= self._total:
            said = {"step": run.step, "total_steps": self._total, "loss": loss}
            self.world.metrics_text.pop(run.address)
            self.world.api.pod_ends(pod, 0, json.dumps({names.LAST_FIGURES: said}))

    def _log(self, name: str, run: _Run) -> None:
        run.checkpoint = run.step
        at = self.world.api.clock()
        run.lines.append(json.dumps({"time": at, "at": stamp(at), "step": run.step, "loss": self.loss(name, run.step)}))
