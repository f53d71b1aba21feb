"""Checkpoints that are whole or not there: what is found, what is kept, what is refused."""

import errno
from pathlib import Path
from typing import Any

import pytest
import torch

from ebb.elastic.checkpoint import FileFence, ForeignCheckpointError, NotWritten, Stale
from ebb.elastic.checkpoint.state import dump, load
from tests.elastic.checkpoint.disks import Client, Share
from tests.elastic.checkpoint.making import Clock, both, claimed, files, folder, found_step, full_disk, save, state

TWENTY = "g00001-s00000020-r0"


def test_what_is_saved_is_found_on_the_cpu(tmp_path: Path) -> None:
    found = save(tmp_path, 10).newest()
    assert found is not None
    assert (found.manifest.step, found.manifest.generation) == (10, 1)
    weight = load(found.content)["state_dict"]["module.weight"]
    assert torch.equal(weight, torch.full((1000,), 10.0))
    assert weight.device.type == "cpu"


def test_an_empty_folder_has_none(tmp_path: Path) -> None:
    place, _ = claimed(tmp_path)
    assert place.newest() is None


def test_newest_is_the_highest_generation_then_the_highest_step(tmp_path: Path) -> None:
    save(tmp_path, 5, 90)
    assert found_step(save(tmp_path, 40, 41)) == 41


def test_numbers_that_outgrow_their_digits_keep_their_order(tmp_path: Path) -> None:
    place = folder(tmp_path, keep=9)
    place.disk.make_folder(place.place)
    for generation, step in ((99_999, 5), (100_000, 4), (100_000, 100_000_000), (100_000, 99_999_999)):
        place.save(dump(state(step)), FileFence(tmp_path, generation), step=step)
    assert found_step(place) == 100_000_000


def test_of_several_survivors_the_lowest_rank_counts_and_the_named_one_before_it(tmp_path: Path) -> None:
    place, fence = claimed(tmp_path)
    for writer in (2, 0, 1):
        place.save(dump(state(7)), fence, step=7, writer=writer)
    found, named = place.newest(), place.newest("g00001-s00000007-r2")
    assert found is not None
    assert named is not None
    assert (found.manifest.writer, named.manifest.writer) == (0, 2)


def test_only_the_newest_are_kept(tmp_path: Path) -> None:
    save(tmp_path, 1, 2, 3, 4, 5)
    assert files(tmp_path) == both(*(f"g00001-s0000000{step}-r0" for step in (3, 4, 5)))


@pytest.mark.parametrize(
    ("scores", "kept"),
    [
        pytest.param([70.0, 60.0, 50.0, 40.0], [1, 3, 4], id="an-old-one-is-the-best"),
        pytest.param([10.0, 60.0, 50.0, 40.0], [2, 3, 4], id="and-is-dropped-for-a-better-one"),
        pytest.param([70.0, 70.0, None, None], [2, 3, 4], id="of-equals-the-newer"),
        pytest.param([float("nan"), 60.0, None, None], [2, 3, 4], id="no-number-is-no-score"),
        pytest.param([None, None, None, None], [3, 4], id="never-validated"),
    ],
)
def test_the_best_is_kept_besides_the_newest(tmp_path: Path, scores: list[float | None], kept: list[int]) -> None:
    place, fence = claimed(tmp_path, keep=2)
    for step, score in enumerate(scores, 1):
        place.save(dump(state(step)), fence, step=step, score=score, metrics={"top1": 1.0})
    assert files(tmp_path) == both(*(f"g00001-s0000000{step}-r0" for step in kept))


def test_a_score_can_be_added_to_a_committed_checkpoint(tmp_path: Path) -> None:
    place, fence = claimed(tmp_path, keep=1)
    place.judge(place.save(dump(state(1)), fence, step=1), {"top1": 71.0}, 71.0)
    place.save(dump(state(2)), fence, step=2, score=12.0)
    assert files(tmp_path) == both("g00001-s00000001-r0", "g00001-s00000002-r0")
    assert found_step(place) == 2


