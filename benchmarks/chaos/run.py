"""One run: jobs come and end in two places at a time, what breaks breaks in its time, and all of it is written down.

path = asyncio.run(play(settings, stack))        # the history; raises BenchmarkError, BoxError, KubeError
"""

import asyncio
import itertools
import json
import os
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any, TypeVar

from benchmarks.chaos.actions import KINDS, Action, schedule
from benchmarks.chaos.faults import Done, Faults, Skipped
from benchmarks.chaos.history import History
from benchmarks.chaos.jobs import BACKOFF_LIMIT, JobPlan, draw, manifest
from benchmarks.chaos.stack import Stack
from benchmarks.chaos.watch import NAMESPACE, SYSTEM, Watch
from devcluster.cloud.charges import read_charges
from devcluster.commands import say
from devcluster.machines import lifecycle
from devcluster.settings import BoxError
from ebb.api.clock import unix
from ebb.api.contract import LABEL_CAPACITY, MANAGER_GROUP
from ebb.kube import CONFIG_MAPS, ELASTIC_JOBS, Conflict, Kube, KubeError, Object

PLACES = 2  # jobs at a time; their workers share the cores of this machine
SHORTEST_SECONDS = 30.0  # before the end: no further job begins
START_SECONDS = 300.0  # until the first jobs train; then things break in any case
REST_SECONDS = 600.0  # after the last action: jobs end, and have waited for machines before
BACK_SECONDS = 180.0  # until all parts of the platform are ready again
IDLE_SECONDS = 120.0  # until idle machines have left, and the usage record says so
SAY_SECONDS = 15.0
AGAIN_SECONDS = 1.0
HEALS = 5
PARTS = {"controller": (SYSTEM, "ebb-controller"), "gateway": (NAMESPACE, "ebb-gateway"), "rendezvous": (SYSTEM, "etcd")}
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class ChaosSettings:
    """The command line. `only`: kinds of actions, none for all."""

    seconds: float
    seed: int
    plant: str
    only: tuple[str, ...]
    history: Path
    folder: Path

    @property
    def has_zombies(self) -> bool:
        """Workers are to outlive their replacement, and to reach etcd."""
        return "zombie" in self.only


async def play(settings: ChaosSettings, stack: Stack) -> None:
    """Write the history of a run."""
    facts = {"seed": settings.seed, "seconds": settings.seconds, "plant": settings.plant, "only": settings.only}
    facts |= {"unix": time.time(), "cores": os.cpu_count(), "load": os.getloadavg()[0]}
    async with Kube.connect(str(stack.box.kubeconfig)) as kube:
        with History.begin(settings.history, **facts) as history:
            await Run(settings, stack, kube, history).live()


