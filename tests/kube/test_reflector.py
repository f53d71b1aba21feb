"""The reflector against an HTTP server that misbehaves: the real client, the real protocol, no cluster."""

from pathlib import Path

import pytest
from aiohttp import web

from ebb.kube import PODS, KubeError, Unreachable
from ebb.kube.reflector import LIST_AFTER
from tests.kube.server import Server, names, pod, watching


async def test_what_is_listed_and_what_happens_next_is_told(tmp_path: Path) -> None:
    server = Server()
    server.pods = [pod("a", 5)]
    server.scripts = [[("ADDED", pod("b", 11)), ("MODIFIED", pod("a", 12)), ("DELETED", pod("b", 13)), "hang"]]
    async with watching(server, tmp_path) as (reflector, seen):
        await seen.until(lambda: len(seen.changes) == 4)
        assert seen.changes == ["+a@5", "+b@11", "~a@12", "-b@11"]
        assert names(reflector) == ["a"]
        assert "managedFields" not in reflector.objects["ns", "a"]["metadata"]
        assert reflector.objects["ns", "a"]["kind"] == "Pod"
        assert server.watched_from == ["10"]


@pytest.mark.parametrize("ending", ["end", "cut"], ids=["closed-in-order", "connection-dropped"])
async def test_a_watch_is_taken_up_where_it_stopped(ending: str, tmp_path: Path) -> None:
    server = Server()
    bookmark = ("BOOKMARK", {"metadata": {"resourceVersion": "20"}})
    server.scripts = [[("ADDED", pod("a", 11)), bookmark, ending], [("ADDED", pod("b", 21)), "hang"]]
    async with watching(server, tmp_path) as (_, seen):
        await seen.until(lambda: len(seen.changes) == 2)
        assert seen.changes == ["+a@11", "+b@21"]
        assert (server.watched_from, server.lists) == (["10", "20"], 1)


async def test_after_410_everything_is_listed_and_only_differences_are_told(tmp_path: Path) -> None:
    server = Server()
    server.pods = [pod("same", 5), pod("goes", 6), pod("changes", 7)]
    gone = ("ERROR", {"kind": "Status", "code": 410, "message": "too old resource version"})
    server.scripts = [[gone, "end"], ["hang"]]
    async with watching(server, tmp_path) as (reflector, seen):
        await seen.until(lambda: len(seen.changes) == 3)
        server.pods = [pod("same", 5), pod("changes", 30), pod("new", 31)]
        server.version = 40
        await seen.until(lambda: len(seen.changes) == 6)
        assert seen.changes[3:] == ["~changes@30", "+new@31", "-goes@6"]
        assert (names(reflector), server.lists) == (["changes", "new", "same"], 2)
        await seen.until(lambda: server.watched_from == ["10", "40"])


async def test_a_410_status_does_the_same(tmp_path: Path) -> None:
    server = Server()
    server.pods, server.scripts = [pod("a", 5)], [["end"]]
    async with watching(server, tmp_path) as (_, seen):
        await seen.until(lambda: server.watched_from == ["10"])
        server.errors = [410]
        await seen.until(lambda: server.lists == 2)
        assert seen.changes == ["+a@5"]


async def test_a_silent_watch_is_no_answer_rather_than_a_quiet_cluster(tmp_path: Path) -> None:
    server = Server()
    server.scripts = [["hang"], [("ADDED", pod("a", 11)), "hang"]]
    async with watching(server, tmp_path) as (reflector, seen):
        await seen.until(reflector.synced.is_set)
        with pytest.raises(Unreachable):
            async for _ in reflector._api.watch(PODS, version="10", read_seconds=0.2):
                pass


@pytest.mark.parametrize("code", [403, 429, 500, 503])
async def test_errors_are_waited_out(code: int, tmp_path: Path) -> None:
    server = Server()
    server.pods, server.errors = [pod("a", 5)], [code]
    async with watching(server, tmp_path) as (reflector, seen):
        await seen.until(reflector.synced.is_set)
        assert seen.changes == ["+a@5"]


