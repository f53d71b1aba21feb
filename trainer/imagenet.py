"""ImageNet's archives as they are published become an image folder, class by class.

    ILSVRC2012_img_train.tar        a tar for each class: n01440764.tar, with n01440764_18.JPEG and so on
    ILSVRC2012_img_val.tar          50,000 images without folders: ILSVRC2012_val_00000001.JPEG and so on
    ILSVRC2012_devkit_t12.tar.gz    the ground truth: a number for each of these, in their order; meta.mat has each number's class

    unpack(archives, root, parts)   ->  root/train/n01440764/n01440764_18.JPEG, root/val/n01751748/ILSVRC2012_val_00000001.JPEG

A class is written in `parts` and moved when it is whole, and so is `val`: a run that was killed is taken up at the class where it
was. Each file is flushed before that, or a machine that dies could leave whole classes of empty files.
"""

import io
import os
import re
import shutil
import tarfile
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path, PurePosixPath

from trainer.download import DownloadProgress, megabytes, say

TRAIN, VAL, DEVKIT = "ILSVRC2012_img_train.tar", "ILSVRC2012_img_val.tar", "ILSVRC2012_devkit_t12.tar.gz"
MD5 = {  # the publisher's, as torchvision/datasets/imagenet.py has them
    DEVKIT: "fa75699e90414af021442c21a62c3abf",
    VAL: "29b22e2961454d5413ddabcf34fc5622",
    TRAIN: "1d675b47d978889d74fa0da5fadfb00e",
}
_GROUND_TRUTH = "ILSVRC2012_devkit_t12/data/ILSVRC2012_validation_ground_truth.txt"
_META = "ILSVRC2012_devkit_t12/data/meta.mat"
_CLASS = re.compile(r"(n\d{8})\.tar")
_IMAGE = re.compile(r"ILSVRC2012_val_(\d{8})\.JPEG")
_WRITERS = 16  # a network file system answers one small file in milliseconds, and many at once in the same time


class LayoutError(Exception):
    """The archives are not ImageNet's, or do not fit the volume; the message says what is wrong."""


def unpack(archives: Mapping[str, Path], root: Path, parts: Path) -> None:
    """Write train and val below `root`. `parts`: a folder of its own on the same file system. Raises LayoutError and OSError.
    Safe to kill: the next call with the same folders goes on."""
    labels = ground_truth(archives[DEVKIT])
    shutil.rmtree(parts, ignore_errors=True)  # of a killed run: nobody knows what is missing in it
    parts.mkdir()
    (root / "train").mkdir(parents=True, exist_ok=True)
    with tarfile.open(archives[TRAIN], "r:") as train:
        classes = {_class_of(member): member for member in train}
        _check_classes(classes, labels)
        missing = {name: member for name, member in classes.items() if not (root / "train" / name).is_dir()}
        left = 0 if (root / "val").is_dir() else archives[VAL].stat().st_size
        _check_room(root, left + sum(member.size for member in missing.values()))
        if len(missing) < len(classes):
            say(f"going on: {len(classes) - len(missing)} of {len(classes)} classes are there")
        progress = DownloadProgress()
        for number, (name, member) in enumerate(missing.items(), start=len(classes) - len(missing)):
            with tarfile.open(fileobj=train.extractfile(member), mode="r:") as images:
                _write(images, parts / name, lambda file: file)
            (parts / name).rename(root / "train" / name)
            progress.say(f"unpacked {number + 1} of {len(classes)} classes of train")
    if left:
        _unpack_validation(archives[VAL], labels, parts / "val")
        (parts / "val").rename(root / "val")


