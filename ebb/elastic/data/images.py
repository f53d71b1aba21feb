"""Images as training samples: files of a folder, decoded each time, or shards that were decoded once.

    dataset = open_images(data / "train", output, image_size=224, augment="imagenet", seed=0)
    image, label, number = dataset[Sample(epoch, number)]

Both forms of the same folder give the same numbers, labels, order and random crops. A sample's augmentation depends on
(seed, epoch, sample number) alone, not on the rank or the loader process that makes it. Nothing is normalised here: the image
stays bytes until it is on the device.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import torch
from torch.utils.data import Dataset

from ebb.elastic.data.augment import augmented
from ebb.elastic.data.index import ImageIndex
from ebb.elastic.data.listing import Say, load_or_scan
from ebb.elastic.data.node_cache import NodeCache
from ebb.elastic.data.order import Sample, mix
from ebb.elastic.data.sealed import DataError
from ebb.elastic.data.shards import Shards


class Source(Protocol):
    """A source of images."""

    @property
    def classes(self) -> list[str]: ...
    @property
    def fingerprint(self) -> str:
        """Of the names of all images: the same number is the same image wherever this is equal."""

    def __len__(self) -> int: ...
    def read(self, number: int) -> tuple[torch.Tensor, int]:
        """The image, uint8 (3, height, width), and its label. Raises DataError for one that cannot be read."""


class Files:
    """A Source of files: PNG, JPEG, WebP, GIF."""

    def __init__(self, index: ImageIndex) -> None:
        self.index = index
        self.classes = index.classes
        self.fingerprint = index.fingerprint

    def __len__(self) -> int:
        return len(self.index)

    def read(self, number: int) -> tuple[torch.Tensor, int]:
        path, label = self.index[number]
        return decoded(path), label


def decoded(path: Path) -> torch.Tensor:
    from torchvision.io import ImageReadMode, decode_image  # noqa: PLC0415  # an image need not have it to train on other things

    try:
        image: torch.Tensor = decode_image(str(path), mode=ImageReadMode.RGB)
    except (RuntimeError, OSError) as error:
        reason = str(error).splitlines()[0][:200]
        raise DataError(f"cannot read the image {path}: {reason}. Remove or repair it, then start the job again") from None
    return image[0] if image.dim() == 4 else image  # an animation has several


class Images(Dataset[tuple[torch.Tensor, int, int]]):
    """One sample: a uint8 image (3, side, side), its label, its number."""

    def __init__(self, source: Source, *, image_size: int, augment: str, seed: int) -> None:
        self.source = source
        self.classes = source.classes
        self._side = image_size
        self._augment = augment
        self._seed = seed

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, sample: Sample) -> tuple[torch.Tensor, int, int]:
        image, label = self.source.read(sample.number)
        generator = torch.Generator().manual_seed(mix(self._seed, sample.epoch, sample.number))
        return augmented(image, self._side, self._augment, generator), label, sample.number


def open_source(root: Path, output: Path, *, say: Say | None = None, cache: NodeCache | None = None) -> Source:
    """Shards where `root` holds them, else the files of an image folder. One process of a job calls it first, with `say`.
    `cache`: for images of shards, on the machine's own disk.

    Raises DataError when there is nothing to train on, or nothing for the cache.
    """
    if Shards.are_in(root):
        return Shards(root, cache)
    if cache:
        raise DataError(
            f"there is a cache for images of shards, and {root} holds none: make them with `python -m ebb.elastic.data convert`, "
            "or leave the cache out"
        )
    return Files(load_or_scan(root, output, say=say))


def open_images(root: Path, output: Path, *, image_size: int, augment: str, seed: int) -> Images:
    """Raises DataError when there is nothing to train on."""
    return Images(open_source(root, output), image_size=image_size, augment=augment, seed=seed)
