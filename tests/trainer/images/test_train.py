"""The loop, on one rank: interrupted and resumed it ends with the same bits as undisturbed, and every sample is written once."""

import json
from pathlib import Path
from typing import Any

import pytest

from ebb.elastic.checkpoint import ForeignCheckpointError
from ebb.elastic.contract import EXIT_FINISHED, EXIT_PROGRAM_FAILED, EXIT_RECLAIMED
from ebb.elastic.notices.notice import Notice
from testing import exactness as ledger
from tests.elastic import images
from trainer.images.config import parse
from trainer.images.train import main, train


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return images.make(tmp_path_factory.mktemp("images"))


def settings(data: Path, output: Path, *more: str) -> list[str]:
    """27 images, 3 epochs, 8 a step: 11 steps, the last of one sample, some across the end of an epoch."""
    base = ["--data", str(data), "--output", str(output), "--arch", "shufflenet_v2_x0_5", "--image-size", "32", "--epochs", "3"]
    return [*base, "--global-batch", "8", "--threads", "1", "--workers", "0", "--log-every", "1", "--ledger", *more]


def run(data: Path, output: Path, notice: Notice, *more: str) -> int:
    return train(parse(settings(data, output, *more), {}), notice)


def told() -> Notice:
    notice = Notice()
    notice.give()
    return notice


def result(output: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((output / "result.json").read_text())
    return content


def metric_lines(output: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]


def test_resumed_is_bit_for_bit_undisturbed(data: Path, tmp_path: Path) -> None:
    calm, stormy = tmp_path / "calm", tmp_path / "stormy"
    assert run(data, calm, Notice()) == EXIT_FINISHED
    codes = [run(data, stormy, told(), "--max-micro-batch", "8") for _ in range(5)]  # each makes one step, saves and leaves
    codes.append(run(data, stormy, Notice()))
    assert codes == [EXIT_RECLAIMED] * 5 + [EXIT_FINISHED]
    assert result(stormy)["weights_sha256"] == result(calm)["weights_sha256"]
    assert result(stormy)["test_accuracy"] == result(calm)["test_accuracy"]
    assert (result(stormy)["generation"], result(stormy)["step"], result(stormy)["steps_redone"]) == (6, 11, 0)
    assert [line["loss"] for line in metric_lines(stormy)] == [line["loss"] for line in metric_lines(calm)]
    assert [line["step"] for line in metric_lines(stormy)] == list(range(1, 12))
    assert [line["checkpoint_step"] for line in metric_lines(stormy)] == [0, 1, 2, 3, 4, 5, 5, 5, 5, 5, 5]
    verdict = ledger.check(stormy)
    assert (verdict.exact, verdict.samples, verdict.steps, verdict.steps_redone, verdict.generations) == (True, 81, 11, 0, 6)


def test_steps_after_the_last_checkpoint_are_done_again_and_counted(data: Path, tmp_path: Path) -> None:
    for _ in range(4):
        run(data, tmp_path, told(), "--keep-checkpoints", "9")
    for step in (3, 4):  # as if generations 3 and 4 had been killed before they could save
        (tmp_path / f"checkpoints/g0000{step}-s0000000{step}-r0.json").unlink()
    assert run(data, tmp_path, Notice()) == EXIT_FINISHED
    assert result(tmp_path)["steps_redone"] == 2
    assert result(tmp_path)["lost_seconds"] > 0
    verdict = ledger.check(tmp_path)
    assert (verdict.exact, verdict.steps_redone, verdict.generations) == (True, 2, 3)


def test_checkpoints_are_written_while_training_goes_on(data: Path, tmp_path: Path) -> None:
    assert run(data, tmp_path, Notice(), "--checkpoint-min-seconds", "0", "--checkpoint-overhead", "1000") == EXIT_FINISHED
    steps = sorted(int(path.stem[8:16]) for path in (tmp_path / "checkpoints").glob("*.json"))
    assert steps[-1] == 11
    assert len(steps) == 3
    assert result(tmp_path)["checkpoint_seconds"] > 0


def test_a_finished_job_that_is_started_again_only_evaluates(data: Path, tmp_path: Path) -> None:
    run(data, tmp_path, Notice())
    before = result(tmp_path)
    assert run(data, tmp_path, Notice()) == EXIT_FINISHED
    assert result(tmp_path)["weights_sha256"] == before["weights_sha256"]
    assert len(metric_lines(tmp_path)) == 11


def test_another_models_checkpoints_are_refused(data: Path, tmp_path: Path) -> None:
    run(data, tmp_path, told())
    with pytest.raises(ForeignCheckpointError, match="global_batch is 4 here and must be 8 as in the checkpoint"):
        run(data, tmp_path, Notice(), "--global-batch", "4")


@pytest.mark.parametrize(
    ("more", "words"),
    [
        pytest.param(["--arch", "resnet19"], "did you mean resnet1", id="misspelt-model"),
        pytest.param(["--data", "/nowhere"], "there is no folder /nowhere/train", id="no-data"),
        pytest.param(["--device", "cuda"], "torch sees no GPU here", id="no-gpu"),
    ],
)
def test_a_wrong_setting_is_one_sentence_and_the_code_of_a_failed_program(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], more: list[str], words: str
) -> None:
    import torch

    if torch.cuda.is_available() and "cuda" in more:
        pytest.skip("this machine has a GPU")
    assert main([*settings(data, tmp_path), *more]) == EXIT_PROGRAM_FAILED
    said = capsys.readouterr().err
    assert words in said
    assert said.startswith("error: ")
    assert "Traceback" not in said
