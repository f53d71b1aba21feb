"""The queue's promises, in fake time."""

import asyncio
from itertools import pairwise

from ebb.controller.workqueue import WorkQueue
from tests.fake_time import run


def test_a_key_waits_once_however_often_it_is_added() -> None:
    async def story() -> None:
        queue: WorkQueue[str] = WorkQueue()
        for key in ("a", "b", "a"):
            queue.add(key)
        assert [await queue.take(), await queue.take(), len(queue)] == ["a", "b", 0]

    run(story())


def test_a_key_is_never_taken_twice_at_once() -> None:
    async def story() -> None:
        queue: WorkQueue[str] = WorkQueue()
        queue.add("a")
        await queue.take()
        queue.add("a")
        assert len(queue) == 0
        queue.done("a")
        assert await queue.take() == "a"

    run(story())


def test_take_waits_for_a_key() -> None:
    async def story() -> None:
        queue: WorkQueue[str] = WorkQueue()
        asyncio.get_running_loop().call_later(5, queue.add, "a")
        assert await queue.take() == "a"
        assert asyncio.get_running_loop().time() == 5

    run(story())


def test_a_key_comes_again_after_its_delay_and_a_newer_delay_replaces_an_older() -> None:
    async def story() -> float:
        queue: WorkQueue[str] = WorkQueue()
        for delay in (100.0, 7.0):
            queue.add("a")
            queue.done(await queue.take(), again_after=delay)
        await queue.take()
        queue.done("a")
        await asyncio.sleep(200)
        assert len(queue) == 0, "the delay of 100 s was replaced"
        return 7.0

    assert run(story()) == 7.0


def test_failures_back_off_and_success_forgives_them() -> None:
    async def story() -> list[float]:
        queue: WorkQueue[str] = WorkQueue()
        queue.add("a")
        waits = []
        for _ in range(12):
            waits.append(queue.failed(await queue.take()))
        queue.done(await queue.take())
        queue.add("a")
        waits.append(queue.failed(await queue.take()))
        return waits

    waits = run(story())
    assert waits[:4] == [0.05, 0.1, 0.2, 0.4]
    assert (waits[11], waits[12]) == (30.0, 0.05)


def test_a_busy_server_gets_the_time_that_it_asks_for() -> None:
    async def story() -> tuple[float, float, float]:
        queue: WorkQueue[str] = WorkQueue()
        queue.add("a")
        first = queue.failed(await queue.take(), 7.0)
        await queue.take()
        return first, asyncio.get_running_loop().time(), queue.failed("a", 0.01)

    assert run(story()) == (7.0, 7.0, 0.1)


def test_a_change_does_not_speed_up_a_key_that_fails() -> None:
    async def story() -> float:
        queue: WorkQueue[str] = WorkQueue()
        queue.add("a")
        for _ in range(8):
            await queue.take()
            queue.add("a")
            queue.failed("a")
        return asyncio.get_running_loop().time()

    assert run(story()) > 6


def test_the_first_look_is_at_once_and_a_storm_of_changes_is_a_few() -> None:
    async def story() -> None:
        queue: WorkQueue[str] = WorkQueue()
        loop, looks = asyncio.get_running_loop(), list[float]()

        async def look() -> None:
            while True:
                key = await queue.take()
                looks.append(round(loop.time(), 3))
                queue.done(key)

        looking = asyncio.create_task(look())
        for _ in range(1000):
            queue.add("a")
            await asyncio.sleep(0.001)
        await asyncio.sleep(1)
        assert looks[0] == 0
        assert len(looks) == 21
        assert all(0.049 < after - before < 0.052 for before, after in pairwise(looks))
        looking.cancel()

    run(story())


def test_a_change_waits_for_no_longer_than_the_rest_of_its_own_key() -> None:
    async def story() -> None:
        queue: WorkQueue[str] = WorkQueue()
        loop = asyncio.get_running_loop()
        queue.add("a")
        queue.done(await queue.take())
        queue.add("a")
        queue.add("b")
        assert (await queue.take(), loop.time()) == ("b", 0)
        assert (await queue.take(), loop.time()) == ("a", 0.05)

    run(story())


def test_a_key_that_was_looked_at_for_long_needs_no_rest_afterwards() -> None:
    async def story() -> None:
        queue: WorkQueue[str] = WorkQueue()
        queue.add("a")
        key = await queue.take()
        await asyncio.sleep(2)
        queue.add("a")
        queue.done(key)
        assert (await queue.take(), asyncio.get_running_loop().time()) == ("a", 2)

    run(story())
