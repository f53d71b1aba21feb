"""The real controller as a process of its own, and what may happen to one.

    one = Process(folder, "first", line.url, token)
    await one.start(); one.kill(); await one.start(); one.pause(); one.go_on(); await one.stop()

It gets in by a kubeconfig with the controller's account, through a proxy. A process of the same name takes its own Lease over at
once, as a container that is started again in its pod does.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

import aiohttp

from ebb.controller.metrics import parse
from testing.ports import free_port
from tests.apiserver.plane import SYSTEM

CHECKOUT = Path(__file__).parents[2]


class Process:
    """See the module's docstring. `settings` are those of shifted.py."""

    def __init__(
        self, folder: Path, name: str, server: str, token: str, settings: Mapping[str, float] | None = None, *, account: str = ""
    ) -> None:
        self.name, self.settings = name, dict(settings or {})
        self.log = folder / f"{name}.log"
        self._kubeconfig = folder / f"{name}.kubeconfig"
        self._write_kubeconfig(server, token, account)
        self._running: subprocess.Popen[bytes] | None = None
        self.arguments: tuple[str, ...] = ()  # further ones, from the next start on
        self.port = 0
        self.ends = 0  # how often it ended by itself and was started again

    async def start(self, *, leads: bool = True, port: int = 0) -> None:
        """Start it, and wait until it leads (or at least answers). `port`: 0 for any free one."""
        assert not self.alive, f"{self.name} runs already"
        self.port = port or free_port()
        command = [
            "--kubeconfig",
            str(self._kubeconfig),
            "--namespace",
            SYSTEM,
            "--listen",
            f"127.0.0.1:{self.port}",
            "--verbose",
            *self.arguments,
        ]
        begin = ["tests.apiserver.shifted", json.dumps(self.settings)] if self.settings else ["ebb.controller"]
        env = {key: value for key, value in os.environ.items() if not key.startswith("KUBE")}
        with self.log.open("ab") as log:
            self._running = subprocess.Popen(  # noqa: ASYNC220 - some milliseconds
                [sys.executable, "-m", *begin, *command], cwd=CHECKOUT, env=env | {"POD_NAME": self.name}, stdout=log, stderr=log
            )
        try:
            await self.until_metric("ebb_leads", lambda value: value == 1 or not leads)
        except BaseException:
            self.kill()
            raise

    async def supervise(self) -> None:
        """Start it again whenever it ends by itself, as a kubelet does. Never returns."""
        while True:
            if self._running is not None and self._running.poll() is not None:
                self._running, self.ends = None, self.ends + 1
                await self.start(leads=False)
            await asyncio.sleep(0.1)

    def kill(self) -> None:
        """kill -9."""
        if self._running is not None:
            self._running.kill()
            self._running.wait()
            self._running = None

    async def stop(self, signal_number: int = signal.SIGTERM) -> int:
        """End it in order; its exit code."""
        if self._running is None:
            return 0
        self._running.send_signal(signal.SIGCONT)
        self._running.send_signal(signal_number)
        return await self.exit_code()

    async def exit_code(self, seconds: float = 30) -> int:
        """Wait until it ends of its own accord."""
        assert self._running is not None
        async with asyncio.timeout(seconds):
            while (code := self._running.poll()) is None:  # noqa: ASYNC110 - another process has no event for us
                await asyncio.sleep(0.05)
        self._running = None
        return code

    def pause(self) -> None:
        """As a machine that stands still."""
        assert self._running is not None
        self._running.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        assert self._running is not None
        self._running.send_signal(signal.SIGCONT)

    @property
    def alive(self) -> bool:
        return self._running is not None and self._running.poll() is None

    @property
    def pid(self) -> int:
        assert self._running is not None
        return self._running.pid

    async def metrics(self) -> dict[str, float]:
        """Without labels, whose values are added up; {} while it does not answer."""
        found: dict[str, float] = {}
        for line in (await self.page("metrics")).splitlines():
            found |= {name: found.get(name, 0.0) + value for name, value in parse(line).items()}
        return found

    async def page(self, path: str) -> str:
        with suppress(aiohttp.ClientError, OSError):
            async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{self.port}/{path}") as answer:
                return await answer.text()
        return ""

    async def until_leads(self, seconds: float = 30) -> None:
        await self.until_metric("ebb_leads", lambda value: value == 1, seconds)

    async def until_metric(self, name: str, good: Callable[[float], bool], seconds: float = 30) -> None:
        """Wait: what it did shows on the API server a moment before it is counted."""
        try:
            async with asyncio.timeout(seconds):
                while True:
                    found = (await self.metrics()).get(name)
                    if found is not None and good(found):
                        return
                    assert self.alive, f"{self.name} died: {self.said()}"
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise AssertionError(f"{self.name}: {name} was not so within {seconds:g} s: {self.said()}") from None

    def said(self, length: int = 3000) -> str:
        """The end of its log."""
        return self.log.read_text()[-length:] if self.log.exists() else ""

    def _write_kubeconfig(self, server: str, token: str, account: str) -> None:
        user = {"tokenFile": account} if account else {"token": token}
        config = {
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [{"name": "test", "cluster": {"server": server}}], "users": [{"name": "test", "user": user}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        }  # fmt: skip
        self._kubeconfig.write_text(json.dumps(config))
