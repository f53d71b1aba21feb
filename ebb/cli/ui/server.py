"""HTTP of the live page: documents, the same as JSON, and a stream of events for each page that is open.

GET /<base>/                       all jobs, sweeps, GPUs       .../stream, /<base>/api/overview
GET /<base>/jobs/NAME              one job                      .../stream, /<base>/api/jobs/NAME
GET /<base>/sweeps/NAME            one sweep                    .../stream, /<base>/api/sweeps/NAME

A stream sends `page` (the time, and the body when it has changed) and, of a job, `log` (new lines). The JSON has the fields of
`-o json`. A document is complete without its script, which only keeps it new.
"""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import orjson
from aiohttp import web

from ebb.cli.ui import pages
from ebb.cli.ui.feed import JobFeed
from ebb.cli.ui.guard import Guard, add_headers
from ebb.cli.ui.live import Live, Snapshot
from ebb.cli.ui.pages import PagePlace
from ebb.cli.verbs.gpus import gpu_record
from ebb.client import report
from ebb.client.errors import BadRequest
from ebb.client.platform.connection import Ebb
from ebb.client.timeline.events import job_timeline

HOST = "127.0.0.1"
BUNDLE_SECONDS = 0.1  # lines that come within it are sent together
QUIET_SECONDS = 15.0  # then something is sent, so that nobody takes the connection for dead
SHUTDOWN_SECONDS = 1.0
JOBS, SWEEPS = "jobs", "sweeps"
STATIC = {
    "page.css": (Path(report.__file__).parent, "text/css"),
    "page.js": (Path(report.__file__).parent, "text/javascript"),
    "ui.css": (Path(__file__).parent, "text/css"),
    "ui.js": (Path(__file__).parent, "text/javascript"),
    "icon.svg": (Path(__file__).parent, "image/svg+xml"),
}


@dataclass(frozen=True)
class PagePath:
    """A page: of all jobs, or of the job or sweep of that name."""

    kind: str = ""
    name: str = ""


@asynccontextmanager
async def serving(ebb: Ebb, *, port: int = 0) -> AsyncIterator[str]:
    """Listen on a port of this machine's loopback (0: any free one); yields the address. Raises BadRequest if it is taken."""
    guard = Guard()
    app = make_app(Live(ebb), guard)
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=SHUTDOWN_SECONDS)
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, HOST, port).start()
        except (OSError, OverflowError) as error:
            why = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else error
            raise BadRequest(
                f"port {port} cannot be opened on this machine ({why}): choose another, or leave --port out for any free one."
            ) from error
        yield f"http://{HOST}:{runner.addresses[0][1]}{guard.opening}"
    finally:
        await runner.cleanup()


def make_app(live: Live, guard: Guard) -> web.Application:
    """The page of that platform, for whoever the guard lets in."""
    server = _Server(live, guard)
    app = web.Application(middlewares=[guard.middleware()])
    for path, view in (("", ""), (f"{JOBS}/{{name}}", JOBS), (f"{SWEEPS}/{{name}}", SWEEPS)):
        app.router.add_get(f"{guard.base}{path}", server.handler(view, server.document))
        app.router.add_get(f"{guard.base}{path}{'/' if path else ''}stream", server.handler(view, server.stream))
        app.router.add_get(f"{guard.base}api/{path or 'overview'}", server.handler(view, server.json))
    app.router.add_get(f"{guard.base}static/{{file}}", server.static)
    app.on_response_prepare.append(add_headers)
    app.on_shutdown.append(server.close)
    return app


