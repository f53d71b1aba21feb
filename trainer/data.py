"""Images of a folder as training samples: an index that is scanned once per job, decoding, augmentation, the loader.

    index = ImageIndex.load_or_scan(data / "train", output / "index-train.txt")
    loader = batches(ImageFolder(index, image_size=32, augment="shift", seed=0), plan, workers=4)
    for batch in loader: batch.images, batch.labels, batch.ids

The index file lives in the job's folder: sample numbers are places in it, so it must be the same on all machines and in all
generations, and a restart must not list millions of files again. Files that appear in the folder later are not trained on.
A sample's augmentation depends on (seed, epoch, sample number) alone, not on the rank or the loader process that makes it.
"""

import json
import math
import os
from array import array
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import torch
from torch.utils.data import DataLoader, Dataset
from torchvision.io import ImageReadMode, decode_image
from torchvision.transforms import functional as transform

from trainer.order import Sample, mix

_SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".gif")
_SCHEMA = 1


class DataError(ValueError):
    """The data folder cannot be trained on; the message says which file or folder, and what to do."""


class Batch(NamedTuple):
    """images: uint8 (N, 3, side, side); labels: int64 (N,); ids: the sample numbers, N of them, as they were read."""

    images: torch.Tensor
    labels: torch.Tensor
    ids: list[int]


class ImageIndex:
    """The files of a folder <class>/<image>, sorted by path: one text and one table of offsets, a few bytes more than the names.

    Nothing in it is counted by reference, so forked loader processes share it for good.
    """

    def __init__(self, root: Path, classes: list[str], paths: bytes) -> None:
        self.root = root
        self.classes = classes
        self._paths = paths
        self._starts = array("Q", [0])
        at = paths.find(b"\n")
        while at >= 0:
            self._starts.append(at + 1)
            at = paths.find(b"\n", at + 1)
        self._labels = {name: label for label, name in enumerate(classes)}

    def __len__(self) -> int:
        return len(self._starts) - 1

    def __getitem__(self, number: int) -> tuple[Path, int]:
        """The path and the label of a sample."""
        name = self._paths[self._starts[number] : self._starts[number + 1] - 1].decode()
        return self.root / name, self._labels[name.partition("/")[0]]

    @classmethod
    def load_or_scan(cls, root: Path, cache: Path) -> "ImageIndex":
        """The index kept in `cache`, or a fresh one that is kept there. One process of a job scans, the others load after it.

        Raises DataError when there is nothing to train on, or `cache` is of another folder.
        """
        if not cache.exists():
            index = cls.scan(root)
            index._save(cache)
        return cls._load(root, cache)

    @classmethod
    def scan(cls, root: Path) -> "ImageIndex":
        classes = sorted(entry.name for entry in os.scandir(root) if entry.is_dir())
        names = [name for kind in classes for name in sorted(_images(root, kind))]
        if not names:
            raise DataError(f"{root} has no image: it must hold <class>/<image>, with images named *{', *'.join(_SUFFIXES)}")
        return cls(root, classes, "".join(name + "\n" for name in names).encode())

    def _save(self, cache: Path) -> None:
        head = json.dumps({"schema": _SCHEMA, "root": str(self.root), "classes": self.classes, "samples": len(self)})
        cache.parent.mkdir(parents=True, exist_ok=True)
        temporary = cache.with_name(f".tmp-{cache.name}-{os.getpid()}")
        temporary.write_bytes(head.encode() + b"\n" + self._paths)
        temporary.rename(cache)

    @classmethod
    def _load(cls, root: Path, cache: Path) -> "ImageIndex":
        head, _, paths = cache.read_bytes().partition(b"\n")
        try:
            facts = json.loads(head)
            index = cls(root, facts["classes"], paths)
            complete = facts["schema"] == _SCHEMA and facts["samples"] == len(index)
        except (ValueError, KeyError, TypeError):
            complete = False
        if not complete:
            raise DataError(f"the list of images {cache} is damaged: remove it, and it is made again from {root}")
        if facts["root"] != str(root):
            raise DataError(f"{cache} lists the images of {facts['root']}, not of {root}: give this job its own --output folder")
        return index


