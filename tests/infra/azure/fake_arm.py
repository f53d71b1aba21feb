"""Azure on the loopback: an HTTP server that answers as Azure Resource Manager's documented formats are, from a table.

with FakeArm({("GET", "/providers/Microsoft.Compute/skus"): {"value": [...]}}) as azure:
    azure.arm().get("/providers/Microsoft.Compute/skus", "2021-07-01")
    azure.seen                                  # [("GET", "/providers/...", {"api-version": ...}, body), ...]

Paths are those of the subscription without its own. An answer is the JSON, a number (an error of that status), or a function of
the request's query and body. What nobody has said is 404, as Azure's own words are.
"""

import json
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qsl, urlsplit

from infra.clouds.azure.rest import Arm
from tests.infra.azure.stacks import SUBSCRIPTION

Answer = dict[str, Any] | int | Callable[[dict[str, str], Any], Any]
Answers = Mapping[tuple[str, str], Answer]
ROOT = f"/subscriptions/{SUBSCRIPTION}"
# https://learn.microsoft.com/rest/api/azure/#http-status-codes: the body of every error.
ERRORS = {404: "ResourceNotFound", 403: "AuthorizationFailed", 401: "InvalidAuthenticationToken", 429: "TooManyRequests"}


class FakeArm:
    """See above."""

    def __init__(self, answers: Answers) -> None:
        self.answers = dict(answers)
        self.seen: list[tuple[str, str, dict[str, str], Any]] = []
        self.tokens: set[str] = set()
        self.slept: list[float] = []

    def __enter__(self) -> Self:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def arm(self) -> Arm:
        return Arm(SUBSCRIPTION, endpoint=self.url, token=lambda resource: "token", sleep=self.slept.append)

    def asked(self, method: str, path: str) -> list[Any]:
        """Bodies of the requests of one kind; queries of those that have none."""
        return [body if body is not None else query for one, where, query, body in self.seen if (one, where) == (method, path)]

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        fake = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, format: str, *args: Any) -> None:
                pass

            def _do(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                content = self.rfile.read(length)
                status, answer = fake._answered(self.command, self.path, dict(self.headers), content)
                said = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(said)))
                self.end_headers()
                self.wfile.write(said)

            do_GET = do_POST = do_PUT = _do

        return Handler

    def _answered(self, method: str, url: str, headers: dict[str, str], content: bytes) -> tuple[int, Any]:
        parts = urlsplit(url)
        path, query = parts.path.removeprefix(ROOT) or "/", dict(parse_qsl(parts.query))
        self.tokens.add(headers.get("Authorization", ""))
        is_json = headers.get("Content-Type") == "application/json" and content
        body = json.loads(content) if is_json else content or None
        self.seen.append((method, path, query, body))
        answer: Any = self.answers.get((method, path), 404)
        answer = answer(query, body) if callable(answer) else answer
        if isinstance(answer, int):
            return answer, {"error": {"code": ERRORS.get(answer, "Conflict"), "message": f"{method} {path}: said no"}}
        return 200, answer
