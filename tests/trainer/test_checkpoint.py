"""Checkpoints that are whole or not there, whatever happened to the disk."""

import json
import resource
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from trainer.checkpoint import CheckpointError, CheckpointFolder, ForeignCheckpointError

IDENTITY = {"arch": "resnet18", "seed": 0}


def folder(output: Path, keep: int = 3, **identity: Any) -> CheckpointFolder:
    return CheckpointFolder(output, keep=keep, identity={**IDENTITY, **identity})


def state(value: float) -> dict[str, Any]:
    return {"network": {"weight": torch.full((1000,), value)}, "step": int(value)}


def files(output: Path) -> list[str]:
    return sorted(path.name for path in (output / "checkpoints").iterdir())


def save(output: Path, *steps: int, generation: int = 1) -> CheckpointFolder:
    place = folder(output)
    while place.claim_generation() < generation:
        pass
    for step in steps:
        place.save(state(step), generation=generation, step=step)
    return place


def found_step(place: CheckpointFolder) -> int | None:
    found = place.newest()
    return None if found is None else int(found.state()["step"])


def test_what_is_saved_is_found_on_the_cpu(tmp_path: Path) -> None:
    found = save(tmp_path, 10).newest()
    assert found is not None
    assert (found.manifest.step, found.manifest.generation) == (10, 1)
    weight = found.state()["network"]["weight"]
    assert torch.equal(weight, torch.full((1000,), 10.0))
    assert weight.device.type == "cpu"


def test_an_empty_folder_has_none(tmp_path: Path) -> None:
    place = folder(tmp_path)
    place.claim_generation()
    assert place.newest() is None


def test_newest_is_the_highest_generation_then_the_highest_step(tmp_path: Path) -> None:
    place = save(tmp_path, 5, 90)
    generation = place.claim_generation()
    place.save(state(40), generation=generation, step=40)
    assert found_step(place) == 40


def test_only_the_newest_are_kept(tmp_path: Path) -> None:
    save(tmp_path, 1, 2, 3, 4, 5)
    assert files(tmp_path) == [f"g00001-s0000000{step}-r0.{kind}" for step in (3, 4, 5) for kind in ("json", "pt")]


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


def other_version(path: Path) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), "schema": 99}))


def renamed(path: Path) -> None:
    """A copy under a higher step's name must not look newer."""
    for kind in (".json", ".pt"):
        path.with_suffix(kind).rename(path.with_name("g00009-s00000099-r0" + kind))


DAMAGE: list[tuple[str, str, Callable[[Path], None]]] = [
    ("torn-data", ".pt", cut),
    ("flipped-bit", ".pt", flip),
    ("empty-data", ".pt", empty),
    ("data-gone", ".pt", Path.unlink),
    ("torn-manifest", ".json", cut),
    ("empty-manifest", ".json", empty),
    ("manifest-is-a-list", ".json", no_manifest),
    ("manifest-of-another-version", ".json", other_version),
    ("renamed", ".json", renamed),
]


@pytest.mark.parametrize(("kind", "harm"), [(kind, harm) for _, kind, harm in DAMAGE], ids=[name for name, _, _ in DAMAGE])
def test_a_damaged_checkpoint_is_passed_over_with_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str, harm: Callable[[Path], None]
) -> None:
    place = save(tmp_path, 10, 20)
    harm(tmp_path / "checkpoints" / f"g00001-s00000020-r0{kind}")
    assert found_step(place) == 10
    assert "is damaged and passed over" in capsys.readouterr().err


def test_a_missing_manifest_means_there_is_no_checkpoint(tmp_path: Path) -> None:
    place = save(tmp_path, 10, 20)
    (tmp_path / "checkpoints/g00001-s00000020-r0.json").unlink()
    assert found_step(place) == 10
    place.claim_generation()
    assert files(tmp_path) == ["g00001-s00000010-r0.json", "g00001-s00000010-r0.pt"]


def test_what_a_killed_writer_left_is_ignored_and_cleared(tmp_path: Path) -> None:
    place = save(tmp_path, 10)
    (tmp_path / "checkpoints/.tmp-abc-g00001-s00000020-r0.pt").write_bytes(b"half")
    assert found_step(place) == 10
    place.claim_generation()
    assert files(tmp_path) == ["g00001-s00000010-r0.json", "g00001-s00000010-r0.pt"]


@pytest.mark.parametrize(
    ("identity", "words"),
    [
        pytest.param({"arch": "resnet50"}, "arch 'resnet18', now 'resnet50'", id="another-model"),
        pytest.param({"seed": 1}, "seed 0, now 1", id="another-order"),
    ],
)
def test_another_runs_checkpoint_is_refused(tmp_path: Path, identity: dict[str, Any], words: str) -> None:
    save(tmp_path, 10)
    with pytest.raises(ForeignCheckpointError, match=words):
        folder(tmp_path, **identity).newest()


def test_a_replaced_generation_cannot_commit(tmp_path: Path) -> None:
    place = save(tmp_path, 10)
    folder(tmp_path).claim_generation()
    with pytest.raises(CheckpointError, match="generation 1 was replaced"):
        place.save(state(20), generation=1, step=20)
    assert found_step(place) == 10
    assert files(tmp_path) == ["g00001-s00000010-r0.json", "g00001-s00000010-r0.pt"]


@contextmanager
def full_disk() -> Iterator[None]:
    """No file may grow past 2 kB: the kernel fails the write in the middle, as a full disk does. That goes for the test runner's
    own log too, so it is for one call only."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2048, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_costs_the_checkpoint_and_says_so(tmp_path: Path) -> None:
    place = save(tmp_path, 10)
    words = r"could not be written to .*checkpoints.*The older checkpoint stays"
    with full_disk(), pytest.raises(CheckpointError, match=words):
        place.save(state(20), generation=1, step=20)
    assert files(tmp_path) == ["g00001-s00000010-r0.json", "g00001-s00000010-r0.pt"]
    assert found_step(place) == 10


def test_two_never_claim_the_same_generation(tmp_path: Path) -> None:
    claims: list[int] = []
    threads = [threading.Thread(target=lambda: claims.append(folder(tmp_path).claim_generation())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(claims) == list(range(1, 9))
