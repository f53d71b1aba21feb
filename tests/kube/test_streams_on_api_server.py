"""Streams through a real API server: what it refuses, and bytes on their way to a kubelet, which is the test's own.

What a real kubelet and its runtime make of them is proven on the box.
"""

import asyncio
import os
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from ebb.kube import NODES, PODS, Kube, KubeError, NotFound, Object, Unreachable
from ebb.kube.streams import NotListening, connection, running
from tests.kube.pods import Pods
from tests.testing.kubernetes.pulumi_world import ControlPlane

pytestmark = pytest.mark.e2e

NS = "default"


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    made = ControlPlane(tmp_path_factory.mktemp("plane"))
    try:
        made.start()
        yield made
    finally:
        made.stop()


@asynccontextmanager
async def machine(plane: ControlPlane, pods: Pods, name: str) -> AsyncIterator[Kube]:
    """A node whose kubelet is the test's, with a pod `<name>-pod` on it."""
    trust = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trust.load_cert_chain(plane.folder / "server.crt", plane.folder / "server.key")
    runner = web.AppRunner(pods.kubelet(), access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=trust)
    await site.start()
    port = site._server.sockets[0].getsockname()[1]  # type: ignore[union-attr]
    try:
        async with Kube.connect(str(plane.kubeconfig)) as kube:
            await kube.create(NODES, None, node(name))
            status = {"addresses": [{"type": "InternalIP", "address": "127.0.0.1"}]}
            await kube.replace(
                NODES,
                None,
                name,
                {**node(name), "status": {**status, "daemonEndpoints": {"kubeletEndpoint": {"Port": port}}}},
                "status",
            )
            await until_account(kube)
            await kube.create(PODS, NS, pod(f"{name}-pod", name))
            yield kube
    finally:
        await runner.cleanup()


def node(name: str) -> Object:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}


def pod(name: str, node_name: str = "") -> Object:
    spec: Object = {
        "containers": [{"name": "main", "image": "example.org/none"}],
        **({"nodeName": node_name} if node_name else {}),
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


async def until_account(kube: Kube) -> None:
    """Pods are let in when the namespace has its account."""
    async with asyncio.timeout(30):
        while True:
            try:
                await kube.request("GET", f"/api/v1/namespaces/{NS}/serviceaccounts/default")
                return
            except NotFound:
                await asyncio.sleep(0.05)


async def test_bytes_go_through_to_a_kubelet_and_back(plane: ControlPlane) -> None:
    async def shout(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(100_000):
            writer.write(data[::-1])
            await writer.drain()
        writer.close()

    content = os.urandom(100_000)
    server = await asyncio.start_server(shout, "127.0.0.1", 0)
    pods = Pods()
    pods.ports["one-pod", 6006] = server.sockets[0].getsockname()[1]
    async with server, machine(plane, pods, "one") as kube:
        async with connection(kube, NS, "one-pod", 6006) as pipe:
            await pipe.send(b"hello")
            assert await pipe.receive() == b"olleh"
            await pipe.send(content)
            back = b""
            while len(back) < len(content):
                back += await pipe.receive()
            assert sorted(back) == sorted(content)
        async with connection(kube, NS, "one-pod", 1) as pipe:
            with pytest.raises(NotListening, match="nothing listens on port 1 of one-pod"):
                await pipe.receive()


async def test_what_the_server_says_of_pods_that_cannot_be_reached(plane: ControlPlane) -> None:
    pods = Pods()
    async with machine(plane, pods, "two") as kube:
        with pytest.raises(NotFound, match='pods "none" not found'):
            async with running(kube, NS, "none", ["ls"]):
                pass
        await kube.create(PODS, NS, pod("pending"))
        with pytest.raises(KubeError, match="pod pending does not have a host assigned"):
            async with running(kube, NS, "pending", ["ls"]):
                pass
        with pytest.raises(KubeError, match="container nope is not valid for pod two-pod"):
            async with running(kube, NS, "two-pod", ["ls"], container="nope"):
                pass
    async with Kube.connect(str(plane.kubeconfig)) as kube:  # the kubelet is gone, and the pod still there
        with pytest.raises(Unreachable, match=r"cannot reach the pod \(50\d\): its machine may be gone"):
            async with connection(kube, NS, "two-pod", 6006):
                pass
        async with running(kube, NS, "two-pod", ["ls"]) as program:
            with pytest.raises(Unreachable, match="two-pod cannot be reached: its machine may be gone"):
                await anext(aiter(program))
