"""Stopping and resuming: what is sent, what is refused, what a held job needs."""

import asyncio
import json
from typing import Any

import pytest

from ebb.api.platform import parse
from ebb.client import BadRequest, ClientError, Ebb, Missing, resume, stop
from ebb.kube import ELASTIC_JOBS, Object
from tests.cli.world import NS, FakeKube, elastic_job, platform_json, worker_pod


def ebb(kube: FakeKube) -> Ebb:
    return Ebb(kube=kube, platform=parse({"schema": "1", "platform.json": json.dumps(platform_json())}), namespace=NS)


def held(reason: str, **spec: Any) -> Object:
    """A job that the controller holds, having spent two dollars."""
    cost = {"usdSpent": 2.0, "usdOnDemand": 6.0, "usdPerHour": 0.0, "at": "2026-11-21T12:10:00Z"}
    job = elastic_job(state="Suspended", cost=cost)
    job["status"]["conditions"][-1]["reason"] = reason
    job["spec"].update(spec)
    return job


async def spec_of(kube: FakeKube, name: str = "digits") -> Object:
    found: Object = (await kube.get(ELASTIC_JOBS, NS, name))["spec"]
    return found


async def test_stop_asks_for_it_and_waits_for_the_workers() -> None:
    kube, notes = FakeKube(elastic_job(), worker_pod(0), worker_pod(1)), asyncio.Queue[str]()
    stopping = asyncio.create_task(stop(ebb(kube), ["digits"], note=notes.put_nowait))
    assert await notes.get() == "digits: 2 workers have still to leave"
    assert not stopping.done()
    kube.remove(worker_pod(0))
    kube.remove(worker_pod(1))
    assert [job.state for job in await stopping] == ["stopped"]
    assert (await spec_of(kube))["suspend"] is True


async def test_none_is_stopped_when_one_is_not_there() -> None:
    kube = FakeKube(elastic_job())
    with pytest.raises(Missing, match="no job named 'other'"):
        await stop(ebb(kube), ["digits", "other"])
    assert "suspend" not in await spec_of(kube)


async def test_a_job_that_is_over_cannot_be_stopped_or_resumed() -> None:
    kube = FakeKube(elastic_job(state="Succeeded"))
    with pytest.raises(ClientError, match="digits is finished: only a job that has not ended can be stopped"):
        await stop(ebb(kube), ["digits"])
    with pytest.raises(ClientError, match="can be resumed"):
        await resume(ebb(kube), "digits")


async def test_resume_of_a_stopped_job() -> None:
    kube = FakeKube(elastic_job(state="Suspended"))
    await kube.patch(ELASTIC_JOBS, NS, "digits", {"spec": {"suspend": True}})
    assert (await resume(ebb(kube), "digits")).name == "digits"
    assert (await spec_of(kube))["suspend"] is False


@pytest.mark.parametrize(
    ("reason", "flag", "fix", "field"),
    [
        ("BudgetSpent", "--max-cost", {"max_usd": 5.0}, ("budget", {"maxUSD": 5.0})),
        ("DeadlinePassed", "--deadline", {"deadline": "2026-12-01T18:00:00Z"}, ("deadline", "2026-12-01T18:00:00Z")),
    ],
)
async def test_a_held_job_needs_what_it_lacks(reason: str, flag: str, fix: Any, field: tuple[str, object]) -> None:
    kube = FakeKube(held(reason))
    with pytest.raises(BadRequest, match=f"say a new one with {flag}"):
        await resume(ebb(kube), "digits")
    await resume(ebb(kube), "digits", **fix)
    assert (await spec_of(kube))[field[0]] == field[1]


async def test_stopping_a_held_job_first_is_no_way_around_its_budget() -> None:
    kube = FakeKube(held("BudgetSpent", budget={"maxUSD": 2.0}, suspend=True))
    with pytest.raises(BadRequest, match=r"the budget of digits is spent \(\$2.00\): say a new one with --max-cost"):
        await resume(ebb(kube), "digits")


async def test_an_empty_name_is_not_all_jobs() -> None:
    with pytest.raises(BadRequest, match="the job's name is empty"):
        await stop(ebb(FakeKube(elastic_job())), [""])


async def test_a_budget_that_is_spent_already_is_refused() -> None:
    with pytest.raises(BadRequest, match=r"max-cost 1.5 is not more than the \$2.00 that it has cost"):
        await resume(ebb(FakeKube(held("BudgetSpent"))), "digits", max_usd=1.5)


async def test_a_job_held_for_another_reason_is_tried_again_by_a_change_of_its_spec() -> None:
    kube = FakeKube(held("NoProgress"))
    await resume(ebb(kube), "digits")
    assert (await spec_of(kube))["suspend"] is False
    assert [method for method, _ in kube.sent].count("PATCH") == 2
