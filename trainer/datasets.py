"""Fetches a data set: downloads the archive, checks it, unpacks it, and puts it where the trainer reads image folders.

    python -m trainer.datasets DIR --url URL --sha256 SUM             ->  DIR/train/<class>/* and DIR/val/<class>/*
    python -m trainer.datasets DIR --url URL --md5 SUM --kind tiny-imagenet
    python -m trainer.datasets DIR --url FOLDER --kind imagenet       # of the three archives (imagenet.py), whose MD5s are known

The folder appears under its name when it is complete, with a note of the checksum in it; a run that sees that note does nothing.
Until then everything is in a work folder beside it. A run that was killed is taken up again: the download where it stood, the
unpacking from its beginning, or ImageNet's at the class where it was. It never removes a folder that it did not make, and it
fetches by https and http only: what is in a bucket is copied before, by `python -m ebb.buckets` into `.preparing-<name>/source`.
"""

import argparse
import errno
import fcntl
import json
import os
import shutil
import sys
import tarfile
import zipfile
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TypeVar

from trainer import imagenet
from trainer.download import DownloadError, DownloadProgress, download, megabytes, say, verify

IMAGENET = "imagenet"
BUCKETS = ("s3://", "gs://", "az://")  # whose objects another program copies
NOTE = ".ebb-dataset.json"
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_WRITERS = 16  # a network file system answers one small file in milliseconds, and many at once in the same time
_Item = TypeVar("_Item")


class DatasetError(Exception):
    """The data set cannot be made; the message says why and what to do."""


@dataclass(frozen=True, kw_only=True)
class Archive:
    """An archive to fetch. `checksum` is in hexadecimal, by `algorithm`."""

    url: str
    algorithm: str
    checksum: str

    @property
    def name(self) -> str:
        """The last part of its address."""
        return self.url.rpartition("/")[2]


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """A folder to make, and what from."""

    target: Path
    kind: str
    archives: tuple[Archive, ...]

    @property
    def work(self) -> Path:
        """Beside the target, so that a rename moves the result there."""
        return self.target.with_name(f".preparing-{self.target.name}")

    @property
    def source(self) -> Path:
        """The folder of archives that were copied from a bucket."""
        return self.work / "source"

    def file(self, archive: Archive) -> Path:
        """Of a download named after the checksum: what is there of another archive is not taken up."""
        if archive.url.startswith(BUCKETS):
            return self.source / archive.name
        return self.work / f"archive-{archive.checksum[:16].lower()}"

    @property
    def note(self) -> dict[str, str]:
        """The facts in the finished folder."""
        sums = {} if self.kind == IMAGENET else {one.algorithm: one.checksum for one in self.archives}
        return {"schema": "1", **sums, "kind": self.kind}


def fetch(dataset: Dataset) -> bool:
    """Make the folder; False when it was there already. Safe to repeat and to kill at any point. Raises DatasetError."""
    dataset.target.parent.mkdir(parents=True, exist_ok=True)
    with _alone(dataset):
        if _complete(dataset):
            shutil.rmtree(dataset.work, ignore_errors=True)
            return False
        for archive in dataset.archives:
            _have(dataset, archive)
        root = _unpacked(dataset)
        _check(root)
        (root / NOTE).write_text(json.dumps(dataset.note))
        os.sync()  # or a machine that dies now could leave a complete folder of empty files
        root.rename(dataset.target)
        shutil.rmtree(dataset.work, ignore_errors=True)
    return True


def _have(dataset: Dataset, archive: Archive) -> None:
    """Have the archive, whole and checked. A large one takes long to check, so that is done once."""
    file, checked = dataset.file(archive), dataset.work / f"checked-{archive.checksum[:16].lower()}"
    if checked.exists() and file.exists():
        return
    if not archive.url.startswith(BUCKETS):
        download(archive.url, file)
    elif not file.exists():
        raise DatasetError(
            f"{archive.url} is not in {dataset.source}: check that the bucket has it; "
            f"`python -m ebb.buckets {archive.url.rpartition('/')[0]} {dataset.source}` copies it"
        )
    try:
        verify(file, archive.algorithm, archive.checksum)
    except DownloadError:
        shutil.rmtree(dataset.source, ignore_errors=True)  # or its next copy would find itself complete
        raise
    checked.touch()


