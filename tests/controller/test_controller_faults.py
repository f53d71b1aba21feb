"""The controller when the API server is busy, refuses or forgets, and when the lead is lost: it costs time and nothing else."""

from collections.abc import Mapping
from typing import Any

import pytest

from ebb.api.spec import Job
from ebb.controller.election import LeadershipLost
from ebb.controller.reconciler.reconcile import plan
from ebb.controller.reconciler.types import Observed, Plan
from ebb.kube import ELASTIC_JOBS, EVENTS, NODES, PODS, SERVICES, Conflict, KubeError, Unreachable
from tests.builders import make_job, make_node
from tests.fake_time import run
from tests.world import FakeCluster, started

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


def test_a_server_that_asks_for_time_gets_it() -> None:
    async def story() -> None:
        async with started() as world:
            busy = KubeError("too many requests", status=429, retry_seconds=5)
            world.api.fail("create", PODS, busy)
            world.api.fail("create", EVENTS, busy)
            world.api.put(ELASTIC_JOBS, make_job(replicas=1))
            await world.settle(4.8)
            assert (world.pods(), world.events()) == ([], [])
            await world.settle(1)
            assert world.pods() == ["digits-worker-0"]

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


def test_a_job_that_the_controller_cannot_handle_does_not_stop_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def stumbles(given: Job, observed: Observed, now: float) -> Plan:
        if given.name == "bad":
            raise OverflowError("too large")
        return plan(given, observed, now)

    def chokes(value: Mapping[str, Any]) -> Job:
        if value["metadata"]["name"] == "worse":
            raise RecursionError("too deep")
        return read(value)

    read = Job.of
    monkeypatch.setattr("ebb.controller.controller.plan", stumbles)
    monkeypatch.setattr(Job, "of", chokes)

    async def story() -> None:
        async with started() as world:
            for name in ("bad", "worse", "digits"):
                world.api.put(ELASTIC_JOBS, make_job(name, uid=name))
            await world.settle(2)
            assert world.pods() == ["digits-worker-0", "digits-worker-1"]
            (unread,) = [item for item in world.status("worse")["conditions"] if item["reason"] == "InvalidSpec"]
            assert "RecursionError('too deep')" in unread["message"]

    run(story())


def test_somebody_elses_job_is_not_touched_even_if_it_makes_no_sense() -> None:
    async def story() -> None:
        async with started() as world:
            world.api.put(ELASTIC_JOBS, make_job(low=3, replicas=2, managedBy="kueue.x-k8s.io/multikueue"))
            await world.settle(2)
            assert world.api.calls == []

    run(story())


@pytest.mark.parametrize("hours", [-5, 5])
def test_a_machine_that_is_not_ready_is_given_up_whatever_its_clock_says(hours: float) -> None:
    async def story() -> None:
        async with started() as world:
            await world.start_all(make_job(replicas=1))
            world.api.put(NODES, make_node("n0", ready="False", since=world.api.clock() + hours * 3600))
            await world.settle(4)
            assert world.status().get("reclaims", 0) == 0
            await world.settle(2)
            assert [entry["cause"] for entry in world.status()["history"]] == ["NodeNotReady"]

    run(story())


WEBHOOK = KubeError('Internal error occurred: failed calling webhook "pods.example.org": timeout after 10.0s', status=500)


def condition(world: FakeCluster) -> tuple[str, str, str]:
    found = next(item for item in world.status()["conditions"] if item["type"] == "Running")
    return found["status"], found["reason"], found["message"]


def test_a_webhook_that_is_down_is_told_after_the_third_try_and_forgotten_when_it_is_up() -> None:
    async def story() -> None:
        async with started() as world:
            world.api.fail("create", PODS, WEBHOOK, times=26)
            world.api.put(ELASTIC_JOBS, make_job(replicas=1))
            await world.settle(0.1)
            assert (len(world.api.failed_at), world.status()) == (2, {}), "the second try"
            await world.settle(0.2)
            assert condition(world) == (
                "False",
                "APIServerError",
                f"The API server fails at what the job needs, which is tried again every 30 s or sooner: {WEBHOOK}",
            )
            assert world.state() == "Waiting"
            await world.settle(500)
            assert world.pods() == []
            assert world.events().count("APIServerError") == 1
            assert [call[0] for call in world.api.calls].count("status") == 1, "said once, written once"
            await world.settle(60)
            assert world.pods() == ["digits-worker-0"]
            assert condition(world)[1] == "WaitingForMachines"
            assert "webhook" not in str(world.status())

    run(story())


def test_a_job_that_runs_says_that_it_cannot_get_its_lost_worker_back() -> None:
    async def story() -> None:
        async with started() as world:
            await world.start_all(make_job())
            world.api.fail("create", PODS, WEBHOOK, times=12)
            world.api.remove(PODS, "digits-worker-1")
            await world.settle(5)
            assert condition(world)[:2] == ("True", "ElasticJobRunning")
            assert str(WEBHOOK) in condition(world)[2]
            await world.settle(120)
            assert condition(world)[2] == "1 of 2 workers run."

    run(story())


def test_a_deletion_that_fails_again_and_again_is_told_without_a_write_for_each_try() -> None:
    async def story() -> None:
        async with started() as world:
            await world.start_all(make_job())
            world.api.fail("delete", PODS, WEBHOOK, times=40)
            world.edit_spec(suspend=True)
            await world.settle(30)
            assert condition(world)[:2] == ("False", "APIServerError")
            written = len(world.api.calls)
            await world.settle(120)
            assert len(world.api.calls) == written
            await world.settle(600)
            assert (world.state(), condition(world)[1]) == ("Suspended", "ElasticJobSuspended")

    run(story())
