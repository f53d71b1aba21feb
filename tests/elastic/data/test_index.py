"""The list of images: one file, read by mmap, whole or refused."""

import os
import pickle
from pathlib import Path

import pytest

from ebb.elastic.data.index import ImageIndex, Listed, write
from ebb.elastic.data.sealed import DamagedError, DataError

LISTING = [
    Listed("ant", [b"1.png", b"10.png", b"deep/2.png"], [("ant", 5), ("ant/deep", 6)]),
    Listed("bee", [], [("bee", 7)]),
    Listed("cat", [os.fsencode("köter.jpg"), b"\xff.gif", b"new\nline.png"], [("cat", None)]),
]
ROOT = Path("/data/train")


def made(path: Path, listing: list[Listed] = LISTING) -> ImageIndex:
    write(path, listing, root_mtime_ns=4, made_at=1.5)
    return ImageIndex.load(ROOT, path)


def test_numbers_paths_and_labels(tmp_path: Path) -> None:
    index = made(tmp_path / "index")
    assert [index[number] for number in range(len(index))] == [
        (ROOT / "ant/1.png", 0),
        (ROOT / "ant/10.png", 0),
        (ROOT / "ant/deep/2.png", 0),
        (ROOT / "cat/köter.jpg", 2),
        (ROOT / "cat" / os.fsdecode(b"\xff.gif"), 2),
        (ROOT / "cat/new\nline.png", 2),
    ]
    assert (index.classes, index.images_per_class, index.made_at) == (["ant", "bee", "cat"], [3, 0, 3], 1.5)
    assert index.folders == [("", 4), ("ant", 5), ("ant/deep", 6), ("bee", 7), ("cat", None)]
    assert index.listed(2, [("cat", None)]) == LISTING[2]


@pytest.mark.parametrize("number", [-1, 6])
def test_there_is_no_other_number(tmp_path: Path, number: int) -> None:
    with pytest.raises(IndexError, match=f"sample {number} of 6"):
        made(tmp_path / "index")[number]


def test_the_fingerprint_is_that_of_the_names_alone(tmp_path: Path) -> None:
    first = made(tmp_path / "a").fingerprint
    moved = [Listed(listed.name, listed.files, [(name, 99) for name, _ in listed.folders]) for listed in LISTING]
    assert made(tmp_path / "b", moved).fingerprint == first
    shifted = [Listed("ant", [b"1.png1", b"0.png", b"deep/2.png"], []), *LISTING[1:]]  # the same bytes, cut elsewhere
    assert made(tmp_path / "c", shifted).fingerprint != first
    assert made(tmp_path / "d", LISTING[:2]).fingerprint != first


def test_it_travels_to_processes_that_are_not_forked(tmp_path: Path) -> None:
    index = made(tmp_path / "index")
    again = pickle.loads(pickle.dumps(index))
    assert (again[3], again.fingerprint) == (index[3], index.fingerprint)


def test_every_cut_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "index"
    made(path)
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(DamagedError, match="is damaged"):
            ImageIndex.load(ROOT, path)


def test_a_change_of_the_description_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "index"
    made(path)
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b'"made_at":1.5', b'"made_at":1.6'))
    with pytest.raises(DamagedError, match="its description has changed"):
        ImageIndex.load(ROOT, path)


def test_nothing_is_no_list(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no image"):
        made(tmp_path / "index", LISTING[1:2])
