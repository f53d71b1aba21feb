"""The queue's promises, in fake time."""

import asyncio

from tests.workloads.fake_time import run
from workloads.control.workqueue import WorkQueue


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
