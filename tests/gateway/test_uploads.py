"""Uploads that break off, are torn, overtaken, too long or too large: a file is in place as a whole, or not at all."""

import asyncio
import errno
import os
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import ClientPayloadError, ClientResponse

from ebb.gateway.uploads import KEEP_SECONDS, Uploads, Wanted, in_thread
from ebb.gateway.volumes import Refused
from tests.gateway.world import Asker, asking, sha256, volumes

CONTENT = os.urandom(100_000)
WANTED = Wanted(size=len(CONTENT), sha256=sha256(CONTENT))


async def offset_of(gateway: Asker, content: bytes = CONTENT) -> tuple[int, bool]:
    status, told = await gateway.ask("GET", "/v1/uploads", "data/x", size=len(content), sha256=sha256(content))
    assert status == 200, told
    return told["offset"], told["done"]


async def broken(gateway: Asker, until: int) -> None:
    """An upload whose connection breaks after `until` bytes."""
    held = asyncio.Event()

    async def body() -> AsyncIterator[bytes]:
        yield CONTENT[:until]
        await held.wait()

    request = asyncio.create_task(_put(gateway, body()))
    async with asyncio.timeout(10):
        while (await offset_of(gateway))[0] < until:
            pass
    request.cancel()
    await asyncio.gather(request, return_exceptions=True)


async def _put(gateway: Asker, body: AsyncIterator[bytes]) -> ClientResponse:
    query = {"path": str(gateway.root / "data/x"), "size": str(WANTED.size), "sha256": WANTED.sha256}
    return await gateway.client.put("/v1/files", params=query, data=body)


def parts(root: Path) -> list[Path]:
    return list((root / "data" / ".ebb" / "uploads").iterdir())


async def test_an_upload_goes_on_where_it_broke_off(tmp_path: Path) -> None:
    async with asking(tmp_path) as gateway:
        assert await offset_of(gateway) == (0, False)
        await broken(gateway, 60_000)
        assert not (tmp_path / "data" / "x").exists()
        assert await offset_of(gateway) == (60_000, False)
        assert (await gateway.put("data/x", CONTENT, offset=60_000, body=CONTENT[60_000:]))[0] == 201
        assert await offset_of(gateway) == (len(CONTENT), True)
    assert (tmp_path / "data" / "x").read_bytes() == CONTENT
    assert parts(tmp_path) == []


async def test_a_torn_part_is_noticed_and_nothing_is_written(tmp_path: Path) -> None:
    """As after a machine that died: the length is there, the bytes are not."""
    async with asking(tmp_path) as gateway:
        (tmp_path / "data" / "x").write_text("the older one")
        await broken(gateway, 60_000)
        (part,) = parts(tmp_path)
        part.write_bytes(CONTENT[:50_000] + bytes(10_000))
        status, told = await gateway.put("data/x", CONTENT, offset=60_000, body=CONTENT[60_000:])
        assert (status, "nothing was written. Send it from the start" in told["error"]) == (422, True)
        assert (tmp_path / "data" / "x").read_text() == "the older one"
        assert await offset_of(gateway) == (0, False)
        assert (await gateway.put("data/x", CONTENT))[0] == 201
    assert (tmp_path / "data" / "x").read_bytes() == CONTENT


async def test_another_content_begins_anew(tmp_path: Path) -> None:
    async with asking(tmp_path) as gateway:
        await broken(gateway, 60_000)
        other = CONTENT[::-1]
        assert await offset_of(gateway, other) == (0, False)
        assert (await gateway.put("data/x", other))[0] == 201
        assert await offset_of(gateway) == (60_000, False)
    assert (tmp_path / "data" / "x").read_bytes() == other


@pytest.mark.parametrize("offset", [1, 60_001, 100_000])
async def test_an_offset_that_is_not_there(tmp_path: Path, offset: int) -> None:
    async with asking(tmp_path) as gateway:
        if offset > 1:
            await broken(gateway, 60_000)
        status, told = await gateway.put("data/x", CONTENT, offset=offset, body=CONTENT[offset:])
    assert (status, told["offset"]) == (409, 0 if offset == 1 else 60_000)


async def test_fewer_bytes_than_announced_stay_for_the_next_one(tmp_path: Path) -> None:
    async with asking(tmp_path) as gateway:
        status, told = await gateway.put("data/x", CONTENT, body=CONTENT[:10])
        assert (status, told["offset"]) == (400, 10)
        assert await offset_of(gateway) == (10, False)


async def test_more_bytes_than_announced_are_refused(tmp_path: Path) -> None:
    async with asking(tmp_path) as gateway:
        status, _ = await gateway.put("data/x", CONTENT, body=CONTENT + b"x")
    assert (status, (tmp_path / "data" / "x").exists()) == (400, False)


async def test_what_was_changed_on_its_way_is_refused(tmp_path: Path) -> None:
    async with asking(tmp_path) as gateway:
        status, _ = await gateway.put("data/x", CONTENT, body=CONTENT[:-1] + b"?")
    assert (status, (tmp_path / "data" / "x").exists(), parts(tmp_path)) == (422, False, [])