def _unpacked(dataset: Dataset) -> Path:
    """The image folder, in the work folder."""
    unpacked = dataset.work / "unpacked"
    if dataset.kind == IMAGENET:
        imagenet.unpack({one.name: dataset.file(one) for one in dataset.archives}, unpacked, dataset.work / "parts")
        return unpacked
    shutil.rmtree(unpacked, ignore_errors=True)  # of a killed run: nobody knows what is missing in it
    unpacked.mkdir()
    _unpack(dataset.file(dataset.archives[0]), unpacked)
    root = _root(unpacked)
    if dataset.kind == "tiny-imagenet":
        arrange_validation(root)
    return root


@contextmanager
def _alone(dataset: Dataset) -> Iterator[None]:
    """Only one run at a time: a second one waits and then finds the work done."""
    dataset.work.mkdir(exist_ok=True)
    with (dataset.work / "lock").open("w") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"another run prepares {dataset.target}; waiting for it")
            fcntl.flock(held, fcntl.LOCK_EX)
        yield


def _complete(dataset: Dataset) -> bool:
    if not dataset.target.exists():
        return False
    try:
        found = json.loads((dataset.target / NOTE).read_text())
    except (FileNotFoundError, ValueError):
        found = None
    if found == dataset.note:
        return True
    what = f"was made from {found}" if found else f"was not made by this program (it has no {NOTE})"
    raise DatasetError(
        f"{dataset.target} exists and {what}, but {dataset.note} is wanted: give the data set another name, or remove the folder"
    )


def _unpack(archive: Path, folder: Path) -> None:
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as opened:
            _unpack_zip(opened, folder)
    elif tarfile.is_tarfile(archive):
        if not hasattr(tarfile, "data_filter"):
            raise DatasetError("this Python cannot unpack a tar archive safely: use 3.11.4 or later, or pack a zip")
        with tarfile.open(archive) as tar:
            tar.extractall(folder, filter="data")  # nothing outside the folder, no devices, no owners
    else:
        raise DatasetError(f"{archive} is neither a zip nor a tar archive; these two are unpacked")


def _unpack_zip(opened: zipfile.ZipFile, folder: Path) -> None:
    """By many writers at once. The folders first: two writers must not make the same one."""
    files = [entry for entry in opened.infolist() if not entry.is_dir()]
    for name in sorted({str(_inside(entry.filename).parent) for entry in files}):
        (folder / name).mkdir(parents=True, exist_ok=True)

    def write(entry: zipfile.ZipInfo) -> None:
        with opened.open(entry) as source, (folder / _inside(entry.filename)).open("wb") as sink:
            shutil.copyfileobj(source, sink)

    _all(write, files, "unpacked")


def _inside(name: str) -> PurePosixPath:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts:
        raise DatasetError(f"the archive holds {name!r}, which is outside of its folder: it is not to be trusted")
    return path


def _root(unpacked: Path) -> Path:
    """Archives hold the data set, or one folder with it."""
    entries = list(unpacked.iterdir())
    return entries[0] if len(entries) == 1 and entries[0].is_dir() and entries[0].name != "train" else unpacked


def arrange_validation(root: Path) -> None:
    """Tiny ImageNet: val/images/<file>, with the classes in val_annotations.txt, becomes val/<class>/<file>."""
    annotations, images = root / "val" / "val_annotations.txt", root / "val" / "images"
    if not annotations.is_file() or not images.is_dir():
        raise DatasetError(f"{root.name} has no {annotations.relative_to(root)} and val/images: it is not Tiny ImageNet")
    labels = dict(line.split("\t")[:2] for line in annotations.read_text().splitlines() if line)
    for name in set(labels.values()):
        (root / "val" / name).mkdir()
    left = {path.name for path in images.iterdir()} ^ set(labels)
    if left:
        raise DatasetError(f"{len(left)} files are in only one of val/images and val_annotations.txt, e.g. {min(left)}")

    def move(item: tuple[str, str]) -> None:
        file, name = item
        (images / file).rename(root / "val" / name / file)

    _all(move, labels.items(), "arranged")
    images.rmdir()


