"""Busy jobs whose every figure is known beforehand: what a controller must get right whatever is done to it meanwhile.

    async with crowd(made, machines, jobs=6, seed=7) as jobs:
        ...                         # kill, cut, refuse
        await jobs.finish()         # every story comes to its end, with the figures that the model says

A story does one thing to its job (lose machines, fail, scale, suspend, ...) and waits until the job is as its model says, so that
no two causes mix and each counts exactly once. A story that waits too long is a lost job. What must hold at every moment is
looked at with every change that the API server tells: `Crowd.broken`.
"""

import asyncio
import random
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

from ebb.api import contract as names
from ebb.kube import ELASTIC_JOBS, PODS, Conflict, Invalid, NotFound, Resource
from tests.apiserver.machines import Machines
from tests.apiserver.place import Job, article
from tests.apiserver.plane import Made

Object = dict[str, Any]
MOST = 4  # workers of a job
LIMIT = 3  # spec.backoffLimit of all jobs: the next failure ends one
FINAL = (names.SUCCEEDED, names.FAILED)


class Story:
    """One job, and what its status must say."""

    def __init__(self, job: Job, rng: random.Random, patience_seconds: float) -> None:
        self.job, self.rng, self.patience_seconds = job, rng, patience_seconds
        self.replicas = rng.randint(2, MOST)
        self.failures = self.reclaims = self.lives = self.steps = 0
        self.final = ""
        self.doing = "not begun"

    @property
    def machines(self) -> Machines:
        return self.job.machines

    async def begin(self) -> None:
        self.failures = self.reclaims = 0
        self.lives += 1
        changes: Object = {"replicas": self.replicas, "low": 1, "high": MOST, "backoffLimit": LIMIT, "cleanPodPolicy": "All"}
        await self.job.made.kube.create(ELASTIC_JOBS, self.job.namespace, article(self.job.name, self.job.namespace, **changes))
        await self._as_told("submitted")

    async def step(self) -> None:
        """One thing happens to the job, and it is well again."""
        acts: list[Callable[[], Awaitable[None]]] = [
            self.lose_machines, self.lose_machines, self.notice, self.leave, self.delete_pods, self.scale, self.pause, self.again,
        ]  # fmt: skip
        if self.failures < LIMIT:
            acts += [self.fail, self.fail]
        act = self.rng.choice(acts)
        self.doing = act.__name__
        await act()
        self.steps += 1

    async def end(self) -> None:
        """The training finishes, or fails for good."""
        if self.rng.random() < 0.3:
            self.doing = "fail for good"
            while self.failures < LIMIT:
                await self.fail()
            self.failures, self.final = self.failures + 1, names.FAILED
            await self._programs_end([self.rng.randrange(self.replicas)], code=1)
        else:
            self.doing, self.final = "finish", names.SUCCEEDED
            await self._programs_end(list(range(self.replicas)), code=0)
        await self._until("ended", lambda: self.job.state == self.final and not self.job.pods)
        assert self._figures() == (self.failures, self.reclaims), self._told()

    # --- What happens to it ---

    async def lose_machines(self) -> None:
        lost = self._some()
        self.reclaims += len(lost)
        old = {index: self.job.pod_uid(index) for index in lost}
        await asyncio.gather(*(self.machines.vanish(self.job.machine(index)) for index in lost))
        await self._as_told(f"lost the machines of {lost}", old)

    async def notice(self) -> None:
        lost = self._some()
        self.reclaims += len(lost)
        old = {index: self.job.pod_uid(index) for index in lost}
        await asyncio.gather(*(self.machines.notice(self.job.machine(index), 30) for index in lost))
        await self._as_told(f"notice for {lost}", old)

    async def leave(self) -> None:
        index = self.rng.randrange(self.replicas)
        self.reclaims += 1
        old = {index: self.job.pod_uid(index)}
        await self._programs_end([index], code=names.EXIT_RECLAIMED)
        await self._as_told(f"{index} left", old)

    async def delete_pods(self) -> None:
        lost = self._some()
        self.reclaims += len(lost)
        old = {index: self.job.pod_uid(index) for index in lost}
        await asyncio.gather(*(self._delete(index, uid) for index, uid in old.items()))
        await self._as_told(f"somebody deleted {lost}", old)

    async def fail(self) -> None:
        """Several at once spend one, and all start again."""
        self.failures += 1
        old = {index: self.job.pod_uid(index) for index in range(self.replicas)}
        await self._programs_end(self._some(), code=1)
        await self._as_told("failed", old)

    async def scale(self) -> None:
        self.replicas = self.rng.randint(1, MOST)
        await self.job.scale(self.replicas)
        await self._as_told(f"scaled to {self.replicas}")

    async def pause(self) -> None:
        await self.job.patch(suspend=True)
        await self._until("suspended", lambda: self.job.state == names.SUSPENDED and not self.job.pods)
        await self.job.patch(suspend=False)
        await self._as_told("resumed")

    async def again(self) -> None:
        """Another job of the same name."""
        old = self.job.uid
        await self.job.delete()
        await self._until("gone", lambda: self.job.value is None or self.job.uid != old)
        await self.begin()

    async def _programs_end(self, indices: list[int], code: int) -> None:
        """All at the same moment. Once one is told of, the controller may stop the others before they are."""
        await asyncio.gather(*(_unless_replaced(self.machines.ends(self.job.worker(index), code)) for index in indices))

    async def _delete(self, index: int, uid: str) -> None:
        """This pod, however often it takes to be heard: never the one that comes in its place."""
        pods, name = self.job.made.kube, self.job.worker(index)
        await _unless_replaced(pods.delete(PODS, self.job.namespace, name, uid=uid))

    def _some(self) -> list[int]:
        return sorted(self.rng.sample(range(self.replicas), self.rng.randint(1, self.replicas)))

    # --- What must be so ---

    async def _as_told(self, what: str, old: dict[int, str] | None = None) -> None:
        """All workers run, none of them one of `old`, and the status has exactly the model's figures."""
        self.doing = what
        ready = f"{self.replicas}/{self.replicas}"

        def well() -> bool:
            status, wanted = self.job.status, set(range(self.replicas))
            return (
                self.job.state == names.RUNNING
                and status.get("ready") == ready
                and self._figures() == (self.failures, self.reclaims)
                and set(self.job.pods) == self.job.running() == wanted
                and all(self.job.pod_uid(index) != uid for index, uid in (old or {}).items())
                and self.job.value is not None
                and status.get("observedGeneration") == self.job.value["metadata"]["generation"]
            )

        await self._until(what, well)

    async def _until(self, what: str, check: Callable[[], bool]) -> None:
        await self.job.until(f"{what} ({self._told()})", check, self.patience_seconds)

    def _figures(self) -> tuple[int, int]:
        return self.job.status.get("failures", 0), self.job.status.get("reclaims", 0)

    def _told(self) -> str:
        return f"model: {self.replicas} workers, {self.failures} failures, {self.reclaims} reclaims, doing {self.doing}"


