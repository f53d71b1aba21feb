"""Training on images with everything switched on: the same bits after a notice, and all that a person is shown, once."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from ebb import elastic
from ebb.elastic.checkpoint import ForeignCheckpointError
from ebb.elastic.checkpoint.state import weights
from ebb.elastic.data import open_images
from ebb.elastic.data.augment import normalise
from ebb.elastic.data.order import Sample
from ebb.elastic.notices.notice import Notice
from tests.elastic import images
from tests.elastic.report import board
from trainer.images import models
from trainer.images.options import parse
from trainer.images.train import Evaluator, learn


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return images.make(tmp_path_factory.mktemp("images"))


def run(data: Path, output: Path, notice: Notice, *more: str) -> bool:
    """27 images, 3 epochs, 8 a step: 11 steps. Whether it ran to its end."""
    base = [
        "-a",
        "shufflenet_v2_x0_5",
        "--image-size",
        "32",
        "--epochs",
        "3",
        "--augment",
        "shift",
        "--lr",
        "0.02",
        "-p",
        "1",
        "-j",
        "0",
    ]
    config = parse([*base, "--threads", "1", "--output", str(output), "--device", "cpu", *more, str(data)], {})
    try:
        with elastic.start(config, notice=notice) as one:
            learn(config, one)
    except elastic.GracefulExit:
        return False
    return True


def told() -> Notice:
    notice = Notice()
    notice.give()
    return notice


def result(output: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((output / "result.json").read_text())
    return content


EVERYTHING = (
    "-b", "8", "--ema", "0.5", "--ema-every", "1", "--label-smoothing", "0.1", "--mixup", "0.2", "--schedule", "cosine",
    "--warmup-epochs", "1",
    "--channels-last", "on", "--fused", "on",
)  # fmt: skip


@pytest.mark.e2e
def test_with_everything_on_a_notice_changes_no_bit(data: Path, tmp_path: Path) -> None:
    calm, stormy = tmp_path / "calm", tmp_path / "stormy"
    assert run(data, calm, Notice(), *EVERYTHING)
    assert [run(data, stormy, told(), *EVERYTHING) for _ in range(4)] == [False] * 4
    assert run(data, stormy, Notice(), *EVERYTHING)
    assert result(stormy)["weights_sha256"] == result(calm)["weights_sha256"]
    assert result(stormy)["test_accuracy"] == result(calm)["test_accuracy"]
    assert board.curves(stormy / "tensorboard")["train/loss"] == board.curves(calm / "tensorboard")["train/loss"]
    assert (stormy / "images/epoch-003.png").read_bytes() == (calm / "images/epoch-003.png").read_bytes()


def test_a_notice_in_a_validation_changes_no_bit_and_no_line(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The average is what is validated; the network's own weights are what goes on."""
    calm, stormy = tmp_path / "calm", tmp_path / "stormy"
    assert run(data, calm, Notice(), *EVERYTHING)
    notice, measure = Notice(), Evaluator._measure

    def measured(evaluator: Evaluator, batch: list[torch.Tensor]) -> dict[str, torch.Tensor]:
        notice.give()
        return measure(evaluator, batch)

    with monkeypatch.context() as patch:
        patch.setattr(Evaluator, "_measure", measured)
        assert not run(data, stormy, notice, *EVERYTHING)
    assert not (stormy / "validations.jsonl").exists()
    assert run(data, stormy, Notice(), *EVERYTHING)
    assert result(stormy)["weights_sha256"] == result(calm)["weights_sha256"]
    assert (stormy / "validations.jsonl").read_bytes() == (calm / "validations.jsonl").read_bytes()
    assert board.curves(stormy / "tensorboard")["train/loss"] == board.curves(calm / "tensorboard")["train/loss"]


