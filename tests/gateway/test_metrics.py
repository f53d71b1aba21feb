"""The gateway's page of metrics: the room on its volumes, on a port that serves nothing else."""

import threading
from collections.abc import Callable
from pathlib import Path

import aiohttp
import pytest

from ebb.controller.metrics import samples
from ebb.gateway import app
from ebb.gateway.__main__ import read_settings, telling
from ebb.gateway.listing import Entry, volume_facts
from ebb.gateway.volumes import MountedVolume

Facts = Callable[[MountedVolume], Entry]


async def asked(port: int | None, path: str = "/metrics") -> tuple[int, str]:
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}{path}") as answer:
        return answer.status, await answer.text()


async def test_it_tells_the_room_on_each_volume_and_serves_no_file(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("do not read")
    settings = read_settings(["--port=0", "--metrics-port=0", f"--volume=data={tmp_path}", f"--read-only=sets={tmp_path}"])
    async with telling(settings) as port:
        status, text = await asked(port)
        for path in ("/v1/volumes", f"/v1/files?path={tmp_path}/secret", f"/v1/list?path={tmp_path}", "/"):
            assert (await asked(port, path))[0] == 404
    assert status == 200
    sizes = dict((labels["volume"], size) for labels, size in samples(text, app.VOLUME_SIZE))
    free = dict((labels["volume"], room) for labels, room in samples(text, app.VOLUME_FREE))
    assert sizes.keys() == free.keys() == {"data", "sets"}
    assert 0 < free["data"] <= sizes["data"]


async def test_without_the_option_it_has_none(tmp_path: Path) -> None:
    async with telling(read_settings(["--port=0", f"--volume=data={tmp_path}"])) as port:
        assert port is None


async def test_a_file_system_that_hangs_costs_its_lines_and_one_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "ROOM_SECONDS", 0.05)
    answers, asks = threading.Event(), list[str]()

    def hangs(volume: MountedVolume, facts: Facts = volume_facts) -> Entry:
        asks.append(volume.name)
        if volume.name == "slow":
            answers.wait(10)
        return facts(volume)

    monkeypatch.setattr(app, "volume_facts", hangs)
    settings = read_settings(["--metrics-port=0", f"--volume=data={tmp_path}", f"--volume=slow={tmp_path}"])
    async with telling(settings) as port:
        for _ in range(3):
            assert [labels["volume"] for labels, _ in samples((await asked(port))[1], app.VOLUME_FREE)] == ["data"]
        assert asks.count("slow") == 1
        answers.set()
        monkeypatch.setattr(app, "ROOM_SECONDS", 5)
        assert len(samples((await asked(port))[1], app.VOLUME_FREE)) == 2


def test_its_port_is_one(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        read_settings(["--metrics-port=all", "--volume=data=/mnt"])
    assert "--metrics-port 'all' is not a port: use 0 to 65535, for example 9402" in capsys.readouterr().err