class Run:
    """All parts of a run, joined."""

    def __init__(self, settings: ChaosSettings, stack: Stack, kube: Kube, history: History) -> None:
        self._settings, self._stack, self._kube, self._history = settings, stack, kube, history
        # A pod that Kubernetes has forgotten is let in nowhere by the policies, so that a fence that is broken would not show.
        everybody, us = stack.box.network, IPv4Network(stack.box.host_address)
        self._watch = Watch(kube, history, everybody if settings.has_zombies else us)
        self._faults = Faults(stack.box, kube, output=stack.output, workers=self._watch.nodes_of_workers)
        self._template: Object = {}
        self._numbers: Iterator[int] = itertools.count()
        self._present: dict[str, JobPlan] = {}
        self._events = 0
        self._zero: float | None = None  # when the first jobs train, by the history's clock: a busy machine takes its time

    async def live(self) -> None:
        """To the end. Whatever is broken is healed, also when it is cut off."""
        self._template = await asyncio.to_thread(self._stack.template)
        async with asyncio.TaskGroup() as tasks:
            background = [tasks.create_task(self._watch.run()), tasks.create_task(self._report())]
            try:
                async with asyncio.TaskGroup() as works:
                    works.create_task(self._act())
                    for _ in range(PLACES):
                        works.create_task(self._place())
                await self._look_at_platform()
                await self._settle_bill()
            finally:
                await self._faults.heal_all()
                for task in background:
                    task.cancel()

    def _passed(self) -> float:
        """Seconds in which things break."""
        return 0.0 if self._zero is None else self._history.seconds - self._zero

    def _train(self) -> bool:
        """The first jobs do."""
        return len(self._present) == PLACES and all(map(self._watch.trains, self._present))

    # Jobs

    async def _place(self) -> None:
        """One job after the other, as long as there is time."""
        while self._passed() < self._settings.seconds - SHORTEST_SECONDS:
            await self._job(draw(seed=self._settings.seed, number=next(self._numbers), slow=self._settings.has_zombies))

    async def _job(self, plan: JobPlan) -> None:
        body = manifest(self._template, plan, env=self._stack.env)
        job = await self._insist(lambda: self._create(body))
        uid = job["metadata"]["uid"]
        self._stack.move_ledger(plan.name, uid)
        self._history.add("job", name=plan.name, uid=uid, workers=plan.workers, ends=plan.ends, backoff=BACKOFF_LIMIT)
        self._present[plan.name] = plan
        left = self._settings.seconds + REST_SECONDS - self._passed()
        if not await self._watch.changes.until(lambda: self._watch.has_ended(plan.name), seconds=left):
            say(f"{plan.name} has not ended")
        self._present.pop(plan.name)
        say(f"{plan.name}: {self._watch.state(plan.name)}, as planned: {self._watch.state(plan.name) == plan.ends}")
        self._history.add("crashes", job=plan.name, times=self._stack.crashes(plan.name))
        for name, text in self._stack.ledger(plan.name).items():
            self._history.add("file", job=plan.name, name=f"ledger/{name}", text=text)
        for name in ("result.json", "owner.json"):
            path = self._stack.folder_of(plan.name, uid) / name
            if path.exists():
                self._history.add("file", job=plan.name, name=name, text=path.read_text())

    async def _create(self, body: Object) -> Object:
        try:
            return await self._kube.create(ELASTIC_JOBS, NAMESPACE, body)
        except Conflict:  # an earlier try came through, and its answer did not
            return await self._kube.get(ELASTIC_JOBS, NAMESPACE, body["metadata"]["name"])

    async def _insist(self, call: Callable[[], Awaitable[T]], seconds: float = REST_SECONDS) -> T:
        """Try until the API server takes it: it may be away. Raises KubeError in the end."""
        until = time.monotonic() + seconds
        while True:
            try:
                return await call()
            except KubeError:
                if time.monotonic() > until:
                    raise
                await asyncio.sleep(AGAIN_SECONDS)

    # Actions

    async def _act(self) -> None:
        train = await self._watch.changes.until(self._train, seconds=START_SECONDS)
        self._zero = self._history.seconds
        begins = "" if train else f"no two jobs were seen to train within {START_SECONDS:.0f} s; "
        say(f"{begins}from now on things break, for {self._settings.seconds:.0f} s")
        actions = schedule(seed=self._settings.seed, seconds=self._settings.seconds, only=self._settings.only)
        async with asyncio.TaskGroup() as heals:
            for number, action in enumerate(actions):
                await asyncio.sleep(max(0.0, action.at - self._passed()))
                at = round(self._history.seconds, 3)
                try:
                    done = await self._faults.begin(action)
                except Skipped as why:
                    say(f"({action.kind}: {why})")
                    self._history.add("skipped", number=number, kind=action.kind, why=str(why))
                    continue
                self._events += 1
                lasts = f", for {action.seconds:.0f} s" if action.seconds else ""
                say(f"{KINDS[action.kind].what}{lasts}: {done.victim}")
                self._history.add("action", at=at, number=number, kind=action.kind, victim=done.victim, seconds=action.seconds)
                heals.create_task(self._heal(number, action, done))

    async def _heal(self, number: int, action: Action, done: Done) -> None:
        await asyncio.sleep(action.seconds)
        for _ in range(HEALS):
            try:
                await done.heal()
            except (BoxError, OSError) as error:
                say(f"{action.kind} is not healed yet: {str(error)[:200]}")
            else:
                self._history.add("healed", number=number)
                return

    # The end

    async def _look_at_platform(self) -> None:
        for name, (namespace, app) in PARTS.items():
            well = await self._watch.changes.until(partial(self._watch.is_ready, namespace, app), seconds=BACK_SECONDS)
            self._history.add("part", name=name, well=well)

    async def _settle_bill(self) -> None:
        """When all machines have left, and a controller has written that down."""
        self._stack.keep_idle_machines(0.0)
        await self._await(self._all_have_left)
        asked = time.time()
        await self._await(lambda: self._is_written_since(asked))
        cost: dict[str, Any] = json.loads(
            await asyncio.to_thread(self._stack.platform.ebb, "cost", "--since", "all", "-o", "json")
        )
        machines = [
            {"name": one.machine, "usd_per_hour": one.price_per_hour, "booted_at": one.booted_at, "gone_at": one.gone_at}
            for one in read_charges(self._stack.box.folder / "machines.jsonl")
            if one.group != MANAGER_GROUP
        ]
        parts = {name: cost[name] for name in ("jobs", "idle", "unseen", "machines", "platform")}
        self._history.add("bill", at_unix=unix(cost["until"]), machines=machines, cost=parts)

    def _spot_machines(self) -> list[str]:
        return [one.name for one in lifecycle.list_machines(self._stack.box) if one.spec.labels.get(LABEL_CAPACITY) == "spot"]

    async def _all_have_left(self) -> bool:
        return not self._spot_machines()

    async def _is_written_since(self, moment: float) -> bool:
        """The controller's record of machines goes beyond that moment."""
        record = await self._insist(lambda: self._kube.get(CONFIG_MAPS, SYSTEM, "ebb-machines"))
        return (unix(json.loads(record["data"]["machines.json"])["until"]) or 0.0) > moment

    async def _await(self, holds: Callable[[], Awaitable[bool]]) -> None:
        """Until it holds, or for so long that the judge will say why it did not."""
        with suppress(TimeoutError):
            async with asyncio.timeout(IDLE_SECONDS):
                while not await holds():  # noqa: ASYNC110 - it is on another machine, or the kernel's
                    await asyncio.sleep(AGAIN_SECONDS)

    async def _report(self) -> None:
        while True:
            await asyncio.sleep(SAY_SECONDS)
            jobs = ", ".join(f"{name} {self._watch.state(name) or 'new'}" for name in self._present) or "none"
            say(f"{self._history.seconds:5.0f} s  jobs: {jobs}; machines: {len(self._spot_machines())}; events: {self._events}")
