"""One job's play against a cluster by hand: whom it lets fail, and what it takes for decided; and workers that leave."""

import asyncio
import random
from typing import Any

import pytest

from benchmarks.week import exits
from benchmarks.week.actions import Fail
from benchmarks.week.exits import Exits
from benchmarks.week.groups import ALIVE
from benchmarks.week.model import RUNNING
from benchmarks.week.play import Play, Stage
from benchmarks.week.scenarios import Scenario
from benchmarks.week.seen import Worker
from tests.benchmarks.weeks import Scene, make_job, make_pod

Object = dict[str, Any]


class Hands:
    """In the place of the API and of the simulated workers: notes which workers were ended."""

    def __init__(self) -> None:
        self.ended: asyncio.Queue[tuple[int, str]] = asyncio.Queue()  # exit code, pod

    async def create(self, _: object, __: str, body: Object) -> Object:
        return make_job(RUNNING) | {"kind": body["kind"]}

    def watch(self, job_uid: str, low: int) -> None: ...

    async def end(self, one: Worker, code: int, reason: str) -> bool:
        await self.ended.put((code, one.uid))
        return True


class Theatre:
    """A play in a scene."""

    def __init__(self, *actions: Fail) -> None:
        self.scene = Scene()
        self.hands = Hands()
        hands: Any = self.hands
        stage = Stage(
            kube=hands, sight=self.scene.sight, simulated=hands, ledger=self.scene.ledger, judge=self.scene.judge,
            namespace="elastic-job", patient=False, patience_seconds=5.0,
        )  # fmt: skip
        scenario = Scenario(name="one", kind="doomed", low=1, replicas=2, high=2, actions=actions)
        self.play = Play(scenario, stage)
        self.scene.job(make_job(RUNNING))

    async def ended(self) -> tuple[int, str]:
        """The next worker whose program was made to end."""
        return await asyncio.wait_for(self.hands.ended.get(), 5)

    async def seen(self) -> None:
        """Whoever waits has looked at what is there now."""
        self.scene.sight.changes.notify()
        for _ in range(20):
            await asyncio.sleep(0)


@pytest.fixture
def stage_of_two() -> Theatre:
    return Theatre(Fail(1), Fail(2))


async def test_the_next_failure_is_of_a_worker_that_was_started_since_the_last_one(stage_of_two: Theatre) -> None:
    scene, hands = stage_of_two.scene, stage_of_two.hands
    scene.pod(make_pod(0))
    scene.pod(make_pod(1))
    playing = asyncio.create_task(stage_of_two.play.run(0.0))
    _, first = await stage_of_two.ended()
    scene.job(make_job(RUNNING, failures=1))  # it was counted, and the other worker still runs
    await stage_of_two.seen()
    assert hands.ended.empty()
    scene.pod(make_pod(uid=first), gone=True)
    scene.pod(make_pod(0, uid="anew", attempt=1))
    await stage_of_two.seen()
    assert await stage_of_two.ended() == (2, "anew")
    scene.job(make_job(RUNNING, failures=2))
    await stage_of_two.seen()
    await asyncio.wait_for(playing, 5)
    assert (scene.judge.violations, scene.ledger.accounts["u1"].failures) == ([], 2)


async def test_a_failure_in_a_job_that_goes_elsewhere_is_in_doubt_and_is_played_again(
    stage_of_two: Theatre, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("benchmarks.week.play.UNDECIDED_SECONDS", 0.05)
    scene = stage_of_two.scene
    scene.pod(make_pod(0))
    playing = asyncio.create_task(stage_of_two.play.run(0.0))
    assert await stage_of_two.ended() == (1, "p0")
    moved = make_job(RUNNING)
    moved["status"]["placement"] = {"zone": "week-b"}
    scene.job(moved)
    await stage_of_two.seen()
    assert await stage_of_two.ended() == (1, "p0")
    account = scene.ledger.accounts["u1"]
    assert (account.failures, account.doubtful) == (1, 1)
    playing.cancel()


class Deletions:
    """In the place of the API: notes what is deleted."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str | None, int | None]] = []

    async def delete(self, _: object, __: str, name: str, *, uid: str | None = None, grace_seconds: int | None = None) -> None:
        self.asked.append((name, uid, grace_seconds))


async def test_who_was_asked_to_leave_does_once_and_by_uid_where_the_machine_lives(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exits, "LEAVE_SECONDS", (0.0, 0.0))
    for name, labels in (("spot-week-a-1", {ALIVE: "yes"}), ("spot-week-a-2", {})):
        scene.sight.nodes.objects[name] = {"metadata": {"name": name, "labels": labels}}
    for index, node, leaving in (
        (0, "spot-week-a-1", True),
        (1, "spot-week-a-1", False),
        (2, "spot-week-a-2", True),
        (3, "", True),
    ):
        pod = make_pod(index, node=node)
        pod["metadata"] |= {"deletionTimestamp": "2026-11-21T18:00:00Z"} if leaving else {}
        scene.pod(pod)
    deletions: Any = Deletions()
    one = Exits(deletions, scene.sight, "elastic-job", random.Random(1))
    for _ in range(2):
        async with asyncio.TaskGroup() as tasks:
            one.look(tasks)
    assert deletions.asked == [("one-worker-0", "p0", 0)]
