"""ImageNet as published, made up small: kills at every point, full volumes, archives that do not belong together."""

import hashlib
import io
import os
import random
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.io import savemat

from ebb.elastic.data.listing import scan
from tests.trainer.web import serve
from trainer import datasets, download, imagenet

CLASSES = ("n01440764", "n02119789", "n04557648")
NUMBERS = {2: "n01440764", 1: "n02119789", 3: "n04557648"}  # the devkit's are not in the names' order
GROUND_TRUTH = [3, 1, 1, 2, 3]


def tarred(files: dict[str, bytes], mode: str = "w") -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as archive:  # type: ignore[call-overload]
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def image(name: str) -> bytes:
    return random.Random(name).randbytes(3000)


def devkit(ground_truth: list[int] = GROUND_TRUTH) -> bytes:
    """With two synsets above the classes, as the published one has 860."""
    rows = [(number, name, f"word, {name}", 0) for number, name in NUMBERS.items()] + [
        (4, "n00001740", "top", 2),
        (5, "n2", "x", 1),
    ]
    synsets = np.array(rows, dtype=[("ILSVRC2012_ID", "f8"), ("WNID", "O"), ("words", "O"), ("num_children", "f8")])
    meta = io.BytesIO()
    savemat(meta, {"synsets": synsets.reshape(-1, 1)}, do_compression=True)
    folder = "ILSVRC2012_devkit_t12"
    lines = "".join(f"{number}\n" for number in ground_truth)
    files = {f"{folder}/data/ILSVRC2012_validation_ground_truth.txt": lines.encode(), f"{folder}/data/meta.mat": meta.getvalue()}
    return tarred({f"{folder}/readme.txt": b"x", **files}, "w:gz")


def published() -> dict[str, bytes]:
    train = {name: [f"{name}_{number}.JPEG" for number in range(4)] for name in CLASSES}
    return {
        imagenet.TRAIN: tarred({f"{name}.tar": tarred({one: image(one) for one in files}) for name, files in train.items()}),
        imagenet.VAL: tarred({name: image(name) for name in (f"ILSVRC2012_val_{n:08}.JPEG" for n in (2, 1, 3, 5, 4))}),
        imagenet.DEVKIT: devkit(),
    }


EXPECTED = {f"train/{name}/{name}_{number}.JPEG": image(f"{name}_{number}.JPEG") for name in CLASSES for number in range(4)} | {
    f"val/{NUMBERS[one]}/ILSVRC2012_val_{number:08}.JPEG": image(f"ILSVRC2012_val_{number:08}.JPEG")
    for number, one in enumerate(GROUND_TRUTH, start=1)
}


def tree(folder: Path) -> dict[str, bytes]:
    files = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert files.pop(datasets.NOTE) == b'{"schema": "1", "kind": "imagenet"}'
    return files


class Killed(BaseException):
    """The process is gone: nobody handles it."""


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[dict[str, bytes]], int]:
    """Prepare tmp_path/data/imagenet from a bucket's archives, copied as `python -m ebb.buckets` leaves them."""
    monkeypatch.setattr(imagenet, "_WRITERS", 2)
    monkeypatch.setattr(os, "fsync", lambda handle: None)  # no machine dies here, and a disk takes its time
    monkeypatch.setattr(os, "sync", lambda: None)

    def prepare(archives: dict[str, bytes]) -> int:
        monkeypatch.setattr(imagenet, "MD5", {name: hashlib.md5(archives.get(name, b"")).hexdigest() for name in imagenet.MD5})
        target = tmp_path / "data" / "imagenet"
        if not target.exists():
            source = target.with_name(".preparing-imagenet") / "source"
            source.mkdir(parents=True, exist_ok=True)
            for name, content in archives.items():
                (source / name).write_bytes(content)
        return datasets.main([str(target), "--url", "s3://ours/ilsvrc", "--kind", "imagenet"])

    return prepare


Run = Callable[[dict[str, bytes]], int]


def test_archives_become_an_image_folder(run: Run, tmp_path: Path) -> None:
    assert run(published()) == 0
    assert tree(tmp_path / "data" / "imagenet") == EXPECTED
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["imagenet"]
    for part, count in (("train", 12), ("val", 5)):
        found = scan(tmp_path / "data" / "imagenet" / part, tmp_path / "data" / "imagenet")
        assert (found.classes, len(found)) == (list(CLASSES), count)


def test_the_archives_of_a_web_server_are_fetched_and_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "_PAUSE_SECONDS", 0.0)
    files = published()
    monkeypatch.setattr(imagenet, "MD5", {name: hashlib.md5(files[name]).hexdigest() for name in imagenet.MD5})
    with serve(files={f"ilsvrc/{name}": content for name, content in files.items()}) as web:
        web.break_after = [len(files[imagenet.DEVKIT]), 1000]
        url = web.url.replace("data.zip", "ilsvrc/")
        assert datasets.main([str(tmp_path / "imagenet"), "--url", url, "--kind", "imagenet"]) == 0
        whole, size = "bytes=0-16777215", len(files["ILSVRC2012_img_val.tar"])
        assert web.asked == [whole, whole, f"bytes=1000-{size - 1}", whole]
    assert tree(tmp_path / "imagenet") == EXPECTED