class _Server:
    def __init__(self, live: Live, guard: Guard) -> None:
        self._live = live
        found = live.ebb.platform
        words = " · ".join(dict.fromkeys((found.stack, found.cloud, found.region)))
        self._place = PagePlace(base=guard.base, platform=f"{words}, {live.ebb.namespace}")
        self._static = {name: (folder / name).read_bytes() for name, (folder, _) in STATIC.items()}
        self._bodies: dict[PagePath, str] = {}  # of one version of what is known, for all who watch
        self._version = -1

    async def close(self, _: web.Application) -> None:
        self._live.close()

    def handler(self, kind: str, answer: Any) -> Any:
        async def handle(request: web.Request) -> web.StreamResponse:
            found: web.StreamResponse = await answer(request, PagePath(kind, request.match_info.get("name", "")))
            return found

        return handle

    async def document(self, request: web.Request, view: PagePath) -> web.Response:
        found = await self._live.fresh()
        html = pages.whole(
            self._body(view),
            self._place,
            title=view.name or "Jobs",
            stream=request.path.removeprefix(self._place.base) + ("/stream" if view.kind else "stream"),
            log=view.kind == JOBS,
        )
        return web.Response(text=html, content_type="text/html", status=_status(found, view))

    async def json(self, _: web.Request, view: PagePath) -> web.Response:
        found = await self._live.fresh()
        body = {"at": found.at if found else None, "trouble": self._live.trouble}
        if found is not None:
            body |= self._facts(found, view)
        return web.Response(body=orjson.dumps(body), content_type="application/json", status=_status(found, view))

    async def static(self, request: web.Request) -> web.Response:
        name = request.match_info["file"]
        if name not in self._static:
            raise web.HTTPNotFound
        return web.Response(body=self._static[name], content_type=STATIC[name][1], charset="utf-8")

    async def stream(self, request: web.Request, view: PagePath) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
        await answer.prepare(request)
        await answer.write(b"retry: 2000\n\n")
        async with self._live.watching(), _Follower(self._live, view) as follower:
            sent = ""
            while not self._live.closed:
                bell = self._live.bell  # before all that is looked at
                self._live.check()
                feed = await follower.feed()
                if self._live.snapshot is not None or self._live.trouble:
                    body = self._body(view)
                    await answer.write(_event("page", {"at": self._at(), **({} if body == sent else {"body": body})}))
                    sent = body
                if feed is not None and (news := follower.news(feed)):
                    await answer.write(_event("log", news))
                try:
                    async with asyncio.timeout(QUIET_SECONDS):
                        await bell.wait()
                except TimeoutError:
                    await answer.write(b":\n\n")
                await asyncio.sleep(BUNDLE_SECONDS)
        return answer

    def _body(self, view: PagePath) -> str:
        live = self._live
        if self._version != live.version:
            self._bodies, self._version = {}, live.version
        if view not in self._bodies:
            banner = pages.trouble_banner(live.trouble, live.snapshot)
            self._bodies[view] = banner + (self._content(live.snapshot, view) if live.snapshot else "")
        return self._bodies[view]

    def _content(self, found: Snapshot, view: PagePath) -> str:
        if view.kind == JOBS:
            item = found.job(view.name)
            return pages.job(found, self._place, view.name, self._live.feed(item) if item else None)
        if view.kind == SWEEPS:
            return pages.sweep(found, self._place, view.name)
        return pages.overview(found, self._place)

    def _facts(self, found: Snapshot, view: PagePath) -> dict[str, Any]:
        if view.kind == JOBS:
            item = found.job(view.name)
            if item is None:
                return {}
            status, feed = found.status(item), self._live.feed(item)
            entries = job_timeline(item, list(found.pods), feed.told if feed else [], found.nodes)
            told = {"job": status.job, "workers": status.workers, "reclaims": status.reclaims, "dashboards": status.dashboards}
            return {**told, "events": entries}
        if view.kind == SWEEPS:
            return {"sweep": found.sweep(view.name)}
        return {"jobs": found.jobs, "gpus": gpu_record(found.gpus), "sweeps": found.sweeps}

    def _at(self) -> str:
        """When the snapshot was taken, by this machine's clock."""
        found = self._live.snapshot
        return datetime.fromtimestamp(found.at).astimezone().strftime("%H:%M:%S") if found else ""


class _Follower:
    """The feed of the job of a page, also when another job takes its name; and how far its log was sent."""

    def __init__(self, live: Live, view: PagePath) -> None:
        self._live, self._view = live, view
        self._stack = AsyncExitStack()
        self._feed: JobFeed | None = None
        self._sent: int | None = None  # lines; None: the browser shall begin anew

    async def __aenter__(self) -> "_Follower":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def feed(self) -> JobFeed | None:
        """The one of the job that has the name now; of a job that is gone the last one."""
        found = self._live.snapshot
        job = found.job(self._view.name) if found and self._view.kind == JOBS else None
        if job is not None and (self._feed is None or self._feed.job["metadata"]["uid"] != job["metadata"]["uid"]):
            await self._stack.aclose()
            self._feed = await self._stack.enter_async_context(self._live.feeding(job))
            self._sent = None
        if self._feed is not None:
            self._feed.check()
        return self._feed

    def news(self, feed: JobFeed) -> dict[str, Any] | None:
        """The lines that were not sent yet."""
        fresh, first = self._sent is None, self._sent or 0
        lines = [line for line in feed.lines if line.number >= first]
        if not lines and not fresh:
            return None
        self._sent = feed.numbered
        return {"fresh": fresh, "lines": lines}


def _status(found: Snapshot | None, view: PagePath) -> int:
    if found is None:
        return 503
    there = {JOBS: found.job, SWEEPS: found.sweep}.get(view.kind)
    return 200 if there is None or there(view.name) is not None else 404


def _event(kind: str, data: dict[str, Any]) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (kind.encode(), orjson.dumps(data))