def _images(root: Path, kind: str) -> Iterator[str]:
    for folder, _, files in os.walk(root / kind):
        inside = Path(folder).relative_to(root).as_posix()
        yield from (f"{inside}/{name}" for name in files if name.lower().endswith(_SUFFIXES))


class ImageFolder(Dataset[tuple[torch.Tensor, int, int]]):
    """Decodes one sample: a uint8 image (3, side, side), its label, its number."""

    def __init__(self, index: ImageIndex, *, image_size: int, augment: str, seed: int) -> None:
        self.index = index
        self._side = image_size
        self._augment = augment
        self._seed = seed

    def __len__(self) -> int:
        return len(self.index)

    def __getitem__(self, sample: Sample) -> tuple[torch.Tensor, int, int]:
        path, label = self.index[sample.number]
        try:
            image = decode_image(str(path), mode=ImageReadMode.RGB)
        except (RuntimeError, OSError) as error:
            reason = str(error).splitlines()[0][:200]
            raise DataError(f"cannot read the image {path}: {reason}. Remove or repair it, then start the job again") from None
        generator = torch.Generator().manual_seed(mix(self._seed, sample.epoch, sample.number))
        return self._shape(image, generator), label, sample.number

    def _shape(self, image: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        if self._augment == "imagenet":
            return random_area(image, self._side, generator)
        image = fit(image, self._side)
        return random_shift(image, generator) if self._augment == "shift" else image


def fit(image: torch.Tensor, side: int) -> torch.Tensor:
    """The whole image for a square one; else its centre."""
    if image.shape[-1] != image.shape[-2]:
        image = transform.center_crop(image, [min(image.shape[-2:])])
    if image.shape[-1] != side:
        image = transform.resize(image, [side, side], antialias=True)
    return image


def random_shift(image: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Moved by up to an eighth of its side in both directions; the border is zero."""
    side = image.shape[-1]
    reach = side // 8
    down, right = torch.randint(0, 2 * reach + 1, (2,), generator=generator).tolist()
    padded = torch.nn.functional.pad(image, (reach, reach, reach, reach))
    return padded[:, down : down + side, right : right + side].contiguous()


def random_area(image: torch.Tensor, side: int, generator: torch.Generator) -> torch.Tensor:
    """The usual ImageNet training crop: 8 to 100 % of the area, ratio 3:4 to 4:3, and a flip half of the time."""
    height, width = image.shape[-2:]
    for _ in range(10):
        area, ratio, top, left = torch.rand(4, generator=generator).tolist()
        area = height * width * (0.08 + 0.92 * area)
        ratio = math.exp(math.log(3 / 4) + ratio * 2 * math.log(4 / 3))
        crop_width, crop_height = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < crop_width <= width and 0 < crop_height <= height:
            top, left = int(top * (height - crop_height + 1)), int(left * (width - crop_width + 1))
            image = transform.resized_crop(image, top, left, crop_height, crop_width, [side, side], antialias=True)
            break
    else:
        image = fit(image, side)
    return image.flip(-1) if torch.rand(1, generator=generator).item() < 0.5 else image


def batches(dataset: ImageFolder, plan: Iterable[list[Sample]], *, workers: int, pin_memory: bool = False) -> Iterator[Batch]:
    """One Batch per list of samples in `plan`, in its order, decoded ahead by `workers` processes."""
    loader = DataLoader(
        dataset,
        batch_sampler=plan,
        num_workers=workers,
        collate_fn=_stack,
        worker_init_fn=_start_worker if workers else None,
        pin_memory=pin_memory,
    )
    return iter(loader)


def _stack(samples: list[tuple[torch.Tensor, int, int]]) -> Batch:
    images, labels, ids = zip(*samples, strict=True)
    return Batch(torch.stack(images), torch.tensor(labels), list(ids))


def _start_worker(_number: int) -> None:
    os.setpgid(0, 0)  # a SIGTERM or Ctrl-C for the whole group is for its parent: it needs the batches until it leaves
    torch.set_num_threads(1)
