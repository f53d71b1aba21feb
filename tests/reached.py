"""A platform whose pods can be reached: objects in memory, streams over real websockets, a real gateway of folders of the test.

async with reached(tmp_path, elastic_job(), worker_pod(0)) as kube:
    ebb = ebb_of(kube)                  # kube.pods: what programs do and ports lead to; kube.root: where the volumes are
"""

import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web
from aiohttp.test_utils import TestServer

from ebb.api.contract import GATEWAY_PORT
from ebb.api.platform import parse
from ebb.cli.options import Session
from ebb.client.platform.connection import Ebb
from ebb.gateway.app import make_app
from ebb.gateway.volumes import MountedVolume, Volumes
from ebb.kube import Kube, NotFound, Object
from tests.cli.world import NS, FakeKube, platform_map
from tests.kube.pods import Pods, serving

VOLUMES = {"data": False, "output": False, "sets": True}  # name -> read-only


class Reached(FakeKube):
    """See the module's docstring. `kubeconfig` leads there for programs of their own, too."""

    def __init__(self, root: Path, pods: Pods, streams: Kube, *objects: Object) -> None:
        super().__init__(platform_at(root), *objects)
        self.root, self.pods, self._streams = root, pods, streams
        self.kubeconfig = root / "private" / "kubeconfig"
        pods.read = self._read

    async def _read(self, request: web.Request) -> web.Response:
        try:
            return web.json_response(await self.request("GET", request.path, query=request.query))
        except NotFound as error:
            return web.json_response({"kind": "Status", "code": 404, "message": str(error)}, status=404)

    @asynccontextmanager
    async def socket(
        self, path: str, query: Mapping[str, str], protocols: Sequence[str]
    ) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
        async with self._streams.socket(path, query, protocols) as socket:
            yield socket


def platform_at(root: Path) -> Object:
    """ConfigMap ebb-platform whose volumes are folders of the test."""
    found = platform_map()
    facts = json.loads(found["data"]["platform.json"])
    facts["volumes"] = [
        {"name": name, "claim": f"ebb-{name}", "mountPath": str(root / name), "readOnly": read_only}
        for name, read_only in VOLUMES.items()
    ]
    return {**found, "data": {"schema": "1", "platform.json": json.dumps(facts)}}


def gateway_pod(name: str = "ebb-gateway-1", *, ready: bool = True, labels: Mapping[str, str] | None = None) -> Object:
    """A pod of the gateway's Deployment."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": NS,
            "uid": name,
            "labels": {"app.kubernetes.io/name": "ebb-gateway", **(labels or {})},
        },
        "spec": {"containers": [{"name": "gateway"}]},
        "status": {"conditions": [{"type": "Ready", "status": str(ready)}]},
    }


@asynccontextmanager
async def reached(folder: Path, *objects: Object, gateway: bool = True) -> AsyncIterator[Reached]:
    """Serve all of it, as long as the context is open."""
    for name in VOLUMES:
        (folder / name).mkdir(exist_ok=True)
    volumes = [MountedVolume(name=name, path=folder / name, read_only=read_only) for name, read_only in VOLUMES.items()]
    private = folder / "private"
    private.mkdir(exist_ok=True)
    async with (
        TestServer(make_app(Volumes(volumes)), host="127.0.0.1") as server,
        serving(Pods()) as pods,
        Kube.connect(str(pods.kubeconfig(private))) as streams,
    ):
        made = [gateway_pod()] if gateway else []
        pods.ports.update({(f"ebb-gateway-{index}", GATEWAY_PORT): server.port or 0 for index in (1, 2)})
        yield Reached(folder, pods, streams, *made, *objects)


def ebb_of(kube: Reached) -> Ebb:
    """What the verbs are called with."""
    platform = parse(platform_at(kube.root)["data"])
    return Ebb(kube=kube, platform=platform, namespace=NS)


def session(folder: Path, *objects: Object, then: Callable[[Reached], Any] = lambda _: None) -> Session:
    """For CliRunner: the platform is served as long as a verb runs; `then` sees it first."""

    @asynccontextmanager
    async def connect(kubeconfig: str | None, context: str | None) -> AsyncIterator[Kube]:
        async with reached(folder, *objects) as kube:
            then(kube)
            yield kube

    return Session(kubeconfig=__file__, connect=connect)
