"""TensorBoard's event files on this machine: which are copied, in which order, and what is copied once only."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from functools import partial
from pathlib import Path

import pytest

from ebb.client.errors import BadRequest, Missing
from ebb.client.files import event_files
from ebb.client.files.event_files import copy, following
from ebb.client.files.transfer import FileEntry, gateway
from ebb.kube import Unreachable
from tests.cli.world import elastic_job
from tests.client.files.test_outputs import output_volume, written
from tests.reached import ebb_of, gateway_pod, reached

__all__ = ["output_volume"]
FIRST, SECOND = (f"tensorboard/events.out.tfevents.000000000{number}.digits-worker-0" for number in (1, 2))


class Source:
    """A folder of a volume in memory. `reads`: (file, first byte)."""

    def __init__(self, **files: bytes) -> None:
        self.files, self.reads = dict(files), list[tuple[str, int]]()
        self.kinds: dict[str, str] = {}
        self.breaks_at: int | None = None

    async def list(self, path: str, *, recursive: bool) -> Sequence[FileEntry]:
        assert recursive
        return [
            FileEntry(name=name, kind=self.kinds.get(name, "file"), size=len(data), modified_ns=0)
            for name, data in reversed(self.files.items())
        ]

    async def read(self, path: str, start: int) -> AsyncIterator[bytes]:
        name = path.removeprefix("/job/")
        self.reads.append((name, start))
        for at in range(start, len(self.files[name]), 4):
            if self.breaks_at == at:
                raise Unreachable("gone")
            yield self.files[name][at : at + 4]


def there(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


async def test_event_files_come_and_nothing_else(tmp_path: Path) -> None:
    source = Source(**{
        "metrics.jsonl": b"x", "checkpoints/tfevents/step.pt": b"x", "runs/a/events.out.tfevents.7": b"a", FIRST: b"b",
        "../events.out.tfevents.1": b"x", "tensorboard/tfevents.link": b"x",
    })  # fmt: skip
    source.kinds["tensorboard/tfevents.link"] = "link"
    assert await copy(source, "/job", tmp_path / "digits") == 2
    assert there(tmp_path) == {
        "digits/runs/a/events.out.tfevents.7": b"a",
        f"digits/{FIRST.removeprefix('tensorboard/')}": b"b",
    }


async def test_a_file_that_grows_is_only_appended_to(tmp_path: Path) -> None:
    source = Source(**{FIRST: b"one"})
    await copy(source, "/job", tmp_path)
    source.files[FIRST] += b" two"
    await copy(source, "/job", tmp_path)
    await copy(source, "/job", tmp_path)
    assert source.reads == [(FIRST, 0), (FIRST, 3)]
    assert list(there(tmp_path).values()) == [b"one two"]


async def test_a_generation_is_begun_when_those_before_it_are_whole(tmp_path: Path) -> None:
    source = Source(**{FIRST: b"0123456789", SECOND: b"later"})
    source.breaks_at = 4
    with pytest.raises(Unreachable):
        await copy(source, "/job", tmp_path)
    assert list(there(tmp_path).values()) == [b"0123"]
    source.breaks_at = None
    await copy(source, "/job", tmp_path)
    assert source.reads == [(FIRST, 0), (FIRST, 4), (SECOND, 0)]
    assert sorted(there(tmp_path).values()) == [b"0123456789", b"later"]


async def test_a_file_that_became_shorter_is_read_anew(tmp_path: Path) -> None:
    source = Source(**{FIRST: b"one two"})
    await copy(source, "/job", tmp_path)
    source.files[FIRST] = b"other"
    await copy(source, "/job", tmp_path)
    assert list(there(tmp_path).values()) == [b"other"]


async def test_a_copy_that_cannot_be_written_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BadRequest, match=r"file/events.out.tfevents.0000000001.digits-worker-0: "):
        await copy(Source(**{FIRST: b"one"}), "/job", tmp_path / "file")


async def test_they_are_followed_through_a_gateway_that_goes_and_comes(
    tmp_path: Path, output_volume: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_files, "gateway", partial(gateway, pauses=()))
    written(output_volume, **{FIRST: "one"})
    notes: list[str] = []
    file = tmp_path / "here" / "digits" / FIRST.removeprefix("tensorboard/")

    async def until(*facts: str) -> None:
        async with asyncio.timeout(10):
            while not (file.read_text() == facts[0] and facts[1] in "\n".join(notes)):  # noqa: ASYNC110 - files on trial
                await asyncio.sleep(0.01)

    async with reached(tmp_path, elastic_job(), elastic_job("new")) as kube:
        async with following(ebb_of(kube), ["digits", "new"], tmp_path / "here", note=notes.append, every=0.02) as found:
            assert found == {"digits": 1, "new": 0}
            assert file.read_text() == "one"
            kube.remove(gateway_pod())
            written(output_volume, **{FIRST: "one two"})
            kube.pods.lose("ebb-gateway-1")
            await until("one", "event files do not come now: ")
            kube.put(gateway_pod("ebb-gateway-2"))
            await until("one two", "event files come again")
        assert len(notes) <= 3
        before = dict(there(tmp_path / "here"))
        written(output_volume, **{FIRST: "one two three"})
        await asyncio.sleep(0.1)
        assert there(tmp_path / "here") == before


async def test_a_job_that_never_was(tmp_path: Path) -> None:
    async with reached(tmp_path) as kube:
        with pytest.raises(Missing, match="no job named 'never'"):
            async with following(ebb_of(kube), ["never"], tmp_path / "here"):
                pass
