"""Checkpoints in parts: any ranks read what any others wrote; all of them count, or none."""

import threading
from pathlib import Path
from queue import Queue
from typing import Any

import pytest
import torch

from ebb.elastic.checkpoint import CheckpointFolder, FileFence, RefusedError
from ebb.elastic.checkpoint.__main__ import EXIT_DAMAGED, EXIT_WELL, main
from ebb.elastic.checkpoint.cadence import Cadence
from ebb.elastic.checkpoint.files import Disk, HashingFile, NewFile
from ebb.elastic.checkpoint.manifest import name_of
from ebb.elastic.checkpoint.part_saver import PartSaver
from ebb.elastic.checkpoint.parts import assemble, dump_rows, open_parts, read
from ebb.elastic.checkpoint.state import dump, load

ROWS = 11
WEIGHT = torch.arange(ROWS * 3, dtype=torch.float32).reshape(ROWS, 3)
NOTE: dict[str, Any] = {"ebb.elastic.rows": '["state_dict","module.w"]', "shape": [ROWS, 3], "dtype": "float32"}


def bounds(ranks: int) -> list[tuple[int, int]]:
    """As torch.chunk cuts; the last ranks may have none."""
    size = -(-ROWS // ranks)
    return [(min(rank * size, ROWS), min((rank + 1) * size, ROWS)) for rank in range(ranks)]


def save(output: Path, step: int, ranks: int, *, keep: int = 2, without: int = -1) -> CheckpointFolder:
    folder = CheckpointFolder(output, keep=keep, identity={})
    fence = FileFence.claim(output)
    folder.prepare(fence.generation)
    name = name_of(fence.generation, step, 0)
    found = []
    for number, (start, stop) in enumerate(bounds(ranks)):
        rows = {} if number == without else {NOTE["ebb.elastic.rows"]: [start, WEIGHT[start:stop] + step]}
        found.append(folder.write_part(dump_rows(rows), name=name, number=number))
    folder.save(dump({"state_dict": {"module.w": NOTE, "module.b": torch.ones(2)}}), fence, step=step, parts=lambda: found)
    return folder


@pytest.mark.parametrize("reading", [1, 2, 3, 6])
def test_what_four_ranks_wrote_any_number_reads(tmp_path: Path, reading: int) -> None:
    found = save(tmp_path, 5, 4).newest()
    assert found is not None
    parts = open_parts(found.parts)
    for start, stop in bounds(reading):
        assert torch.equal(assemble(NOTE, parts, start, stop), WEIGHT[start:stop] + 5)
    whole = read(load(found.content), found.parts, lambda _: None)
    assert torch.equal(whole["state_dict"]["module.w"], WEIGHT + 5)


def test_rows_that_are_missing_are_refused(tmp_path: Path) -> None:
    found = save(tmp_path, 5, 4, without=2).newest()
    assert found is not None
    with pytest.raises(RefusedError, match="lack 3 of the rows 0 to 11"):
        read(load(found.content), found.parts, lambda _: None)


def test_a_damaged_part_makes_the_checkpoint_one_that_is_passed_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save(tmp_path, 5, 2)
    folder = save(tmp_path, 6, 2)
    part = next(folder.place.glob("g00002-*.part1"))
    part.write_bytes(part.read_bytes()[:-1] + b"?")
    found = CheckpointFolder(tmp_path, keep=2, identity={}).newest()
    assert found is not None
    assert found.manifest.step == 5
    assert "part1 does not have the sha256" in capsys.readouterr().err
    assert main(["verify", str(tmp_path)]) == EXIT_DAMAGED


def test_old_checkpoints_go_with_their_parts(tmp_path: Path) -> None:
    for step in range(4):
        folder = save(tmp_path, step, 3, keep=1)
    assert sorted(path.suffix for path in folder.place.iterdir()) == [".json", ".part0", ".part1", ".part2", ".pt"]


def test_a_part_is_written_from_the_very_memory_of_its_rows() -> None:
    """No copy of a tensor, nor of all of them, is made for the file."""
    weight, empty = torch.ones(4, 3), torch.ones(0, 3, dtype=torch.complex64)
    written: list[memoryview] = []

    class Remembering(HashingFile):
        def write(self, content: bytes | memoryview) -> int:
            written.append(memoryview(content))
            return len(content)

    dump_rows({"w": [8, weight], "empty": [12, empty]})(Remembering(Disk(), -1))
    header, numbers = written
    assert b'"shape":[4,3]' in bytes(header)
    assert torch.frombuffer(numbers, dtype=torch.float32).data_ptr() == weight.data_ptr()


def test_numbers_that_the_format_has_no_name_for_are_kept_too(tmp_path: Path) -> None:
    tensor = torch.arange(6.0).reshape(3, 2) * (1 + 1j)
    with NewFile(Disk(), tmp_path / "part") as file:
        dump_rows({"c": [0, tensor]})(file)
    note = {"ebb.elastic.rows": "c", "shape": [3, 2], "dtype": "complex64"}
    assert torch.equal(assemble(note, open_parts([str(tmp_path / "part")]), 1, 3), tensor[1:])


def test_a_file_of_another_format_is_refused(tmp_path: Path) -> None:
    torch.save({"rows": {}}, tmp_path / "part")
    with pytest.raises(RefusedError, match="no file of tensors that this version reads"):
        open_parts([str(tmp_path / "part")])


def test_the_weights_in_one_file(tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors.torch")
    save(tmp_path, 5, 4)
    assert main(["export", str(tmp_path), str(tmp_path / "out" / "model.safetensors")]) == EXIT_WELL
    tensors = safetensors.load_file(tmp_path / "out" / "model.safetensors")
    assert torch.equal(tensors["w"], WEIGHT + 5)
    assert torch.equal(tensors["b"], torch.ones(2))


class Words:
    """Between two savers in one process."""

    def __init__(self) -> None:
        self._words: dict[str, Queue[Any]] = {}

    def tell(self, name: str, word: object) -> None:
        self._words.setdefault(name, Queue()).put(word)

    def hear(self, name: str, *, seconds: float) -> Any:
        return self._words.setdefault(name, Queue()).get(timeout=seconds)


class OnePod:
    size = 2

    def __init__(self, rank: int, words: Words) -> None:
        self.rank, self._words = rank, words

    def any(self, flag: bool) -> bool:
        return flag

    def exchange(self, _: str) -> Words:
        return self._words


class FullDisk(Disk):
    def write(self, descriptor: int, content: memoryview) -> None:
        raise OSError(28, "No space left on device")


class OneVoice(OnePod):
    """A pod whose ranks wait for each other."""

    def __init__(self, rank: int, words: Words, meeting: threading.Barrier, flags: list[bool]) -> None:
        super().__init__(rank, words)
        self._meeting, self._flags = meeting, flags

    def any(self, flag: bool) -> bool:
        self._flags[self.rank] = flag
        self._meeting.wait(30)
        found = any(self._flags)
        self._meeting.wait(30)
        return found


class FullAtFirst(Disk):
    def __init__(self) -> None:
        self.failures = 2

    def write(self, descriptor: int, content: memoryview) -> None:
        if self.failures:
            self.failures -= 1
            raise OSError(28, "No space left on device")
        super().write(descriptor, content)


@pytest.mark.parametrize("lacks", [0, 1])
def test_all_parts_of_the_last_checkpoint_wait_for_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lacks: int) -> None:
    monkeypatch.setattr("ebb.elastic.checkpoint.saver._RETRY_SECONDS", 0.0)
    fence, words, meeting, flags = FileFence.claim(tmp_path), Words(), threading.Barrier(2), [False, False]
    disks = [FullAtFirst() if rank == lacks else Disk() for rank in range(2)]
    cadence = Cadence(shortest_seconds=0, longest_seconds=1, overhead=1)
    savers = []
    for rank, disk in enumerate(disks):
        folder = CheckpointFolder(tmp_path, keep=2, identity={}, disk=disk)
        folder.prepare(fence.generation)
        pod = OneVoice(rank, words, meeting, flags)
        savers.append(PartSaver(folder, fence, cadence=cadence, writer=4 + rank, pod=pod))
    other = threading.Thread(target=savers[1].save_now, args=(7, lambda: {"state_dict": {}}), kwargs={"last": True})
    other.start()
    savers[0].save_now(7, lambda: {"state_dict": {}}, last=True)
    other.join()
    found = CheckpointFolder(tmp_path, keep=2, identity={}).newest()
    assert found is not None
    assert (found.manifest.name, len(found.parts)) == ("g00001-s00000007-r4", 2)


@pytest.mark.parametrize("full", [False, True])
def test_all_parts_count_or_none(tmp_path: Path, capsys: pytest.CaptureFixture[str], full: bool) -> None:
    fence, words = FileFence.claim(tmp_path), Words()
    disks = [Disk(), FullDisk() if full else Disk()]
    folders = [CheckpointFolder(tmp_path, keep=2, identity={}, disk=disk) for disk in disks]
    folders[0].prepare(fence.generation)
    cadence = Cadence(shortest_seconds=0, longest_seconds=1, overhead=1)
    savers = [
        PartSaver(folder, fence, cadence=cadence, writer=4 + rank, pod=OnePod(rank, words)) for rank, folder in enumerate(folders)
    ]
    other = threading.Thread(target=savers[1].save_now, args=(7, lambda: {"state_dict": {}}))
    other.start()
    savers[0].save_now(7, lambda: {"state_dict": {}})
    other.join()
    found = CheckpointFolder(tmp_path, keep=2, identity={}).newest()
    if full:
        assert found is None
        assert "No space left on device" in capsys.readouterr().err
    else:
        assert found is not None
        assert (found.manifest.name, len(found.parts)) == ("g00001-s00000007-r4", 2)
