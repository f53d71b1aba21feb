"""What the week sees and judges, without a cluster: its watches' listeners get the events by hand."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest

from benchmarks.week import judge
from benchmarks.week.model import FAILED, RUNNING, SUCCEEDED
from benchmarks.week.seen import ChangeSignal, worker
from tests.benchmarks.weeks import Scene, make_job, make_pod

Object = dict[str, Any]


def test_more_pods_than_max_replicas_is_a_violation(scene: Scene) -> None:
    scene.job(make_job(RUNNING))
    scene.pod(make_pod(0))
    scene.pod(make_pod(1))
    assert scene.judge.violations == []
    scene.pod(make_pod(2))
    assert scene.judge.violations == ["one: 3 pods at once, maxReplicas is 2"]


def test_two_zones_at_once_is_a_violation(scene: Scene) -> None:
    scene.job(make_job(RUNNING))
    scene.pod(make_pod(0))
    scene.pod(make_pod(1, zone="week-b"))
    assert scene.judge.violations == ["one: pods in week-a and week-b at once"]


def test_a_failure_that_never_was_is_a_violation_and_one_that_was_is_none(scene: Scene) -> None:
    scene.ledger.accounts["u1"].failures = 1
    scene.job(make_job(RUNNING, failures=1))
    assert scene.judge.violations == []
    scene.job(make_job(RUNNING, failures=2))
    assert "2 failures counted, its program failed 1 times" in scene.judge.violations[0]


def test_an_ended_job_that_comes_back_is_a_violation(scene: Scene) -> None:
    ended = make_job(SUCCEEDED)
    scene.job(ended)
    scene.job(make_job(RUNNING), ended)
    assert scene.judge.violations == ["one: came back from Succeeded to Running"]


def test_pods_of_a_job_at_rest_are_violations_when_they_stay_or_come(scene: Scene, late: Callable[[float], None]) -> None:
    scene.pod(make_pod(0))
    scene.job(make_job(FAILED))
    scene.judge.look()
    late(judge.RELEASE_SECONDS - 1)
    scene.judge.look()
    assert scene.judge.violations == []
    late(2)
    scene.judge.look()
    assert scene.judge.violations == ["one: is at rest and holds pods"]
    scene.pod(make_pod(1))
    assert scene.judge.violations[1:] == ["one: pod one-worker-1 was created for a job that is Failed"]


def test_a_group_that_runs_more_than_it_may_is_a_violation_when_it_lasts(scene: Scene, late: Callable[[float], None]) -> None:
    group = {"name": "sweep", "maxParallel": 1}
    for uid in ("u1", "u2"):
        scene.job(make_job(RUNNING, uid=uid, group=group))
        scene.pod(make_pod(0, uid=f"p-{uid}", job=uid))
    scene.judge.look()
    assert scene.judge.violations == []
    late(judge.LATE_SECONDS + 1)
    scene.judge.look()
    assert scene.judge.violations == ["group sweep: more than 1 jobs run at once"]


def test_figures_alone_may_be_written_every_half_minute(scene: Scene, late: Callable[[float], None]) -> None:
    def step(number: int, rate: float = 6.0) -> Object:
        job = make_job(RUNNING)
        job["status"]["progress"] = {"step": number}
        job["status"]["cost"] = {"usdSpent": number * 0.1, "usdPerHour": rate}
        return job

    for number, wait in ((1, 0), (2, 30), (3, 30)):
        late(wait)
        scene.job(step(number + 1), step(number))
    late(10)
    scene.job(step(4, rate=3.0), step(4))  # a machine less is news
    assert scene.judge.violations == []
    scene.job(step(5), step(4))
    assert "figures alone were written twice within 10.0 s" in scene.judge.violations[0]


def test_workers_that_are_sent_to_a_silent_machine_again_and_again_are_a_violation(scene: Scene) -> None:
    scene.job(make_job(RUNNING))
    scene.pod(make_pod(0))
    scene.ledger.doomed("spot-week-a-1", "silent")
    for number in range(judge.SENT_MOST + 1):
        assert scene.judge.violations == []
        for node in ("", "spot-week-a-1"):
            scene.pod(make_pod(1, uid=f"again-{number}", node=node))
        scene.pod(make_pod(1, uid=f"again-{number}"), gone=True)
    assert scene.judge.violations == ["one: worker 1 was sent to spot-week-a-1 more than 3 times after it fell silent"]
    assert scene.judge.sent_to_silent == 4


@pytest.mark.parametrize(("acted_before", "wrong"), [(20, True), (-20, False)], ids=["knows", "has just come"])
def test_a_worker_that_is_made_when_a_machine_is_known_to_be_silent_must_not_go_there(
    scene: Scene, late: Callable[[float], None], acted_before: float, wrong: bool
) -> None:
    scene.pod(make_pod(0, node=""))
    scene.ledger.doomed("spot-week-a-1", "silent")
    scene.acts_since = time.monotonic() - acted_before
    late(judge.KNOWN_SECONDS + 1)
    scene.pod(make_pod(0))
    assert scene.judge.violations == []
    scene.pod(make_pod(1, node=""))
    scene.pod(make_pod(1))
    words = "one: pod one-worker-1 was made 51 s after spot-week-a-1 fell silent, and was sent there"
    assert scene.judge.violations == ([words] if wrong else [])


def test_pods_of_nobody_are_not_workers() -> None:
    pod = make_pod()
    pod["metadata"]["ownerReferences"] = []
    assert worker(pod) is None


async def test_a_pulse_wakes_those_whose_condition_holds() -> None:
    changes, seen = ChangeSignal(), set[int]()
    waits = asyncio.create_task(changes.until(lambda: 1 in seen, 5))
    await asyncio.sleep(0)
    changes.notify()
    seen.add(1)
    changes.notify()
    assert await waits
    assert not await changes.until(lambda: 2 in seen, 0.01)