def test_the_best_plain_file_holds_what_was_validated(data: Path, tmp_path: Path) -> None:
    """The network of any other program, with the weights in it, answers as well as the best validation says."""
    assert run(data, tmp_path, Notice(), *EVERYTHING, "--checkpoint-file", str(tmp_path / "plain.pth"), "--ema", "0.9")
    lines = [json.loads(line) for line in (tmp_path / "validations.jsonl").read_text().splitlines()]
    best = max(lines, key=lambda line: (line["top1"], line["step"]))
    saved = torch.load(tmp_path / "model_best.pth.tar", weights_only=True)
    network = models.build("shufflenet_v2_x0_5", 3, 32)
    network.load_state_dict(weights(saved))
    assert validated(network.eval(), data, tmp_path) == pytest.approx((best["top1"], best["loss"]), rel=1e-4)
    network.load_state_dict(weights({"state_dict": saved["trained"]}))
    assert validated(network.eval(), data, tmp_path) != pytest.approx((best["top1"], best["loss"]), rel=1e-4)


@torch.no_grad()
def validated(network: torch.nn.Module, data: Path, output: Path) -> tuple[float, float]:
    """Accuracy and loss on the images for validation."""
    dataset = open_images(data / "val", output, image_size=32, augment="none", seed=0)
    images, labels, _ = zip(*(dataset[Sample(0, number)] for number in range(len(dataset))), strict=True)
    scores = network(normalise(torch.stack(images), torch.device("cpu")))
    found = torch.tensor(labels)
    return (scores.argmax(1) == found).float().mean().item(), torch.nn.functional.cross_entropy(scores, found).item()


def test_what_a_person_is_shown(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(data, tmp_path, Notice(), "-b", "8", "--evaluate-every", "2", "--dist-backend", "nccl")
    said = capsys.readouterr().out
    assert "global batch 8: 8 for each of 1 processes; at most 8 in one pass of a process" in said
    assert "--dist-backend nccl is not used: on the cpu it is gloo" in said
    assert "speed: fp32, channels_last, fused optimizer, not compiled (the CPU: the same numbers everywhere)" in said
    assert said.count("validation after epoch") == 2  # after the second, and the last
    curves = board.curves(tmp_path / "tensorboard")
    assert [step for step, _ in curves["train/top1"]] == list(range(1, 12))
    assert [step for step, _ in curves["validation/top5"]] == [7, 11]
    assert [value for _, value in curves["train/learning_rate"]] == pytest.approx([0.02] * 11)
    assert all(0 <= value <= 1 for _, value in curves["train/top1"])
    assert sorted(path.name for path in (tmp_path / "images").iterdir()) == ["epoch-002.png", "epoch-003.png"]
    with Image.open(tmp_path / "images/epoch-003.png") as picture:
        assert picture.width == 8 * 134 + 6  # nine images
    lines = [json.loads(line) for line in (tmp_path / "validations.jsonl").read_text().splitlines()]
    assert [(line["step"], line["epoch"], line["samples"]) for line in lines] == [(7, 2, 9.0), (11, 3, 9.0)]
    assert lines[-1]["top1"] == pytest.approx(result(tmp_path)["test_accuracy"], abs=1e-5)


def test_the_global_batch_stays_what_it_was_at_the_first_start(data: Path, tmp_path: Path) -> None:
    """-b is another one later: passes change, steps do not."""
    assert not run(data, tmp_path, told(), "-b", "8")
    assert run(data, tmp_path, Notice(), "-b", "3")
    assert result(tmp_path)["step"] == 11
    with pytest.raises(ForeignCheckpointError, match="global_batch is 4 here and must be 8"):
        run(data, tmp_path, Notice(), "--global-batch", "4")


def test_nothing_is_shown_when_nothing_is_wanted(data: Path, tmp_path: Path) -> None:
    assert run(data, tmp_path, Notice(), "-b", "9", "--epochs", "1", "--no-tensorboard", "--debug-images", "0")
    assert not (tmp_path / "tensorboard").exists()
    assert not (tmp_path / "images").exists()


def test_sixteen_bits_begin_where_thirty_two_do(data: Path, tmp_path: Path) -> None:
    """Later steps of a network that only begins to learn drift apart."""
    first = []
    for precision in ("fp32", "bf16"):
        assert run(data, tmp_path / precision, Notice(), "-b", "9", "--epochs", "1", "--precision", precision)
        first.append(board.curves(tmp_path / precision / "tensorboard")["train/loss"][0][1])
    assert first[1] == pytest.approx(first[0], rel=0.05)
    assert first[1] != first[0]
