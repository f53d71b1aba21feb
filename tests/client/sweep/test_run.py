"""A sweep as jobs: what is submitted, what a second time, who is stopped as one of the worst, what is told of it."""

import asyncio
import json
from typing import Any

import pytest

from ebb.api.platform import parse as parse_platform
from ebb.client import BadRequest, ClientError, Ebb, Missing, Request
from ebb.client.sweep import Rule, SweepPlan, SweepView, delete, parse, points_of, show, start, stop, watch
from ebb.kube import ELASTIC_JOBS, KubeError, Object
from tests.cli.world import NS, FakeKube, elastic_job, platform_json
from tests.client.report.volume import Volume

REQUEST = Request(name="scan", arguments=("train.py",), gpus=2)


def ebb(kube: FakeKube) -> Ebb:
    return Ebb(kube=kube, platform=parse_platform({"schema": "1", "platform.json": json.dumps(platform_json())}), namespace=NS)


def plan(*words: str, **changes: Any) -> SweepPlan:
    values = {"name": "scan", "request": REQUEST, "points": points_of(parse(words or ("lr=0.1,0.01",)), None, 0)}
    return SweepPlan(**{**values, **changes})


async def jobs(kube: FakeKube) -> dict[str, Object]:
    return {job["metadata"]["name"]: job for job in await kube.list(ELASTIC_JOBS, NS)}


def reports(kube: FakeKube, job: Object, *, state: str = "Running", **progress: Any) -> None:
    """The controller writes a status."""
    status = elastic_job(state=state)["status"] | {"progress": progress}
    kube.put({**job, "status": status})


