"""Copies of a bucket and ImageNet's archives, by programs that are killed again and again: `python -m benchmarks.data`."""

import argparse
import hashlib
import io
import json
import logging
import os
import random
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.s3.models import s3_backends
from moto.server import ThreadedMotoServer
from moto.utilities.utils import get_partition
from scipy.io import savemat

from benchmarks.verdict import Say, conclude
from devcluster.commands import say

TRAIN, VAL, DEVKIT = "ILSVRC2012_img_train.tar", "ILSVRC2012_img_val.tar", "ILSVRC2012_devkit_t12.tar.gz"
BUCKET, REGION = "images", "eu-central-1"
LARGE, PART = 3, 8 * 2**20  # objects of several parts, and a part
LIMIT_SECONDS = 3600.0
NOTES = {".ebb-copy.json", ".ebb-dataset.json"}
HELP = """\
moto's S3 server plays the bucket. First `python -m ebb.buckets` copies it: small objects and three of several parts. Then
ImageNet's three archives, made up with as many small images, are prepared by `python -m trainer.datasets`. Each program is killed
(SIGKILL) where a share of its work is done, 1/21, 2/21 and so on, and started again. The trees must be those of a run that nobody
killed: the same names and the same bytes. The last line is one JSON object.

exit status: 0 the trees are the same, 1 one is not, 2 a program failed, 130 interrupted
"""
IMAGENET = """
import json, sys
from trainer import datasets, imagenet
imagenet.MD5 = json.loads(sys.argv.pop(1))
sys.exit(datasets.main(sys.argv[1:]))
"""


class DataError(Exception):
    """A program failed; the message has its words."""


def killed(command: Sequence[str], given: Mapping[str, str], share: Callable[[], float], kills: int) -> dict[str, Any]:
    """Run it to its end, through kills where shares of its work are done. Raises DataError."""
    done, began = 0, time.monotonic()
    for number in range(1, kills + 1):
        process = _start(command, given)
        while process.poll() is None and share() < number / (kills + 1):
            _check_time(began)
            time.sleep(0.001)  # how far another process is, only the file system shows
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            done += 1
        said = process.communicate()[0]
        if process.returncode not in (0, -signal.SIGKILL):
            raise DataError(f"exit code {process.returncode}: {said.strip().splitlines()[-1:]}")
    process = _start(command, given)
    said = process.communicate(timeout=LIMIT_SECONDS)[0]
    if process.returncode:
        raise DataError(f"exit code {process.returncode}: {said.strip().splitlines()[-1:]}")
    return {"kills": done, "seconds": round(time.monotonic() - began, 1)}


def _check_time(began: float) -> None:
    if time.monotonic() - began > LIMIT_SECONDS:
        raise DataError(f"no end in {LIMIT_SECONDS:.0f} s")


def _start(command: Sequence[str], given: Mapping[str, str]) -> "subprocess.Popen[str]":
    environment = {**os.environ, **given}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def tree(folder: Path) -> dict[str, str]:
    """Path -> digest, of all files but the notes."""
    found = {}
    for path in folder.rglob("*"):
        if path.is_file() and path.name not in NOTES:
            found[path.relative_to(folder).as_posix()] = digest(path.read_bytes())
    return found


def digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def content(name: str, size: int) -> bytes:
    return random.Random(name).randbytes(size)  # noqa: S311 - bytes that are the same in each run


# ------------------------------------------------------------------------------------------------------------ a bucket


