"""An API server on which one may write Secrets and read none, as researchers may."""

from collections.abc import Mapping

from ebb.kube import Denied, Invalid, Object
from tests.cli.world import FakeKube

MAY = frozenset({"POST", "PUT", "DELETE"})


class BlindKube(FakeKube):
    """Its answers to what one may do say no more than a real one's."""

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: Object | None = None,
        query: Mapping[str, str] | None = None,
        content_type: str = "application/json",
    ) -> Object:
        if "/secrets" in path and method not in MAY:
            raise Denied(f"may not {method} {path}", status=403)
        there = self._objects.get(path, {})
        if method == "PUT" and body and there.get("type") != body.get("type"):
            raise Invalid("type: field is immutable", status=422)
        answer = await super().request(method, path, body=body, query=query, content_type=content_type)
        return {} if "/secrets" in path and method == "DELETE" else answer
