"""Names that are no text, files that change while they go or come, and what is left of a transfer that ends."""

import asyncio
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from ebb.client.errors import BadRequest, ClientError, Missing
from ebb.client.files import data
from ebb.client.files.transfer import LocalFile, PartialFile, facts, gateway, walk
from tests.client.files.test_files import CONTENT, SOON, local, spoil
from tests.reached import Reached, ebb_of, reached

# --- Names ----------------------------------------------------------------------------------------------------------------------


async def test_names_that_are_no_text_are_left_out_and_overwrite_nothing(tmp_path: Path) -> None:
    for name in ("fine", "caf\udce9", "caf\udcea", "a\nb", "bad\udcff/x"):
        local(tmp_path, name, name.encode(errors="replace"))
    async with reached(tmp_path) as kube:
        done = await data.put(ebb_of(kube), tmp_path / "local", "data/set")
    assert [one.name for one in (tmp_path / "data" / "set").iterdir()] == ["fine"]
    assert (done.files, done.left_out) == (
        1,
        tuple(f"{tmp_path}/local/{name}" for name in ("bad\ufffd", "a\ufffdb", "caf\ufffd", "caf\ufffd")),
    )


async def test_a_control_character_does_not_end_a_fetch(tmp_path: Path) -> None:
    for name in ("a\nb", "fine", "inner\x7f/x"):
        local(tmp_path, f"../data/set/{name}", b"x")
    async with reached(tmp_path) as kube:
        done = await data.get(ebb_of(kube), "data/set", f"{tmp_path}/copy")
    assert [one.name for one in (tmp_path / "copy").iterdir()] == ["fine"]
    assert done.left_out == (f"{tmp_path}/data/set/a\ufffdb", f"{tmp_path}/data/set/inner\ufffd/x")


async def test_a_path_that_is_no_text_is_never_another_one(tmp_path: Path) -> None:
    there = local(tmp_path, "../data/x", b"x").resolve()
    async with reached(tmp_path) as kube, gateway(ebb_of(kube)) as files:
        with pytest.raises(BadRequest, match=r"path 'data/x\\udcff' is no UTF-8 text: rename the file"):
            await data.rm(ebb_of(kube), "data/x\udcff")
        for work in (files.remove(f"{there}\udcff"), files.get(f"{there}\udcff", tmp_path / "y"), files.stat(f"{there}\udcff")):
            with pytest.raises(BadRequest, match="is no UTF-8 text"):
                await work
        with pytest.raises(BadRequest, match="is no UTF-8 text"):
            await data.put(ebb_of(kube), local(tmp_path, "x\udcff", b"y"), "data/")
    assert there.read_bytes() == b"x"


# --- Files that change ----------------------------------------------------------------------------------------------------------


def once(work: Callable[[], object]) -> Callable[[int], None]:
    """Called with the bytes that move: does it with the first."""
    left = [work]

    def moved(size: int) -> None:
        if size > 0 and left:
            left.pop()()

    return moved


CHANGES: dict[str, tuple[Callable[[Path], object], bytes]] = {
    "grows": (lambda file: file.write_bytes(CONTENT + b"more"), CONTENT),
    "shrinks": (lambda file: os.truncate(file, 1_000_000), CONTENT[:1_000_000]),
    "another content": (lambda file: spoil(file, 0), CONTENT[:-1] + bytes([CONTENT[-1] ^ 1])),
}


@pytest.mark.parametrize(("change", "expected"), CHANGES.values(), ids=CHANGES)
async def test_a_file_that_changes_while_it_is_sent(tmp_path: Path, change: Callable[[Path], object], expected: bytes) -> None:
    file = local(tmp_path, "x")
    async with reached(tmp_path) as kube, gateway(ebb_of(kube), pauses=SOON) as files:
        stored = await files.put(f"{tmp_path}/data/x", file, moved=once(lambda: change(file)))
    assert (tmp_path / "data" / "x").read_bytes() == expected
    assert stored.size == len(expected)


async def test_a_file_that_goes_while_it_is_sent(tmp_path: Path) -> None:
    file = local(tmp_path, "x")
    async with reached(tmp_path) as kube, gateway(ebb_of(kube), pauses=SOON) as files:
        with pytest.raises(BadRequest, match="local/x is gone: it was removed while it was sent"):
            await files.put(f"{tmp_path}/data/x", file, moved=once(file.unlink))
    assert not (tmp_path / "data" / "x").exists()


