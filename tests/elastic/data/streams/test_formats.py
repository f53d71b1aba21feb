"""The formats as their own libraries write and read them; what is wrong with a shard is said before training on it."""

import gzip
import json
import pickle
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import datasets
import fsspec
import numpy
import pytest
import torch
import webdataset as library
from torch.utils.data import DataLoader, IterableDataset

from ebb.elastic.data import DataError
from ebb.elastic.data.order import Stream
from ebb.elastic.data.streams.mds import mds
from ebb.elastic.data.streams.parquet import parquet
from ebb.elastic.data.streams.remote import expand
from ebb.elastic.data.streams.webdataset import webdataset
from ebb.elastic.runtime.loading import Loader
from tests.elastic.data.streams import written

COUNT = sum(written.SIZES)


def read_by_webdataset(paths: list[str]) -> list[dict[str, Any]]:
    """By its iterators, which leave their files open if nobody closes them."""
    found = []
    for path in paths:
        with (gzip.open if path.endswith(".gz") else open)(path, "rb") as stream:
            expanded = library.tariterators.tar_file_expander([{"url": path, "stream": stream}])
            found += list(library.tariterators.group_by_keys(expanded))
    return found


def test_tars_hold_what_webdataset_reads_from_them(tmp_path: Path) -> None:
    pattern = written.tars(tmp_path)
    ours = webdataset(pattern, decode="rgb8", cache=tmp_path / "cache")
    decode = library.autodecode.Decoder([library.autodecode.ImageHandler("rgb8")])
    theirs = [decode(sample) for sample in read_by_webdataset(expand(pattern))]
    assert [ours[number] for number in range(len(ours))] == theirs
    assert ours.shard_sizes == list(written.SIZES)
    raw = webdataset(pattern, cache=tmp_path / "cache")
    assert raw[8]["txt"] == b"text 8"


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_names_are_grouped_as_webdataset_does(tmp_path: Path, suffix: str) -> None:
    """Long names, folders, fields with points, files without a field and about the tar, and one sample in two places."""
    path = str(tmp_path / f"odd.tar{suffix}")
    with library.TarWriter(path) as writer:
        for key in ("plain", "folder/" + "x" * 150, "a/b/c", "plain"):
            writer.write({"__key__": key, "json": {"key": key}, "seg.png": b"png", "TXT": "text"})
        writer.write({"__key__": "__meta__/info", "txt": "left out"})
    theirs = read_by_webdataset([path])
    ours = webdataset(path, cache=tmp_path / "cache")
    names = ("__key__", "json", "seg.png", "txt")
    assert [[ours[number][name] for name in names] for number in range(len(ours))] == [
        [each[name] for name in names] for each in theirs
    ]
    assert len(ours) == 4


@pytest.mark.parametrize("compression", [None, "zstd", "gz", "br", "snappy", "bz2"])
def test_mds_shards_hold_what_was_written(tmp_path: Path, compression: str | None) -> None:
    folder = written.mds(tmp_path / "mds", 20, compression, tokens="ndarray:uint16")
    ours = mds(folder, cache=tmp_path / "cache")
    assert len(ours) == 20
    assert len(ours.shard_sizes) > 2
    for number in range(20):
        sample = ours[number]
        assert (sample["id"], sample["text"]) == (number, f"text {number}")
        assert sample["tokens"].tolist() == list(range(number % 3 + 1))
        assert sample["tokens"].dtype == numpy.uint16


def test_every_encoding_that_is_allowed_is_read(tmp_path: Path) -> None:
    from PIL import Image

    image = Image.new("RGB", (3, 2), (9, 8, 7))
    values: dict[str, tuple[str, Any]] = {
        **{kind: (kind, getattr(numpy, kind)(7)) for kind in ("uint8", "int16", "uint32", "int64", "float16", "float64")},
        "array": ("ndarray", numpy.arange(6.0).reshape(2, 3)),
        "typed": ("ndarray:int32", numpy.arange(6, dtype="int32").reshape(3, 2)),
        "shaped": ("ndarray:float32:2,2", numpy.ones((2, 2), "float32")),
        **{"int": ("int", -5), "str": ("str", "ö"), "bytes": ("bytes", b"\0x"), "json": ("json", {"a": [1]})},
        **{"str_int": ("str_int", 12345678901234567890123), "str_float": ("str_float", 0.5), "pkl": ("pkl", {1, 2})},
        **{"png": ("png", image), "pil": ("pil", image)},
    }
    with written._mds_writer()(out=str(tmp_path / "mds"), columns={name: kind for name, (kind, _) in values.items()}) as out:
        out.write({name: value for name, (_, value) in values.items()})
    with pytest.raises(DataError, match=r"the column pkl of .* holds pickles, .* say allow_pickle=True"):
        mds(tmp_path / "mds")
    found = mds(tmp_path / "mds", allow_pickle=True)[0]
    for name, (_, value) in values.items():
        if isinstance(value, numpy.ndarray):
            assert found[name].dtype == value.dtype
            assert numpy.array_equal(found[name], value)
        elif isinstance(value, Image.Image):
            assert numpy.array_equal(numpy.asarray(found[name]), numpy.asarray(value))
        else:
            assert found[name] == value


