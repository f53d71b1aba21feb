"""Images of shards kept on the machine's own disk: the same bytes, read from the volume once, within the limit, after kills."""

import multiprocessing
import os
import pickle
import signal
from pathlib import Path

import pytest
import torch

from ebb.elastic.data.images import open_source
from ebb.elastic.data.node_cache import NodeCache
from ebb.elastic.data.sealed import DataError
from ebb.elastic.data.shards import Layout, Shards, shard_name, write_manifest, write_shard

SAMPLES, SIDE = 64, 8
IMAGE = 3 * SIDE * SIDE


def shards(folder: Path, seed: int = 0, name: str = "f") -> Path:
    """A data set of 16 shards, of four images each."""
    folder.mkdir(parents=True, exist_ok=True)
    layout, generator = Layout(name, SIDE, SAMPLES), torch.Generator().manual_seed(seed)
    for shard in range(layout.shards):
        made = [torch.randint(0, 256, (3, SIDE, SIDE), dtype=torch.uint8, generator=generator) for _ in layout.numbers(shard)]
        write_shard(folder / shard_name(shard), layout, shard, made)
    write_manifest(folder, layout, [("a", SAMPLES // 2), ("b", SAMPLES // 2)])
    return folder


def everything(source: Shards) -> bytes:
    return b"".join(source.read(number)[0].numpy().tobytes() for number in range(len(source)))


def spoil(folder: Path) -> None:
    """Make the images unlike what they were, in place: whoever reads the volume gets zeros."""
    for path in folder.glob("*.shard"):
        with path.open("r+b") as file:
            file.write(bytes(4 * IMAGE))


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    return shards(tmp_path / "volume")


@pytest.fixture
def cache(tmp_path: Path) -> NodeCache:
    return NodeCache(tmp_path / "disk", max_bytes=2**20)


def test_an_image_is_read_from_the_volume_once(volume: Path, cache: NodeCache) -> None:
    plain = everything(Shards(volume))
    assert everything(Shards(volume, cache)) == plain
    spoil(volume)
    assert everything(Shards(volume)) == bytes(len(plain)), "the volume has something else"
    assert everything(Shards(volume, cache)) == plain, "nothing was read from it"


def test_it_holds_what_was_read_and_no_more(volume: Path, cache: NodeCache) -> None:
    plain = everything(Shards(volume))
    first = Shards(volume, cache)
    for number in range(0, SAMPLES, 2):
        first.read(number)
    spoil(volume)
    again = Shards(volume, cache)
    for number in range(SAMPLES):
        kept = plain[number * IMAGE : (number + 1) * IMAGE]
        assert again.read(number)[0].numpy().tobytes() == (bytes(IMAGE) if number % 2 else kept)


def test_a_data_set_that_has_changed_is_read_anew(tmp_path: Path, volume: Path, cache: NodeCache) -> None:
    everything(Shards(volume, cache))
    shards(volume, seed=1)
    assert everything(Shards(volume, cache)) == everything(Shards(volume)) != everything(Shards(shards(tmp_path / "old")))


def test_what_does_not_fit_is_read_where_it_lies(volume: Path, tmp_path: Path) -> None:
    copy = 4 * IMAGE + 4
    small = NodeCache(tmp_path / "disk", max_bytes=5 * copy + 1)
    source = Shards(volume, small)
    assert everything(source) == everything(Shards(volume))
    assert sum(path.stat().st_size for path in small.folder.glob("*.images")) == 5 * copy
    before = sorted(small.folder.glob("*.images"))
    everything(source)
    assert sorted(small.folder.glob("*.images")) == before, "nothing pushes the others out"


def test_copies_that_nobody_reads_make_room_the_oldest_first(volume: Path, tmp_path: Path) -> None:
    copy = 4 * IMAGE + 4
    small = NodeCache(tmp_path / "disk", max_bytes=16 * copy)
    other = shards(tmp_path / "other", seed=2)
    held = Shards(other, small)
    for number in range(0, 40):
        held.read(number)
    (tmp_path / "disk" / "0.images").write_bytes(bytes(6 * copy))  # of a job that has ended
    os.utime(tmp_path / "disk" / "0.images", (1, 1))
    used = sorted(path.name for path in small.folder.glob("*.images") if path.name != "0.images")
    assert len(used) == 10
    everything(Shards(volume, small))
    there = {path.name for path in small.folder.glob("*.images")}
    assert "0.images" not in there
    assert set(used) <= there, "another data set of this job is not taken from under it"
    assert sum(path.stat().st_size for path in small.folder.glob("*.images")) == 16 * copy
    assert everything(held) == everything(Shards(other))


def test_a_full_disk_keeps_nothing_and_reads_on(volume: Path, cache: NodeCache, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    assert everything(Shards(volume, cache)) == everything(Shards(volume))


def _read_all(volume: Path, cache: NodeCache, start: int, results: "multiprocessing.SimpleQueue[bytes]") -> None:
    source = Shards(volume, cache)
    for number in range(start, start + SAMPLES):
        source.read(number % SAMPLES)
    results.put(everything(source))


def _die_in_the_middle(volume: Path, cache: NodeCache) -> None:
    write, written = os.pwrite, []

    def dying(*given: object) -> int:
        written.append(1)
        if len(written) == 12:
            os.kill(os.getpid(), signal.SIGKILL)
        return write(*given)  # type: ignore[arg-type]

    os.pwrite = dying
    everything(Shards(volume, cache))


def test_several_ranks_share_it(volume: Path, cache: NodeCache) -> None:
    fork = multiprocessing.get_context("fork")
    results = fork.SimpleQueue()
    ranks = [fork.Process(target=_read_all, args=(volume, cache, 16 * rank, results)) for rank in range(4)]
    for rank in ranks:
        rank.start()
    plain = everything(Shards(volume))
    assert [results.get() for _ in ranks] == [plain] * 4
    for rank in ranks:
        rank.join()
    assert len(list(cache.folder.glob("*.images"))) == 16


def test_a_rank_that_is_killed_leaves_nothing_wrong(volume: Path, cache: NodeCache) -> None:
    process = multiprocessing.get_context("fork").Process(target=_die_in_the_middle, args=(volume, cache))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert list(cache.folder.glob("*.images"))
    assert everything(Shards(volume, cache)) == everything(Shards(volume))


def test_a_loader_process_of_another_kind_gets_it_too(volume: Path, cache: NodeCache) -> None:
    sent = pickle.loads(pickle.dumps(Shards(volume, cache)))
    assert (sent.cache.folder, sent.cache.max_bytes) == (cache.folder, cache.max_bytes)
    everything(sent)
    spoil(volume)
    assert everything(Shards(volume, cache)) != bytes(SAMPLES * IMAGE)


def test_a_folder_without_shards_has_nothing_for_it(tmp_path: Path, volume: Path, cache: NodeCache) -> None:
    assert isinstance(open_source(volume, tmp_path, cache=cache), Shards)
    (tmp_path / "photos" / "class").mkdir(parents=True)
    with pytest.raises(DataError, match="photos holds none: make them with"):
        open_source(tmp_path / "photos", tmp_path, cache=cache)


@pytest.mark.parametrize(
    ("gib", "sentence"),
    [(0, "is 0 GiB; it must be more than 0"), (1e9, r"is 1e\+09 GiB, and .* has room for [0-9.]+: choose less")],
)
def test_a_size_that_cannot_be_is_refused(tmp_path: Path, gib: float, sentence: str) -> None:
    with pytest.raises(DataError, match=sentence):
        NodeCache.of(gib, tmp_path)
