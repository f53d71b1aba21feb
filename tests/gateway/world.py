"""A gateway of folders of the test, served on the loopback, and questions to it."""

import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiohttp import ClientResponse
from aiohttp.test_utils import TestClient, TestServer

from ebb.gateway.app import make_app
from ebb.gateway.volumes import MountedVolume, Volumes


def volumes(folder: Path) -> Volumes:
    """data and output may be written, sets may not; `secret` beside them is on no volume."""
    for name in ("data", "output", "sets", "secret"):
        (folder / name).mkdir()
    (folder / "sets" / "there").write_text("fixed")
    (folder / "secret" / "key").write_text("do not read")
    return Volumes(
        [MountedVolume(name=name, path=folder / name, read_only=name == "sets") for name in ("data", "output", "sets")]
    )


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@dataclass(frozen=True, kw_only=True)
class Asker:
    """Speaks to a gateway."""

    client: TestClient[Any, Any]
    root: Path

    async def ask(self, method: str, route: str, path: str | Path, **query: Any) -> tuple[int, Any]:
        """(status, JSON)."""
        given = {name: str(value) for name, value in query.items() if name not in ("body", "headers")}
        full = path if isinstance(path, str) and path.startswith("/") else str(self.root / path)
        answer = await self.client.request(
            method, route, params={"path": full, **given}, data=query.get("body"), headers=query.get("headers")
        )
        return answer.status, await answer.json()

    async def put(self, path: str, content: bytes, **query: Any) -> tuple[int, Any]:
        """Send a file as a whole, unless the query says otherwise."""
        told = {"size": len(content), "sha256": sha256(content), "body": content, **query}
        return await self.ask("PUT", "/v1/files", path, **told)

    async def get(self, path: str, **headers: str) -> ClientResponse:
        """Read a file."""
        return await self.client.get("/v1/files", params={"path": str(self.root / path)}, headers=headers)


@asynccontextmanager
async def asking(folder: Path) -> AsyncIterator[Asker]:
    async with TestClient(TestServer(make_app(volumes(folder)))) as client:
        yield Asker(client=client, root=folder)
