"""The trainer's input: decoded shards train like the files they were made from, and the number of loader processes is chosen."""

import json
import shutil
from pathlib import Path

import pytest
import torch

from ebb.elastic.contract import EXIT_FINISHED
from ebb.elastic.data import open_images
from ebb.elastic.data.__main__ import main as convert
from ebb.elastic.notices.notice import Notice
from ebb.elastic.runtime.config import Place
from tests.elastic import images
from trainer.images.config import TrainConfig, parse
from trainer.images.feed import Feed
from trainer.images.train import train


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return images.make(tmp_path_factory.mktemp("images"))


def weights(data: Path, output: Path, workers: int) -> str:
    arguments = ["--data", str(data), "--output", str(output), "--image-size", "32", "--epochs", "1", "--global-batch", "8"]
    assert train(parse([*arguments, "--threads", "1", "-j", str(workers)], {}), Notice()) == EXIT_FINISHED
    return str(json.loads((output / "result.json").read_text())["weights_sha256"])


def test_shards_train_like_the_files_bit_for_bit(data: Path, tmp_path: Path) -> None:
    """The images are small: none had to be made smaller."""
    assert convert(["convert", str(data), str(tmp_path / "shards"), "--size", "32"]) == 0
    files = weights(data, tmp_path / "files-out", 0)
    shutil.rmtree(data / "train/class1")  # nothing of the files is read any more
    assert weights(tmp_path / "shards", tmp_path / "shards-out", 1) == files


def feed(data: Path, output: Path, workers: int, cores: int) -> Feed:
    config = TrainConfig(data=data, output=output, image_size=32, global_batch=8, workers=workers, place=Place(cores=cores))
    dataset = open_images(data / "val", output, image_size=32, augment="none", seed=0)
    return Feed.choose(config, dataset, torch.device("cpu"), world_size=1, say=print)


@pytest.mark.parametrize(
    ("workers", "cores", "expected"),
    [
        pytest.param(-1, 1, 0, id="one-core"),
        pytest.param(-1, 4, 3, id="one-less-than-cores"),
        pytest.param(-1, 64, 8, id="at-most-eight"),
        pytest.param(5, 2, 2, id="never-more-than-cores"),
        pytest.param(0, 4, 0, id="none"),
    ],
)
def test_loader_processes_beside_training_on_the_cpu(data: Path, tmp_path: Path, workers: int, cores: int, expected: int) -> None:
    assert feed(data, tmp_path, workers, cores).workers == expected
