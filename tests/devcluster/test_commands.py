"""Locks among runs of ours, ends of logs, errors of programs."""

import asyncio
import os
from pathlib import Path

import pytest

from devcluster import commands
from devcluster.commands import CommandError


async def test_a_lock_names_who_holds_it(tmp_path: Path) -> None:
    lock = tmp_path / "folder" / "lock"
    assert commands.holder(lock) is None
    async with commands.locked(lock, "a box"):
        assert commands.holder(lock) == os.getpid()
    assert commands.holder(lock) is None


async def test_who_waits_for_a_lock_says_so_and_gets_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lock, order = tmp_path / "lock", list[str]()

    async def second() -> None:
        async with commands.locked(lock, "box 'b'"):
            order.append("second")

    async with commands.locked(lock, "box 'b'"):
        waiting = asyncio.create_task(second())
        said = ""
        while not said:
            await asyncio.sleep(0)
            said = capsys.readouterr().out
        order.append("first")
        lock.unlink()  # as `down` does: the waiter must not be content with a lock that nobody else sees
    await waiting
    assert "waiting for another run of ours that holds box 'b'" in said
    assert order == ["first", "second"]
    assert lock.exists()


@pytest.mark.parametrize(
    ("text", "count", "end"),
    [
        ("one\ntwo\n\nthree\n", 2, "two\nthree"),
        ("10%\r50%\r100%\r", 1, "100%"),
        ("x\n" * 50_000 + "last\n", 1, "last"),
        ("", 3, ""),
    ],
    ids=["empty lines do not count", "a progress bar", "a long log", "nothing yet"],
)
def test_last_lines(tmp_path: Path, text: str, count: int, end: str) -> None:
    log = tmp_path / "log"
    log.write_text(text, newline="")
    assert commands.last_lines(log, count) == end
    assert commands.last_lines(tmp_path / "none", 1) == ""


async def test_an_error_says_what_was_run_and_what_it_said() -> None:
    with pytest.raises(CommandError, match=r"`sh -c echo no room >&2; exit 3` failed with 3: no room"):
        await commands.run("sh", "-c", "echo no room >&2; exit 3")
    assert await commands.run("cat", stdin="in") == "in"


async def test_watched_programs_are_logged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    await commands.watch("a build", ["sh", "-c", "echo done"], log=tmp_path / "log")
    assert (tmp_path / "log").read_text() == "done\n"
    with pytest.raises(CommandError, match=r"(?s)a build failed with 4.*broken"):
        await commands.watch("a build", ["sh", "-c", "echo broken; exit 4"], log=tmp_path / "log")
    assert "a build: done in" in capsys.readouterr().out


async def test_long_programs_show_that_they_live(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "HEARTBEAT_SECONDS", 0.01)
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    # Ends when the test opens the gate: after the first sign of life.
    program = commands.watch("a build", ["sh", "-c", f"echo linking; read line < {gate}"], log=tmp_path / "log")
    task = asyncio.create_task(program)
    seen = ""
    while "linking" not in seen:
        await asyncio.sleep(0.01)
        seen += capsys.readouterr().out
    gate.write_text("go\n")
    await task
