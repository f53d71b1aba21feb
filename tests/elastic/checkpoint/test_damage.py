"""Torn, truncated, flipped, emptied, renamed: passed over as long as there is an older one, and never resumed from."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from ebb.elastic.checkpoint import DamagedCheckpointsError
from ebb.elastic.checkpoint.manifest import read
from ebb.elastic.checkpoint.state import dump
from tests.elastic.checkpoint.making import both, claimed, files, found_step, save, state

TWENTY = "g00001-s00000020-r0"


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def no_manifest(path: Path) -> None:
    path.write_text("[]")


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def longer(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\0" * 100)


def zeros(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def other_version(path: Path) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), "schema": 99}))


def other_model(path: Path) -> None:
    """One letter of the identity: damage, not another model."""
    path.write_bytes(path.read_bytes().replace(b"resnet18", b"resnet58"))


def renamed(path: Path) -> None:
    """A copy under a higher step's name must not look newer."""
    for kind in (".json", ".pt"):
        path.with_suffix(kind).rename(path.with_name("g00009-s00000099-r0" + kind))


def a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


DAMAGE: list[tuple[str, str, Callable[[Path], None]]] = [
    ("torn-data", ".pt", cut),
    ("flipped-bit", ".pt", flip),
    ("empty-data", ".pt", empty),
    ("longer-data", ".pt", longer),
    ("zeros", ".pt", zeros),
    ("data-gone", ".pt", Path.unlink),
    ("data-is-a-folder", ".pt", a_folder),
    ("torn-manifest", ".json", cut),
    ("empty-manifest", ".json", empty),
    ("manifest-is-a-list", ".json", no_manifest),
    ("manifest-of-another-version", ".json", other_version),
    ("flipped-manifest", ".json", flip),
    ("identity-flipped", ".json", other_model),
    ("renamed", ".json", renamed),
]
DAMAGED = pytest.mark.parametrize(
    ("kind", "harm"), [(kind, harm) for _, kind, harm in DAMAGE], ids=[name for name, _, _ in DAMAGE]
)


@DAMAGED
@pytest.mark.parametrize("named", [None, TWENTY], ids=["listed", "named-by-etcd"])
def test_a_damaged_checkpoint_is_passed_over_with_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str, harm: Callable[[Path], None], named: str | None
) -> None:
    place = save(tmp_path, 10, 20)
    harm(tmp_path / "checkpoints" / f"{TWENTY}{kind}")
    assert found_step(place, named) == 10
    assert "is damaged and passed over" in capsys.readouterr().err


@DAMAGED
def test_when_all_are_damaged_nobody_starts_from_the_beginning_unasked(
    tmp_path: Path, kind: str, harm: Callable[[Path], None]
) -> None:
    place = save(tmp_path, 20)
    harm(tmp_path / "checkpoints" / f"{TWENTY}{kind}")
    with pytest.raises(DamagedCheckpointsError, match=r"1 checkpoints and every one is damaged.*to start from the beginning"):
        place.newest()


def test_every_flipped_bit_of_a_manifest_is_seen(tmp_path: Path) -> None:
    save(tmp_path, 20)
    text = (tmp_path / f"checkpoints/{TWENTY}.json").read_bytes()
    whole = read(text)
    for place in range(len(text) * 8):
        damaged = bytearray(text)
        damaged[place // 8] ^= 1 << place % 8
        try:
            assert read(bytes(damaged)) == whole, place  # spaces between the fields mean nothing
        except ValueError:
            continue


def test_a_damaged_one_does_not_count_among_those_that_are_kept(tmp_path: Path) -> None:
    save(tmp_path, 10, 20, 30, keep=9)
    cut(tmp_path / "checkpoints/g00001-s00000030-r0.pt")
    place, fence = claimed(tmp_path, keep=2)
    assert found_step(place) == 20
    place.save(dump(state(21)), fence, step=21)
    assert set(both("g00002-s00000021-r0", TWENTY)) <= set(files(tmp_path))
