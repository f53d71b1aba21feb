"""From what a job starts: its own folder, another's when told so, one file; never what is not its own."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from ebb.elastic.checkpoint import ForeignCheckpointError, OwnedFolderError, RefusedError
from ebb.elastic.contract import EXIT_FINISHED, EXIT_PROGRAM_FAILED, EXIT_RECLAIMED
from ebb.elastic.notices.notice import Notice
from tests.elastic import images
from trainer.images.config import parse
from trainer.images.train import main, train


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """27 images, 9 a step: 3 steps an epoch."""
    return images.make(tmp_path_factory.mktemp("images"))


def arguments(data: Path, output: Path, *more: str) -> list[str]:
    base = ["--data", str(data), "--output", str(output), "--arch", "resnet18", "--image-size", "32", "--epochs", "2"]
    return [*base, "--global-batch", "9", "--threads", "1", "--workers", "0", "--log-every", "1", *more]


def run(data: Path, output: Path, *more: str, steps: int = 0, uid: str = "") -> int:
    """To the end, or a few steps, each with a checkpoint and a start of its own."""
    for _ in range(steps):
        notice = Notice()
        notice.give()
        assert train(parse(arguments(data, output, *more), {"EBB_JOB_UID": uid, "EBB_JOB": "j"}), notice) == EXIT_RECLAIMED
    return EXIT_FINISHED if steps else train(parse(arguments(data, output, *more), {"EBB_JOB_UID": uid}), Notice())


def lines(output: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def undisturbed(data: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    output = tmp_path_factory.mktemp("calm")
    run(data, output)
    return result(output)


def result(output: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((output / "result.json").read_text())
    return found


def test_another_jobs_folder_is_gone_on_from_when_told_so_and_left_as_it_is(
    data: Path, tmp_path: Path, undisturbed: dict[str, Any]
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    run(data, first, steps=2, uid="aaaa")
    before = sorted(path.name for path in (first / "checkpoints").iterdir())
    run(data, second, "--resume-from", str(first), uid="bbbb")
    assert [line["step"] for line in lines(second)] == [3, 4, 5, 6]
    assert result(second)["weights_sha256"] == undisturbed["weights_sha256"]
    assert sorted(path.name for path in (first / "checkpoints").iterdir()) == before


def test_its_own_checkpoints_come_before_the_other_jobs(data: Path, tmp_path: Path, undisturbed: dict[str, Any]) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    run(data, first, steps=1)
    run(data, second, "--resume-from", str(first / "checkpoints"), steps=2)
    run(data, second, "--resume-from", str(first))
    assert [line["step"] for line in lines(second)] == [2, 3, 4, 5, 6]
    assert result(second)["weights_sha256"] == undisturbed["weights_sha256"]


def test_a_job_created_again_under_the_same_name_does_not_take_the_folder(data: Path, tmp_path: Path) -> None:
    run(data, tmp_path, steps=1, uid="aaaa")
    with pytest.raises(OwnedFolderError, match=r"belongs to job /j \(aaaa\)"):
        run(data, tmp_path, uid="bbbb")


@pytest.mark.parametrize(
    ("origin", "words"),
    [
        pytest.param("nowhere", "there is no such folder or file", id="nowhere"),
        pytest.param("empty", "holds no checkpoint", id="nothing-in-it"),
    ],
)
def test_nothing_to_resume_from_is_a_sentence(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], origin: str, words: str
) -> None:
    (tmp_path / "empty").mkdir()
    said = [*arguments(data, tmp_path / "job"), "--resume-from", str(tmp_path / origin)]
    assert main(said) == EXIT_PROGRAM_FAILED
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith(f"error: --resume-from {tmp_path / origin}")
    assert words in error


def test_another_jobs_other_model_is_refused(data: Path, tmp_path: Path) -> None:
    run(data, tmp_path / "first", steps=1)
    with pytest.raises(ForeignCheckpointError, match="seed is 1 here and must be 0 as in the checkpoint"):
        run(data, tmp_path / "second", "--resume-from", str(tmp_path / "first"), "--seed", "1")


def test_the_plain_file_is_left_and_can_be_gone_on_from(data: Path, tmp_path: Path, undisturbed: dict[str, Any]) -> None:
    plain = tmp_path / "shared/checkpoint.pth"
    run(data, tmp_path / "first", "--checkpoint-file", str(plain), steps=3, uid="aaaa")
    state = torch.load(plain)  # as anyone would
    assert (state["epoch"], state["arch"], state["step"]) == (0, "resnet18", 3)
    with pytest.raises(OwnedFolderError, match=f"--checkpoint-file {plain} belongs to"):
        run(data, tmp_path / "second", "--checkpoint-file", str(plain), uid="bbbb")
    run(data, tmp_path / "third", "--resume-from", str(plain), uid="bbbb")
    assert result(tmp_path / "third")["weights_sha256"] == undisturbed["weights_sha256"]


def originals(plain: Path) -> dict[str, Any]:
    """Only what the original ImageNet example writes."""
    state = torch.load(plain)
    return {name: state[name] for name in ("epoch", "arch", "best_acc1", "state_dict", "optimizer")}


@pytest.mark.parametrize("flag", ["--resume-from", "--checkpoint-file"])
def test_the_original_examples_file_is_gone_on_from(data: Path, tmp_path: Path, undisturbed: dict[str, Any], flag: str) -> None:
    """At the end of its epoch, with its momentum: three steps are left. --checkpoint-file names what to go on from there too."""
    run(data, tmp_path / "first", "--checkpoint-file", str(tmp_path / "x.pth"), steps=3)
    file = tmp_path / "original/checkpoint.pth"
    file.parent.mkdir()
    torch.save(originals(tmp_path / "x.pth"), file)
    run(data, tmp_path / "job", flag, str(file))
    assert [line["step"] for line in lines(tmp_path / "job")] == [4, 5, 6]
    assert result(tmp_path / "job")["weights_sha256"] == undisturbed["weights_sha256"]


def test_a_file_of_another_model_is_refused(data: Path, tmp_path: Path) -> None:
    run(data, tmp_path / "first", "--checkpoint-file", str(tmp_path / "x.pth"), steps=1)
    torch.save({**originals(tmp_path / "x.pth"), "arch": "resnet50"}, tmp_path / "y.pth")
    with pytest.raises(RefusedError, match="arch is 'resnet18' here and must be 'resnet50' as in the file"):
        run(data, tmp_path / "job", "--resume-from", str(tmp_path / "y.pth"))
