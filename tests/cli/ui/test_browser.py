"""The page in a real browser, where the machine has one: it keeps itself new without losing what a person does, by its own rules.

The browser is spoken to by its DevTools protocol, as what is on trial goes on after the page has loaded.
"""

import asyncio
import itertools
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from devcluster.walk import play
from tests.cli.ui.served import Files, served
from tests.cli.world import FakeKube, platform_map, worker_pod
from tests.client.report import story

BROWSER = play.find_browser()
pytestmark = pytest.mark.skipif(BROWSER is None, reason="no Chromium here: EBB_BROWSER names one")

# Scripts of one realm: names of the first are known to the second.
PREPARE = """(async () => {
  globalThis.until = async what => { while (!what()) await new Promise(done => setTimeout(done, 20)); };
  await until(() => document.querySelector(".plot .tip") && document.querySelectorAll("#log div").length > 1);
  globalThis.figure = document.querySelector("figure");
  globalThis.details = figure.querySelector("details");
  globalThis.plot = figure.querySelector(".plot");
  globalThis.drawn = plot.querySelector(".line").getAttribute("d");
  details.open = true;
  details.querySelector("summary").focus();
})()"""
PROBE = """(async () => {
  await until(() => plot.querySelector(".line").getAttribute("d") !== drawn);
  const area = plot.getBoundingClientRect();
  plot.dispatchEvent(new PointerEvent("pointermove", { clientX: area.right - 1, clientY: area.top + 5 }));
  let refused = "";
  try { document.querySelector("h1").innerHTML = "<b>x</b>"; } catch (error) { refused = error.name; }
  return {
    same: figure === document.querySelector("figure"), open: details.open, focus: document.activeElement.tagName,
    tip: plot.querySelector(".tip").textContent, tips: plot.querySelectorAll(".tip").length, refused, cookie: document.cookie,
    lines: [...document.querySelectorAll("#log div")].map(each => each.textContent),
    bold: document.querySelectorAll("#log b").length,
  };
})()"""
GONE = """(async () => {
  const lost = document.getElementById("lost");
  await until(() => !lost.hidden);
  return lost.textContent;
})()"""


class Tab:
    """A page of the browser. `complaints`: errors of scripts, and what the page's policy has refused."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket, self._numbers = socket, itertools.count(1)
        self.complaints: list[Any] = []

    async def call(self, method: str, **parameters: Any) -> Any:
        number = next(self._numbers)
        await self._socket.send_json({"id": number, "method": method, "params": parameters})
        async for message in self._socket:
            said = json.loads(message.data)
            if said.get("method") in ("Runtime.exceptionThrown", "Log.entryAdded"):
                self.complaints.append(said["params"])
            if said.get("id") == number:
                return said.get("result", {})
        raise AssertionError("the browser has ended")

    async def open(self, address: str, arrives: str) -> None:
        """Go there, and to where that leads."""
        await self.call("Page.navigate", url=address)
        place: Any = None
        while place != [arrives, "complete"]:  # a question that is asked while the page changes has no answer
            script = "[location.href, document.readyState]"
            found = await self.call("Runtime.evaluate", expression=script, returnByValue=True)
            place = found.get("result", {}).get("value")

    async def run(self, script: str) -> Any:
        found = await self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")


@asynccontextmanager
async def browser(profile: Path) -> AsyncIterator[Tab]:
    process = await asyncio.create_subprocess_exec(
        str(BROWSER), "--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}",
        "--remote-debugging-port=0", "about:blank", stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stderr is not None
    try:
        while (line := (await process.stderr.readline()).decode()) and "DevTools listening on" not in line:
            pass
        server = line.split("ws://")[1].split("/")[0]
        async with aiohttp.ClientSession() as session, session.get(f"http://{server}/json") as answer:
            address = next(each["webSocketDebuggerUrl"] for each in await answer.json() if each["type"] == "page")
            async with session.ws_connect(address, max_msg_size=0) as socket:
                tab = Tab(socket)
                for part in ("Runtime", "Log", "Page"):
                    await tab.call(f"{part}.enable")
                yield tab
    finally:
        process.terminate()
        await process.wait()


async def test_it_keeps_itself_new_under_a_persons_hands(tmp_path: Path) -> None:
    lines = [json.dumps(line).encode() + b"\n" for line in story.metric_lines()]
    files, pod = Files(b"".join(lines[: len(lines) // 2])), worker_pod(0)
    kube = FakeKube(platform_map(), story.job(state="Running", completionTime=None), pod)
    kube.write(pod, "2026-11-21T12:01:00Z <b>loss</b> 0.5", "2026-11-21T12:01:01Z second")
    async with asyncio.timeout(60), served(kube, open_files=files.open) as page, browser(tmp_path) as tab:
        root = f"http://127.0.0.1:{page.client.port}"
        await tab.open(f"{root}{page.guard.opening}", f"{root}{page.guard.base}")
        await tab.open(f"{root}{page.guard.base}jobs/digits", f"{root}{page.guard.base}jobs/digits")
        await tab.run(PREPARE)
        files.text = b"".join(lines)
        found = await tab.run(PROBE)
        assert (found["same"], found["open"], found["focus"], found["tips"]) == (True, True, "SUMMARY", 1)
        assert found["tip"].splitlines()[1].startswith("loss 0.0")
        assert [line for line in found["lines"] if line.startswith("w0")] == ["w0<b>loss</b> 0.5", "w0second"]
        assert (found["bold"], found["refused"], found["cookie"]) == (0, "TypeError", "")
        assert len(tab.complaints) == 1, tab.complaints  # our own attempt to write HTML, and nothing else
        page.live.close()
        assert (await tab.run(GONE)).startswith("ebb ui does not answer")
