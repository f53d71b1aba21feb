"""Requests to Azure outside Pulumi: the one place that does, for the commands that look at an account or run a build.

    arm = Arm("01234567-89ab-...")                          # the subscription
    arm.get("/providers/Microsoft.Compute/skus", "2021-07-01", **{"$filter": "location eq 'westus2'"})
    arm.all("/resources", "2021-04-01")                     # every page, as one list

Paths that begin with /subscriptions/ are taken as they are, others are of the subscription. Tokens come from the Azure CLI's
login, so there is one way to sign in and no SDK to install. Nothing here makes anything by itself.

    Refused        a request did not succeed; `code` is Azure's word for it, the text one plain sentence
    └─ NoAccess    no request can: nobody is signed in, or Azure is not reachable
"""

import http.client
import json
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from typing import Any

from infra import commands
from infra.commands import CannotLook

ENDPOINT = "https://management.azure.com"
TIMEOUT_SECONDS, TRIES = 30, 4
BUSY = frozenset({429, 500, 502, 503, 504})
NO_LOGIN = "nobody is signed in to the Azure CLI in this shell: `az login`, and repeat; `az account show` shows who you are"


class Refused(commands.RequestRefused):
    """One request did not succeed."""

    def __init__(self, code: str, words: str, status: int = 0) -> None:
        super().__init__(words)
        self.code, self.status = code, status

    @property
    def denied(self) -> bool:
        return self.status == 403

    @property
    def absent(self) -> bool:
        """True if there is no such thing."""
        return self.status == 404


class NoAccess(Refused, CannotLook):
    """No request succeeds."""


def cli_token(resource: str) -> str:
    """A token for a resource, of whoever the Azure CLI is signed in as. Raises NoAccess."""
    words = ["az", "account", "get-access-token", "--resource", resource, "--output", "json"]
    try:
        ran = subprocess.run(words, capture_output=True, text=True, check=False, timeout=TIMEOUT_SECONDS)
    except FileNotFoundError as error:
        raise NoAccess("NoCli", "the Azure CLI (az) is not on PATH: install it, and `az login`") from error
    except subprocess.TimeoutExpired as error:
        raise NoAccess("NoCli", f"`az account get-access-token` has not answered in {TIMEOUT_SECONDS} s") from error
    if ran.returncode != 0:
        last = ran.stderr.strip().splitlines()[-1:] or [f"exit code {ran.returncode}"]
        raise NoAccess("NoLogin", f"{NO_LOGIN} (it says: {last[0][:200]})")
    return str(json.loads(ran.stdout)["accessToken"])


class Arm:
    """Azure Resource Manager, for one subscription."""

    def __init__(
        self,
        subscription: str,
        *,
        endpoint: str = ENDPOINT,
        token: Callable[[str], str] = cli_token,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.subscription = subscription
        self._endpoint, self._token, self._sleep = endpoint, token, sleep
        self._known: str | None = None

    @property
    def root(self) -> str:
        """The subscription itself."""
        return f"/subscriptions/{self.subscription}"

    def get(self, path: str, version: str, **query: str) -> dict[str, Any]:
        """Raises Refused."""
        return self._asked("GET", self._url(path, version, query))

    def post(self, path: str, version: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """Raises Refused."""
        return self._asked("POST", self._url(path, version, {}), body or {})

    def all(self, path: str, version: str, **query: str) -> list[Any]:
        """The values of all pages. Raises Refused."""
        found: list[Any] = []
        url = self._url(path, version, query)
        while url:
            page = self._asked("GET", url)
            found += page.get("value", [])
            url = page.get("nextLink") or ""
        return found

    def _url(self, path: str, version: str, query: dict[str, str]) -> str:
        whole = path if path.startswith("/subscriptions/") else f"{self.root}{path}"
        return f"{self._endpoint}{whole}?{urllib.parse.urlencode({'api-version': version, **query})}"

    def _asked(self, method: str, url: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        if self._known is None:
            self._known = self._token(ENDPOINT)
        headers = {"Authorization": f"Bearer {self._known}", "Content-Type": "application/json"}
        content = None if body is None else json.dumps(body).encode()
        for attempt in range(TRIES):
            try:
                return answered(urllib.request.Request(url, content, headers, method=method))  # noqa: S310 - https
            except Refused as error:
                if error.status not in BUSY or attempt == TRIES - 1:
                    raise
                self._sleep(2.0**attempt)
        raise AssertionError("the last try returns or raises")


def answered(request: urllib.request.Request) -> dict[str, Any]:
    """The answer's JSON; {} where there is none. Raises Refused."""
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as answer:  # noqa: S310 - as the caller made it
            content = answer.read()
    except urllib.error.HTTPError as error:
        raise _in_words(error, request) from error
    except (OSError, http.client.HTTPException) as error:
        host = urllib.parse.urlsplit(request.full_url).hostname
        raise NoAccess("Unreachable", f"{host} cannot be reached from here: {error}") from error
    found: Any = json.loads(content) if content.strip() else {}
    return found if isinstance(found, dict) else {"value": found}


def _in_words(error: urllib.error.HTTPError, request: urllib.request.Request) -> Refused:
    try:
        said = json.loads(error.read()).get("error", {})
    except (ValueError, AttributeError):
        said = {}
    code, message = str(said.get("code", error.code)), " ".join(str(said.get("message", error.reason)).split())
    if error.code == 401:
        return NoAccess(code, f"Azure does not accept the login of this shell ({code}): `az login` again, and repeat", 401)
    where = urllib.parse.urlsplit(request.full_url).path
    return Refused(code, f"{request.get_method()} {where}: {code}: {message[:400]}", error.code)
