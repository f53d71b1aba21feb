"""What clones are made of in tests: files of a platform's output volume, a job that `ebb submit` made, another platform."""

import hashlib
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from ebb.api.platform import Platform, parse
from ebb.client.errors import Missing
from ebb.client.files.transfer import FileEntry
from ebb.client.platform.connection import Ebb
from ebb.client.submission.request import Request
from ebb.client.submission.submit import prepare
from ebb.kube import Object
from tests.cli.world import NS, FakeKube, node_group, platform_map

FOLDER = f"/mnt/output/{NS}/digits-uid-digi"


class Volume:
    """The files of a platform, as its gateway has them."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.sent: list[str] = []

    async def list(self, path: str) -> list[FileEntry]:
        names = {name.removeprefix(f"{path}/"): body for name, body in self.files.items() if name.startswith(f"{path}/")}
        if not names:
            raise Missing(f"{path} is not there")
        return [FileEntry(name=name, kind="file", size=len(body), modified_ns=0) for name, body in names.items()]

    async def read(self, path: str) -> AsyncIterator[bytes]:
        yield self._held(path)

    async def get(self, path: str, file: Path, *, moved: Callable[[int], None] = print) -> None:
        file.write_bytes(self._held(path))

    async def put(self, path: str, file: Path, *, moved: Callable[[int], None]) -> None:
        self.sent.append(path)
        self.files[path] = file.read_bytes()

    def _held(self, path: str) -> bytes:
        if path not in self.files:
            raise Missing(f"{path} is not there")
        return self.files[path]

    def save(self, folder: str, generation: int, step: int, *, writer: int = 0, data: bytes = b"weights") -> None:
        """As ebb/elastic/checkpoint does."""
        name = f"{folder}/checkpoints/g{generation:05}-s{step:08}-r{writer}"
        manifest = {"generation": generation, "step": step, "sha256": hashlib.sha256(data).hexdigest(), "size_bytes": len(data)}
        self.files[f"{name}.pt"], self.files[f"{name}.json"] = data, json.dumps(manifest).encode()


def far_map() -> Object:
    """Another platform: one zone, on-demand A100s of which each machine has 8, and T4s."""
    made = platform_map(node_group("od", "far-a", capacityType="on-demand", spotDiscount=0))
    content = json.loads(made["data"]["platform.json"]) | {"stack": "far", "trainerImage": "far/trainer:9"}
    content["nodeGroups"] = [group for group in content["nodeGroups"] if group["zone"] == "far-a"]
    return {**made, "data": {"schema": "1", "platform.json": json.dumps(content)}}


def platform(made: Object) -> Platform:
    return parse(made["data"])


def submitted(**said: Any) -> Object:
    """A job that `ebb submit` made on the first platform."""
    request = Request(**{"name": "digits", "arguments": ("-m", "trainer", "--lr", "0.1"), **said})
    ebb = Ebb(kube=FakeKube(), platform=platform(platform_map()), namespace=NS)
    body = prepare(ebb, request).body
    return {**body, "metadata": {**body["metadata"], "uid": "uid-digits", "creationTimestamp": "2026-11-21T12:00:00Z"}}