def test_parquet_rows_are_those_that_datasets_reads(tmp_path: Path) -> None:
    pattern = written.parquet(tmp_path)
    ours = parquet(pattern, cache=tmp_path / "cache")
    theirs = datasets.Dataset.from_parquet(sorted(map(str, tmp_path.glob("*.parquet"))), cache_dir=str(tmp_path / "theirs"))
    assert [{**ours[number], "tokens": ours[number]["tokens"].tolist()} for number in range(COUNT)] == list(theirs)
    assert ours.shard_sizes == [6] * 8
    assert parquet(pattern, columns=["text"], cache=tmp_path / "cache")[47] == {"text": "text 47"}
    with pytest.raises(DataError, match="has no column 'words'; allowed: id, text, tokens"):
        parquet(pattern, columns=["words"], cache=tmp_path / "cache")[0]


def test_a_map_style_dataset_of_hugging_face_is_read_as_it_is() -> None:
    data = datasets.Dataset.from_dict({"id": list(range(20))}).with_format("torch")
    stream = Stream(dataset_size=20, epochs=1, global_batch=6, seed=0)
    plan = [stream.samples(stream.step(step)) for step in range(stream.total_steps)]
    read = [batch["id"] for _, batch in Loader(data, seed=0, workers=0).start(plan, torch.device("cpu"), say=print)]
    assert [each.tolist() for each in read] == [list(map(int, samples)) for samples in plan]


