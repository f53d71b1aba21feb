"""A sweep as jobs: what is submitted, what a second time, what the controller is told, what is told of it."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from ebb.api.platform import parse as parse_platform
from ebb.client import BadRequest, ClientError, Ebb, Missing, Request, change
from ebb.client.sweep import SweepPlan, SweepView, asha, delete, parse, points_of, show, start, stop, stop_worst, watch
from ebb.kube import ELASTIC_JOBS, Object
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

    def __init__(self, kube: FakeKube) -> None:
        self.kube, self.notes = kube, list[str]()
        self._seen: asyncio.Queue[SweepView] = asyncio.Queue()
        self.task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        async for seen in watch(ebb(self.kube), "scan", open_files=Volume({}).open, note=self.notes.append):
            self._seen.put_nowait(seen)

    async def until(self, **states: str) -> None:
        while True:
            found = {run.job: run.state for run in (await asyncio.wait_for(self._seen.get(), 5)).runs}
            if all(found[name.replace("_", "-")] == state for name, state in states.items()):
                return


async def test_the_rule_is_in_every_run() -> None:
    kube = FakeKube()
    await start(ebb(kube), plan(max_parallel=2, halving=asha(3, after=200)))
    rule = {"algorithm": "asha", "after": 200, "metric": "loss", "factor": 3, "fraction": 0.5}
    groups = [job["spec"]["group"] for job in (await jobs(kube)).values()]
    assert groups == [{"name": "scan", "maxParallel": 2, "halving": rule}] * 2


async def test_a_rule_alone_limits_nothing_else() -> None:
    kube = FakeKube()
    await start(ebb(kube), plan(halving=stop_worst(0.25, after=5)))
    (group, _) = [job["spec"]["group"] for job in (await jobs(kube)).values()]
    assert "maxParallel" not in group
    assert (group["halving"]["algorithm"], group["halving"]["fraction"]) == ("stop-worst", 0.25)


async def test_a_new_rule_holds_for_runs_that_were_not_compared_yet() -> None:
    """One that was, may have been resumed in spite of it: it keeps what it has."""
    kube = FakeKube()
    compared, other = (await start(ebb(kube), plan(halving=stop_worst(0.5, after=5)))).submitted
    job = (await jobs(kube))[compared]
    del job["spec"]["group"]["halving"]  # as `ebb resume` does
    kube.put({**job, "status": {"sweep": {"rungs": [{"step": 5, "value": 1.0}]}}})
    await start(ebb(kube), plan(max_parallel=2, halving=stop_worst(0.5, after=9)))
    found = await jobs(kube)
    assert not found[compared]["spec"]["group"].get("halving")
    assert found[other]["spec"]["group"]["halving"]["after"] == 9
    assert {found[name]["spec"]["group"]["maxParallel"] for name in (compared, other)} == {2}
    await start(ebb(kube), plan(max_parallel=1))
    found = await jobs(kube)
    assert found[other]["spec"]["group"].get("halving") is None
    assert {found[name]["spec"]["group"]["maxParallel"] for name in (compared, other)} == {1}


def held(kube: FakeKube, job: Object, reason: str, message: str, **progress: Any) -> None:
    """The controller holds a run at a rung."""
    conditions = [{"type": "Suspended", "status": "True", "reason": reason, "message": message}]
    hold = {"reason": reason, "message": message, "generation": 1, "at": "2026-11-21T12:05:00Z"}
    sweep = {"rungs": [{"step": 9, "value": progress["loss"]}]}
    status = {"state": "Suspended", "conditions": conditions, "hold": hold, "sweep": sweep, "progress": progress}
    kube.put({**job, "status": status})


async def test_a_run_among_the_worst_says_why() -> None:
    kube = FakeKube()
    good, bad = (await start(ebb(kube), plan(halving=stop_worst(0.5, after=9)))).submitted
    found = await jobs(kube)
    reports(kube, found[good], state="Succeeded", step=20, totalSteps=20, loss=0.5)
    held(kube, found[bad], "AmongTheWorst", "loss 0.9 at step 9 is among the worst 50% of 2 runs.", step=9, loss=0.9)
    seen = await show(ebb(kube), "scan")
    assert {run.job: (run.state, run.stopped_because) for run in seen.runs} == {
        good: ("finished", ""),
        bad: ("stopped", "loss 0.9 at step 9 is among the worst 50% of 2 runs."),
    }
    assert seen.over


async def test_a_paused_run_is_over_only_where_it_cannot_be_promoted() -> None:
    kube = FakeKube()
    one, two = (await start(ebb(kube), plan(halving=asha(2, after=9)))).submitted
    found = await jobs(kube)
    held(kube, found[one], "PausedBySweep", "it pauses", step=9, loss=0.9)
    reports(kube, found[two], step=5, totalSteps=20, loss=0.5)
    seen = await show(ebb(kube), "scan")
    assert ({run.job: run.state for run in seen.runs}, seen.over) == ({one: "paused", two: "running"}, False)
    held(kube, found[two], "PausedBySweep", "it pauses", step=9, loss=0.5)
    assert not (await show(ebb(kube), "scan")).over, "the better one is about to go on"
    reports(kube, (await jobs(kube))[two], state="Succeeded", step=20, totalSteps=20, loss=0.4)
    seen = await show(ebb(kube), "scan")
    assert ({run.job: run.state for run in seen.runs}, seen.over) == ({one: "stopped", two: "finished"}, True)
    assert {run.job: run.stopped_because for run in seen.runs} == {one: "it pauses", two: ""}


async def test_resume_takes_a_run_out_of_the_comparison() -> None:
    kube = FakeKube()
    one, _ = (await start(ebb(kube), plan(halving=asha(2, after=9)))).submitted
    held(kube, (await jobs(kube))[one], "PausedBySweep", "it pauses", step=9, loss=0.9)
    await change.resume(ebb(kube), one)
    group = (await jobs(kube))[one]["spec"]["group"]
    assert (group["name"], group.get("halving")) == ("scan", None)


async def test_stop_keeps_paused_runs_from_being_promoted() -> None:
    kube = FakeKube()
    one, two = (await start(ebb(kube), plan(halving=asha(2, after=9)))).submitted
    held(kube, (await jobs(kube))[one], "PausedBySweep", "it pauses", step=9, loss=0.9)
    assert set(await stop(ebb(kube), "scan", wait=False)) == {one, two}
    assert await stop(ebb(kube), "scan") == ()


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (lambda: stop_worst(1.0, after=1), "stop-worst 1 is not a fraction"),
        (lambda: stop_worst(0.0, after=1), "stop-worst 0 is not a fraction"),
        (lambda: stop_worst(0.5, after=0), "after 0 is too early"),
        (lambda: stop_worst(0.5, after=1, metric="accuracy"), "metric 'accuracy' is not in it: use loss or samples_per"),
        (lambda: asha(1, after=1), "asha 1 lets every run go on"),
        (lambda: asha(3, after=1, metric="accuracy"), "asha compares runs while they train"),
    ],
)
def test_rules_that_are_none(ask: Callable[[], object], said: str) -> None:
    with pytest.raises(BadRequest, match=said):
        ask()


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
