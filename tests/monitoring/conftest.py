"""The platform that Prometheus watches in the proofs. Its volume is a small file system in memory, to mount which takes root."""

import asyncio
import shutil
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest_asyncio

from devcluster import tools
from devcluster.commands import run
from ebb.api.contract import GATEWAY
from tests.apiserver.conftest import SETTINGS
from tests.apiserver.controller import Process
from tests.apiserver.machines import machines
from tests.apiserver.place import Place
from tests.apiserver.plane import JOBS, SYSTEM, Made, plane
from tests.apiserver.proxy import proxy
from tests.figures import report, wanted_file
from tests.monitoring.drawn import drawn
from tests.monitoring.platform import CONTROLLER_AT, ETCD_AT, GATEWAY_AT, Etcd, configure, gateway, pod
from tests.monitoring.server import PROMETHEUS, Server

HURRIED = {**SETTINGS, "ebb.controller.etcd.alarm.EVERY_SECONDS": 0.5}


@dataclass
class Watched:
    """See the module's docstring. `figures`: what the proof says at its end."""

    made: Made
    place: Place
    controller: Process
    etcd: Etcd
    server: Server
    volume: Path
    gateway: AsyncExitStack
    folder: Path
    began: float = field(default_factory=time.time)
    figures: dict[str, Any] = field(default_factory=dict)

    async def start_gateway(self) -> None:
        await self.gateway.enter_async_context(gateway(self.folder, self.volume))


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def tool() -> Path:
    """The folder with promtool and prometheus."""
    return await tools.ensure(PROMETHEUS)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def watched(tool: Path, tmp_path_factory: Any) -> AsyncIterator[Watched]:
    folder = tmp_path_factory.mktemp("watched")
    volume = folder / "output"
    for one in (volume, folder / "etcd", folder / "plane"):
        one.mkdir()
    await run("mount", "-t", "tmpfs", "-o", "size=16m", "none", str(volume))
    async with AsyncExitStack() as opened:
        opened.push_async_callback(run, "umount", "--lazy", str(volume))
        etcd = Etcd(folder / "etcd", await tools.ensure("etcd36"))
        await etcd.start()
        opened.push_async_callback(etcd.stop)
        made = await opened.enter_async_context(plane(folder / "plane"))
        line = await opened.enter_async_context(proxy(made.processes.server, made.processes.trust()))
        controller = Process(folder, "ebb-controller-0", line.url, await made.token(), HURRIED)
        controller.arguments = (f"--etcd={etcd.address}",)
        await controller.start()
        opened.push_async_callback(controller.stop)
        closed = await opened.enter_async_context(AsyncExitStack())
        ours = await opened.enter_async_context(machines(made, JOBS))
        await pod(made, SYSTEM, "ebb-controller-0", "ebb-controller", CONTROLLER_AT)
        await pod(made, SYSTEM, "etcd-0", "etcd", ETCD_AT, 2379)
        await pod(made, JOBS, "ebb-gateway-0", GATEWAY, GATEWAY_AT)
        server = await Server.start(folder, tool, await configure(folder, made, controller.port))
        opened.push_async_callback(server.process.stop)
        one = Watched(made, Place(made, ours), controller, etcd, server, volume, closed, folder)
        await one.start_gateway()
        yield one
        report(one.figures)
        if file := wanted_file():
            file.with_suffix(".html").write_text(await drawn(server, one.began, time.time()))
        await asyncio.to_thread(shutil.rmtree, folder / "data", ignore_errors=True)
