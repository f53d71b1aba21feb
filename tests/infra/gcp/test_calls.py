"""Requests to Google: on a server of this machine, with credentials that need nobody."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from google.auth import credentials
from google.auth.transport import urllib3 as transport

from infra.clouds.gcp import calls
from infra.clouds.gcp.calls import ABSENT, DENIED, Account, Disabled, NoAccess, Refused


class Handler(BaseHTTPRequestHandler):
    """Two pages of a list, an aggregated list, what it was sent, and refusals."""

    def do_GET(self) -> None:
        pages: dict[str, tuple[int, Any]] = {
            "/list": (200, {"items": [1, 2], "nextPageToken": "more"}),
            "/list?pageToken=more": (200, {"items": [3]}),
            "/aggregated": (200, {"items": {"zones/a": {"disks": [{"name": "d"}]}}}),
            "/absent": (404, {"error": {"message": "it is not there"}}),
            "/expired": (401, {"error": {"message": "token expired"}}),
            "/page": (503, "no JSON"),
            "/disabled": (403, {"error": {"message": "not enabled", "details": [{"reason": "SERVICE_DISABLED"}]}}),
            "/denied": (403, {"error": {"message": "no right", "details": [{"reason": "IAM_PERMISSION_DENIED"}]}}),
        }
        self._send(*pages[self.path])

    def do_POST(self) -> None:
        sent = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self._send(200, {"sent": sent, "authorization": self.headers["Authorization"]})

    def _send(self, status: int, body: Any) -> None:
        content = json.dumps(body).encode() if isinstance(body, dict) else str(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        pass


class Token(credentials.Credentials):
    """Credentials that are always fresh."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.token = "t"

    def refresh(self, request: Any) -> None:
        self.token = "t"


@pytest.fixture
def server() -> Iterator[str]:
    made = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=made.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{made.server_port}"
    made.shutdown()
    thread.join()
    made.server_close()


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch) -> Iterator[Account]:
    monkeypatch.setattr("google.auth.default", lambda scopes: (Token(), "p"))
    monkeypatch.setattr(calls, "TRIES", False)
    made = Account()
    yield made
    made._http.http.clear()


def test_lists_come_whole(account: Account, server: str) -> None:
    assert account.all(f"{server}/list", "items") == [1, 2, 3]
    assert account.all(f"{server}/aggregated", "items") == [{"place": "zones/a", "disks": [{"name": "d"}]}]


def test_requests_are_signed(account: Account, server: str) -> None:
    assert account.post(f"{server}/x", {"a": 1}) == {"sent": {"a": 1}, "authorization": "Bearer t"}


@pytest.mark.parametrize(
    ("path", "kind", "said"),
    [("absent", Refused, "404: it is not there"), ("expired", NoAccess, "log in again"), ("page", Refused, "503: no reason")],
)
def test_a_refusal_is_one_sentence(account: Account, server: str, path: str, kind: type[Exception], said: str) -> None:
    with pytest.raises(kind, match=said):
        account.get(f"{server}/{path}")


@pytest.mark.parametrize(("path", "code"), [("disabled", ABSENT), ("denied", DENIED), ("absent", ABSENT), ("page", 503)])
def test_a_service_that_is_not_enabled_has_nothing(account: Account, server: str, path: str, code: int) -> None:
    with pytest.raises(Refused) as caught:
        account.get(f"{server}/{path}")
    assert caught.value.code == code


def test_a_service_that_is_not_enabled_is_named() -> None:
    answer = json.dumps({"error": {"message": "no", "details": [{"reason": "SERVICE_DISABLED"}]}}).encode()
    with pytest.raises(Disabled, match=r"file\.googleapis\.com is not enabled in the project"):
        calls.answered(403, answer, "https://file.googleapis.com/v1/x")


def test_without_a_network_it_is_said(account: Account) -> None:
    with pytest.raises(NoAccess, match=r"\(127\.0\.0\.1:9\) cannot be reached from here"):
        account.get("http://127.0.0.1:9/x")


def test_without_credentials_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    from google.auth import exceptions

    def none(scopes: list[str]) -> None:
        raise exceptions.DefaultCredentialsError("none")  # type: ignore[no-untyped-call]

    monkeypatch.setattr("google.auth.default", none)
    with pytest.raises(NoAccess, match="gcloud auth application-default login"):
        Account()


def test_the_transport_is_the_one_that_boto3_brings() -> None:
    assert transport.AuthorizedHttp.__module__ == "google.auth.transport.urllib3"