class Endless(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        yield from range(3)


@pytest.mark.parametrize("kind", ["torch", "datasets", "webdataset"])
def test_what_can_only_be_iterated_is_refused(kind: str) -> None:
    made: dict[str, Callable[[], Any]] = {
        "torch": Endless,
        "datasets": lambda: datasets.Dataset.from_dict({"a": [1]}).to_iterable_dataset(),
        "webdataset": lambda: library.WebDataset("x.tar", shardshuffle=False),
    }
    with pytest.raises(TypeError, match=r"which can only be iterated.*elastic\.webdataset.*elastic\.mds.*elastic\.parquet"):
        Loader(made[kind](), seed=0, workers=0)


@pytest.mark.parametrize("format", written.FORMATS)
def test_loader_processes_read_the_same(format: str, tmp_path: Path) -> None:
    open_: dict[str, Callable[[], Any]] = {
        "webdataset": lambda: webdataset(written.tars(tmp_path), transform=_number, cache=tmp_path / "c"),
        "mds": lambda: mds(written.mds(tmp_path / "mds"), transform=_number, cache=tmp_path / "c"),
        "parquet": lambda: parquet(written.parquet(tmp_path), transform=_number, cache=tmp_path / "c"),
    }
    data = open_[format]()
    assert data[3] == 3  # a file is open when the processes start
    found = [number for batch in DataLoader(data, batch_size=5, num_workers=2) for number in batch.tolist()]
    assert found == list(range(COUNT))
    again = pickle.loads(pickle.dumps(data.__getstate__()["_first"]))
    assert again[-1] == COUNT


def _number(sample: dict[str, Any]) -> int:
    return int(sample["id"] if "id" in sample else sample["cls"])


def test_what_is_the_same_has_the_same_fingerprint_wherever_it_lies(tmp_path: Path) -> None:
    prints = []
    for place in ("here", "there/deeper"):
        (tmp_path / place).mkdir(parents=True)
        prints.append(webdataset(written.tars(tmp_path / place), cache=tmp_path / "c").fingerprint)
    (tmp_path / "other").mkdir()
    prints.append(webdataset(written.tars(tmp_path / "other", (7, 12, 3)), cache=tmp_path / "c").fingerprint)
    assert prints[0] == prints[1] != prints[2]


def test_tars_that_changed_since_they_were_counted_are_counted_again(tmp_path: Path) -> None:
    pattern = written.tars(tmp_path, (3, 4))
    data = webdataset(pattern, cache=tmp_path / "c")
    assert len(data) == 7
    written.tars(tmp_path, (5, 4))
    with pytest.raises(DataError, match="holds 5 samples, and 3 were counted: it has changed"):
        data[0]
    assert len(webdataset(pattern, cache=tmp_path / "c")) == 9


def cut_to(path: Path, length: int) -> None:
    path.write_bytes(path.read_bytes()[:length])


DAMAGE: list[tuple[str, Callable[[Path], Any], str]] = [
    ("001.tar", lambda path: path.unlink(), "cannot read the shard .*001.tar: No such file"),
    ("001.tar", lambda path: path.write_bytes(b"x" * 5000), "001.tar is damaged, or no tar"),
    ("001.tar", lambda path: cut_to(path, 1800), "001.tar is damaged"),
    ("1.parquet", lambda path: path.write_bytes(b"PAR1"), "1.parquet is damaged, or not parquet"),
    ("mds/index.json", lambda path: path.unlink(), "cannot read .*index.json: No such file"),
    ("mds/index.json", lambda path: path.write_text("{"), "index.json is damaged"),
    ("mds/index.json", lambda path: path.write_text('{"version": 3, "shards": []}'), "is of version 3; allowed: 2"),
    ("mds/shard.00000.mds", lambda path: cut_to(path, -7), "shard.00000.mds has .* bytes, and the index says"),
]


@pytest.mark.parametrize(("name", "spoil", "message"), DAMAGE)
def test_damage_is_said(name: str, spoil: Callable[[Path], Any], message: str, tmp_path: Path) -> None:
    tars = written.tars(tmp_path) if name.endswith(".tar") else None
    rows = written.parquet(tmp_path) if name.endswith(".parquet") else None
    folder = written.mds(tmp_path / "mds") if name.startswith("mds") else None
    spoil(tmp_path / name)
    with pytest.raises(DataError, match=message):  # noqa: PT012  # some see it when they open, some when they read
        cache = tmp_path / "c"
        data = webdataset(tars, cache=cache) if tars else parquet(rows, cache=cache) if rows else mds(folder or "")
        for number in range(COUNT):
            data[number]


@pytest.mark.parametrize(("package", "act"), [
    ("pyarrow", lambda root: parquet(root / "x.parquet")),
    ("webdataset", lambda root: webdataset(written.tars(root), decode="pil", cache=root / "c")),
])  # fmt: skip
def test_a_package_that_is_missing_is_named(
    package: str, act: Callable[[Path], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written.tars(tmp_path)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(DataError, match=f"the package {package}: pip install {package}"):
        act(tmp_path)


def test_a_wrong_decoder_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="decode is 'jpeg'; allowed: a function of the sample, or l, l8, "):
        webdataset(written.tars(tmp_path), decode="jpeg", cache=tmp_path / "c")


def test_counts_are_kept_beside_the_data_and_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pattern = written.tars(tmp_path)
    webdataset(pattern, cache=tmp_path / "c")
    kept = list((tmp_path / ".ebb-index").glob("[!.]*.json"))
    assert len(kept) == 1
    assert sum(sum(counts) for _, counts in json.loads(kept[0].read_text())["shards"].values()) == COUNT
    monkeypatch.setattr("ebb.elastic.data.streams.webdataset.starts_of", lambda *_: pytest.fail("counted again"))
    assert len(webdataset(pattern, cache=tmp_path / "c")) == COUNT


def test_a_store_is_read_through_the_cache(tmp_path: Path) -> None:
    store = fsspec.filesystem("memory")
    written.tars(tmp_path)
    for path in tmp_path.glob("*.tar"):
        store.pipe_file(f"bucket/{path.name}", path.read_bytes())
    assert len(webdataset("memory://bucket/*.tar", cache=tmp_path / "cache")) == COUNT
    data = webdataset("memory://bucket/{000..006}.tar", cache=tmp_path / "cache", index=tmp_path / "index.json")
    store.rm("bucket", recursive=True)
    assert [int(data[number]["cls"]) for number in range(COUNT)] == list(range(COUNT))
    fresh = webdataset("memory://bucket/{000..006}.tar", cache=tmp_path / "fresh", index=tmp_path / "index.json")
    with pytest.raises(DataError, match=r"cannot read memory://bucket/000.tar: FileNotFoundError"):
        fresh[0]