def test_a_missing_manifest_means_there_is_no_checkpoint(tmp_path: Path) -> None:
    place = save(tmp_path, 10, 20)
    (tmp_path / f"checkpoints/{TWENTY}.json").unlink()
    assert found_step(place) == 10
    save(tmp_path, 11)
    assert files(tmp_path) == both("g00001-s00000010-r0", "g00002-s00000011-r0")


@pytest.mark.parametrize(("named", "step"), [(None, 10), (TWENTY, 20)], ids=["not-committed", "named-by-etcd"])
def test_a_candidate_counts_only_when_the_fence_names_it(tmp_path: Path, named: str | None, step: int) -> None:
    place = save(tmp_path, 10)
    place.write(dump(state(20)), generation=1, step=20)
    assert found_step(place, named) == step
    assert (TWENTY + ".json" in files(tmp_path)) == (named is not None)


def test_a_name_that_leads_nowhere_costs_a_wait_and_the_older_one_is_taken(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save(tmp_path, 10)
    clock = Clock()
    assert found_step(folder(tmp_path, clock=clock), "g00001-s00000099-r0") == 10
    assert clock.now == 15.0
    assert "known as the newest, but it is not in" in capsys.readouterr().err


def test_what_a_killed_writer_left_is_ignored_and_cleared(tmp_path: Path) -> None:
    place = save(tmp_path, 10)
    for name in (f".tmp-abc-{TWENTY}.pt", f".tmp-abc-{TWENTY}.candidate", ".look-abc"):
        (tmp_path / "checkpoints" / name).write_bytes(b"half")
    (tmp_path / "checkpoints/notes.txt").write_text("a person's own")
    assert found_step(place) == 10
    claimed(tmp_path)
    assert files(tmp_path) == [*both("g00001-s00000010-r0"), "notes.txt"]


@pytest.mark.parametrize(
    ("identity", "words"),
    [
        pytest.param(
            {"arch": "resnet50"}, "arch is 'resnet50' here and must be 'resnet18' as in the checkpoint", id="another-model"
        ),
        pytest.param({"seed": 1}, "seed is 1 here and must be 0", id="another-order"),
        pytest.param({"shape": (1, 2)}, r"shape is \[1, 2\] here and must be None", id="a-new-setting"),
    ],
)
def test_another_runs_checkpoint_is_refused(tmp_path: Path, identity: dict[str, Any], words: str) -> None:
    save(tmp_path, 10)
    with pytest.raises(ForeignCheckpointError, match=words + r".*Give this job its own --output folder"):
        folder(tmp_path, **identity).newest()


@pytest.mark.parametrize("settings", [{"arch": "resnet50"}, {"owner": "other"}], ids=["another-model", "another-folder"])
def test_a_foreign_checkpoint_is_passed_over_for_an_older_one_of_ours(
    tmp_path: Path, settings: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    save(tmp_path, 10)
    save(tmp_path, 99, **settings)
    assert found_step(folder(tmp_path)) == 10
    assert "checkpoint of another run (g00002-s00000099-r0)" in capsys.readouterr().err


def test_a_replaced_generation_cannot_commit(tmp_path: Path) -> None:
    place, fence = claimed(tmp_path)
    place.save(dump(state(10)), fence, step=10)
    FileFence.claim(tmp_path)
    with pytest.raises(Stale, match="generation 1 was replaced"):
        place.save(dump(state(20)), fence, step=20)
    assert found_step(place) == 10
    assert files(tmp_path) == both("g00001-s00000010-r0")


def test_a_stale_writer_that_slips_through_is_still_older(tmp_path: Path) -> None:
    """Its look at the claims was just before the new generation's claim."""
    old, old_fence = claimed(tmp_path)
    candidate = old.write(dump(state(900)), generation=1, step=900)
    old_fence.commit(candidate)
    save(tmp_path, 40)
    with pytest.raises(Stale, match="a newer generation has removed it"):
        old._promote(candidate.name)
    assert found_step(folder(tmp_path)) == 40


@pytest.mark.parametrize("size", [0, 1, 100, 2048], ids=str)
def test_a_full_disk_costs_the_checkpoint_and_says_so(tmp_path: Path, size: int) -> None:
    place, fence = claimed(tmp_path)
    place.save(dump(state(10)), fence, step=10)
    words = r"could not be written to .*checkpoints: File too large\. The older checkpoint stays"
    with full_disk(size), pytest.raises(NotWritten, match=words):
        place.save(dump(state(20)), fence, step=20)
    assert files(tmp_path) == both("g00001-s00000010-r0")
    assert found_step(place) == 10
    place.save(dump(state(30)), fence, step=30)
    assert found_step(place) == 30


def test_a_disk_that_fills_at_any_operation_loses_only_the_new_checkpoint() -> None:
    output = Path("/output")
    for fail_at in range(200):
        disk = FillingDisk(Share(), fail_at)
        place, fence = claimed(output, disk=disk)
        place.save(dump(state(10)), fence, step=10)
        disk.counting = True
        try:
            place.save(dump(state(20)), fence, step=20)
            expected = 20  # what fails after the commit is tidying
        except NotWritten:
            expected = 10
        disk.counting = False
        assert found_step(place) == expected, fail_at
        if disk.writes <= fail_at:
            break
    assert expected == 20
    assert fail_at > 10


class FillingDisk(Client):
    """From the n-th write on there is no space; removing works, as on a real one."""

    def __init__(self, share: Share, fail_at: int) -> None:
        super().__init__(share)
        self._full_at = fail_at
        self.counting = False
        self.writes = 0

    def _step(self, *, writes: bool = False) -> None:
        super()._step()
        if writes and self.counting:
            self.writes += 1
            if self.writes > self._full_at:
                raise OSError(errno.ENOSPC, "No space left on device")

    def remove(self, path: Path) -> None:
        counting, self.counting = self.counting, False
        super().remove(path)
        self.counting = counting


def test_a_read_only_disk_is_read_from_and_costs_only_the_new_checkpoints(capsys: pytest.CaptureFixture[str]) -> None:
    output, share = Path("/output"), Share()
    save(output, 10, disk=Client(share))
    disk = Client(share)
    disk.error = errno.EROFS
    place, fence = folder(output, disk=disk), FileFence.claim(output, disk=disk)
    assert fence.generation == 2
    assert found_step(place) == 10
    with pytest.raises(NotWritten, match="Read-only file system"):
        place.save(dump(state(20)), fence, step=20)
    assert found_step(place) == 10
    assert "/output cannot be written (Read-only file system)" in capsys.readouterr().err
    disk.error = None  # mounted for writing again
    place.save(dump(state(30)), fence, step=30)
    assert found_step(place) == 30


def test_a_folder_that_cannot_be_listed_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    output, disk = Path("/output"), Client(Share())
    place, fence = claimed(output, disk=disk)
    place.save(dump(state(10)), fence, step=10)
    with monkeypatch.context() as patch:
        patch.setattr(disk, "names", fails)
        with pytest.raises(NotWritten, match="cannot be listed: Input/output error"):
            place.save(dump(state(10)), fence, step=10)
    assert found_step(place) == 10


def fails(*_: object) -> None:
    raise OSError(errno.EIO, "Input/output error")


def test_a_candidate_on_a_disk_that_became_read_only_is_resumed_from() -> None:
    output, share = Path("/output"), Share()
    save(output, 10, disk=Client(share))
    folder(output, disk=Client(share)).write(dump(state(20)), generation=1, step=20)
    disk = Client(share)
    disk.error = errno.EROFS
    assert found_step(folder(output, disk=disk), TWENTY) == 20
