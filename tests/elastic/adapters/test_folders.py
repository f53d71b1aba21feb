"""Checkpoint folders of a library: whole, once, and the newest one found."""

from pathlib import Path

import pytest

from ebb.elastic.adapters.folders import MANIFEST, CheckpointFolders
from ebb.elastic.checkpoint.errors import DamagedCheckpointsError, ForeignCheckpointError, NotWritten, Stale
from ebb.elastic.checkpoint.fence import FileFence
from ebb.elastic.checkpoint.manifest import Manifest

IDENTITY = {"global_batch": 64}


def folders(place: Path, **changed: object) -> CheckpointFolders:
    return CheckpointFolders(place, owner="a1", **{"identity": IDENTITY, **changed})  # type: ignore[arg-type]


def written(found: CheckpointFolders, generation: int, step: int) -> Path:
    working = found.working(generation, step)
    (working / "global_step").mkdir(parents=True)
    (working / "model.safetensors").write_bytes(b"weights" * step)
    (working / "global_step" / "optimizer.pt").write_bytes(b"moments")
    return working


def saved(found: CheckpointFolders, fence: FileFence, step: int, *, asked: bool = False, most_asked: int | None = None) -> Path:
    working = written(found, fence.generation, step)
    return found.commit(working, fence, step=step, asked=asked, most_asked=most_asked)


@pytest.fixture
def fence(tmp_path: Path) -> FileFence:
    return FileFence.claim(tmp_path)


def test_the_newest_is_found_with_all_its_files(tmp_path: Path, fence: FileFence) -> None:
    found = folders(tmp_path)
    saved(found, fence, 10)
    path = saved(found, fence, 20)
    newest = found.newest()
    assert newest is not None
    assert (newest.path, newest.manifest.step) == (path, 20)
    assert sorted(each["name"] for each in newest.manifest.parts) == ["global_step/optimizer.pt", "model.safetensors"]
    assert not list(tmp_path.glob(".tmp-*"))


def test_a_newer_generation_counts_more_than_a_later_step(tmp_path: Path, fence: FileFence) -> None:
    found = folders(tmp_path)
    saved(found, fence, 30)
    saved(found, FileFence.claim(tmp_path), 20)
    newest = found.newest()
    assert newest is not None
    assert newest.manifest.step == 20


@pytest.mark.parametrize("damage", ["cut", "flip", "gone"])
def test_a_damaged_one_is_passed_over(tmp_path: Path, fence: FileFence, damage: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = folders(tmp_path)
    saved(found, fence, 10)
    weights = saved(found, fence, 20) / "model.safetensors"
    if damage == "gone":
        weights.unlink()
    else:
        content = weights.read_bytes()
        weights.write_bytes(content[:-1] if damage == "cut" else b"W" + content[1:])
    newest = found.newest()
    assert newest is not None
    assert newest.manifest.step == 10
    assert "is damaged and passed over: model.safetensors" in capsys.readouterr().err


def test_when_all_are_damaged_nothing_begins_anew(tmp_path: Path, fence: FileFence) -> None:
    found = folders(tmp_path)
    (saved(found, fence, 10) / "model.safetensors").unlink()
    with pytest.raises(DamagedCheckpointsError, match="every checkpoint"):
        found.newest()


def test_another_runs_are_refused_with_what_differs(tmp_path: Path, fence: FileFence) -> None:
    saved(folders(tmp_path), fence, 10)
    with pytest.raises(ForeignCheckpointError, match="global_batch is 32 here and must be 64 as in the checkpoint"):
        folders(tmp_path, identity={"global_batch": 32}).newest()


def test_what_a_library_wrote_without_us_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "checkpoint-500").mkdir()
    assert folders(tmp_path).newest() is None
    assert (tmp_path / "checkpoint-500").exists()


class KilledAfterCommit(FileFence):
    """The writer ends when the fence has decided, before the rename."""

    def commit(self, manifest: Manifest) -> None:
        super().commit(manifest)
        raise KeyboardInterrupt


def test_a_writer_killed_after_the_commit_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found, fence = folders(tmp_path), KilledAfterCommit.claim(tmp_path)
    working = written(found, fence.generation, 10)
    monkeypatch.setattr("shutil.rmtree", lambda *_, **__: None)  # a killed process clears nothing
    with pytest.raises(KeyboardInterrupt):
        found.commit(working, fence, step=10)
    monkeypatch.undo()
    assert found.newest() is None
    found.prepare(fence.generation + 1, named=working.parent.name.removeprefix(".tmp-"))
    newest = found.newest()
    assert newest is not None
    assert newest.manifest.step == 10


def test_one_that_was_never_committed_is_cleared(tmp_path: Path, fence: FileFence) -> None:
    found = folders(tmp_path)
    written(found, fence.generation, 10)
    assert found.claim(fence.generation, 10)
    assert not found.claim(fence.generation, 10)
    found.prepare(fence.generation + 1)
    assert found.newest() is None
    assert not list(tmp_path.glob(".tmp-*"))


def test_an_older_generation_changes_nothing(tmp_path: Path, fence: FileFence) -> None:
    found = folders(tmp_path)
    path = saved(found, FileFence.claim(tmp_path), 10)
    before = (path / MANIFEST).read_bytes()
    with pytest.raises(Stale):
        saved(found, fence, 10)
    assert (path / MANIFEST).read_bytes() == before
    assert not found.working(fence.generation, 10).exists()


def test_only_those_that_nobody_asked_for_are_removed(tmp_path: Path, fence: FileFence) -> None:
    found = folders(tmp_path, keep=1)
    for step in (10, 20, 30, 40):
        saved(found, fence, step, asked=step == 10)
    assert sorted(path.name for path in tmp_path.glob("checkpoint-*")) == ["checkpoint-10", "checkpoint-40"]


def test_of_those_that_were_asked_for_as_many_stay_as_the_program_says(tmp_path: Path, fence: FileFence) -> None:
    found = folders(tmp_path)
    for step in (10, 20, 30):
        saved(found, fence, step, asked=True, most_asked=2)
    saved(found, fence, 40, most_asked=2)
    assert sorted(path.name for path in tmp_path.glob("checkpoint-*")) == ["checkpoint-20", "checkpoint-30", "checkpoint-40"]


def test_a_folder_without_files_is_no_checkpoint(tmp_path: Path, fence: FileFence) -> None:
    found = folders(tmp_path)
    working = found.working(fence.generation, 10)
    working.mkdir(parents=True)
    with pytest.raises(NotWritten):
        found.commit(working, fence, step=10)
    assert found.newest() is None
