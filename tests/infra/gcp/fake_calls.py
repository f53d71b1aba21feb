"""Google Cloud without Google: answers from a table, by the end of the address.

calls = FakeCalls({"projects/p": {"state": "ACTIVE"}})     # or an exception; an address that nobody has named is not there (404)
calls = FakeCalls({"p/services": {"services": [...]}})       # with the enabled services: the others refuse, as Google's do
calls.seen                                                   # [("GET", address), ...]
"""

from collections.abc import Mapping
from typing import Any

from infra.clouds.gcp.calls import ABSENT, Disabled, Refused

Answer = dict[str, Any] | Exception


class FakeCalls:
    """See infra.clouds.gcp.calls.Calls."""

    def __init__(self, answers: Mapping[str, Answer | list[Answer]]) -> None:
        self.answers = dict(answers)
        self.seen: list[tuple[str, str]] = []
        self.sent: list[Any] = []

    def get(self, address: str, **query: str) -> dict[str, Any]:
        return self._answer("GET", address)

    def post(self, address: str, body: Mapping[str, Any]) -> dict[str, Any]:
        self.sent.append(body)
        return self._answer("POST", address)

    def all(self, address: str, key: str, **query: str) -> list[Any]:
        found = self._answer("GET", address.partition("?")[0]).get(key, [])
        return found if isinstance(found, list) else [{"place": place, **inside} for place, inside in found.items()]

    def _answer(self, method: str, address: str) -> dict[str, Any]:
        self.seen.append((method, address))
        service = address.split("/")[2]
        listed = next((self.answers[key] for key in self.answers if key.endswith("/services")), None)
        enabled = [one["config"]["name"] for one in listed["services"]] if isinstance(listed, dict) else [service]
        if service.endswith("googleapis.com") and service not in enabled:
            raise Disabled(service)
        found = next((self.answers[end] for end in sorted(self.answers, key=len, reverse=True) if address.endswith(end)), None)
        if isinstance(found, list):  # one after the other, the last again and again
            found = found.pop(0) if len(found) > 1 else found[0]
        if found is None:
            raise Refused(ABSENT, f"{address}: 404: not found")
        if isinstance(found, Exception):
            raise found
        return found
