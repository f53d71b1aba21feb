"""Leader election in fake time, between two candidates on one fake API server."""

import asyncio
from contextlib import suppress

import pytest

from tests.workloads.builders import NOW
from tests.workloads.fake_kube import FakeKube
from tests.workloads.fake_time import run
from workloads.control.election import DURATION_SECONDS, RENEW_SECONDS, Election, LeadershipLost
from workloads.kube import LEASES, Unreachable


def candidate(api: FakeKube, identity: str) -> Election:
    return Election(api, "ebb-system", "ebb-controller", identity=identity, clock=api.clock)


def fake() -> FakeKube:
    loop = asyncio.get_running_loop()
    return FakeKube(lambda: NOW + loop.time())


def holder(api: FakeKube) -> str:
    return str(api.all(LEASES)[0]["spec"]["holderIdentity"])


def test_the_first_leads_and_the_second_waits() -> None:
    async def story() -> None:
        api = fake()
        first, second = candidate(api, "first"), candidate(api, "second")
        await first.acquire()
        hold, wait = asyncio.create_task(first.hold()), asyncio.create_task(second.acquire())
        await asyncio.sleep(300)
        assert (first.leads, second.leads, holder(api)) == (True, False, "first")
        with pytest.raises(LeadershipLost):
            second.check()
        for task in (hold, wait):
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    run(story())


def test_a_dead_leader_is_followed_after_the_lease_and_not_before() -> None:
    async def story() -> float:
        api = fake()
        first, second = candidate(api, "first"), candidate(api, "second")
        await first.acquire()
        died = asyncio.get_running_loop().time()
        await second.acquire()
        assert not first.leads
        assert api.all(LEASES)[0]["spec"]["leaseTransitions"] == 2
        return asyncio.get_running_loop().time() - died

    assert DURATION_SECONDS <= run(story()) <= DURATION_SECONDS + 3


def test_a_released_lease_is_taken_at_the_next_attempt() -> None:
    async def story() -> float:
        api = fake()
        first, second = candidate(api, "first"), candidate(api, "second")
        await first.acquire()
        waiting = asyncio.create_task(second.acquire())
        await asyncio.sleep(5)
        await first.release()
        released = asyncio.get_running_loop().time()
        await waiting
        with pytest.raises(LeadershipLost):
            first.check()
        return asyncio.get_running_loop().time() - released

    assert run(story()) <= 2


def test_a_container_started_again_takes_its_own_lease_at_once() -> None:
    async def story() -> float:
        api = fake()
        await candidate(api, "pod-1").acquire()
        await candidate(api, "pod-1").acquire()
        return asyncio.get_running_loop().time()

    assert run(story()) == 0


def test_a_leader_cut_off_stops_writing_before_anybody_may_follow() -> None:
    async def story() -> None:
        api = fake()
        first = candidate(api, "first")
        await first.acquire()
        api.fail("get", LEASES, Unreachable("cut off"), times=1000)
        began = asyncio.get_running_loop().time()
        with pytest.raises(LeadershipLost):
            await first.hold()
        stopped = asyncio.get_running_loop().time() - began
        assert RENEW_SECONDS <= stopped <= RENEW_SECONDS + 2 < DURATION_SECONDS
        with pytest.raises(LeadershipLost):
            first.check()

    run(story())


def test_a_hiccup_does_not_cost_the_lead() -> None:
    async def story() -> None:
        api = fake()
        first = candidate(api, "first")
        await first.acquire()
        api.fail("replace", LEASES, Unreachable("hiccup"), times=3)
        hold = asyncio.create_task(first.hold())
        await asyncio.sleep(60)
        assert first.leads
        hold.cancel()
        with suppress(asyncio.CancelledError):
            await hold

    run(story())


def test_a_lease_taken_by_somebody_else_ends_the_lead() -> None:
    async def story() -> None:
        api = fake()
        first = candidate(api, "first")
        await first.acquire()
        lease = api.all(LEASES)[0]
        api.put(LEASES, {**lease, "spec": {**lease["spec"], "holderIdentity": "thief"}})
        with pytest.raises(LeadershipLost):
            await first.hold()

    run(story())
