"""Images as samples: augmentation depends on the sample alone, and bytes are not turned into floats."""

import os
from pathlib import Path

import pytest
import torch
from torchvision.io import write_jpeg, write_png
from torchvision.transforms.v2.functional import center_crop, normalize, resize  # type: ignore[attr-defined]

from ebb.elastic.data import DataError, Images, open_images
from ebb.elastic.data.augment import AUGMENTATIONS, fit, normalise, random_area, random_shift, resized
from ebb.elastic.data.images import decoded
from ebb.elastic.data.order import Sample
from tests.elastic import images


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return images.make(tmp_path_factory.mktemp("images"))


def make(data: Path, augment: str = "none", image_size: int = 32) -> Images:
    return open_images(data / "train", data / "out", image_size=image_size, augment=augment, seed=1)


def test_a_broken_image_is_named(tmp_path: Path) -> None:
    data = images.make(tmp_path / "data", classes=1, train=1)
    (data / "train/class0/0.png").write_bytes(b"\x89PNG but no more")
    with pytest.raises(DataError, match=r"cannot read the image .*class0/0\.png"):
        make(data)[Sample(0, 0)]


@pytest.mark.parametrize("augment", AUGMENTATIONS)
def test_augmentation_depends_on_seed_epoch_and_sample_alone(data: Path, augment: str) -> None:
    folder = make(data, augment)
    torch.manual_seed(1)
    first = folder[Sample(3, 5)][0]
    torch.manual_seed(2)
    assert torch.equal(folder[Sample(3, 5)][0], first)
    others = [folder[Sample(epoch, 5)][0] for epoch in range(8)]
    assert (augment == "none") == all(torch.equal(other, first) for other in others)


@pytest.mark.parametrize("augment", AUGMENTATIONS)
def test_images_have_the_size_asked_for(tmp_path: Path, augment: str) -> None:
    data = images.make(tmp_path / "data", classes=1, train=1, side=48)
    image, label, number = make(data, augment)[Sample(0, 0)]
    assert (image.shape, image.dtype, label, number) == ((3, 32, 32), torch.uint8, 0, 0)


def noise(height: int, width: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, 256, (3, height, width), dtype=torch.uint8, generator=generator)


@pytest.mark.parametrize(("height", "width"), [(60, 40), (40, 60), (32, 32), (20, 30)])
def test_the_centre_is_that_of_torchvision(height: int, width: int) -> None:
    image = noise(height, width)
    shorter = min(height, width)
    expected = resize(center_crop(image, [shorter, shorter]), [32, 32], antialias=True)
    assert (fit(image, 32).int() - expected.int()).abs().max() <= 1


def test_resizing_is_that_of_torchvision_whatever_the_layout() -> None:
    image = noise(75, 100)
    expected = resize(image, [32, 48], antialias=True)
    interleaved = image.permute(1, 2, 0).contiguous().permute(2, 0, 1)
    assert torch.equal(resized(image, 32, 48), expected)
    assert torch.equal(resized(interleaved[:, 5:, 5:], 32, 48), resized(image[:, 5:, 5:].contiguous(), 32, 48))


def test_a_random_area_is_8_to_100_percent_and_is_flipped_half_of_the_time() -> None:
    """Of an image whose red is the column and green the row."""
    image = torch.stack([torch.arange(200).expand(200, 200), torch.arange(200).expand(200, 200).T, torch.zeros(200, 200).long()])
    crops = [random_area(image.to(torch.uint8), 16, torch.Generator().manual_seed(seed)).int() for seed in range(300)]
    areas = [int(crop[0].max() - crop[0].min()) * int(crop[1].max() - crop[1].min()) / 200**2 for crop in crops]
    assert 0.05 < min(areas) < 0.12
    assert 0.8 < max(areas) <= 1
    flipped = sum(bool(crop[0, 0, 0] > crop[0, 0, -1]) for crop in crops)
    assert 120 < flipped < 180


def test_a_shift_moves_by_an_eighth_at_most() -> None:
    image = torch.zeros((3, 32, 32), dtype=torch.uint8)
    image[:, 16, 16] = 255
    seen = {tuple(random_shift(image, torch.Generator().manual_seed(seed))[0].nonzero()[0].tolist()) for seed in range(400)}
    assert {row for row, _ in seen} == {column for _, column in seen} == set(range(12, 21))


def test_normalising_is_the_usual_one() -> None:
    batch = noise(4, 4)[None]
    expected = normalize(batch.float() / 255, [0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
    assert torch.allclose(normalise(batch, torch.device("cpu")), expected, atol=1e-5)
    assert normalise(batch, torch.device("cpu"), torch.bfloat16).dtype == torch.bfloat16


@pytest.mark.parametrize("kind", ["grey.png", "alpha.png", "photo.jpg"])
def test_all_images_have_three_channels(tmp_path: Path, kind: str) -> None:
    path = tmp_path / kind
    if kind.endswith(".jpg"):
        write_jpeg(noise(8, 9), str(path))
    else:
        channels = torch.cat([noise(8, 9), noise(8, 9)])[: 1 if kind.startswith("grey") else 4]
        from PIL import Image

        mode = channels.permute(1, 2, 0).squeeze(-1).numpy()
        Image.fromarray(mode).save(path)
    assert decoded(path).shape == (3, 8, 9)


def test_an_animation_is_its_first_picture(tmp_path: Path) -> None:
    from PIL import Image

    pictures = [Image.fromarray(torch.full((8, 9, 3), value, dtype=torch.uint8).numpy()) for value in (0, 255)]
    pictures[0].save(tmp_path / "moving.gif", save_all=True, append_images=pictures[1:])
    image = decoded(tmp_path / "moving.gif")
    assert (image.shape, int(image.max())) == ((3, 8, 9), 0)


def test_names_that_are_no_text_can_be_read(tmp_path: Path) -> None:
    folder = tmp_path / "data/train/class0"
    folder.mkdir(parents=True)
    write_png(noise(8, 8), str(tmp_path / "x.png"))
    (tmp_path / "x.png").rename(folder / "k\u00f6ter\n.png")
    os.utime(folder, (1, 1))
    assert make(tmp_path / "data", image_size=8)[Sample(0, 0)][0].shape == (3, 8, 8)