def _check(root: Path) -> None:
    """The folders that the trainer will look for."""
    classes = {part: _folders(root / part) for part in ("train", "val")}
    if not classes["train"] or classes["train"] != classes["val"]:
        found = ", ".join(f"{part}: {len(names)} folders" for part, names in classes.items())
        raise DatasetError(
            f"the archive does not hold train/<class>/ and val/<class>/ with the same classes (found {found}; at its top: "
            f"{', '.join(sorted(path.name for path in root.iterdir())[:5])}): pack it so, or choose its kind with --kind"
        )


def _folders(path: Path) -> set[str]:
    return {entry.name for entry in path.iterdir() if entry.is_dir()} if path.is_dir() else set()


def _all(act: Callable[[_Item], object], items: Iterable[_Item], done: str) -> None:
    """Do it to all, by many threads, saying how far it is."""
    listed, progress = list(items), DownloadProgress()
    with ThreadPoolExecutor(_WRITERS) as threads:
        for count, _ in enumerate(threads.map(act, listed), start=1):
            progress.say(f"{done} {count} of {len(listed)} files")


def main(arguments: list[str]) -> int:
    """The process's edge: errors become sentences."""
    parser = argparse.ArgumentParser(
        prog="python -m trainer.datasets", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="where the data set shall be")
    parser.add_argument("--url", required=True, help="its archive, a zip or tar; of imagenet the folder of its archives")
    parser.add_argument("--kind", choices=("image-folder", "tiny-imagenet", IMAGENET), default="image-folder")
    checksum = parser.add_mutually_exclusive_group()
    checksum.add_argument("--sha256", help="the archive's checksum")
    checksum.add_argument("--md5", help="the archive's checksum, where no other is published")
    given = parser.parse_args(arguments)
    if not given.url.startswith(("https://", "http://", *BUCKETS)):
        parser.error(f"--url {given.url!r}: only {', '.join(('https://', 'http://', *BUCKETS))} can be fetched")
    if bool(given.sha256 or given.md5) == (given.kind == IMAGENET):
        parser.error(
            "--kind imagenet: its checksums are known, leave --sha256 and --md5 out"
            if given.kind == IMAGENET
            else "--sha256 or --md5 is missing: without a checksum a broken download would be trained on"
        )
    dataset = Dataset(target=given.folder, kind=given.kind, archives=_archives(given))
    try:
        fresh = fetch(dataset)
    except (DatasetError, DownloadError, imagenet.LayoutError, OSError) as error:
        print(f"error: {_sentence(error, given.folder)}", file=sys.stderr, flush=True)
        return 1
    say(f"{given.folder} is complete" + ("" if fresh else ", and was before"))
    return 0


def _archives(given: argparse.Namespace) -> tuple[Archive, ...]:
    if given.kind == IMAGENET:  # the smallest first: what is wrong with the address is seen before hours
        return tuple(
            Archive(url=f"{given.url.rstrip('/')}/{name}", algorithm="md5", checksum=checksum)
            for name, checksum in imagenet.MD5.items()
        )
    algorithm = "sha256" if given.sha256 else "md5"
    return (Archive(url=given.url, algorithm=algorithm, checksum=given.sha256 or given.md5),)


def _sentence(error: Exception, folder: Path) -> str:
    if not isinstance(error, OSError) or error.errno not in _FULL:
        return str(error)
    free = megabytes(shutil.disk_usage(folder.parent).free)
    return (
        f"the volume is full: {folder} does not fit ({free} are free). Remove data with `ebb data rm`, or have the volume made "
        "larger; what is there is kept, and another run goes on from there"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
