"""Plays one job's scenario: does to it, through the API alone, what its actions say, each when the one before has had its effect.

    play = Play(scenario, stage); await play.run(begun)

Where a program ends, the cloud is asked to leave the job's machines alone until the controller has written that down: of a
worker that fails in the moment in which its machine goes, nobody could say what it was lost to.
"""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from benchmarks.week import actions, model
from benchmarks.week.cloud import Sight
from benchmarks.week.judge import Judge
from benchmarks.week.ledger import Ledger
from benchmarks.week.scenarios import Scenario, manifest
from benchmarks.week.seen import Worker
from benchmarks.week.workers import SimulatedWorkers
from ebb.kube import ELASTIC_JOBS, MERGE, Kube, NotFound

Object = dict[str, Any]

STUCK_SECONDS = 1000.0  # for containers that cannot start to be given up, twice after 5 minutes
SETTLE_SECONDS = 150.0  # for workers to be gone, some of them from silent machines
UNDECIDED_SECONDS = 8.0
TRIES = 10


class Stuck(Exception):
    """An act does not have the effect that it should; the text is the violation."""


@dataclass(kw_only=True)
class Stage:
    """Settings that all plays share. `patience_seconds`: how long a job may wait for machines, while many want them; `done`
    counts what was done, for the summary."""

    kube: Kube
    sight: Sight
    simulated: SimulatedWorkers
    ledger: Ledger
    judge: Judge
    namespace: str
    patient: bool
    patience_seconds: float
    protected: set[str] = field(default_factory=set)  # jobs whose machines the cloud leaves alone
    done: dict[str, int] = field(default_factory=lambda: {"scales": 0, "suspends": 0, "deletes": 0, "failures": 0})


