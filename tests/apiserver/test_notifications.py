"""A webhook while the controller is killed in the middle of a delivery: one id for the event, and no more after it is written."""

from pathlib import Path
from typing import Any

from aiohttp import web
from aiohttp.test_utils import TestServer

from ebb.api import contract as names
from tests.apiserver.stage import Stage


async def test_a_controller_killed_in_mid_send_sends_again_under_the_same_id(on: Stage, tmp_path: Path) -> None:
    actor = await on.controller("one")
    job = await on.place.submit(replicas=1)
    await job.runs(1)
    taken: list[Any] = []

    async def take(request: web.Request) -> web.Response:
        taken.append((await request.json()) | {"header": request.headers["Ebb-Event-Id"]})
        if len(taken) == 1:
            actor.process.kill()  # it has been taken, and nobody hears the answer
        return web.Response()

    app = web.Application()
    app.router.add_post("/", take)
    async with TestServer(app) as server:
        file = tmp_path / "webhook"
        actor.process.kill()
        actor.process.arguments = ("--webhook-file", str(file))
        await actor.process.start()
        file.write_text(str(server.make_url("/")))  # the Secret may come later
        await job.ends(0, code=0)
        await job.until("it is taken", lambda: bool(taken))
        assert "notified" not in job.status
        await actor.process.start()
        await job.until("that is written", lambda: job.status.get("notified") == ["finished"])
        await actor.process.stop()
        await actor.process.start()
        await job.looked()
    assert [(one["id"], one["header"]) for one in taken] == [(f"{job.uid}/finished", f"{job.uid}/finished")] * 2
    assert (taken[0]["state"], taken[0]["job"]) == (names.SUCCEEDED, job.name)
