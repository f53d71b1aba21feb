"""The machine of a program that failed is held for people to look into it, and by whom or what it is given back."""

from typing import Any

import pytest

from ebb.api.clock import stamp
from ebb.api.spec import Job
from ebb.controller.launchers import read_crash
from ebb.controller.reconciler.notifications import due
from ebb.controller.reconciler.reconcile import plan
from ebb.controller.reconciler.types import DeletePod, Observed, Plan
from ebb.controller.reconciler.worker_state import Crash
from ebb.kube import PODS
from tests.builders import NOW, make_job, make_node, make_pod
from tests.fake_time import run
from tests.looks import again
from tests.world import started

Object = dict[str, Any]
LAST_WORDS = "a worker failed with exit code 1: KeyError: 'lr'"
CRASH = Crash(exit_code=1, message=LAST_WORDS, until=NOW + 1800)
PAGE = 'ebb_held_seconds{exit_code="1",message="a worker failed with exit code 1: KeyError: \'lr\'"} 1800\n'


def held_job(**changes: Any) -> Object:
    return make_job(holdOnFailureSeconds=1800, **changes)


def observed_around(*pods: Object, **changes: Any) -> Observed:
    return Observed(pods=pods, nodes={"n0": make_node("n0")}, **changes)


def look(job: Object, pods: list[Object] | None = None, now: float = NOW, **observed: Any) -> Plan:
    there = [make_pod(job, 0), make_pod(job, 1)] if pods is None else pods
    return plan(Job.of(job), observed_around(*there, crashes={"pod-1-0": CRASH}, **observed), now)


def deleted(decided: Plan) -> list[str]:
    return [action.name for action in decided.actions if isinstance(action, DeletePod)]


def hold_of(decided: Plan) -> tuple[str, str]:
    hold = decided.status.hold
    assert hold is not None
    return hold.reason, hold.message


def test_the_job_stops_and_the_machine_stays() -> None:
    job = held_job()
    first = look(job)
    assert hold_of(first) == (
        "ProgramFailed",
        "The program of worker 1 failed: Error, exit code 1: a worker failed with exit code 1: KeyError: 'lr'. Its machine is "
        "held for you until 08:30 UTC, and costs money until then: ebb exec digits. Release it with ebb resume digits, which "
        "tries again from the last checkpoint, or ebb stop digits.",
    )
    assert (first.status.failures, first.status.restarts, deleted(first)) == (1, 1, [])  # nothing before it is written
    second = look(again(job, first))
    assert deleted(second) == ["digits-worker-0"]
    assert (second.status.state, second.wake_at) == ("Suspended", CRASH.until)
    (news,) = due(Job.of(job), second.status, NOW)
    assert news.text.startswith("digits was stopped: The program of worker 1 failed:")
    assert "held for you until 08:30 UTC" in news.text


def test_the_failures_of_the_others_come_of_it() -> None:
    job = held_job()
    first = look(job, [make_pod(job, 0, phase="Failed", exit_code=1, message="ended by another machine"), make_pod(job, 1)])
    assert first.status.hold
    assert first.status.hold.machine
    assert (first.status.hold.machine.worker, first.status.failures) == (1, 1)


def test_of_two_that_crash_together_one_is_held() -> None:
    job = held_job()
    pods = [make_pod(job, 0), make_pod(job, 1)]
    both = observed_around(*pods, crashes={"pod-0-0": CRASH, "pod-1-0": CRASH})
    first = plan(Job.of(job), both, NOW)
    assert deleted(plan(Job.of(again(job, first)), both, NOW)) == ["digits-worker-1"]


@pytest.mark.parametrize("spec", [{"backoffLimit": 0}, {"policy": "Never"}, {"policy": "ExitCode"}])
def test_also_a_failure_that_would_end_the_job(spec: Object) -> None:
    assert look(held_job(**spec)).status.hold


def test_a_failure_that_is_ignored_is_not_held() -> None:
    job = held_job(failurePolicy={"rules": [{"action": "Ignore", "onMessage": "KeyError"}]})
    first = look(job)
    assert (first.status.hold, first.status.failures) == (None, 0)
    assert deleted(look(again(job, first))) == ["digits-worker-1"]


ENDS = {
    "its time": ({"now": CRASH.until}, "the time is over"),
    "a reclaim": ({"gone": frozenset({"n0"})}, "its machine is gone"),
    "its pod's end": ({"pods": []}, "its worker is gone"),
}


@pytest.mark.parametrize(("change", "why"), ENDS.values(), ids=ENDS)
def test_it_ends_and_the_job_stays_stopped(change: Object, why: str) -> None:
    job = held_job()
    held = again(job, look(job))
    decided = look(held, **change)
    reason, message = hold_of(decided)
    assert (reason, decided.status.state, decided.status.reclaims) == ("ProgramFailed", "Suspended", 0)
    assert message == (
        "The program of worker 1 failed: Error, exit code 1: a worker failed with exit code 1: KeyError: 'lr'. Its machine was "
        f"held to look into it, and is given back: {why}. Any change of the job's spec lets it try again, as ebb resume digits "
        "does."
    )
    assert "digits-worker-1" in deleted(decided) or not decided.actions
    assert look(again(held, decided), **change).status == decided.status