class Play:
    """See the module's docstring."""

    def __init__(self, scenario: Scenario, stage: Stage) -> None:
        self.scenario, self._stage = scenario, stage
        self.uid = ""
        self.over = False
        self._failed_attempt = -1  # workers of this one and of those before are stopped sooner or later
        self._rng = random.Random(scenario.name)  # noqa: S311 - guards nothing

    async def run(self, begun: float) -> None:
        """Returns when all is done to the job that is to be done, or cannot be. `begun`: when the week did, monotonic."""
        await asyncio.sleep(max(0.0, begun + self.scenario.arrives - time.monotonic()))
        body = manifest(self.scenario, namespace=self._stage.namespace, now=time.time())
        created = await self._stage.kube.create(ELASTIC_JOBS, self._stage.namespace, body)
        self.uid = created["metadata"]["uid"]
        self._stage.simulated.watch(self.uid, self.scenario.low)
        self._stage.judge.last.setdefault(self.uid, created)
        end = model.End(state=model.RUNNING)
        try:
            for act in self.scenario.actions:
                if self._ended and not end.final:
                    return  # too early: the comparison at the end will say so
                await self._perform(act)
                end = model.after(self.scenario, end, act, patient=self._stage.patient)
        except Stuck as stuck:
            self._stage.judge.violation(f"{self.scenario.name}: {stuck}; it says: {model.describe(self.job)}")
        finally:
            self._stage.protected.discard(self.uid)
            self.over = True

    @property
    def job(self) -> Object:
        """As last seen."""
        return self._stage.judge.last[self.uid]

    @property
    def _ended(self) -> bool:
        gone = self.uid not in self._stage.sight.jobs.objects and bool(self.job.get("status"))
        return gone or (self.job.get("status") or {}).get("state") in (model.SUCCEEDED, model.FAILED)

    @property
    def _held(self) -> bool:
        return model.observed(self.job).state == model.HELD

    def _workers(self) -> list[Worker]:
        return self._stage.sight.crowd.of(self.uid)

    def _sound(self) -> list[Worker]:
        """Workers that run on machines that stay, and are not about to be started again for a failure of others."""
        wanted = [one for one in self._workers() if one.trains and one.attempt > self._failed_attempt]
        return [one for one in wanted if one.node not in self._stage.ledger.machines]

    @property
    def _placement(self) -> object:
        return (self.job.get("status") or {}).get("placement")

    async def _until(self, holds: Callable[[], bool], seconds: float, otherwise: str) -> None:
        if not await self._stage.sight.changes.until(holds, seconds):
            raise Stuck(f"{otherwise} after {seconds:.0f} s")

    @contextmanager
    def _left_alone(self) -> Iterator[None]:
        self._stage.protected.add(self.uid)
        self._stage.ledger.disturbed(self.uid)
        try:
            yield
        finally:
            self._stage.protected.discard(self.uid)

    async def _perform(self, act: actions.Action) -> None:
        performers: Mapping[type[actions.Action], Callable[[Any], Awaitable[None]]] = {
            actions.Train: self._train, actions.Fail: self._fail, actions.Leave: self._leave, actions.Finish: self._finish,
            actions.Suspend: self._suspend, actions.Resume: self._resume, actions.Scale: self._scale,
            actions.Delete: self._delete,
            actions.Rest: self._rest, actions.Overrun: self._overrun, actions.Spend: self._outlast,
            actions.Outlive: self._outlast,
            actions.Allow: self._allow, actions.Stick: self._stick, actions.Hang: self._hang,
        }  # fmt: skip
        await performers[type(act)](act)

    async def _train(self, act: actions.Train) -> None:
        aim = self._stage.simulated.trained(self.uid) + act.seconds

        def trained() -> bool:
            return self._stage.simulated.trained(self.uid) >= aim or self._ended or self._held

        await self._until(trained, self._stage.patience_seconds + 3 * act.seconds, f"did not train {act.seconds:g} s")

    async def _rest(self, act: actions.Rest) -> None:
        await asyncio.sleep(act.seconds)

    async def _overrun(self, _: actions.Overrun) -> None:
        await self._until(lambda: self._ended, self._stage.patience_seconds, "was not ended for its activeDeadlineSeconds")

    async def _outlast(self, _: actions.Spend | actions.Outlive) -> None:
        await self._until(lambda: self._held, self._stage.patience_seconds, "was not held")

    async def _hang(self, _: actions.Hang) -> None:
        self._stage.simulated.hang(self.uid)
        await self._until(lambda: self._held, self._stage.patience_seconds, "makes no step and was not held")

    async def _fail(self, act: actions.Fail) -> None:
        for _ in range(TRIES):
            await self._until(lambda: bool(self._sound()) or self._ended, self._stage.patience_seconds, "has no worker to fail")
            if self._ended or await self._failed_once(act):
                return
        raise Stuck(f"no worker could be made to fail in {TRIES} tries")

    async def _failed_once(self, act: actions.Fail) -> bool:
        """False when all that failed were taken away by somebody else in the same moment, or stopped as the job went elsewhere:
        nobody can say which came first."""
        account, changes, placement = self._stage.ledger.accounts[self.uid], self._stage.sight.changes, self._placement
        with self._left_alone():
            victims = self._sound()
            self._rng.shuffle(victims)
            victims = victims[: act.workers]
            account.failures += 1
            written = await asyncio.gather(*(self._stage.simulated.end(one, act.code, act.reason) for one in victims))
            sure = {one.uid for one, first in zip(victims, written, strict=True) if first}

            def counted() -> bool:
                return self._failures >= account.failures or self._ended

            def unclear() -> bool:
                return sure <= account.lost or self._placement != placement

            if not await changes.until(lambda: counted() or unclear(), SETTLE_SECONDS):
                raise Stuck(f"failure {account.failures} of its program was not counted")
            await changes.until(lambda: counted() or self._stage.ledger.steady(), SETTLE_SECONDS)  # who is away counts later
            if await changes.until(counted, UNDECIDED_SECONDS):
                self._stage.done["failures"] += 1
                self._failed_attempt = max((one.attempt for one in victims), default=self._failed_attempt)
                return True
        account.failures -= 1
        account.doubtful += 1
        return False

    @property
    def _failures(self) -> int:
        return int((self.job.get("status") or {}).get("failures", 0))

    async def _leave(self, _: actions.Leave) -> None:
        await self._until(lambda: bool(self._sound()) or self._ended, self._stage.patience_seconds, "has no worker to leave")
        if self._ended:
            return
        one = self._rng.choice(self._sound())
        self._stage.ledger.disturbed(self.uid)
        self._stage.ledger.left(one)
        await self._stage.simulated.end(one, model.LEFT, "Error")

        def gone() -> bool:
            return one.uid not in self._stage.sight.crowd.workers or self._ended

        await self._until(gone, SETTLE_SECONDS, f"pod {one.name} left with code {model.LEFT} and is still there")

    async def _finish(self, act: actions.Finish) -> None:
        def ready() -> bool:
            return len(self._sound()) >= self.scenario.low or self._ended

        await self._until(ready, self._stage.patience_seconds, "has no workers to finish")
        with self._left_alone():
            running = [one.index for one in self._sound()]
            stay = set(running[1:][: act.stragglers])
            deadline = time.monotonic() + self._stage.patience_seconds
            while not self._ended:
                for one in [one for one in self._sound() if one.index not in stay]:
                    await self._stage.simulated.end(one, 0, "Completed")

                def more() -> bool:
                    return self._ended or any(one.index not in stay for one in self._sound())

                await self._until(more, deadline - time.monotonic(), "finished, and was not ended")

    async def _suspend(self, _: actions.Suspend) -> None:
        self._stage.done["suspends"] += 1
        await self._edit({"suspend": True})
        await self._until(self._at_rest, SETTLE_SECONDS, "was suspended and still has workers")

    async def _resume(self, _: actions.Resume) -> None:
        await self._edit({"suspend": False})

    def _at_rest(self) -> bool:
        state = (self.job.get("status") or {}).get("state")
        return self._ended or (state == model.SUSPENDED and all(one.finished for one in self._workers()))

    async def _scale(self, act: actions.Scale) -> None:
        self._stage.done["scales"] += 1
        self._stage.ledger.disturbed(self.uid)
        with suppress(NotFound):
            body = {"spec": {"replicas": act.to}}
            await self._stage.kube.patch(
                ELASTIC_JOBS, self._stage.namespace, self.scenario.name, body, subresource="scale", kind=MERGE
            )

        def fewer() -> bool:
            return self._ended or len([one for one in self._workers() if not one.leaving]) <= act.to

        await self._until(fewer, SETTLE_SECONDS, f"was scaled to {act.to} and has more workers")

    async def _delete(self, _: actions.Delete) -> None:
        self._stage.done["deletes"] += 1
        self._stage.ledger.disturbed(self.uid)
        with suppress(NotFound):
            await self._stage.kube.delete(ELASTIC_JOBS, self._stage.namespace, self.scenario.name, uid=self.uid)

        def gone() -> bool:
            return self.uid not in self._stage.sight.jobs.objects and not self._workers()

        await self._until(gone, SETTLE_SECONDS, "was deleted and left something behind")

    async def _allow(self, _: actions.Allow) -> None:
        if self.scenario.budget_usd is not None:
            await self._edit({"budget": {"maxUSD": self.scenario.budget_usd * 1000}})
        else:
            await self._edit({"deadline": None})
        await self._until(lambda: not self._held, SETTLE_SECONDS, "was allowed to go on and is still held")

    async def _stick(self, _: actions.Stick) -> None:
        """The controller gives it 5 minutes, twice. In a week in an hour those are half a day, which no machine would last: so
        the cloud leaves its machines alone."""
        ends = time.monotonic() + (STUCK_SECONDS if self._stage.patient else 30.0)
        with self._left_alone():
            while not self._held and time.monotonic() < ends:
                for one in self._workers():
                    if one.node and not one.leaving:
                        await self._stage.simulated.block(one)
                await self._stage.sight.changes.until(lambda: self._held, 0.5)
        if self._stage.patient and not self._held:
            raise Stuck("its image cannot be pulled, and it was not held")

    async def _edit(self, spec: Mapping[str, object]) -> None:
        self._stage.ledger.disturbed(self.uid)
        with suppress(NotFound):
            await self._stage.kube.patch(
                ELASTIC_JOBS, self._stage.namespace, self.scenario.name, {"spec": dict(spec)}, kind=MERGE
            )
