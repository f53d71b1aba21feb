"""The reflector against an HTTP server that misbehaves: the real client, the real protocol, no cluster."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from workloads.kube import PODS, Kube, Unreachable
from workloads.kube import reflector as reflectors
from workloads.kube.reflector import PAGE, Habits, Reflector

Object = dict[str, Any]


def pod(name: str, version: int, *, uid: str = "") -> Object:
    """Versions differ in their spec, too."""
    metadata = {"name": name, "namespace": "ns", "uid": uid or name, "resourceVersion": str(version), "managedFields": [1]}
    return {"metadata": metadata, "spec": {"version": version}}


PLAIN = Habits()


class Server:
    """Lists what `pods` holds; each watch plays the next script: (type, object) pairs, then "end", "hang" or "cut"."""

    def __init__(self) -> None:
        self.pods: list[Object] = []
        self.version = 10
        self.scripts: list[list[Any]] = []
        self.lists = 0
        self.watched_from: list[str] = []
        self.errors: list[int] = []
        self.pages: list[int] = []  # how many objects were on each
        self.forgetful = False  # answers 410 to whoever asks for a second page

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if self.errors:
            code = self.errors.pop(0)
            return web.json_response({"kind": "Status", "code": code, "message": "no"}, status=code)
        if "watch" in request.query:
            return await self._watch(request)
        self.lists += 1
        return self._page(int(request.query.get("limit", 0)), int(request.query.get("continue", 0)))

    def _page(self, limit: int, start: int) -> web.Response:
        if start and self.forgetful:
            return web.json_response({"kind": "Status", "code": 410, "message": "the continue token expired"}, status=410)
        stop = start + limit if limit else len(self.pods)
        self.pages.append(len(self.pods[start:stop]))
        more = {"continue": str(stop)} if stop < len(self.pods) else {}
        return web.json_response({"items": self.pods[start:stop], "metadata": {"resourceVersion": str(self.version), **more}})

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        self.watched_from.append(request.query["resourceVersion"])
        answer = web.StreamResponse(headers={"Content-Type": "application/json"})
        await answer.prepare(request)
        for step in self.scripts.pop(0) if self.scripts else ["hang"]:
            if step == "hang":
                await asyncio.sleep(60)
            elif isinstance(step, asyncio.Event):
                await step.wait()
            elif step == "cut":
                assert request.transport is not None
                request.transport.abort()
                return answer
            elif step != "end":
                await answer.write(json.dumps({"type": step[0], "object": step[1]}).encode() + b"\n")
        return answer


class Seen:
    """What the reflector told, in order."""

    def __init__(self) -> None:
        self.changes: list[str] = []
        self.news = asyncio.Event()

    def __call__(self, old: Object | None, new: Object | None) -> None:
        value = new or old
        assert value is not None
        mark = "+" if old is None else "-" if new is None else "~"
        self.changes.append(f"{mark}{value['metadata']['name']}@{value['metadata']['resourceVersion']}")
        self.news.set()

    async def until(self, done: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not done():
                self.news.clear()
                with suppress(TimeoutError):
                    await asyncio.wait_for(self.news.wait(), 0.05)


@asynccontextmanager
async def watching(
    server: Server, folder: Path, habits: Habits = PLAIN, on_gap: Callable[[], None] = lambda: None
) -> AsyncIterator[tuple[Reflector, Seen]]:
    """A reflector of the server's pods, by the real client."""
    app = web.Application()
    app.router.add_route("GET", "/api/v1/pods", server.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = site._server.sockets[0].getsockname()[1]  # type: ignore[union-attr]
    config = folder / "kubeconfig"
    named = {"name": "x"}
    config.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "x",
                "clusters": [named | {"cluster": {"server": f"http://127.0.0.1:{port}"}}],
                "users": [named | {"user": {"token": "t"}}],
                "contexts": [named | {"context": {"cluster": "x", "user": "x"}}],
            }
        )
    )
    seen = Seen()
    try:
        async with Kube.connect(str(config)) as api:
            reflector = Reflector(api, PODS, on_change=seen, on_gap=on_gap, habits=habits)
            task = asyncio.create_task(reflector.run())
            try:
                yield reflector, seen
            finally:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
    finally:
        await runner.cleanup()


def names(reflector: Reflector) -> list[str]:
    return sorted(name for _, name in reflector.objects)


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
