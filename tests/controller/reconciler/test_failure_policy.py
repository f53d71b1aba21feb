"""spec.failurePolicy: the first rule that fits a failure says what it does; without one, everything is as it was."""

from typing import Any

import pytest

from ebb.api.spec import Job, SpecError
from ebb.controller.reconciler.types import Plan
from ebb.kube import PODS
from tests.builders import make_job, make_pod
from tests.fake_time import run
from tests.looks import again, done, ended, look
from tests.world import started

Object = dict[str, Any]
RULES: list[Object] = [
    {"action": "FailJob", "onExitCodes": [3, 4]},
    {"action": "HoldJob", "onReasons": ["OOMKilled", "Evicted"]},
    {"action": "Ignore", "onMessage": "DataLoader worker", "times": 2},
    {"action": "RestartWorker", "onExitCodes": [139], "onReasons": ["Error"]},
    {"action": "RestartJob", "onExitCodes": [1]},
]


def ruled(*rules: Object, **changes: Any) -> Object:
    return make_job(failurePolicy={"rules": list(rules or RULES)}, **changes)


def failed(code: int, index: int = 0, **changes: Any) -> Object:
    return make_pod(make_job(), index, phase="Failed", exit_code=code, **changes)


def figures(decided: Plan) -> tuple[int, int, int, str]:
    status = decided.status
    return status.failures, status.restarts, status.reclaims, "held" if status.hold else status.state


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        (failed(3), (1, 0, 0, "Failed")),
        (failed(137, exit_reason="OOMKilled"), (0, 0, 0, "held")),
        (failed(1, message="RuntimeError: DataLoader worker (pid 7) is killed"), (0, 0, 0, "Running")),
        (failed(139), (1, 0, 0, "Running")),
        (failed(139, exit_reason="OOMKilled"), (0, 0, 0, "held")),
        (failed(1), (1, 1, 0, "Running")),
        (failed(2), (1, 1, 0, "Running")),
    ],
    ids=["fail", "hold", "ignore", "restart-worker", "the-first-that-fits", "restart-job", "no-rule"],
)
def test_what_a_rule_says_is_done(pod: Object, expected: tuple[int, int, int, str]) -> None:
    assert figures(look(ruled(), pod, make_pod(make_job(), 1))) == expected


@pytest.mark.parametrize("reclaimed", [ended(138), make_pod(make_job(), deleted=1.0)], ids=["left", "deleted"])
def test_a_reclaim_is_none_of_its_business(reclaimed: Object) -> None:
    decided = look(ruled({"action": "FailJob", "onExitCodes": [138, 137]}), reclaimed, make_pod(make_job(), 1))
    assert figures(decided) == (0, 0, 1, "Running")


def test_what_the_launcher_did_not_start_again_in_place_is_the_next_rules() -> None:
    in_place = {"action": "RestartInPlace", "onExitCodes": [139]}
    assert figures(look(ruled(in_place), failed(139), make_pod(make_job(), 1))) == (1, 1, 0, "Running"), "as without a rule"
    decided = look(ruled(in_place, {"action": "FailJob", "onExitCodes": [139]}), failed(139), make_pod(make_job(), 1))
    assert figures(decided) == (1, 0, 0, "Failed")


def test_only_the_worker_that_failed_is_replaced() -> None:
    job, pods = ruled(), (failed(139), make_pod(make_job(), 1))
    first = look(job, *pods)
    second = look(again(job, first), *pods)
    third = look(again(job, second), pods[1], now=second.wake_at or 0)
    assert [done(one) for one in (first, second, third)] == [[], ["-0"], ["+0"]]
    assert figures(third)[:3] == (1, 0, 0)
    assert any("Failure 1 of 3 tolerated: it starts again." in event.message for event in first.events)


def test_a_worker_that_fails_too_often_ends_the_job() -> None:
    decided = look(ruled(status={"failures": 3}), failed(139), make_pod(make_job(), 1))
    assert figures(decided) == (4, 0, 0, "Failed")
    assert "Rule 4 of spec.failurePolicy says RestartWorker. backoffLimit 3 is spent." in decided.events[-1].message


def test_a_rule_that_is_used_up_makes_way_for_the_next() -> None:
    job, pods = ruled(), (failed(1, message="DataLoader worker"), make_pod(make_job(), 1))
    for times in (1, 2):
        decided = look(job, *pods)
        assert [(use.rule, use.times) for use in decided.status.failure_rules] == [(3, times)]
        assert figures(decided)[:2] == (0, 0)
        job = again(job, decided)
        job["status"]["members"] = []  # another pod that fails alike
    assert figures(look(job, *pods)) == (1, 1, 0, "Running")


def test_rules_count_before_the_restart_policy() -> None:
    assert figures(look(ruled(policy="Never"), failed(1))) == (1, 1, 0, "Waiting")
    assert figures(look(ruled(policy="Never"), failed(2))) == (1, 0, 0, "Failed")


def test_of_those_that_fail_together_the_first_decides() -> None:
    late, early = failed(3, finished=200.0), failed(1, 1, finished=100.0)
    assert figures(look(ruled(), late, early)) == (1, 1, 0, "Waiting")


def test_a_held_job_goes_on_after_a_change() -> None:
    job, pods = ruled(), (failed(137, exit_reason="OOMKilled"), make_pod(make_job(), 1))
    held = look(job, *pods)
    stopped = look(again(job, held), *pods)
    assert (done(stopped), stopped.status.state) == (["-0", "-1"], "Suspended")
    condition = stopped.status.condition("Suspended")
    assert condition is not None
    assert condition.message == (
        "The program of worker 0 failed: OOMKilled, exit code 137. Rule 2 of spec.failurePolicy says HoldJob. "
        "Any change of the job's spec lets it try again."
    )
    changed = again(job, stopped)
    changed["metadata"] = changed["metadata"] | {"generation": 2}
    assert done(look(changed)) == ["+0", "+1"]


def test_a_program_that_fails_at_once_and_is_ignored_gets_pauses_and_is_held_at_last() -> None:
    """Without them two such workers would make hundreds of pods a minute."""

    async def story() -> None:
        async with started() as world:
            await world.start_all(ruled({"action": "Ignore", "onExitCodes": [1]}, replicas=1))
            made = set()
            for _ in range(600):
                for pod in world.api.all(PODS):
                    made.add(pod["metadata"]["uid"])
                    if pod["status"]["phase"] == "Pending":
                        world.api.pod_runs(pod["metadata"]["name"], "n0")
                    elif pod["status"]["phase"] == "Running":
                        world.api.pod_ends(pod["metadata"]["name"], 1)
                await world.settle(1)
            assert world.status()["hold"]["reason"] == "RepeatedlyLost"
            assert len(made) == 8

    run(story())


@pytest.mark.parametrize("rule", [{"action": "Ignore"}, {"action": "Ignore", "times": 3}])
def test_a_rule_for_every_failure_is_none(rule: Object) -> None:
    with pytest.raises(SpecError, match=r"spec.failurePolicy.rules\[0\] has to say what it is for"):
        Job.of(ruled(rule))


def test_inside_a_worker_nobody_knows_what_kubernetes_says_of_its_end() -> None:
    with pytest.raises(SpecError, match="RestartInPlace is done inside the worker, which knows no onReasons: give onExitCodes"):
        Job.of(ruled({"action": "RestartInPlace", "onReasons": ["OOMKilled"]}))
