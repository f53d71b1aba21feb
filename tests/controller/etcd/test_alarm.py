"""etcd's alarms as the controller tells of them: metrics, and one event per job and alarm."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer, unused_port

from ebb.controller.__main__ import read_settings
from ebb.controller.etcd.alarm import EVERY_SECONDS, FIX, EtcdAlarms, http_ask, read_alarm
from ebb.controller.metrics import Metrics
from ebb.kube import ELASTIC_JOBS, EVENTS
from tests.builders import make_job
from tests.fake_time import run
from tests.world import FakeCluster, started

WELL = '{"health":"true","reason":""}'  # as etcd 3.5.21 answered; the next one too
FULL = '{"health":"false","reason":"ALARM NOSPACE"}\n'
DAMAGED = '{"health":"false","reason":"ALARM CORRUPT"}\n'


class Etcd:
    """Says one thing until it is told another; that of team vision is well, or says its own."""

    def __init__(self, says: str | None, vision: str | None = WELL) -> None:
        self.says, self.vision = says, vision

    async def __call__(self, address: str) -> str | None:
        return {"http://etcd:2379": self.says, "http://etcd-team-vision:2379": self.vision}[address]


@asynccontextmanager
async def watched(etcd: Etcd, *teams: str) -> AsyncIterator[FakeCluster]:
    """A controller that leads, with a running job and a suspended one, and its watch over etcd."""
    async with started() as world:
        await world.start_all(make_job())
        world.api.put(ELASTIC_JOBS, make_job("idle", uid="other", suspend=True))
        await world.settle()
        controller = world.controller
        alarms = EtcdAlarms(
            "http://etcd:2379", etcd, teams=lambda: teams, jobs=controller.unfinished, emit_events=controller.emit_events
        )
        alarms.show(controller.metrics)
        watching = asyncio.create_task(alarms.run())
        await world.settle(1)
        yield world
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching


def told(world: FakeCluster) -> list[tuple[str, str, str]]:
    events = sorted(world.api.all(EVENTS), key=lambda item: int(item["metadata"]["resourceVersion"]))
    return [(one["involvedObject"]["name"], one["type"], one["reason"]) for one in events if one["reason"].startswith("Etcd")]


def shown(world: FakeCluster) -> list[str]:
    return [line for line in world.controller.metrics.text().splitlines() if line.startswith("ebb_etcd")]


ALARM, CURED = ("digits", "Warning", "EtcdAlarm"), ("theirs", "Normal", "EtcdCured")


def test_an_etcd_that_is_well_is_a_figure_and_no_event() -> None:
    async def story() -> None:
        async with watched(Etcd(WELL)) as world:
            assert shown(world) == ["ebb_etcd_up 1", 'ebb_etcd_alarm{alarm="NOSPACE"} 0', 'ebb_etcd_alarm{alarm="CORRUPT"} 0']
            await world.settle(600)
            assert told(world) == []

    run(story())


def test_a_full_etcd_is_told_once_to_every_job_that_runs_and_so_is_its_fix() -> None:
    async def story() -> None:
        etcd = Etcd(FULL)
        async with watched(etcd) as world:
            assert shown(world) == ["ebb_etcd_up 1", 'ebb_etcd_alarm{alarm="NOSPACE"} 1', 'ebb_etcd_alarm{alarm="CORRUPT"} 0']
            await world.settle(10 * EVERY_SECONDS)
            assert told(world) == [ALARM]
            (event,) = [one for one in world.api.all(EVENTS) if one["reason"] == "EtcdAlarm"]
            assert event["message"].startswith("etcd is full (alarm NOSPACE) and refuses writes")
            assert event["message"].endswith(FIX)
            etcd.says = WELL
            await world.settle(EVERY_SECONDS + 1)
            assert told(world) == [ALARM, ("digits", "Normal", "EtcdCured")]
            assert 'ebb_etcd_alarm{alarm="NOSPACE"} 0' in shown(world)
            etcd.says = FULL
            await world.settle(EVERY_SECONDS + 1)
            assert told(world)[2:] == [ALARM], "a new alarm is told anew"

    run(story())


def test_a_job_that_is_submitted_under_the_alarm_is_told_too_and_one_that_ends_is_not_told_of_the_end() -> None:
    async def story() -> None:
        etcd = Etcd(FULL)
        async with watched(etcd) as world:
            world.api.put(ELASTIC_JOBS, make_job("late", uid="late"))
            await world.settle(EVERY_SECONDS + 1)
            assert told(world) == [ALARM, ("late", "Warning", "EtcdAlarm")]
            world.api.pod_ends("digits-worker-0", 0)
            world.api.pod_ends("digits-worker-1", 0)
            etcd.says = WELL
            await world.settle(EVERY_SECONDS + 1)
            assert told(world)[2:] == [("late", "Normal", "EtcdCured")]

    run(story())


def test_one_alarm_after_the_other() -> None:
    async def story() -> None:
        etcd = Etcd(FULL)
        async with watched(etcd) as world:
            etcd.says = DAMAGED
            await world.settle(EVERY_SECONDS + 1)
            assert told(world) == [ALARM, ALARM]
            assert shown(world)[1:] == ['ebb_etcd_alarm{alarm="NOSPACE"} 0', 'ebb_etcd_alarm{alarm="CORRUPT"} 1']

    run(story())


def test_a_teams_alarm_is_for_its_jobs_and_that_of_the_others_not() -> None:
    async def story() -> None:
        etcd = Etcd(WELL, vision=FULL)
        async with watched(etcd, "vision") as world:
            theirs = make_job("theirs", uid="theirs")
            theirs["metadata"]["namespace"] = "ebb-team-vision"
            world.api.put(ELASTIC_JOBS, theirs)
            await world.settle(EVERY_SECONDS + 1)
            assert told(world) == [("theirs", "Warning", "EtcdAlarm")]
            assert {'ebb_etcd_up{team="vision"} 1', 'ebb_etcd_alarm{alarm="NOSPACE",team="vision"} 1'} < set(shown(world))
            assert 'ebb_etcd_alarm{alarm="NOSPACE"} 0' in shown(world)
            etcd.says, etcd.vision = FULL, WELL
            await world.settle(EVERY_SECONDS + 1)
            assert told(world)[1:] in ([ALARM, CURED], [CURED, ALARM])

    run(story())


def test_an_etcd_that_does_not_answer_is_down_and_its_alarm_unknown() -> None:
    async def story() -> None:
        etcd = Etcd(FULL)
        async with watched(etcd) as world:
            etcd.says = None
            await world.settle(EVERY_SECONDS + 1)
            assert shown(world) == ["ebb_etcd_up 0"]
            etcd.says = FULL
            await world.settle(EVERY_SECONDS + 1)
            assert told(world) == [ALARM], "it is the same alarm as before"

    run(story())


def test_a_controller_that_does_not_lead_says_nothing_of_etcd() -> None:
    metrics = Metrics()

    async def tell(*_: object) -> None:
        raise AssertionError

    EtcdAlarms("http://etcd:2379", Etcd(FULL), teams=list, jobs=list, emit_events=tell).show(metrics)
    assert not [line for line in metrics.text().splitlines() if line.startswith("ebb_etcd")]


@pytest.mark.parametrize(
    "said", [WELL, "", "[]", "{}", '{"health":"false","reason":"RAFT NO LEADER"}', '{"reason":"ALARM UNKNOWN"}', "<html>"]
)
def test_anything_else_that_etcd_may_say_is_no_alarm(said: str) -> None:
    assert read_alarm(said) is None


async def test_over_http_an_alarm_comes_with_503() -> None:
    async def health(request: web.Request) -> web.Response:
        assert (request.method, request.query_string) == ("GET", "")
        return web.Response(status=503, text=FULL)

    app = web.Application()
    app.add_routes([web.get("/health", health)])
    async with TestServer(app) as server, http_ask() as ask:
        assert read_alarm(await ask(f"http://127.0.0.1:{server.port}") or "") == "NOSPACE"


async def test_over_http_nobody_there_is_no_answer() -> None:
    async with http_ask() as ask:
        assert await ask(f"http://127.0.0.1:{unused_port()}") is None


def test_the_address_is_an_argument(capsys: pytest.CaptureFixture[str]) -> None:
    assert read_settings([]).etcd == ""
    assert read_settings(["--etcd=http://etcd:2379/"]).etcd == "http://etcd:2379"
    with pytest.raises(SystemExit):
        read_settings(["--etcd=etcd:2379"])
    assert "'etcd:2379' is not an address: use for example http://etcd:2381" in capsys.readouterr().err