def ground_truth(devkit: Path) -> list[str]:
    """The class of each validation image, in the order of their numbers. Raises LayoutError."""
    from scipy.io import loadmat  # noqa: PLC0415 - nothing else needs it

    found = dict[str, bytes]()
    with tarfile.open(devkit) as opened:
        for name in (_GROUND_TRUTH, _META):
            try:
                source = opened.extractfile(name)
            except KeyError as error:
                raise LayoutError(
                    f"{DEVKIT} has no {name}: it is not the development kit of ILSVRC2012's tasks 1 and 2"
                ) from error
            assert source is not None, name
            found[name] = source.read()
    synsets = loadmat(io.BytesIO(found[_META]), squeeze_me=True)["synsets"].reshape(-1)
    classes = {int(one["ILSVRC2012_ID"]): str(one["WNID"]) for one in synsets if one["num_children"] == 0}
    numbers = [int(word) for word in found[_GROUND_TRUTH].split()]
    unknown = sorted({number for number in numbers if number not in classes})
    if unknown:
        raise LayoutError(f"{_GROUND_TRUTH} has class {unknown[0]}, and {_META} knows {len(classes)} others")
    return [classes[number] for number in numbers]


def _unpack_validation(archive: Path, labels: Sequence[str], folder: Path) -> None:
    seen = set[str]()

    def place(file: str) -> str:
        found = _IMAGE.fullmatch(file)
        if found is None or not 1 <= int(found[1]) <= len(labels):
            raise LayoutError(f"{VAL} has {file!r}, which the ground truth's {len(labels)} lines do not cover")
        seen.add(file)
        return f"{labels[int(found[1]) - 1]}/{file}"

    with tarfile.open(archive, "r:") as images:
        _write(images, folder, place)
    if len(seen) != len(labels):
        raise LayoutError(f"{VAL} has {len(seen)} images, and the ground truth {len(labels)} lines")


def _class_of(member: tarfile.TarInfo) -> str:
    found = _CLASS.fullmatch(member.name.removeprefix("./"))
    if found is None or not member.isfile():
        raise LayoutError(
            f"{TRAIN} has {member.name!r}; in ImageNet's there is nothing but a tar for each class, as n01440764.tar"
        )
    return found[1]


def _check_classes(classes: Mapping[str, object], labels: Sequence[str]) -> None:
    one_sided = classes.keys() ^ set(labels)
    if one_sided:
        raise LayoutError(
            f"{len(one_sided)} classes are in only one of {TRAIN} and the ground truth, e.g. {min(one_sided)}: these are "
            "archives of two data sets"
        )


def _check_room(root: Path, missing: int) -> None:
    """Refuse what cannot fit before an hour is spent on it. Some file systems say that they are endless."""
    free = shutil.disk_usage(root).free
    if missing > free:
        raise LayoutError(
            f"the volume is full: the images need {megabytes(missing)} more, and {megabytes(free)} are free. Remove data with "
            "`ebb data rm`, or have the volume made larger; what is unpacked is kept, and another run goes on from there"
        )


def _write(images: tarfile.TarFile, folder: Path, place: Callable[[str], str]) -> None:
    """Write all files of a tar, each flushed, by many writers. `place`: a file's name -> its path below the folder."""
    folder.mkdir()
    made, waiting = set[str](), deque[Future[None]]()
    progress, count = DownloadProgress(), 0
    with ThreadPoolExecutor(_WRITERS) as threads:
        for member in images:
            if not member.isfile():
                continue
            inside = place(PurePosixPath(member.name).name)
            parent = inside.rpartition("/")[0]
            if parent and parent not in made:
                (folder / parent).mkdir()
                made.add(parent)
            source = images.extractfile(member)
            assert source is not None, member
            waiting.append(threads.submit(_write_whole, folder / inside, source.read()))
            while len(waiting) > 4 * _WRITERS:
                waiting.popleft().result()
            count += 1
            progress.say(f"unpacked {count} files of {folder.name}")
        for one in waiting:
            one.result()


def _write_whole(path: Path, data: bytes) -> None:
    with path.open("wb") as sink:
        sink.write(data)
        sink.flush()
        os.fsync(sink.fileno())
