"""The webhook of a stack: an address in a file, which takes notifications as JSON, or as Slack's one text.

async with Webhook.open(Path("/etc/ebb/notifications/webhook")) as webhook:
    problem = await webhook.send(notification)
"""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

import aiohttp

from ebb.controller.reconciler.notifications import Notification

TIMEOUT_SECONDS = 10.0
SLACK = "hooks.slack.com"  # its incoming webhooks take a text and nothing else
ID_HEADER = "Ebb-Event-Id"
log = logging.getLogger(__name__)


class Webhook:
    """The address is read each time: Kubernetes replaces the file of a Secret while the controller runs. It may hold a token,
    and is never repeated in a message."""

    def __init__(self, session: aiohttp.ClientSession, file: Path | None) -> None:
        self._session, self._file, self._refused = session, file, ""

    @classmethod
    @asynccontextmanager
    async def open(cls, file: Path | None) -> AsyncIterator[Self]:
        """`file` may be absent, and may come later."""
        # Proxies of the environment are the only way out of many networks.
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=TIMEOUT_SECONDS), trust_env=True) as session:
            yield cls(session, file)

    def is_there(self) -> bool:
        return bool(self._address())

    async def send(self, what: Notification) -> str:
        """Deliver it; returns the reason why it was not taken, or ""."""
        address = self._address()
        if not address:
            return "the stack has no webhook any more"
        body = {"text": what.text} if urlsplit(address).hostname == SLACK else what.body
        try:
            # A redirect could lead anywhere, and the token in the address along with it.
            async with self._session.post(address, json=body, headers={ID_HEADER: what.id}, allow_redirects=False) as answer:
                return "" if answer.status < 300 else f"the webhook answers {answer.status}"
        except TimeoutError:
            return f"the webhook does not answer within {TIMEOUT_SECONDS:g} s"
        except (aiohttp.ClientError, OSError, ValueError) as error:
            return f"the webhook cannot be reached ({type(error).__name__})"

    def _address(self) -> str:
        try:
            text = self._file.read_text().strip() if self._file else ""
        except (OSError, UnicodeDecodeError):
            return ""
        if not text or _is_address(text):
            return text
        if text != self._refused:
            self._refused = text
            log.error("%s holds no address such as https://example.org/hook: no notifications are sent", self._file)
        return ""


def _is_address(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and not any(map(str.isspace, text))
    except ValueError:
        return False
