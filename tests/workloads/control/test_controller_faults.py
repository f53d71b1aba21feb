"""The controller when the API server is busy, refuses or forgets, and when the lead is lost: it costs time and nothing else."""

from typing import Any

import pytest

from tests.workloads.builders import make_job
from tests.workloads.fake_time import run
from tests.workloads.world import started
from workloads.control.election import LeadershipLost
from workloads.kube import ELASTIC_JOBS, EVENTS, PODS, SERVICES, Conflict, KubeError, Unreachable

ERRORS = {
    "conflict-on-status": ("replace", ELASTIC_JOBS, Conflict("modified", status=409, reason="Conflict")),
    "no-answer-on-create": ("create", PODS, Unreachable("no answer")),
    "too-many-requests": ("create", PODS, KubeError("too many requests", status=429)),
    "internal-error-on-delete": ("delete", PODS, KubeError("internal error", status=500)),
    "no-answer-on-service": ("create", SERVICES, Unreachable("no answer")),
    "no-answer-on-event": ("create", EVENTS, Unreachable("no answer")),
    "watch-breaks": ("watch", PODS, Unreachable("reset")),
}


@pytest.mark.parametrize(("verb", "resource", "error"), ERRORS.values(), ids=ERRORS.keys())
def test_an_error_of_the_api_costs_time_and_nothing_else(verb: str, resource: Any, error: KubeError) -> None:
    async def story() -> None:
        async with started() as world:
            world.api.fail(verb, resource, error, times=3)
            await world.start_all(make_job(replicas=4))
            world.api.fail(verb, resource, error, times=3)
            world.api.lose_node("n1")
            await world.settle(40)
            assert len(world.pods()) == 4
            assert (world.status()["reclaims"], world.status()["failures"]) == (2, 0)
            assert world.api.max_pods <= 4

    run(story())


def test_a_server_that_is_busy_is_not_a_waiting_reason() -> None:
    async def story() -> None:
        async with started() as world:
            world.api.fail("create", PODS, KubeError("too many requests", status=429), times=2)
            world.api.put(ELASTIC_JOBS, make_job(replicas=1))
            await world.settle(1)
            assert world.pods() == ["digits-worker-0"], "tried again at once"
            assert "too many requests" not in str(world.status())

    run(story())


def test_history_that_was_compacted_is_listed_again() -> None:
    async def story() -> None:
        async with started() as world:
            await world.start_all(make_job())
            world.api.forget_history()
            world.api.fail("watch", PODS, Unreachable("reset"))
            world.api.remove(PODS, "digits-worker-0")
            await world.settle(5)
            assert len(world.pods()) == 2

    run(story())


def test_a_controller_that_lost_the_lease_writes_nothing_more() -> None:
    async def story() -> None:
        leads = [True]

        def fence() -> None:
            if not leads[0]:
                raise LeadershipLost("not renewed")

        async with started(fence) as world:
            await world.start_all(make_job())
            written = len(world.api.calls)
            leads[0] = False
            world.api.lose_node("n1")
            await world.settle()
            assert world.api.calls[written:] == []

    with pytest.raises(ExceptionGroup) as raised:
        run(story())
    assert raised.group_contains(LeadershipLost)
