"""Requests to Google Cloud outside Pulumi: the one place that signs in, for the commands that look at a project or run a build.

    calls = Account()
    calls.get("https://compute.googleapis.com/compute/v1/projects/p/regions/r")     # the answer, or Refused
    calls.all(address, "items")                                                     # a list over all pages

The credentials are those of gcloud's application default login. Nothing here makes anything by itself.

    Refused        a request did not succeed; `code` is the HTTP status, the text one plain sentence
    ├─ Disabled    the project has not enabled the service; it has nothing there, so the code is ABSENT
    └─ NoAccess    no request can: there are no credentials, they have expired, or Google is not reachable
"""

import json
from collections.abc import Mapping
from typing import Any, Protocol
from urllib.parse import urlencode

from infra import commands
from infra.commands import CannotLook

SCOPE = "https://www.googleapis.com/auth/cloud-platform"
INVALID, UNAUTHENTICATED, DENIED, ABSENT, CLASH = 400, 401, 403, 404, 409
TIMEOUT_SECONDS, TRIES = 30.0, 3
NO_CREDENTIALS = (
    "there are no credentials of Google Cloud in this shell: log in (gcloud auth application-default login), and repeat; "
    "`gcloud auth list` shows who you are"
)


class Refused(commands.RequestRefused):
    """One request did not succeed."""

    def __init__(self, code: int, words: str) -> None:
        super().__init__(words)
        self.code = code

    @property
    def denied(self) -> bool:
        return self.code == DENIED


class Disabled(Refused):
    """The service is not enabled in the project."""

    known = True

    def __init__(self, service: str) -> None:
        super().__init__(ABSENT, f"{service} is not enabled in the project")


class NoAccess(Refused, CannotLook):
    """No request succeeds."""


class Calls(Protocol):
    """Requests to any of Google's services by their address. Raises Refused."""

    def get(self, address: str, **query: str) -> dict[str, Any]: ...

    def post(self, address: str, body: Mapping[str, Any]) -> dict[str, Any]: ...

    def all(self, address: str, key: str, **query: str) -> list[Any]:
        """The list `key` of the answer, over all pages; of an aggregated list, that of every place."""


class Account:
    """The account of the shell's credentials."""

    def __init__(self) -> None:
        from google import auth  # noqa: PLC0415 - as the AWS half: who needs no account needs no SDK
        from google.auth import exceptions  # noqa: PLC0415
        from google.auth.transport import urllib3 as transport  # noqa: PLC0415

        self._errors = exceptions.GoogleAuthError
        try:
            credentials, _ = auth.default(scopes=[SCOPE])
        except exceptions.DefaultCredentialsError as error:
            raise NoAccess(UNAUTHENTICATED, NO_CREDENTIALS) from error
        self._http = transport.AuthorizedHttp(credentials)  # type: ignore[no-untyped-call]

    def get(self, address: str, **query: str) -> dict[str, Any]:
        return self._asked("GET", f"{address}?{urlencode(query)}" if query else address)

    def post(self, address: str, body: Mapping[str, Any]) -> dict[str, Any]:
        return self._asked("POST", address, body)

    def all(self, address: str, key: str, **query: str) -> list[Any]:
        found: list[Any] = []
        page: dict[str, Any] = {}
        while not page or page.get("nextPageToken"):
            more = {"pageToken": page["nextPageToken"]} if page else {}
            page = self.get(address, **query, **more)
            items = page.get(key) or []
            found += items if isinstance(items, list) else [{"place": place, **inside} for place, inside in items.items()]
        return found

    def _asked(self, method: str, address: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        import urllib3  # noqa: PLC0415

        headers = {"Content-Type": "application/json"}
        sent = json.dumps(body).encode() if body is not None else None
        try:
            answer = self._http.request(method, address, body=sent, headers=headers, timeout=TIMEOUT_SECONDS, retries=TRIES)
        except self._errors as error:
            raise NoAccess(UNAUTHENTICATED, f"{NO_CREDENTIALS} ({error})") from error
        except urllib3.exceptions.HTTPError as error:
            raise NoAccess(0, f"Google Cloud ({address.split('/')[2]}) cannot be reached from here: {error}") from error
        return answered(answer.status, answer.data, address)


def answered(status: int, data: bytes, address: str) -> dict[str, Any]:
    """The answer, or Refused in Google's words."""
    try:
        found = json.loads(data or b"{}")
    except ValueError:
        found = {}
    if 200 <= status < 300:
        return dict(found)
    said = (found.get("error") or {}).get("message") if isinstance(found, dict) else ""
    words = f"{address.partition('?')[0]}: {status}: {said or 'no reason is given'}"
    if status == UNAUTHENTICATED:
        raise NoAccess(status, f"Google Cloud does not accept the credentials of this shell: log in again and repeat ({words})")
    raise Disabled(address.split("/")[2]) if _is_disabled(found) else Refused(status, words)


def _is_disabled(answer: Any) -> bool:
    """Google says so in an ErrorInfo (https://cloud.google.com/apis/design/errors), with status 403."""
    details = (answer.get("error") or {}).get("details") if isinstance(answer, dict) else None
    return any(isinstance(one, dict) and one.get("reason") == "SERVICE_DISABLED" for one in details or [])
