"""The reflector's finer ways: pages, what it keeps, whom it does without, what it tells of gaps, and its own writes."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from ebb.kube import PODS
from ebb.kube import reflector as reflectors
from ebb.kube.reflector import PAGE, Habits, Reflector
from tests.kube.server import Server, pod, watching

Object = dict[str, Any]


async def test_a_long_list_comes_in_pages(tmp_path: Path) -> None:
    server = Server()
    server.pods = [pod(f"p{index}", 5) for index in range(2 * PAGE + 3)]
    async with watching(server, tmp_path) as (reflector, _):
        await asyncio.wait_for(reflector.synced.wait(), 10)
        assert server.pages == [PAGE, PAGE, 3]
        assert len(reflector.objects) == 2 * PAGE + 3


async def test_a_list_whose_next_page_is_too_old_is_asked_for_in_one_piece(tmp_path: Path) -> None:
    server = Server()
    server.pods, server.forgetful = [pod(f"p{index}", 5) for index in range(PAGE + 3)], True
    async with watching(server, tmp_path) as (reflector, seen):
        await asyncio.wait_for(reflector.synced.wait(), 10)
        assert server.pages == [PAGE, PAGE + 3]
        assert len(seen.changes) == PAGE + 3, "each is told once"


async def test_what_nobody_reads_is_left_out_and_no_news(tmp_path: Path) -> None:
    def only_name(value: Object) -> Object:
        return {"metadata": {key: value["metadata"][key] for key in ("name", "namespace", "uid", "resourceVersion")}}

    server = Server()
    server.pods = [pod("a", 5)]
    server.scripts = [[("MODIFIED", pod("a", 12)), ("ADDED", pod("b", 13)), "hang"]]
    async with watching(server, tmp_path, Habits(trim=only_name)) as (reflector, seen):
        await seen.until(lambda: len(seen.changes) == 2)
        assert seen.changes == ["+a@5", "+b@13"]
        assert reflector.objects["ns", "a"] == {
            "metadata": {"name": "a", "namespace": "ns", "uid": "a", "resourceVersion": "12"}
        }, "the version moves on, for whoever writes"


async def test_news_may_be_told_and_not_kept(tmp_path: Path) -> None:
    server = Server()
    server.pods = [pod("a", 5)]
    server.scripts = [[("MODIFIED", pod("a", 12)), ("DELETED", pod("a", 13)), ("ADDED", pod("b", 14)), "hang"]]
    async with watching(server, tmp_path, Habits(forgetful=True)) as (reflector, seen):
        await seen.until(lambda: len(seen.changes) == 3)
        assert (seen.changes, reflector.objects) == (["+a@5", "+a@12", "+b@14"], {})


@pytest.mark.parametrize("code", [401, 403, 404])
async def test_a_kind_that_one_may_do_without_holds_nobody_up(
    code: int, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reflectors, "REFUSED_RETRY_SECONDS", 0.05)
    server = Server()
    server.pods, server.errors = [pod("a", 5)], [code] * 3
    gaps: list[int] = []
    with caplog.at_level("INFO"):
        async with watching(server, tmp_path, Habits(optional=True), lambda: gaps.append(1)) as (reflector, seen):
            await asyncio.wait_for(reflector.tried.wait(), 10)
            assert (reflector.refused, reflector.synced.is_set()) == (True, False)
            await seen.until(reflector.synced.is_set)
            assert (reflector.refused, seen.changes, len(gaps)) == (False, ["+a@5"], 2)
    assert len([record for record in caplog.records if "going on without" in record.message]) == 1


async def test_gaps_are_told_and_an_orderly_end_is_none(tmp_path: Path) -> None:
    server = Server()
    server.pods = [pod("a", 5)]
    server.scripts = [
        [("MODIFIED", pod("a", 11)), "end"],
        [("MODIFIED", pod("a", 12)), "cut"],
        [("MODIFIED", pod("a", 13)), "hang"],
    ]
    said: list[str] = []
    async with watching(server, tmp_path, on_gap=lambda: said.append("gap")) as (_, seen):
        record = seen.changes
        await seen.until(lambda: len(record) == 4)
        assert said == ["gap"] * 3, "after the list, when the connection was cut, and when the next one was there"


async def test_the_end_of_an_object_does_not_take_its_successor_away(tmp_path: Path) -> None:
    """Known from the answer to one's own creation, before the watch tells of the end of the one before."""
    server, going = Server(), asyncio.Event()
    server.pods = [pod("a", 5, uid="first")]
    server.scripts = [[going, ("DELETED", pod("a", 14, uid="first")), ("ADDED", pod("b", 16)), "hang"]]
    async with watching(server, tmp_path) as (reflector, seen):
        await seen.until(lambda: bool(server.watched_from))
        reflector.observe(pod("a", 15, uid="second"))
        going.set()
        await seen.until(lambda: "+b@16" in seen.changes)
        assert seen.changes == ["+a@5", "-a@5", "+a@15", "+b@16"]


async def test_a_list_that_is_older_than_ones_own_write_does_not_undo_it(tmp_path: Path) -> None:
    server = Server()
    server.pods = [pod("mine", 5)]
    gone = ("ERROR", {"kind": "Status", "code": 410, "message": "too old resource version"})
    server.scripts = [[gone, "end"], ["hang"]]
    async with watching(server, tmp_path) as (reflector, seen):
        await seen.until(lambda: bool(server.watched_from))
        reflector.observe(pod("mine", 20))
        reflector.observe(pod("new", 21))
        await seen.until(lambda: len(server.watched_from) == 2)
        assert seen.changes == ["+mine@5", "~mine@20", "+new@21"]


async def test_a_kind_that_is_never_quiet_for_long_is_missed_soon(tmp_path: Path) -> None:
    server = Server()
    server.pods, server.scripts = [pod("a", 5)], [["hang"], [("MODIFIED", pod("a", 12)), "hang"]]
    async with watching(server, tmp_path, Habits(lively_seconds=0.2)) as (_, seen):
        await seen.until(lambda: "~a@12" in seen.changes)
        assert server.watched_from[:2] == ["10", "10"]


async def test_a_reflector_that_was_not_started_is_not_late(tmp_path: Path) -> None:
    async with watching(Server(), tmp_path) as (reflector, _):
        assert Reflector(reflector._api, PODS).age_seconds == 0
        await asyncio.wait_for(reflector.synced.wait(), 10)
        assert 0 <= reflector.age_seconds < 10
