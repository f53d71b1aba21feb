"""Prometheus and promtool, built from the pinned Go module: the version of the image that a stack runs.

folder = await tools.ensure(PROMETHEUS)        # .../promtool and .../prometheus; some minutes the first time
server = await Server.start(folder, tool, config, rules, port); await server.value("sum(ebb_leads)")
await server.fires("EbbNoLeader"); await server.clears("EbbNoLeader")
"""

import asyncio
import re
import time
from pathlib import Path
from typing import Any, Self

import aiohttp

from benchmarks.controller.processes import Process
from devcluster.tools import Tool
from testing.ports import free_port

PROMETHEUS = Tool(
    name="prometheus",
    module="github.com/prometheus/prometheus",
    packages=("github.com/prometheus/prometheus/cmd/promtool", "github.com/prometheus/prometheus/cmd/prometheus"),
    programs=("promtool", "prometheus"),
    tags="remove_all_sd enable_kubernetes_sd",  # other ways to find targets are clouds' SDKs: most of the build
    modules=Path(__file__).parent,
)
SECONDS = 90.0  # for what rules say happens within half of that
Object = dict[str, Any]


def hurried(rules: str) -> str:
    """The rules with a second for each minute."""
    return re.sub(r"\b(\d+)m\b", r"\1s", rules).replace("> 1800", "> 30")


class Server:
    """A Prometheus."""

    def __init__(self, process: Process, port: int) -> None:
        self.process, self.address = process, f"http://127.0.0.1:{port}"

    @classmethod
    async def start(cls, folder: Path, tool: Path, config: Path) -> Self:
        port = free_port()
        command: list[str | Path] = [
            tool / "prometheus", f"--config.file={config}", f"--storage.tsdb.path={folder}/data",
            f"--web.listen-address=127.0.0.1:{port}", "--query.lookback-delta=10s",
        ]  # fmt: skip
        one = cls(await Process.start("prometheus", command, folder), port)
        await one.until("it is ready", one._ready)
        return one

    async def value(self, query: str) -> float | None:
        """Of the first series; None for none."""
        found = await self.all(query)
        return float(found[0]["value"][1]) if found else None

    async def all(self, query: str) -> list[Object]:
        """Each series with its labels and value, now."""
        return list((await self._ask("query", query=query))["result"])

    async def range(self, query: str, begin: float, end: float, step: int = 1) -> list[Object]:
        """Each series with its labels and its values, every so many seconds."""
        found = await self._ask("query_range", query=query, start=str(begin), end=str(end), step=str(step))
        return list(found["result"])

    async def history(self, query: str, begin: float, end: float) -> list[float]:
        """The values of each second of the one series that a query has."""
        (series,) = await self.range(query, begin, end)
        return [float(value) for _, value in series["values"]]

    async def firing(self, alert: str, **labels: str) -> list[Object]:
        """Its alerts of that name that fire, with these labels."""
        told = (await self._ask("alerts"))["alerts"]
        return [
            one for one in told
            if one["labels"]["alertname"] == alert and one["state"] == "firing" and labels.items() <= one["labels"].items()
        ]  # fmt: skip

    async def fires(self, alert: str, **labels: str) -> Object:
        await self.until(f"{alert} fires for {labels}", lambda: self.firing(alert, **labels))
        return (await self.firing(alert, **labels))[0]

    async def clears(self, alert: str, **labels: str) -> None:
        async def clear() -> bool:
            return not await self.firing(alert, **labels)

        await self.until(f"{alert} clears for {labels}", clear)

    async def until(self, what: str, check: Any, seconds: float = SECONDS) -> Any:
        """Wait until it is truthy."""
        end = time.monotonic() + seconds
        while not (found := await check()):
            self.process.check()
            assert time.monotonic() < end, f"{what}: not within {seconds:g} s; {await self.told()}"
            await asyncio.sleep(0.2)
        return found

    async def told(self) -> str:
        """Targets and alerts, for whoever looks why."""
        targets = (await self._ask("targets", state="active"))["activeTargets"]
        known = [(one["labels"]["job"], one["scrapeUrl"], one["health"], one["lastError"]) for one in targets]
        return f"targets {known}; alerts {(await self._ask('alerts'))['alerts']}"

    async def _ready(self) -> bool:
        try:
            async with aiohttp.ClientSession() as session, session.get(f"{self.address}/-/ready") as answer:
                return answer.status == 200
        except aiohttp.ClientError:
            return False

    async def _ask(self, what: str, **query: str) -> Any:
        async with aiohttp.ClientSession() as session, session.get(f"{self.address}/api/v1/{what}", params=query) as answer:
            told = await answer.json()
        assert told["status"] == "success", told
        return told["data"]
