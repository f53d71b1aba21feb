"""One controller that leads and one that follows: the second sees everything, writes nothing, and acts at once when it wins."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

from ebb.controller.__main__ import lead
from ebb.controller.controller import FORGET_SECONDS, Controller
from ebb.controller.election import DURATION_SECONDS, Election
from ebb.controller.metrics import Metrics
from ebb.controller.served_kind import ServedKind
from ebb.kube import CONFIG_MAPS, ELASTIC_JOBS, LEASES, NODES, PODS, Resource
from tests.builders import NOW, make_job, make_node
from tests.fake_kube import FakeKube
from tests.fake_time import run
from tests.world import FakeReceiver, at_once

LIST_SECONDS = 4.0  # of a large cluster


class SlowLists(FakeKube):
    """A server that takes long for a list, and remembers who wrote what."""

    def __init__(self, clock: Callable[[], float]) -> None:
        super().__init__(clock)
        self.lists = 0

    async def list_page(self, resource: Resource, *args: Any, **more: Any) -> tuple[list[dict[str, Any]], str, str]:
        self.lists += 1
        await asyncio.sleep(LIST_SECONDS)
        return await super().list_page(resource, *args, **more)

    def written(self) -> list[tuple[str, str, str]]:
        return [call for call in self.calls if call[1] != LEASES.plural]


class One:
    """A controller process."""

    def __init__(self, api: FakeKube, name: str) -> None:
        async def fetch(address: str) -> str | None:
            return None

        async def send(method: str, address: str, fields: Any) -> dict[str, Any]:
            return {}

        self.election = Election(api, "ebb-system", "ebb-controller", identity=name, clock=api.clock)
        self.controller = Controller(
            api, fence=self.election.check, fetch=fetch, fetch_launcher=fetch, send=send, clock=api.clock, metrics=Metrics(),
            receiver=FakeReceiver(), aside=at_once
        )  # fmt: skip
        self.served = ServedKind(self._describe)
        self.described: dict[str, Any] = {}  # of the kind that the server has
        self._task = asyncio.create_task(lead(self.election, self.controller, None, self.served))

    async def settle(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def kill(self) -> None:
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task

    async def _describe(self) -> dict[str, Any]:
        return self.described

    @property
    def alive(self) -> bool:
        return not self._task.done()

    async def until_it_leads(self) -> float:
        while not self.election.leads:  # noqa: ASYNC110 - of fake time
            await asyncio.sleep(0.01)
        return asyncio.get_running_loop().time()


@asynccontextmanager
async def pair() -> AsyncIterator[tuple[SlowLists, One, One]]:
    """The first leads."""
    loop = asyncio.get_running_loop()
    api = SlowLists(lambda: NOW + loop.time())
    first = One(api, "first")
    await first.until_it_leads()
    second = One(api, "second")
    await asyncio.sleep(5 * LIST_SECONDS)
    try:
        yield api, first, second
    finally:
        await second.kill()
        await first.kill()


async def let_a_job_run(api: SlowLists) -> None:
    api.put(ELASTIC_JOBS, make_job())
    await asyncio.sleep(2)
    for index, name in enumerate(api.names(PODS)):
        api.put(NODES, make_node(f"n{index}"))
        api.pod_runs(name, f"n{index}")
    await asyncio.sleep(2)


def test_one_that_follows_acts_within_a_second_of_winning() -> None:
    async def story() -> None:
        async with pair() as (api, first, second):
            for index in range(2):
                api.put(NODES, make_node(f"n{index}"))
            await first.kill()
            api.put(ELASTIC_JOBS, make_job())
            lists, began = api.lists, asyncio.get_running_loop().time()
            await asyncio.sleep(DURATION_SECONDS / 2)
            assert not api.names(PODS)
            won = await second.until_it_leads()
            assert won - began > DURATION_SECONDS / 2
            await asyncio.sleep(1)
            assert api.names(PODS) == ["digits-worker-0", "digits-worker-1"]
            assert api.lists - lists <= 1, "of records, which nobody waits for"

    run(story())


def test_one_that_follows_writes_nothing_and_keeps_nothing_of_jobs_that_are_long_gone() -> None:
    async def story() -> None:
        async with pair() as (api, _, second):
            await let_a_job_run(api)
            before = len(api.written())
            api.remove(ELASTIC_JOBS, "digits")
            await asyncio.sleep(2)
            assert [call[:2] for call in api.written()[before:] if call[1] == CONFIG_MAPS.plural] == [("create", "configmaps")]
            assert second.alive, "the fence has not ended it"
            assert second.controller.cluster.departed, "should the first be gone before it has written the record"
            await asyncio.sleep(2 * FORGET_SECONDS + 1)
            assert not second.controller.cluster.departed

    run(story())


def test_the_record_of_a_job_that_went_with_the_leader_is_written_by_the_next() -> None:
    async def story() -> None:
        async with pair() as (api, first, second):
            await let_a_job_run(api)
            await first.kill()
            api.remove(ELASTIC_JOBS, "digits")
            await second.until_it_leads()
            await asyncio.sleep(1)
            assert [name for name in api.names(CONFIG_MAPS) if name.startswith("ebb-record-")] == ["ebb-record-digits-0b8e7a52"]

    run(story())