def specials(job: Object) -> tuple[object, ...]:
    container = job["spec"]["replicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]
    annotations = job["metadata"]["annotations"]
    return container["args"], job["metadata"]["labels"]["ebb.dev/sweep"], annotations, job["spec"].get("group")


async def test_every_point_becomes_a_job_that_says_what_it_is() -> None:
    kube = FakeKube()
    started = await start(ebb(kube), plan(max_parallel=1))
    assert started.submitted == ("scan-bd63fa16", "scan-d73a1d03")
    assert started.there == ()
    assert specials((await jobs(kube))["scan-bd63fa16"]) == (
        ["train.py", "--lr", "0.1"],
        "scan",
        {
            "ebb.dev/sweep-point": '{"lr": "0.1"}',
            "ebb.dev/command": "ebb submit --gpus 2 -- python train.py --lr 0.1",
        },
        {"name": "scan", "maxParallel": 1},
    )


async def test_the_same_again_submits_only_what_is_missing() -> None:
    kube = FakeKube()
    first = await start(ebb(kube), plan())
    kube.remove((await jobs(kube))[first.submitted[0]])
    kube.sent.clear()
    again = await start(ebb(kube), plan("lr=0.001,0.01,0.1"))
    assert again.there == (first.submitted[1],)
    assert again.submitted[1] == first.submitted[0]
    assert [method for method, _ in kube.sent] == ["GET", "POST", "POST"]
    assert "group" not in (await jobs(kube))[first.submitted[1]]["spec"]


async def test_a_new_limit_holds_for_runs_that_are_there_and_go_on() -> None:
    kube = FakeKube()
    one, two = (await start(ebb(kube), plan(max_parallel=1))).submitted
    reports(kube, (await jobs(kube))[one], state="Succeeded")
    await start(ebb(kube), plan(max_parallel=2))
    found = await jobs(kube)
    assert [found[name]["spec"]["group"]["maxParallel"] for name in (one, two)] == [1, 2]
    await start(ebb(kube), plan())
    assert not (await jobs(kube))[two]["spec"]["group"]


async def test_another_program_under_the_same_name_is_refused_and_nothing_sent() -> None:
    kube = FakeKube()
    await start(ebb(kube), plan())
    kube.sent.clear()
    other = plan("lr=0.1,0.5", request=Request(name="scan", arguments=("train.py", "--epochs", "9"), gpus=2))
    with pytest.raises(BadRequest, match="name 'scan' is a sweep of another command: its run scan-bd63fa16 is `ebb submit"):
        await start(ebb(kube), other)
    assert {method for method, _ in kube.sent} == {"GET"}


async def test_a_job_of_that_name_that_is_no_run_of_it_is_left_alone() -> None:
    kube = FakeKube(elastic_job("scan-d73a1d03"))
    with pytest.raises(ClientError, match="name 'scan-d73a1d03' is taken"):
        await start(ebb(kube), plan())
    assert set(await jobs(kube)) == {"scan-d73a1d03", "scan-bd63fa16"}


async def test_a_run_that_is_being_deleted_is_not_there() -> None:
    kube = FakeKube()
    one, two = (await start(ebb(kube), plan())).submitted
    job = (await jobs(kube))[two]
    kube.put({**job, "metadata": {**job["metadata"], "deletionTimestamp": "2026-11-21T12:05:00Z"}})
    with pytest.raises(ClientError, match=f"name '{two}' is taken"):
        await start(ebb(kube), plan())
    kube.remove(job)
    again = await start(ebb(kube), plan())
    assert (again.there, again.submitted) == ((one,), (two,))


async def test_a_limit_of_none_at_once_is_refused() -> None:
    with pytest.raises(BadRequest, match="max-parallel 0 is too few"):
        plan(max_parallel=0)


async def test_what_is_told_of_a_sweep() -> None:
    kube = FakeKube()
    small, large = (await start(ebb(kube), plan("lr=10,9", max_parallel=2))).submitted
    found = await jobs(kube)
    reports(kube, found[small], step=5, totalSteps=20, loss=0.5)
    reports(kube, found[large], state="Succeeded", step=20, totalSteps=20, loss=0.7)
    seen = await show(ebb(kube), "scan")
    assert [(run.job, run.point, run.state, run.step, run.metric) for run in seen.runs] == [
        (large, {"lr": "9"}, "finished", 20, 0.7),
        (small, {"lr": "10"}, "running", 5, 0.5),
    ]
    assert (seen.best, seen.max_parallel, seen.over) == (small, 2, False)


async def test_a_sweep_that_is_not_there_names_those_that_are() -> None:
    kube = FakeKube()
    await start(ebb(kube), plan())
    with pytest.raises(Missing, match=r"no sweep named 'other' in elastic-job\. There are: scan"):
        await show(ebb(kube), "other")


class Watched:
    """A watch that runs beside the test; `until` waits for what it sees."""

    def __init__(self, kube: FakeKube, rule: Rule | None = None) -> None:
        self.kube, self.notes, self._rule = kube, list[str](), rule
        self._seen: asyncio.Queue[SweepView] = asyncio.Queue()
        self.task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        async for seen in watch(ebb(self.kube), "scan", rule=self._rule, open_files=Volume({}).open, note=self.notes.append):
            self._seen.put_nowait(seen)

    async def until(self, **states: str) -> None:
        while True:
            found = {run.job: run.state for run in (await asyncio.wait_for(self._seen.get(), 5)).runs}
            if all(found[name.replace("_", "-")] == state for name, state in states.items()):
                return


async def test_the_worst_are_stopped_as_runs_arrive() -> None:
    kube = FakeKube()
    names = (await start(ebb(kube), plan("lr=1,2,3"))).submitted
    found = await jobs(kube)
    one, two, three = (found[name] for name in names)
    watched = Watched(kube, Rule(fraction=0.5, after=100))
    reports(kube, one, step=120, loss=0.9)
    reports(kube, three, step=90, loss=5.0)  # not there yet
    await watched.until(**{names[0].replace("-", "_"): "running"})
    assert not watched.notes
    reports(kube, two, step=100, loss=0.2)
    await watched.until(**{names[0].replace("-", "_"): "stopped"})
    said = "loss 0.9 at step 100 is among the worst 50% of 2 runs"
    assert watched.notes == [f"{names[0]} is stopped: {said}. Continue it: ebb resume {names[0]}"]
    found = await jobs(kube)
    assert found[names[0]]["spec"]["suspend"] is True
    assert found[names[0]]["metadata"]["annotations"]["ebb.dev/sweep-stopped"] == said
    assert json.loads(found[names[1]]["metadata"]["annotations"]["ebb.dev/sweep-rungs"]) == {"100": 0.2}
    for name in names[1:]:
        reports(kube, (await jobs(kube))[name], state="Succeeded", step=300, loss=0.1)
    await asyncio.wait_for(watched.task, 5)


async def test_who_watches_later_knows_what_was_seen_and_respects_a_resume() -> None:
    kube = FakeKube()
    names = (await start(ebb(kube), plan("lr=1,2"))).submitted
    found = await jobs(kube)
    found[names[0]]["metadata"]["annotations"] |= {"ebb.dev/sweep-rungs": '{"100": 0.9}', "ebb.dev/sweep-stopped": "was slow"}
    found[names[1]]["metadata"]["annotations"] |= {"ebb.dev/sweep-rungs": '{"100": 0.2}'}
    reports(kube, found[names[0]], step=150, loss=0.1)
    reports(kube, found[names[1]], state="Succeeded", step=150, loss=0.8)
    watched = Watched(kube, Rule(fraction=0.5, after=100))
    reports(kube, (await jobs(kube))[names[0]], state="Succeeded", step=300, loss=0.1)
    await asyncio.wait_for(watched.task, 5)
    assert not watched.notes
    assert "suspend" not in (await jobs(kube))[names[0]]["spec"]


class Refusing(FakeKube):
    """Changes fail while it refuses."""

    refuses = True

    async def request(self, method: str, path: str, **told: Any) -> Object:
        if method == "PATCH" and self.refuses:
            raise KubeError("no leader", status=503)
        return await super().request(method, path, **told)


async def test_a_change_that_fails_is_said_once_and_tried_again() -> None:
    kube = Refusing()
    bad, good = (await start(ebb(kube), plan("lr=1,2"))).submitted
    found = await jobs(kube)
    reports(kube, found[bad], step=120, loss=0.9)
    reports(kube, found[good], step=100, loss=0.2)
    watched = Watched(kube, Rule(fraction=0.5, after=100))
    await watched.until()
    for step in (110, 120):  # a state is judged before the next one is seen
        reports(kube, found[good], step=step, loss=0.3)
        await watched.until()
    assert watched.notes == [
        f"{bad} cannot be marked: no leader; trying again",
        f"{good} cannot be marked: no leader; trying again",
    ]
    kube.refuses = False
    reports(kube, found[good], step=130, loss=0.3)
    await watched.until(**{bad.replace("-", "_"): "stopped"})
    assert watched.notes[2].startswith(f"{bad} is stopped: loss 0.9 at step 100 is among the worst 50% of 2 runs")
    found = await jobs(kube)
    assert found[bad]["spec"]["suspend"] is True
    assert found[good]["metadata"]["annotations"]["ebb.dev/sweep-rungs"] == '{"100": 0.2}'
    watched.task.cancel()


async def test_a_watch_ends_when_the_sweep_is_deleted() -> None:
    kube = FakeKube()
    await start(ebb(kube), plan())
    watched = Watched(kube)
    assert len(await delete(ebb(kube), "scan")) == 2
    with pytest.raises(Missing, match="sweep scan was deleted"):
        await asyncio.wait_for(watched.task, 5)


async def test_stop_leaves_those_that_are_over() -> None:
    kube = FakeKube()
    one, two = (await start(ebb(kube), plan())).submitted
    reports(kube, (await jobs(kube))[one], state="Succeeded")
    assert await stop(ebb(kube), "scan") == (two,)
    assert await stop(ebb(kube), "scan") == ()
    found = await jobs(kube)
    assert [found[name]["spec"].get("suspend") for name in (one, two)] == [None, True]
