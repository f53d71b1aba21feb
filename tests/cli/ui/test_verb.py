"""`ebb ui` as it is typed: the address, the browser, the port, Ctrl-C."""

import asyncio
import json
import os
import signal
import socket
import webbrowser
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
import pytest
from typer.testing import CliRunner, Result

from ebb.cli.app import app
from ebb.cli.verbs import ui
from tests.cli.program import EBB, MAIN
from tests.cli.serving import serving
from tests.cli.world import FakeKube, elastic_job, platform_map, session


def invoke(*words: str) -> Result:
    return CliRunner().invoke(app, ["ui", *words], obj=session(FakeKube(platform_map(), elastic_job())))


async def test_it_prints_its_address_serves_it_and_ends_by_ctrl_c(tmp_path: Path) -> None:
    async with serving(FakeKube(platform_map(), elastic_job()), tmp_path) as kubeconfig:
        environment = {**os.environ, "EBB_KUBECONFIG": str(kubeconfig), "XDG_CONFIG_HOME": str(tmp_path)}
        (out, its_out), (err, its_err) = os.pipe(), os.pipe()
        program = EBB.start(*MAIN, "ui", "--no-open", "-o", "json", env=environment, stdout=its_out, stderr=its_err)
        os.close(its_out)
        os.close(its_err)
        with os.fdopen(out) as told:
            url = json.loads(await asyncio.to_thread(told.readline))["url"]
            assert urlsplit(url).hostname == "127.0.0.1"
            jar = aiohttp.CookieJar(unsafe=True)
            async with aiohttp.ClientSession(cookie_jar=jar) as browser:
                assert (await browser.get(url)).status == 200
                page = url.partition("?")[0]
                async with browser.get(page) as answer:
                    assert "digits" in await answer.text()
                async with browser.get(f"{page}stream") as stream:  # somebody watches to the end
                    await stream.content.readline()
                    program.send_signal(signal.SIGINT)
                    async with asyncio.timeout(10):
                        assert await asyncio.to_thread(program.wait) == 130
    with os.fdopen(err) as file:
        assert file.read().splitlines()[-1] == "ebb: the page is closed; jobs continue."


def test_the_browser_gets_a_private_file_and_not_the_token(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[tuple[str, str, int]] = []

    def browser(address: str) -> bool:
        file = Path(urlsplit(address).path)
        shown.append((address, file.read_text(), file.parent.stat().st_mode & 0o777))
        raise KeyboardInterrupt

    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setattr(webbrowser, "open", browser)
    result = invoke()
    url = result.stdout.strip()
    [(address, text, mode)] = shown
    assert address.startswith("file:///")
    assert "token" not in address
    assert f"0;url={url}" in text
    assert mode == 0o700
    assert not Path(urlsplit(address).path).exists()
    assert result.exit_code == 130


@pytest.mark.parametrize("words", [("--no-open",), ()], ids=["asked", "no screen"])
def test_no_browser(words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ui.SCREENS:
        monkeypatch.setenv(name, ":0") if words else monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(webbrowser, "open", lambda _: pytest.fail("a browser was opened"))

    def end(self: asyncio.Event) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(asyncio.Event, "wait", end)
    result = invoke(*words)
    assert (result.exit_code, result.stdout.startswith("http://127.0.0.1:")) == (130, True)
    assert "Whoever has this address can read the page." in result.stderr


def test_a_port_that_is_taken_is_a_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = invoke("--port", str(port), "--no-open")
    assert result.exit_code == 2
    assert " ".join(result.stderr.split()) == (
        f"ebb: port {port} cannot be opened on this machine (Address already in use): choose another, or leave --port out for "
        "any free one."
    )


@pytest.mark.parametrize("port", ["0", "70000", "x"])
def test_a_port_that_is_none(port: str) -> None:
    result = invoke("--port", port)
    assert (result.exit_code, "port" in result.stderr) == (2, True)


def test_without_a_platform_it_says_what_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "EBB_PLATFORM"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("EBB_KUBECONFIG", str(tmp_path / "none"))
    result = CliRunner().invoke(app, ["ui"])
    assert result.exit_code == 3
    assert "is not a file. Set EBB_KUBECONFIG" in result.stderr
    every = CliRunner().invoke(app, ["ui", "--platform", "all"], env={"EBB_KUBECONFIG": ""})
    assert "platform 'all' is for `ebb list` and `ebb gpus` only" in every.stderr