@pytest.mark.parametrize("code", [429, 503])
async def test_a_busy_server_is_asked_again_when_it_said_and_for_what_came_since(code: int, tmp_path: Path) -> None:
    server = Server()
    server.pods = [pod("a", 5)]
    server.scripts = [[("ADDED", pod("b", 11)), "end"], [code, 1], [("ADDED", pod("c", 12)), "hang"]]
    async with watching(server, tmp_path) as (_, seen):
        await seen.until(lambda: len(seen.changes) == 3)
        assert (server.watched_from, server.lists) == (["10", "11", "11"], 1)
        assert server.watched_at[2] - server.watched_at[1] >= 1


async def test_a_watch_that_a_busy_server_ends_goes_on_where_it_was(tmp_path: Path) -> None:
    server = Server()
    busy = {"kind": "Status", "code": 429, "message": "too many requests", "details": {"retryAfterSeconds": 1}}
    server.scripts = [[("ADDED", pod("a", 11)), ("ERROR", busy)], [("ADDED", pod("b", 12)), "hang"]]
    async with watching(server, tmp_path) as (_, seen):
        await seen.until(lambda: len(seen.changes) == 2)
        assert (server.watched_from, server.lists) == (["10", "11"], 1)
        assert server.watched_at[1] - server.watched_at[0] >= 1


async def test_a_watch_that_fails_again_and_again_is_begun_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ebb.kube.reflector.LAST_RETRY_SECONDS", 0.01)
    monkeypatch.setattr("ebb.kube.reflector.FIRST_RETRY_SECONDS", 0.01)
    server = Server()
    server.scripts = [[500, 0]] * LIST_AFTER + [[("ADDED", pod("b", 12)), "hang"]]
    async with watching(server, tmp_path) as (_, seen):
        await seen.until(lambda: len(seen.changes) == 1)
        assert (len(server.watched_from), server.lists) == (LIST_AFTER + 1, 2)


@pytest.mark.parametrize(
    ("after", "details", "seconds"),
    [("7", {}, 7), ("", {"retryAfterSeconds": 3}, 3), ("soon", {}, 0), ("86400", {}, 60), ("", {}, 0)],
)
async def test_the_seconds_that_a_server_asks_for_are_in_the_error(
    after: str, details: dict[str, int], seconds: float, tmp_path: Path
) -> None:
    server = Server()

    async def refuse(_: web.Request) -> web.Response:
        status = {"kind": "Status", "message": "later", "details": details}
        return web.json_response(status, status=429, headers={"Retry-After": after} if after else {})

    server.answer = refuse  # type: ignore[assignment, method-assign]
    async with watching(server, tmp_path) as (reflector, _):
        with pytest.raises(KubeError, match="later") as raised:
            await reflector._api.list_page(PODS)
        assert (raised.value.busy, raised.value.retry_seconds) == (True, seconds)


async def test_an_object_created_again_under_its_name_is_two_changes(tmp_path: Path) -> None:
    server = Server()
    server.pods = [pod("a", 5, uid="first")]
    server.scripts = [[("ADDED", pod("a", 12, uid="second")), "hang"]]
    async with watching(server, tmp_path) as (_, seen):
        await seen.until(lambda: len(seen.changes) == 3)
        assert seen.changes == ["+a@5", "-a@5", "+a@12"]


async def test_ones_own_writes_are_known_before_the_watch_tells(tmp_path: Path) -> None:
    server = Server()
    async with watching(server, tmp_path) as (reflector, seen):
        await seen.until(lambda: bool(server.watched_from))
        reflector.observe(pod("mine", 15))
        reflector.observe(pod("mine", 14))
        reflector.observe(pod("older-than-the-list", 9))
        assert seen.changes == ["+mine@15"]


async def test_a_line_longer_than_any_buffer_is_read(tmp_path: Path) -> None:
    server = Server()
    large = pod("large", 11)
    large["data"] = "x" * 3_000_000
    server.scripts = [[("ADDED", large), "hang"]]
    async with watching(server, tmp_path) as (reflector, seen):
        await seen.until(lambda: len(seen.changes) == 1)
        assert len(reflector.objects["ns", "large"]["data"]) == 3_000_000
