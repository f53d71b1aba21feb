"""Records of jobs that are older than they are kept: who deletes them, in which steps, and what people are told of it."""

import asyncio
import logging
import random
from dataclasses import replace
from typing import Any

import pytest

from ebb.api.clock import stamp
from ebb.api.contract import LABEL_RECORD
from ebb.api.usage import DAY, MachineUsage, read, write
from ebb.client.costs import By, CostReport, report_of, whole_days
from ebb.controller.__main__ import read_settings
from ebb.controller.record_retention import EVERY_SECONDS, KEPT_DAYS, PAGE, PAUSE_SECONDS
from ebb.kube import CONFIG_MAPS, ELASTIC_JOBS, Denied, Unreachable
from tests.builders import NOW, make_job
from tests.controller.cloud import Cloud
from tests.fake_time import run
from tests.world import FakeCluster, started

Object = dict[str, Any]


def put(world: FakeCluster, name: str, days: float, *, namespace: str = "elastic-job", label: str = "true") -> None:
    """A ConfigMap that is so many days old."""
    metadata = {
        "name": name, "namespace": namespace, "uid": f"uid-{name}", "creationTimestamp": stamp(NOW - days * DAY),
        "labels": {LABEL_RECORD: label} if label else {},
    }  # fmt: skip
    world.api.put(CONFIG_MAPS, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {}})


def deleted(world: FakeCluster) -> list[str]:
    return [name for verb, plural, name in world.api.calls if (verb, plural) == ("delete", "configmaps")]


def test_what_is_too_old_is_deleted_and_nothing_else() -> None:
    async def story() -> None:
        async with started() as world:
            put(world, "old", KEPT_DAYS + 1)
            put(world, "older", KEPT_DAYS + 9)
            put(world, "last-year", 365)
            put(world, "settings", KEPT_DAYS + 9, label="")
            put(world, "of-another-team", KEPT_DAYS + 9, namespace="team")
            put(world, "of-nobody", KEPT_DAYS + 9, namespace="kube-system")
            world.api.put(ELASTIC_JOBS, {**make_job(), "metadata": {**make_job()["metadata"], "namespace": "team"}})
            await world.settle(EVERY_SECONDS + 10)
            assert deleted(world) == ["older", "old", "of-another-team"], "the oldest first"
            assert world.api.names(CONFIG_MAPS) == ["last-year", "settings", "of-nobody"]
            put(world, "comes-of-age", KEPT_DAYS - (world.api.clock() - NOW - EVERY_SECONDS) / DAY)
            await world.settle(EVERY_SECONDS)
            assert deleted(world)[3:] == ["comes-of-age"]

    run(story())


def test_records_of_a_team_without_a_job_are_deleted_too() -> None:
    async def story() -> None:
        async with started() as world:
            Cloud(world.api, random.Random(0)).open(teams=[{"name": "vision", "namespace": "ebb-team-vision"}])
            put(world, "of-a-team", KEPT_DAYS + 9, namespace="ebb-team-vision")
            await world.settle(2 * EVERY_SECONDS)
            assert deleted(world) == ["of-a-team"]

    run(story())


def test_many_are_deleted_one_after_the_other_with_room_for_jobs_between() -> None:
    async def story() -> None:
        async with started() as world:
            count = 3 * PAGE + 7
            for number in range(count):
                put(world, f"r{number}", KEPT_DAYS + 1)
            await world.settle(10 * PAUSE_SECONDS)
            assert 5 <= len(deleted(world)) <= 11
            await world.settle(count * PAUSE_SECONDS)
            assert world.api.names(CONFIG_MAPS) == []

    run(story())


def test_what_fails_is_done_the_next_time_and_what_is_not_allowed_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        async with started() as world:
            for name in ("a", "b"):
                put(world, name, KEPT_DAYS + 1)
            world.api.fail("delete", CONFIG_MAPS, Unreachable("gone"))
            await world.settle(10)
            assert deleted(world) == []
            await world.settle(EVERY_SECONDS)
            assert deleted(world) == ["a", "b"]
            for _ in range(2):
                put(world, "c", KEPT_DAYS + 1)
                world.api.fail("list", CONFIG_MAPS, Denied("forbidden"), times=1)
                await world.settle(EVERY_SECONDS)
            assert deleted(world) == ["a", "b"]

    caplog.set_level(logging.INFO, "ebb.controller.record_retention")
    run(story())
    assert [record.message for record in caplog.records if "for ever" in record.message] == [
        "records of jobs in elastic-job are kept for ever: forbidden"
    ]


def test_one_that_does_not_lead_any_more_deletes_nothing() -> None:
    class Lost(Exception):
        pass

    def fence() -> None:
        raise Lost

    async def story() -> None:
        async with started(fence) as world:
            put(world, "old", KEPT_DAYS + 1)
            await asyncio.wait([world._task], timeout=60)
            assert deleted(world) == []

    with pytest.raises(ExceptionGroup, match="unhandled errors"):
        run(story())


def test_how_long_is_a_setting(capsys: pytest.CaptureFixture[str]) -> None:
    assert read_settings([]).record_days == 400
    assert read_settings(["--keep-records", "90"]).record_days == 90
    for days in ("7", "nan", "-1"):
        with pytest.raises(SystemExit):
            read_settings(["--keep-records", days])
        assert f"--keep-records {days} is too short" in capsys.readouterr().err


# --- What `ebb cost` says of it -------------------------------------------------------------------------------------------------


def report(usage: MachineUsage, days: float) -> CostReport:
    window = whole_days(NOW, days * DAY)
    return report_of((), usage, window, By.JOB)


def test_a_report_that_reaches_further_back_says_from_when_on_there_are_records() -> None:
    usage = read(write(MachineUsage(begun=NOW - 900 * DAY, until=NOW, record_days=KEPT_DAYS)))
    (said,) = [note for note in report(usage, 500).notes if "Records of jobs" in note]
    assert said.endswith(f"there are none of jobs that ended before {stamp(NOW - KEPT_DAYS * DAY)}.")
    assert not [note for note in report(usage, 365).notes if "Records of jobs" in note]
    assert not [note for note in report(replace(usage, record_days=0.0), 500).notes if "Records of jobs" in note]