@pytest.mark.parametrize("replaced", [True, False])
async def test_a_file_that_is_replaced_while_it_is_read(tmp_path: Path, replaced: bool) -> None:
    """After a connection that broke the rest would be of another file; of the same one, that has grown, it is right."""
    first, second = os.urandom(20_000_000), os.urandom(20_000_000)
    there, read = local(tmp_path, "../data/x", first).resolve(), b""

    async def reading(kube: Reached) -> None:
        nonlocal read
        async with gateway(ebb_of(kube), pauses=SOON) as files:
            async for piece in files.read(str(there)):
                if not read:
                    local(tmp_path, "new", second).replace(there) if replaced else append(there)
                    kube.pods.lose("ebb-gateway-1")
                    kube.pods.lost.clear()
                read += piece

    async with reached(tmp_path) as kube:
        if replaced:
            with pytest.raises(ClientError, match="was replaced by another file while it was read: try again"):
                await reading(kube)
            assert read == first[: len(read)]
        else:
            await reading(kube)
            assert read == first + b"more"


def append(file: Path) -> None:
    with file.open("ab") as opened:
        opened.write(b"more")


# --- What is left ---------------------------------------------------------------------------------------------------------------


async def test_a_removal_whose_answer_is_lost_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there, lost, loop = local(tmp_path, "../data/x", b"x").resolve(), threading.Event(), asyncio.get_running_loop()

    async with reached(tmp_path) as kube, gateway(ebb_of(kube), pauses=SOON) as files:

        def lose() -> None:
            kube.pods.lose("ebb-gateway-1")
            kube.pods.lost.clear()
            lost.set()

        def removing(*_: object, **__: object) -> None:
            there.unlink()
            monkeypatch.undo()
            loop.call_soon_threadsafe(lose)
            lost.wait(10)

        monkeypatch.setattr("ebb.gateway.app.remove", removing)
        await files.remove(str(there))
        assert lost.is_set()
        with pytest.raises(Missing, match="is not there"):
            await files.remove(str(there))


async def test_a_part_is_no_file_of_a_folder_that_is_sent(tmp_path: Path) -> None:
    """It has a folder of its own: among a million files nothing is searched for it."""
    file = local(tmp_path, "x", b"x")
    part = PartialFile(tmp_path / "local" / "y", "data/y", "1")
    assert await part.size() == 0
    await part.write(b"half")
    (folder,) = (one for one in file.parent.iterdir() if one != file)
    assert (folder.is_dir(), folder.name.startswith(".ebb-part-")) == (True, True)
    (file.parent / ".ebb-part-1234-5678").write_bytes(b"of an older version")
    assert [one.path for one in walk(file.parent) if isinstance(one, LocalFile)] == [file]
    assert await PartialFile(tmp_path / "local" / "y", "data/y", "2").size() == 0
    assert list(folder.iterdir()) == []


async def test_no_part_stays_of_what_is_removed_meanwhile(tmp_path: Path) -> None:
    there = local(tmp_path, "../data/x", os.urandom(20_000_000)).resolve()
    async with reached(tmp_path) as kube, gateway(ebb_of(kube), pauses=SOON) as files:

        def lose() -> None:
            there.unlink()
            kube.pods.lose("ebb-gateway-1")
            kube.pods.lost.clear()

        with pytest.raises(Missing, match="is not there"):
            await files.get(str(there), tmp_path / "copy" / "x", moved=once(lose))
    assert list((tmp_path / "copy").iterdir()) == []


async def test_ctrl_c_ends_a_checksum(tmp_path: Path) -> None:
    """A thread cannot be stopped, and the program waits for its end: so that has to be near."""
    file = local(tmp_path, "x", b"")
    os.truncate(file, 100 * 2**30)  # no room is taken by it
    loop = asyncio.get_running_loop()
    task = asyncio.create_task(facts(file))
    started = loop.time()
    await asyncio.wait({task}, timeout=0.05)
    task.cancel()
    await loop.shutdown_default_executor()
    assert loop.time() - started < 10
