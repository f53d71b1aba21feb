"""The parts of a platform that Prometheus scrapes, as processes: the real controller, gateway and etcd, and workers' pages.

Each has a Pod on a real API server, by which Prometheus finds it with the rights of server.yaml. Ports and paths are those that a
stack scrapes, but the controller's, which is any free one.
"""

import asyncio
import base64
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import yaml
from aiohttp import web

from benchmarks.controller.processes import Process as Program
from ebb.api.contract import GATEWAY, LAUNCHER_PORT, METRICS_PORT
from ebb.elastic.launch.gpu_use import Gpus
from ebb.elastic.runtime.metrics import Board, Progress
from ebb.kube import PODS
from testing.ports import free_port
from tests.apiserver.plane import ACCOUNTS, SYSTEM, Made
from tests.monitoring.known import Nvml
from tests.monitoring.server import hurried
from workloads import monitoring

ETCD_AT, GATEWAY_AT, CONTROLLER_AT = "127.7.0.1", "127.7.0.2", "127.7.0.3"  # workers are in 127.20.0.0 and above
QUOTA = 8 * 2**20
Object = dict[str, Any]


async def pod(made: Made, namespace: str, name: str, label: str, address: str, *ports: int) -> None:
    """A Pod that runs there."""
    container = {"name": "main", "image": "example.org/none", "ports": [{"containerPort": port} for port in ports]}
    body = {
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": {"app.kubernetes.io/name": label}},
        "spec": {"containers": [container]},
    }  # fmt: skip
    await made.kube.create(PODS, namespace, body)
    status = {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]}
    await made.kube.patch(PODS, namespace, name, {"status": status}, subresource="status")


async def token(made: Made, account: str) -> str:
    path = ACCOUNTS.path(SYSTEM, account, "token")
    body: Object = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 7200}}
    return str((await made.kube.request("POST", path, body=body))["status"]["token"])


async def configure(folder: Path, made: Made, controller_port: int) -> Path:
    """The files of a stack's Prometheus, with a second for each minute, told where the API server is. No kubelet runs here."""
    config = yaml.safe_load(monitoring.configuration().replace("$1:8080", f"127.0.0.1:{controller_port}"))
    (folder / "rules.yaml").write_text(hurried(monitoring.rules()))
    (folder / "token").write_text(await token(made, monitoring.PROMETHEUS))
    config["rule_files"] = [str(folder / "rules.yaml")]
    config["global"] = {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"}
    config["scrape_configs"] = [job for job in config["scrape_configs"] if job["kubernetes_sd_configs"][0]["role"] == "pod"]
    for job in config["scrape_configs"]:
        for found in job["kubernetes_sd_configs"]:
            found |= {
                "api_server": made.processes.server,
                "authorization": {"credentials_file": str(folder / "token")},
                "tls_config": {"ca_file": str(made.processes.folder / "ca.crt")},
            }
    path = folder / "prometheus.yaml"
    path.write_text(yaml.safe_dump(config))
    return path


class Etcd:
    """The rendezvous store, with little room."""

    def __init__(self, folder: Path, tool: Path) -> None:
        self._folder, self._tool = folder, tool
        self.port = free_port()
        self._peer = free_port()
        self._process: Program | None = None

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def start(self) -> None:
        peer = f"http://127.0.0.1:{self._peer}"
        self._process = await Program.start(
            "etcd",
            [
                self._tool / "etcd", "--name=ebb", f"--data-dir={self._folder}/etcd", f"--quota-backend-bytes={QUOTA}",
                f"--listen-client-urls={self.address}", f"--advertise-client-urls={self.address}", f"--listen-peer-urls={peer}",
                f"--initial-advertise-peer-urls={peer}", f"--initial-cluster=ebb={peer}",
                f"--listen-metrics-urls=http://{ETCD_AT}:{monitoring.ETCD_METRICS_PORT}",
            ],
            self._folder,
        )  # fmt: skip
        async with asyncio.timeout(60):
            while True:
                try:
                    await self.ask("kv/range", key=_coded("x"))
                    return
                except aiohttp.ClientError:
                    self._process.check()
                    await asyncio.sleep(0.1)

    async def stop(self) -> None:
        if self._process:
            await self._process.stop()

    async def ask(self, what: str, **body: Any) -> Object:
        async with aiohttp.ClientSession() as session, session.post(f"{self.address}/v3/{what}", json=body) as answer:
            found: Object = await answer.json()
            return found

    async def fill(self) -> None:
        """To nine tenths of what it may use."""
        for number in range(72):
            await self.ask("kv/put", key=_coded(f"fill/{number}"), value=_coded("x" * 100_000))

    async def empty(self) -> None:
        gone = await self.ask("kv/deleterange", key=_coded("fill/"), range_end=_coded("fill0"))
        await self.ask("kv/compaction", revision=gone["header"]["revision"], physical=True)
        await self.ask("maintenance/defragment")

    async def alarm(self, action: str) -> None:
        member = (await self.ask("kv/range", key=_coded("x")))["header"]["member_id"]
        await self.ask("maintenance/alarm", action=action, memberID=member, alarm="NOSPACE")


def _coded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


@asynccontextmanager
async def gateway(folder: Path, volume: Path) -> AsyncIterator[Program]:
    """Of one volume."""
    arguments = [f"--port={free_port()}", "--metrics-port=9402", f"--volume=output={volume}"]
    one = await Program.start(GATEWAY, [sys.executable, "-m", "ebb.gateway", *arguments], folder)
    try:
        yield one
    finally:
        await one.stop()


class Worker:
    """The metrics of one worker: the training's own page, made by the runtime, and its launcher's, made of NVML's figures."""

    def __init__(self, first: int = 0) -> None:
        self.first, self.checkpoint, self.generation = first, 0, 1
        self._began, self._later = time.monotonic(), 0.0
        self._nvml = Nvml()
        self._gpus = Gpus(self._nvml, [object()], lambda: [0], lambda: time.monotonic() + self._later)
        self._gpus.look()

    @property
    def step(self) -> int:
        """Ten a second."""
        return self.first + int((time.monotonic() - self._began) * 10)

    def training(self) -> str:
        board = Board()
        board.show(
            Progress(
                time=time.time(), step=self.step, total_steps=100_000, epoch=1.0, loss=0.5, samples_per_second=100.0,
                world_size=3, generation=self.generation, useful_seconds=1.0, lost_seconds=0.0,
                steps_redone=0, checkpoint_seconds=0.0,
                checkpoint_step=self.checkpoint,
            )
        )  # fmt: skip
        return board.text()

    def launcher(self) -> str:
        self._gpus.look()
        return self._gpus.text()

    def idles(self) -> None:
        """For a minute and more, without anybody waiting for it."""
        self._nvml.percent = 0
        for _ in range(20):  # the share is a mean
            self._gpus.look()
        self._later += 100.0

    def works(self) -> None:
        self._nvml.percent = 100


@asynccontextmanager
async def worker(address: str, first: int = 0) -> AsyncIterator[Worker]:
    """Its two pages at a pod's address."""
    one = Worker(first)
    async with AsyncExitStack() as opened:
        for port, text in ((METRICS_PORT, one.training), (LAUNCHER_PORT, one.launcher)):
            app = web.Application()

            async def answer(_: web.Request, text: Any = text) -> web.Response:
                return web.Response(text=text(), content_type="text/plain")

            app.router.add_get("/metrics", answer)
            runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
            await runner.setup()
            opened.push_async_callback(runner.cleanup)
            await web.TCPSite(runner, address, port).start()
        yield one