async def test_a_later_upload_takes_over_from_one_that_hangs(tmp_path: Path) -> None:
    """The connection of the first is dead, and the gateway does not know yet."""
    place, uploads, began = volumes(tmp_path).find(str(tmp_path / "data" / "x")), Uploads(), asyncio.Event()

    async def hanging() -> AsyncIterator[bytes]:
        yield CONTENT[:60_000]
        began.set()
        await asyncio.Event().wait()

    async def rest() -> AsyncIterator[bytes]:
        yield CONTENT[60_000:]

    first = asyncio.create_task(uploads.receive(place, WANTED, 0, hanging()))
    await began.wait()
    await uploads.receive(place, WANTED, 60_000, rest())
    with pytest.raises(Refused, match="has taken over"):
        await first
    assert (tmp_path / "data" / "x").read_bytes() == CONTENT


async def test_a_full_volume_does_not_stay_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(fd: int, data: memoryview) -> int:
        raise OSError(28, "No space left on device")

    async with asking(tmp_path) as gateway:
        monkeypatch.setattr("ebb.gateway.uploads.os.write", full)
        status, told = await gateway.put("data/x", CONTENT)
    assert (status, "has no room for" in told["error"]) == (507, True)
    assert parts(tmp_path) == []


async def test_what_cannot_fit_is_refused_before_it_is_sent(tmp_path: Path) -> None:
    async with asking(tmp_path) as gateway:
        status, told = await gateway.put("data/x", CONTENT, size=2**60)
    assert (status, "has no room for" in told["error"]) == (507, True)


async def test_parts_that_nobody_continues_go_after_a_week(tmp_path: Path) -> None:
    found, uploads = volumes(tmp_path), Uploads()
    folder = tmp_path / "data" / ".ebb" / "uploads"
    folder.mkdir(parents=True)
    (folder / "part").touch()
    os.utime(folder / "part", (1e9, 1e9))  # the age of what it is a copy of: it is just being put in place
    since = (folder / "part").stat().st_ctime
    assert await uploads.remove_old(found.all, now=lambda: since + KEEP_SECONDS - 60) == 0
    assert await uploads.remove_old(found.all, now=lambda: since + KEEP_SECONDS + 60) == 1
    assert list(folder.iterdir()) == []


async def test_one_bad_entry_and_one_bad_volume_keep_no_other_part(tmp_path: Path) -> None:
    found, uploads = volumes(tmp_path), Uploads()
    (tmp_path / "data" / ".ebb").symlink_to(tmp_path / "secret")
    folder = tmp_path / "output" / ".ebb" / "uploads"
    for name in ("a", "b", "c"):
        (folder / f"{name} folder").mkdir(parents=True)
        (folder / name).touch()
    assert await uploads.remove_old(found.all, now=lambda: time.time() + KEEP_SECONDS + 60) == 3
    assert sorted(path.name for path in folder.iterdir()) == ["a folder", "b folder", "c folder"]


async def test_who_is_cancelled_twice_waits_for_the_thread_all_the_same() -> None:
    """It works on descriptors that would be closed."""
    go, ended = threading.Event(), threading.Event()

    def work() -> None:
        go.wait(10)
        ended.set()

    task = asyncio.create_task(in_thread(work))
    await cancelled_twice(task)
    assert not task.done()
    go.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended.is_set()


async def test_an_upload_that_is_cancelled_twice_waits_for_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place, uploads, go, began = (
        volumes(tmp_path).find(str(tmp_path / "data" / "x")),
        Uploads(),
        threading.Event(),
        asyncio.Event(),
    )
    loop, real = asyncio.get_running_loop(), os.write

    def slow(fd: int, data: memoryview) -> int:
        loop.call_soon_threadsafe(began.set)
        go.wait(10)
        return real(fd, data)

    async def body() -> AsyncIterator[bytes]:
        monkeypatch.setattr("ebb.gateway.uploads.os.write", slow)
        yield CONTENT
        await asyncio.Event().wait()

    task = asyncio.create_task(uploads.receive(place, WANTED, 0, body()))
    await began.wait()
    monkeypatch.undo()
    await cancelled_twice(task)
    assert not task.done()
    go.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert parts(tmp_path)[0].read_bytes() == CONTENT


async def cancelled_twice(task: asyncio.Task[None]) -> None:
    for _ in range(2):
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
    for _ in range(10):
        await asyncio.sleep(0)


async def test_a_connection_that_breaks_while_a_file_is_read(tmp_path: Path) -> None:
    """A file that becomes shorter meanwhile: better no end than a wrong one."""
    async with asking(tmp_path) as gateway:
        (tmp_path / "data" / "log").write_bytes(bytes(50_000_000))
        answer = await gateway.get("data/log")
        await answer.content.readexactly(1000)
        os.truncate(tmp_path / "data" / "log", 10_000)
        with pytest.raises(ClientPayloadError):
            await answer.read()


async def test_an_error_in_the_middle_of_a_file_ends_its_connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second answer within the bytes of the first would be taken for the file's, and the reader would wait for the rest."""
    real = os.pread

    def stale(fd: int, size: int, at: int) -> bytes:
        if at:
            raise OSError(errno.ESTALE, "Stale file handle")
        return real(fd, size, at)

    async with asking(tmp_path) as gateway:
        (tmp_path / "data" / "x").write_bytes(bytes(3_000_000))
        monkeypatch.setattr("ebb.gateway.app.os.pread", stale)
        answer = await gateway.get("data/x")
        async with asyncio.timeout(10):
            with pytest.raises(ClientPayloadError):
                await answer.read()