class Crowd:
    """Several stories at once, and what must hold at every moment."""

    def __init__(self, made: Made, machines: Machines, seed: int, *, jobs: int, patience_seconds: float) -> None:
        self.made, self.machines = made, machines
        self.stories = [
            Story(Job(made, machines, f"job-{number}"), random.Random(f"{seed}-{number}"), patience_seconds)
            for number in range(jobs)
        ]
        self.broken: list[str] = []
        self.most = 0  # pods of one job at once
        self._enough = False
        self._pods: defaultdict[str, set[str]] = defaultdict(set)  # job's UID -> UIDs of its pods
        self._final: dict[str, str] = {}
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def steps(self) -> int:
        return sum(story.steps for story in self.stories)

    @property
    def lost(self) -> list[str]:
        """Why stories ended before their end."""
        done = [task for task in self._tasks if task.done() and not task.cancelled()]
        return [str(task.exception()) for task in done if task.exception() is not None]

    def start(self) -> None:
        self._tasks = [asyncio.create_task(self._tell(story)) for story in self.stories]

    async def begun(self) -> None:
        """Every job runs."""
        await self.made.seen.until(
            "all jobs run", lambda: all(story.steps or story.lives for story in self.stories) and self._all_run(), 60
        )

    async def did(self, steps: int, seconds: float = 120) -> None:
        """Wait until so many more things have happened and were got over."""
        goal = self.steps + steps
        await self.made.seen.until(f"{steps} steps", lambda: self.steps >= goal or self.lost, seconds)
        self.still_well()

    async def all_did(self, seconds: float) -> None:
        """Wait until every job has got over what happens to it now."""
        goals = [(story, story.steps + 1) for story in self.stories]
        await self.made.seen.until("all got over it", lambda: all(one.steps >= goal for one, goal in goals) or self.lost, seconds)
        self.still_well()

    async def finish(self) -> None:
        """Bring every story to its end. Raises what went wrong."""
        self._enough = True
        await asyncio.gather(*self._tasks)
        self.still_well()

    def still_well(self) -> None:
        """What must never have been so was not, and no story has ended for want of progress."""
        found = [*self.broken, *self.machines.doubles, *self.lost]
        assert not found, "\n".join(found)

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def listen(self, kind: Resource, old: Object | None, new: Object | None) -> None:
        value = new or old
        if value is None or value["metadata"].get("namespace") != self.machines.namespace:
            return
        if kind is PODS:
            self._count(value, present=new is not None)
        elif kind is ELASTIC_JOBS and new is not None:
            self._judge(new)

    async def _tell(self, story: Story) -> None:
        await story.begin()
        while not self._enough:
            await story.step()
        await story.end()

    def _all_run(self) -> bool:
        return all(story.job.state == names.RUNNING for story in self.stories)

    def _count(self, pod: Object, *, present: bool) -> None:
        job, uid = pod["metadata"]["ownerReferences"][0]["uid"], pod["metadata"]["uid"]
        pods = self._pods[job]
        (pods.add if present else pods.discard)(uid)
        self.most = max(self.most, len(pods))
        if len(pods) > MOST:
            self.broken.append(f"{len(pods)} pods of one job at once, maxReplicas is {MOST}")

    def _judge(self, job: Object) -> None:
        uid, status, name = job["metadata"]["uid"], job.get("status") or {}, job["metadata"]["name"]
        story = next(one for one in self.stories if one.job.name == name)
        state = status.get("state", "")
        if self._final.get(uid, state) != state:
            self.broken.append(f"{name} was {self._final[uid]} for good and is {state}")
        if state in FINAL:
            self._final[uid] = state
        if state == names.FAILED and story.final != names.FAILED:
            self.broken.append(f"{name} failed with budget left: {status.get('conditions')}")
        counted = Counter(failures=status.get("failures", 0), reclaims=status.get("reclaims", 0))
        if counted - Counter(failures=story.failures, reclaims=story.reclaims):
            last = (status.get("history") or [{}])[-1]
            self.broken.append(f"{name}: {dict(counted)} counted, the last for {last}; {story._told()}")


async def _unless_replaced(call: Awaitable[None]) -> None:
    """A pod that is gone, or whose name another one has now (a UID is for ever: Invalid), needs nothing more."""
    with suppress(NotFound, Conflict, Invalid):
        await call


@asynccontextmanager
async def crowd(
    made: Made, machines: Machines, *, jobs: int = 6, seed: int = 1, patience_seconds: float = 30
) -> AsyncIterator[Crowd]:
    """A crowd that has begun, until the block ends."""
    one = Crowd(made, machines, seed, jobs=jobs, patience_seconds=patience_seconds)
    made.seen.listeners.append(one.listen)
    one.start()
    try:
        await one.begun()
        yield one
    finally:
        await one.stop()
        made.seen.listeners.remove(one.listen)
