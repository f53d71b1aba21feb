"""Three controllers, wall clocks hours apart, and a network that delays, loses and repeats: never two that may write.

Everything is in fake time, so that an hour of it is a second; seeds make each history come back.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from random import Random
from typing import Any

import pytest

from ebb.controller.election import DURATION_SECONDS, Election, LeadershipLost
from ebb.kube import Conflict, Gone, KubeError, Resource, Unreachable
from tests.builders import NOW
from tests.fake_kube import FakeKube
from tests.fake_time import run

HOUR = 3600.0
SEEDS = range(4)
REFUSALS: Sequence[KubeError] = (
    Conflict("injected", status=409, reason="Conflict"),
    Gone("injected", status=410),
    KubeError("injected", status=429),
    KubeError("injected", status=500),
)


class Link:
    """One controller's way to the API server. What the server was told happens, also when nobody waits for the answer."""

    def __init__(self, api: FakeKube, chance: Random) -> None:
        self._api, self._chance = api, chance
        self.cut = False
        self._late: set[asyncio.Task[Any]] = set()

    async def get(self, resource: Resource, namespace: str | None, name: str) -> Any:
        return await self._through(lambda: self._api.get(resource, namespace, name))

    async def create(self, resource: Resource, namespace: str | None, body: Any) -> Any:
        return await self._through(lambda: self._api.create(resource, namespace, body))

    async def replace(self, resource: Resource, namespace: str | None, name: str, body: Any) -> Any:
        return await self._through(lambda: self._api.replace(resource, namespace, name, body))

    async def _through(self, call: Callable[[], Awaitable[Any]]) -> Any:
        if self.cut and self._chance.random() < 0.9:
            await asyncio.sleep(self._chance.choice((0.0, 60.0)))
            raise Unreachable("cut off")
        if self._chance.random() < 0.05:
            raise self._chance.choice(REFUSALS)
        task = asyncio.create_task(self._slowly(call))
        self._late.add(task)
        task.add_done_callback(self._done)
        return await asyncio.shield(task)

    async def _slowly(self, call: Callable[[], Awaitable[Any]]) -> Any:
        slow = self._chance.random() < 0.1
        await asyncio.sleep(self._chance.uniform(0, 40.0 if slow else 0.2))
        answer = await call()
        await asyncio.sleep(self._chance.uniform(0, 0.2))
        return answer

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._late.discard(task)
        if not task.cancelled():
            task.exception()  # nobody may wait for it any more


async def life(elections: dict[str, Election], name: str, link: Link, clock: Callable[[], float], chance: Random) -> None:
    """A controller that is started again whenever it ends, sometimes killed, sometimes told to stop."""
    number = 0
    while True:
        number += 1
        election = elections[name] = Election(link, "ebb-system", "lease", identity=f"{name}-{number}", clock=clock)
        try:
            async with asyncio.timeout(chance.expovariate(1 / 300)):
                await election.acquire()
                await election.hold()
        except LeadershipLost:
            await election.release()
        except TimeoutError:
            if chance.random() < 0.5:
                await election.release()
            else:  # killed: it writes no more, whatever its fence says
                del elections[name]
        await asyncio.sleep(chance.uniform(0, 5))


@pytest.mark.parametrize("seed", SEEDS)
def test_never_two_lead_whatever_the_network_does(seed: int) -> None:
    async def story() -> tuple[int, float]:
        random.seed(seed)  # the election's own jitter
        loop, chance = asyncio.get_running_loop(), Random(seed)
        api = FakeKube(lambda: NOW + loop.time())
        links = {name: Link(api, chance) for name in ("a", "b", "c")}
        elections: dict[str, Election] = {}
        skews = {name: chance.uniform(-5, 5) * HOUR for name in links}

        def clock(name: str) -> Callable[[], float]:
            return lambda: NOW + loop.time() + skews[name]

        tasks = [asyncio.create_task(life(elections, name, link, clock(name), chance)) for name, link in links.items()]
        leaders: set[tuple[str, int]] = set()
        led = 0.0
        while loop.time() < HOUR:
            step = chance.uniform(0.01, 0.5)
            await asyncio.sleep(step)
            leading = [(name, id(one)) for name, one in elections.items() if one.leads]
            assert len(leading) <= 1, (loop.time(), leading)
            leaders |= set(leading)
            led += step if leading else 0
            if chance.random() < 0.02:
                links[chance.choice("abc")].cut = chance.random() < 0.5
        for task in tasks:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        return len(leaders), led / HOUR

    changes, share = run(story())
    assert changes > 3, "the test does not test what it should"
    assert share > 0.2, f"nobody led for most of the time: a lease is free after {DURATION_SECONDS} s"
