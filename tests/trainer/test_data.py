"""The input path: an index that is scanned once, augmentation that depends on the sample alone, loader processes."""

import json
from collections.abc import Iterable
from pathlib import Path

import pytest
import torch

from tests.trainer import images
from trainer.data import Batch, DataError, ImageFolder, ImageIndex, batches
from trainer.order import Plan, Sample, Stream


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return images.make(tmp_path_factory.mktemp("images"))


def index(data: Path) -> ImageIndex:
    return ImageIndex.scan(data / "train")


def test_the_index_is_sorted_and_labels_are_the_places_of_the_classes(data: Path) -> None:
    found = index(data)
    assert (len(found), found.classes) == (27, ["class0", "class1", "class2"])
    assert [found[number] for number in (0, 26)] == [(data / "train/class0/0.png", 0), (data / "train/class2/8.png", 2)]


def test_a_restart_does_not_scan_again(tmp_path: Path) -> None:
    data = images.make(tmp_path / "data", classes=2, train=2)
    cache = tmp_path / "out" / "index-train.txt"
    first = ImageIndex.load_or_scan(data / "train", cache)
    (data / "train/class0/9.png").write_bytes(b"came later")
    again = ImageIndex.load_or_scan(data / "train", cache)
    assert [again[number] for number in range(len(again))] == [first[number] for number in range(4)]


def test_other_files_and_folders_below_are_handled(tmp_path: Path) -> None:
    data = images.make(tmp_path / "data", classes=1, train=1)
    (data / "train/class0/readme.txt").write_text("no image")
    (data / "train/class0/more").mkdir()
    (data / "train/class0/0.png").rename(data / "train/class0/more/A.PNG")
    found = index(data)
    assert [found[number] for number in range(len(found))] == [(data / "train/class0/more/A.PNG", 0)]


@pytest.mark.parametrize(
    ("cache", "words"),
    [
        pytest.param("", "is damaged: remove it", id="empty"),
        pytest.param(
            '{"schema": 1, "root": "ROOT", "classes": ["class0"], "samples": 2}\nclass0/0.png\n', "is damaged", id="cut-off"
        ),
        pytest.param('{"schema": 1, "root": "/other", "classes": [], "samples": 0}\n', "of /other, not of", id="other-folder"),
    ],
)
def test_an_index_that_cannot_be_used(tmp_path: Path, cache: str, words: str) -> None:
    data = images.make(tmp_path / "data", classes=1, train=1)
    (tmp_path / "index.txt").write_text(cache.replace("ROOT", str(data / "train")))
    with pytest.raises(DataError, match=words):
        ImageIndex.load_or_scan(data / "train", tmp_path / "index.txt")


def test_a_folder_without_images_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "train/class0").mkdir(parents=True)
    with pytest.raises(DataError, match=r"has no image: it must hold <class>/<image>, with images named \*.png"):
        ImageIndex.scan(tmp_path / "train")


def test_a_broken_image_is_named(tmp_path: Path) -> None:
    data = images.make(tmp_path / "data", classes=1, train=1)
    (data / "train/class0/0.png").write_bytes(b"\x89PNG but no more")
    folder = ImageFolder(index(data), image_size=32, augment="none", seed=0)
    with pytest.raises(DataError, match=r"cannot read the image .*class0/0\.png"):
        folder[Sample(0, 0)]


@pytest.mark.parametrize("augment", ["shift", "imagenet", "none"])
def test_augmentation_depends_on_seed_epoch_and_sample_alone(data: Path, augment: str) -> None:
    folder = ImageFolder(index(data), image_size=32, augment=augment, seed=1)
    torch.manual_seed(1)
    first = folder[Sample(3, 5)][0]
    torch.manual_seed(2)
    assert torch.equal(folder[Sample(3, 5)][0], first)
    others = [folder[Sample(epoch, 5)][0] for epoch in range(8)]
    assert (augment == "none") == all(torch.equal(other, first) for other in others)


@pytest.mark.parametrize("augment", ["shift", "imagenet", "none"])
def test_images_have_the_size_asked_for(tmp_path: Path, augment: str) -> None:
    data = images.make(tmp_path / "data", classes=1, train=1, side=48)
    image, label, number = ImageFolder(index(data), image_size=32, augment=augment, seed=0)[Sample(0, 0)]
    assert (image.shape, image.dtype, label, number) == ((3, 32, 32), torch.uint8, 0, 0)


def load(data: Path, workers: int) -> list[Batch]:
    stream = Stream(dataset_size=27, epochs=2, global_batch=8, seed=0)
    plan: Iterable[list[Sample]] = Plan(stream=stream, first_step=1, rank=0, world_size=1, max_micro_batch=8)
    return list(batches(ImageFolder(index(data), image_size=32, augment="shift", seed=0), plan, workers=workers))


@pytest.mark.filterwarnings("ignore:This DataLoader will create 4 worker processes")  # on a machine with fewer cores
def test_four_loader_processes_give_what_none_gives(data: Path) -> None:
    """They hand their batches over through /dev/shm."""
    alone, four = load(data, 0), load(data, 4)
    assert [batch.ids for batch in four] == [batch.ids for batch in alone]
    assert all(torch.equal(one.images, other.images) for one, other in zip(alone, four, strict=True))
    assert sum(len(batch.ids) for batch in four) == 2 * 27 - 8


def test_the_cache_is_one_header_and_one_line_per_image(tmp_path: Path) -> None:
    data = images.make(tmp_path / "data", classes=2, train=1)
    ImageIndex.load_or_scan(data / "train", tmp_path / "index.txt")
    head, *names = (tmp_path / "index.txt").read_text().splitlines()
    assert json.loads(head)["samples"] == 2
    assert names == ["class0/0.png", "class1/0.png"]