@contextmanager
def serving(files: int) -> Iterator[tuple[str, dict[str, str]]]:
    """An address with the bucket, and its tree."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # it has a line for each request
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    store = s3_backends[DEFAULT_ACCOUNT_ID][get_partition(REGION)]
    store.create_bucket(BUCKET, REGION)
    expected = {}
    try:
        sizes = {f"{number % 100}/{number}.jpg": number % 2000 for number in range(files)}
        sizes |= {f"shards/{number}.tar": 3 * PART + number for number in range(LARGE)}
        for name, size in sizes.items():
            data = content(name, size)
            store.put_object(BUCKET, f"set/{name}", data)
            expected[name] = digest(data)
        yield f"http://{host}:{port}", expected
    finally:
        server.stop()


def copy(folder: Path, files: int, kills: int) -> dict[str, Any]:
    """Copy the bucket."""
    with serving(files) as (address, expected):
        say(f"bucket: {len(expected)} objects")
        target, journal = folder / "set", folder / ".copying-set" / "journal"
        whole = sum(len(f"{number}\n") for number in range(len(expected)))  # of a copy that nobody killed, nearly

        def share() -> float:
            with suppress(OSError):
                return journal.stat().st_size / whole
            return 0.0

        given = {"AWS_ENDPOINT_URL": address, "AWS_REGION": REGION, "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
        command = [sys.executable, "-m", "ebb.buckets", f"s3://{BUCKET}/set", str(target)]
        found = killed(command, given, share, kills)
    return {"files": len(expected), **found, "identical": tree(target) == expected and not journal.parent.exists()}


# ------------------------------------------------------------------------------------------------------------ ImageNet


def publish(source: Path, images: int, classes: int = 50) -> dict[str, str]:
    """Write the three archives with so many images; return the tree that they make."""
    names = [f"n{number:08}" for number in range(1, classes + 1)]
    numbers = dict(enumerate(reversed(names), start=1))  # the published numbers are not in the order of names either
    each, validation = images * 9 // 10 // classes, images // 10
    expected: dict[str, str] = {}
    source.mkdir(parents=True)

    def image(archive: tarfile.TarFile, name: str, folder: str) -> None:
        data = content(name, 500 + len(expected) % 1000)
        _add(archive, name, data)
        expected[f"{folder}/{name}"] = digest(data)

    with tarfile.open(source / TRAIN, "w") as train:
        for name in names:
            inner = io.BytesIO()
            with tarfile.open(fileobj=inner, mode="w") as archive:
                for number in range(each):
                    image(archive, f"{name}_{number}.JPEG", f"train/{name}")
            _add(train, f"{name}.tar", inner.getvalue())
    truth = [1 + number % classes for number in range(validation)]
    with tarfile.open(source / VAL, "w") as archive:
        for number, one in enumerate(truth, start=1):
            image(archive, f"ILSVRC2012_val_{number:08}.JPEG", f"val/{numbers[one]}")
    meta = io.BytesIO()
    rows = [(number, name, 0) for number, name in numbers.items()]
    savemat(meta, {"synsets": np.array(rows, dtype=[("ILSVRC2012_ID", "f8"), ("WNID", "O"), ("num_children", "f8")])})
    with tarfile.open(source / DEVKIT, "w:gz") as archive:
        _add(archive, "ILSVRC2012_devkit_t12/data/meta.mat", meta.getvalue())
        lines = "".join(f"{one}\n" for one in truth).encode()
        _add(archive, "ILSVRC2012_devkit_t12/data/ILSVRC2012_validation_ground_truth.txt", lines)
    return expected


def _add(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(data)
    archive.addfile(member, io.BytesIO(data))


def prepare(folder: Path, images: int, kills: int) -> dict[str, Any]:
    """Prepare ImageNet's archives."""
    target = folder / "imagenet"
    work = target.with_name(".preparing-imagenet")
    expected = publish(work / "source", images)
    say(f"ImageNet: {len(expected)} images")
    per_class = images * 9 // 10 // 50

    def share() -> float:
        with suppress(OSError):
            whole = per_class * sum(1 for _ in (work / "unpacked" / "train").iterdir())
            return (whole + sum(len(files) for _, _, files in os.walk(work / "parts"))) / len(expected)
        return 0.0

    sums = {name: hashlib.md5((work / "source" / name).read_bytes()).hexdigest() for name in (DEVKIT, VAL, TRAIN)}  # noqa: S324
    command = [sys.executable, "-c", IMAGENET, json.dumps(sums), str(target), "--url", "s3://ours", "--kind", "imagenet"]
    found = killed(command, {}, share, kills)
    return {"files": len(expected), **found, "identical": tree(target) == expected and not work.exists()}


def main(arguments: Sequence[str]) -> int:
    """The only reader of argv."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.data", description=__doc__, epilog=HELP, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--files", metavar="N", type=int, default=100_000, help="of each tree (default: %(default)d)")
    parser.add_argument("--kills", metavar="N", type=int, default=20, help="of each program (default: %(default)d)")
    given = parser.parse_args(arguments)
    if given.files < 500 or given.kills < 1:
        parser.error("--files must be 500 or more, and --kills 1 or more")
    return conclude("data", partial(measure, given.files, given.kills), judge, failures=(DataError,))


def measure(files: int, kills: int, folder: Path, say: Say) -> dict[str, Any]:
    """Raises DataError."""
    found = dict[str, Any]()
    for name, act in {"imagenet": prepare, "bucket": copy}.items():
        found[name] = act(folder, files, kills)
        say(f"{name}: {json.dumps(found[name])}")
    return found


def judge(found: dict[str, Any]) -> list[str]:
    """The trees that are another one."""
    return [f"the tree of {name} is not that of a run that nobody killed" for name, one in found.items() if not one["identical"]]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
