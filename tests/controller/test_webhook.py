"""The webhook speaks HTTP: JSON with an id, Slack's form, no redirects, and an address that is read anew and never repeated."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from ebb.controller import webhook as webhooks
from ebb.controller.reconciler.notifications import Notification
from ebb.controller.webhook import Webhook

WHAT = Notification(
    key="finished", id="uid-1/finished", at="2026-11-26T01:00:00Z", text="digits finished.", job="digits",
    namespace="elastic-job", user="alice", state="Succeeded", step=4700, usd_spent=12.3,
)  # fmt: skip
Handler = Callable[[web.Request], Awaitable[web.Response]]


async def send(handler: Handler, file: Path, *, host: str = "127.0.0.1") -> str:
    """Send to a server whose address stands in the file."""
    app = web.Application()
    app.router.add_post("/hook", handler)
    app.router.add_post("/other", handler)
    async with TestServer(app) as server, Webhook.open(file) as webhook:
        file.write_text(f"http://{host}:{server.port}/hook?token=secret\n")
        return await webhook.send(WHAT)


def test_a_notification_is_json_with_its_id_in_a_header(tmp_path: Path) -> None:
    seen: list[Any] = []

    async def take(request: web.Request) -> web.Response:
        seen.append((request.headers["Ebb-Event-Id"], request.query["token"], await request.json()))
        return web.Response(status=204)

    assert asyncio.run(send(take, tmp_path / "webhook")) == ""
    ((header, token, body),) = seen
    assert (header, token) == ("uid-1/finished", "secret")
    assert body == {
        "id": "uid-1/finished", "kind": "finished", "at": "2026-11-26T01:00:00Z", "text": "digits finished.", "job": "digits",
        "namespace": "elastic-job", "user": "alice", "state": "Succeeded", "step": 4700, "usdSpent": 12.3,
    }  # fmt: skip


def test_slack_gets_its_own_form(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhooks, "SLACK", "localhost")
    seen: list[Any] = []

    async def take(request: web.Request) -> web.Response:
        seen.append(await request.json())
        return web.Response(text="ok")

    assert asyncio.run(send(take, tmp_path / "webhook", host="localhost")) == ""
    assert seen == [{"text": "digits finished."}]


@pytest.mark.parametrize("status", [302, 404, 500])
def test_what_is_not_taken_says_why_and_no_redirect_is_followed(tmp_path: Path, status: int) -> None:
    asked: list[str] = []

    async def refuse(request: web.Request) -> web.Response:
        asked.append(request.path)
        return web.Response(status=status, headers={"Location": "/other"})

    assert asyncio.run(send(refuse, tmp_path / "webhook")) == f"the webhook answers {status}"
    assert asked == ["/hook"]


def test_a_webhook_that_hangs_or_is_away_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhooks, "TIMEOUT_SECONDS", 0.05)

    async def hang(_: web.Request) -> web.Response:
        await asyncio.sleep(5)
        return web.Response()

    async def away() -> str:
        (tmp_path / "webhook").write_text("http://127.0.0.1:1/hook?token=secret")
        async with Webhook.open(tmp_path / "webhook") as webhook:
            return await webhook.send(WHAT)

    assert asyncio.run(send(hang, tmp_path / "webhook")) == "the webhook does not answer within 0.05 s"
    assert asyncio.run(away()) == "the webhook cannot be reached (ClientConnectorError)"


@pytest.mark.parametrize("text", ["", "\n", "hooks.slack.com/x", "ftp://x", "https://?token=x", "https://a b", "https://[", None])
def test_what_is_no_address_is_no_webhook_and_is_told_once_without_the_address(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, text: str | None
) -> None:
    file = tmp_path / "webhook"
    if text is not None:
        file.write_text(text)

    async def look() -> list[bool]:
        async with Webhook.open(file) as webhook:
            return [webhook.is_there(), webhook.is_there()]

    with caplog.at_level(logging.ERROR):
        assert asyncio.run(look()) == [False, False]
    assert len(caplog.records) == (1 if text and text.strip() else 0)
    assert not text or not text.strip() or text not in caplog.text


def test_the_file_may_come_later_and_go(tmp_path: Path) -> None:
    file = tmp_path / "webhook"

    async def look() -> list[bool]:
        seen = []
        async with Webhook.open(file) as webhook:
            seen.append(webhook.is_there())
            file.write_text("https://example.org/hook")
            seen.append(webhook.is_there())
            file.unlink()
            seen.append(webhook.is_there())
        return seen

    assert asyncio.run(look()) == [False, True, False]
