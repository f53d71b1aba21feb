"""Leader election in fake time, between candidates on one fake API server. Faults at random: test_election_faults.py."""

import asyncio
from contextlib import suppress

import pytest

from ebb.controller.election import DURATION_SECONDS, RENEW_SECONDS, Election, LeadershipLost
from ebb.kube import LEASES, Conflict, Unreachable
from tests.builders import NOW
from tests.fake_kube import FakeKube
from tests.fake_time import run


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

    assert run(story()) <= 2.4, "2 s and a fifth"


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
        assert asyncio.get_running_loop().time() - began == RENEW_SECONDS < DURATION_SECONDS
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


def test_a_connection_that_died_silently_is_given_up_for_another_one() -> None:
    async def story() -> None:
        api = fake()
        first = candidate(api, "first")
        await first.acquire()
        real, hung = api.get, 0

        async def get(*arguments: object) -> object:
            nonlocal hung
            hung += 1
            if hung == 1:
                await asyncio.sleep(60)
            return await real(*arguments)  # type: ignore[arg-type]

        api.get = get  # type: ignore[method-assign, assignment]
        hold = asyncio.create_task(first.hold())
        await asyncio.sleep(9)
        assert (hung > 1, first.leads) == (True, True)
        hold.cancel()
        with suppress(asyncio.CancelledError):
            await hold

    run(story())


def test_a_conflict_about_its_own_lease_does_not_cost_the_lead() -> None:
    """Somebody put an annotation on it between the look and the write."""

    async def story() -> None:
        api = fake()
        first = candidate(api, "first")
        await first.acquire()
        api.fail("replace", LEASES, Conflict("the object has been modified", status=409, reason="Conflict"), times=2)
        hold = asyncio.create_task(first.hold())
        await asyncio.sleep(8)
        assert first.leads
        hold.cancel()
        with suppress(asyncio.CancelledError):
            await hold

    run(story())


def test_a_lease_that_somebody_deletes_is_its_holders_for_as_long_as_if_it_were_there() -> None:
    async def story() -> float:
        api = fake()
        first, second = candidate(api, "first"), candidate(api, "second")
        await first.acquire()
        waiting = asyncio.create_task(second.acquire())
        await asyncio.sleep(1)
        api.remove(LEASES, "ebb-controller", "ebb-system")
        deleted = asyncio.get_running_loop().time()
        await waiting
        assert not first.leads
        return asyncio.get_running_loop().time() - deleted

    assert run(story()) >= DURATION_SECONDS


def test_a_holder_makes_its_deleted_lease_again() -> None:
    async def story() -> None:
        api = fake()
        first, second = candidate(api, "first"), candidate(api, "second")
        await first.acquire()
        await asyncio.sleep(DURATION_SECONDS)
        await second.acquire()  # it waited for the first one, and forgets that when it leads
        hold = asyncio.create_task(second.hold())
        api.remove(LEASES, "ebb-controller", "ebb-system")
        await asyncio.sleep(20)
        assert (second.leads, holder(api)) == (True, "second")
        hold.cancel()
        with suppress(asyncio.CancelledError):
            await hold

    run(story())


def test_releasing_without_an_answer_takes_no_longer_than_a_pods_grace() -> None:
    async def story() -> float:
        api = fake()
        first = candidate(api, "first")
        await first.acquire()

        async def get(*_: object) -> object:
            await asyncio.sleep(3600)
            return {}

        api.get = get  # type: ignore[method-assign, assignment]
        began = asyncio.get_running_loop().time()
        await first.release()
        return asyncio.get_running_loop().time() - began

    assert run(story()) < 10


def test_who_hears_nothing_of_the_lease_says_since_when() -> None:
    async def story() -> None:
        api = fake()
        first, second = candidate(api, "first"), candidate(api, "second")
        await first.acquire()
        waiting = asyncio.create_task(second.acquire())
        await asyncio.sleep(DURATION_SECONDS - 3)
        assert second.unheard_seconds < 3
        api.fail("get", LEASES, Unreachable("cut off"), times=1000)
        await asyncio.sleep(60)
        assert second.unheard_seconds > 55
        waiting.cancel()
        with suppress(asyncio.CancelledError):
            await waiting

    run(story())