STEPS = 26  # of a whole run: 3 archives are checked, 17 files written, 5 folders moved, and all is flushed


@pytest.mark.parametrize("point", range(1, STEPS + 1))
def test_killed_at_any_point_it_goes_on_and_leaves_the_same_tree(
    run: Run, tmp_path: Path, point: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = 0

    def step(act: Callable[..., object]) -> Callable[..., object]:
        def acting(*given: object, **named: object) -> object:
            nonlocal steps
            steps += 1
            if steps >= point:
                raise Killed
            return act(*given, **named)

        return acting

    with monkeypatch.context() as dying:
        dying.setattr(os, "fsync", step(os.fsync))
        dying.setattr(os, "sync", step(os.sync))
        dying.setattr(Path, "rename", step(Path.rename))
        dying.setattr(Path, "touch", step(Path.touch))
        with pytest.raises(Killed):
            run(published())
    assert not (tmp_path / "data" / "imagenet").exists()
    assert run(published()) == 0
    assert tree(tmp_path / "data" / "imagenet") == EXPECTED
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["imagenet"]


def test_classes_that_are_whole_are_not_written_again(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []
    real, full = imagenet._write_whole, True

    def write(path: Path, data: bytes) -> None:
        written.append(path.name)
        if full and path.name == "n04557648_0.JPEG":
            raise OSError(28, "No space left on device")
        real(path, data)

    monkeypatch.setattr(imagenet, "_write_whole", write)
    assert run(published()) == 1
    full = False
    written.clear()
    assert run(published()) == 0
    assert sorted(written) == sorted(name.rpartition("/")[2] for name in EXPECTED if "n04557648" in name or "val" in name)


def test_a_volume_that_fills_up_says_so(run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def refuse(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", refuse)
    assert run(published()) == 1
    said = capsys.readouterr().err
    assert said.startswith("error: the volume is full: ")
    assert "Remove data with `ebb data rm`" in said


def test_a_volume_without_room_is_seen_before_the_first_image(
    run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=2_000))
    monkeypatch.setattr(imagenet, "_write", None)
    assert run(published()) == 1
    assert "the volume is full: the images need 0 MB more, and 0 MB are free" in capsys.readouterr().err


OTHER = tarred({"n09999999.tar": tarred({"n09999999_1.JPEG": b"x"})})
FLAT = tarred({"n01440764_1.JPEG": b"x"})
WRONG = {
    "another training archive": ({imagenet.TRAIN: OTHER}, "4 classes are in only one of ILSVRC2012_img_train.tar and the ground"),
    "images at the top": (
        {imagenet.TRAIN: FLAT},
        "ILSVRC2012_img_train.tar has 'n01440764_1.JPEG'; in ImageNet's there is nothing",
    ),
    "another kit": ({imagenet.DEVKIT: tarred({"readme": b"x"}, "w:gz")}, "it is not the development kit of ILSVRC2012's tasks 1"),
    "no such class": ({imagenet.DEVKIT: devkit([3, 1, 7, 2, 3])}, "has class 7, and ILSVRC2012_devkit_t12/data/meta.mat knows 3"),
    "fewer lines": ({imagenet.DEVKIT: devkit([3, 1, 2])}, "_00000005.JPEG', which the ground truth's 3 lines do not cover"),
    "more lines": ({imagenet.DEVKIT: devkit([*GROUND_TRUTH, 1])}, "_val.tar has 5 images, and the ground truth 6 lines"),
}


@pytest.mark.parametrize(("change", "sentence"), WRONG.values(), ids=WRONG)
def test_archives_that_do_not_belong_together_are_refused(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str], change: dict[str, bytes], sentence: str
) -> None:
    assert run(published() | change) == 1
    assert sentence in capsys.readouterr().err
    assert not (tmp_path / "data" / "imagenet").exists()


def test_an_archive_that_the_bucket_lacks_is_named(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    archives = published()
    del archives[imagenet.VAL]
    assert run(archives) == 1
    assert "error: s3://ours/ilsvrc/ILSVRC2012_img_val.tar is not in " in capsys.readouterr().err


def test_a_damaged_copy_is_removed_so_that_it_is_copied_again(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(datasets, "verify", lambda file, algorithm, _: download.verify(file, algorithm, "0" * 32))
    assert run(published()) == 1
    assert "the md5 of the download is" in capsys.readouterr().err
    assert not (tmp_path / "data" / ".preparing-imagenet" / "source").exists()


def test_its_checksums_are_not_to_be_given(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        datasets.main([str(tmp_path / "x"), "--url", "https://x.org/", "--kind", "imagenet", "--md5", "0" * 32])
    assert "its checksums are known, leave --sha256 and --md5 out" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        datasets.main([str(tmp_path / "x"), "--url", "https://x.org/x.zip"])
    assert "--sha256 or --md5 is missing" in capsys.readouterr().err
