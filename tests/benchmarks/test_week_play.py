"""One job's play against a cluster by hand: whom it lets fail, and what it takes for decided."""

import asyncio
from typing import Any

import pytest

from benchmarks.week.acts import Fail
from benchmarks.week.fates import Fate
from benchmarks.week.model import RUNNING
from benchmarks.week.play import Play, Stage
from benchmarks.week.seen import Worker
from tests.benchmarks.test_week_watch import Scene
from tests.benchmarks.weeks import make_job, make_pod

Object = dict[str, Any]


class Hands:
    """In the place of the API and of the crew: notes which workers were ended."""

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

    def __init__(self, *acts: Fail) -> None:
        self.scene = Scene()
        self.hands = Hands()
        hands: Any = self.hands
        stage = Stage(
            kube=hands, sight=self.scene.sight, crew=hands, ledger=self.scene.ledger, judge=self.scene.judge,
            namespace="elastic-job", patient=False, patience_seconds=5.0,
        )  # fmt: skip
        fate = Fate(name="one", kind="doomed", low=1, replicas=2, high=2, acts=acts)
        self.play = Play(fate, stage)
        self.scene.job(make_job(RUNNING))

    async def ended(self) -> tuple[int, str]:
        """The next worker whose program was made to end."""
        return await asyncio.wait_for(self.hands.ended.get(), 5)

    async def seen(self) -> None:
        """Whoever waits has looked at what is there now."""
        self.scene.sight.pulse.beat()
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