def test_nothing_ends_it_a_second_before() -> None:
    job = held_job()
    decided = look(again(again(job, look(job)), look(again(job, look(job)))), [make_pod(job, 1)], now=CRASH.until - 1)
    assert (deleted(decided), decided.wake_at) == ([], CRASH.until)


def test_a_controller_that_has_just_started_holds_it_too() -> None:
    job = held_job()
    held = again(job, look(job))
    assert deleted(plan(Job.of(held), observed_around(make_pod(job, 0), make_pod(job, 1)), NOW)) == ["digits-worker-0"]


def limited(**spec: Any) -> Object:
    return held_job(status={"startTime": stamp(NOW - 50), "cost": {"usdSpent": 4.0, "at": stamp(NOW)}}, **spec)


LIMITS = {
    "budget": (limited(budget={"maxUSD": 4.0}), "BudgetSpent"),
    "deadline": (limited(deadline=stamp(NOW)), "DeadlinePassed"),
}


@pytest.mark.parametrize(("job", "reason"), LIMITS.values(), ids=LIMITS)
def test_the_jobs_limits_hold_for_it(job: Object, reason: str) -> None:
    held = again(job, look(job))
    over = look(held)
    assert hold_of(over)[0] == reason
    assert deleted(look(again(held, over))) == ["digits-worker-0", "digits-worker-1"]


def test_the_time_limit_holds_for_it() -> None:
    job = limited(activeDeadlineSeconds=60)
    held = again(job, look(job))
    kept = look(held)
    assert kept.wake_at == NOW + 10
    over = look(again(held, kept), now=NOW + 10)
    assert over.status.state == "Failed"
    assert deleted(look(again(held, over), now=NOW + 10)) == ["digits-worker-0", "digits-worker-1"]


def test_resume_gives_it_back_and_tries_again() -> None:
    job = held_job()
    held = again(job, look(job))
    resumed = again(held, look(held))
    resumed["metadata"] = resumed["metadata"] | {"generation": 2}
    decided = look(resumed, [make_pod(job, 1)])
    assert (decided.status.hold, deleted(decided)) == (None, ["digits-worker-1"])
    assert look(again(resumed, decided), [make_pod(job, 1)]).status.hold is None  # it still says that it holds


def test_stop_gives_it_back() -> None:
    job = held_job()
    stopped = again(job, look(job))
    stopped["metadata"], stopped["spec"] = stopped["metadata"] | {"generation": 2}, stopped["spec"] | {"suspend": True}
    decided = look(stopped)
    assert (decided.status.hold, deleted(decided)) == (None, ["digits-worker-0", "digits-worker-1"])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (PAGE, CRASH),
        (f"# HELP ebb_held_seconds x\n{PAGE}", CRASH),
        (r'ebb_held_seconds{exit_code="3",message="a \"b\"\\n\nc"} 9', Crash(exit_code=3, message='a "b"\\n\nc', until=NOW + 9)),
        ("", None),
        ('ebb_held_seconds{exit_code="1"} 0', None),
        ('ebb_held_seconds{exit_code="1"} 1e9', None),  # more than any job may ask for
        ('ebb_held_seconds{exit_code="1"} NaN', None),
        ('ebb_held_seconds{exit_code="0"} 10', None),
        ("ebb_held_seconds 10", None),
        ('ebb_held_seconds_total{exit_code="1"} 10', None),
    ],
)
def test_what_a_launcher_says(text: str, expected: Crash | None) -> None:
    assert read_crash(text, NOW) == expected


def test_from_the_launchers_page_to_the_status() -> None:
    """The others' ends come before the controller asks by itself, and count for nothing."""

    async def story() -> None:
        async with started() as world:
            await world.start_all(held_job(), nodes=2)
            crashed = world.pod("digits-worker-1")
            world.launcher_text[crashed["status"]["podIP"]] = PAGE
            world.api.pod_ends("digits-worker-0", 1)
            await world.settle(2)
            assert (world.state(), world.status()["failures"], world.pods()) == ("Suspended", 1, ["digits-worker-1"])
            assert world.status()["hold"]["machine"]["uid"] == crashed["metadata"]["uid"]
            await world.settle(1790)
            assert "deletionTimestamp" not in world.pod("digits-worker-1")["metadata"]
            await world.settle(20)
            assert "deletionTimestamp" in world.pod("digits-worker-1")["metadata"]
            assert (world.state(), "machine" in world.status()["hold"]) == ("Suspended", False)

    run(story())


def test_one_worker_alone_is_asked_now_and_then() -> None:
    async def story() -> None:
        async with started() as world:
            await world.start_all(held_job(replicas=1), nodes=1)
            (pod,) = world.api.all(PODS)
            world.launcher_text[pod["status"]["podIP"]] = PAGE
            await world.settle(11)
            assert world.status()["hold"]["machine"]["worker"] == 0
            assert world.pods() == ["digits-worker-0"]

    run(story())


def test_others_are_not_asked() -> None:
    async def story() -> None:
        async with started() as world:
            await world.start_all(make_job(replicas=1), nodes=1)
            (pod,) = world.api.all(PODS)
            world.launcher_text[pod["status"]["podIP"]] = PAGE
            await world.settle(30)
            assert world.state() == "Running"

    run(story())
