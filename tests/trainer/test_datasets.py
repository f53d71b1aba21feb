"""Fetching a data set: from a server on this machine that breaks off, by runs that are killed, to what is trained on."""

import hashlib
import io
import subprocess
import sys
import tarfile
import threading
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ebb.elastic.data.listing import scan
from tests.trainer.web import Web, serve
from trainer import datasets, download

CLASSES = ("n01443537", "n01629819")


def tiny_imagenet() -> dict[str, bytes]:
    """The layout of http://cs231n.stanford.edu/tiny-imagenet-200.zip, with 2 classes instead of 200."""
    top = "tiny-imagenet-200"
    files = {f"{top}/wnids.txt": "\n".join(CLASSES).encode(), f"{top}/words.txt": b"n01443537\tgoldfish\n"}
    for name in CLASSES:
        files[f"{top}/train/{name}/{name}_boxes.txt"] = b""
        files |= {f"{top}/train/{name}/images/{name}_{number}.JPEG": f"train {name} {number}".encode() for number in range(5)}
    files |= {f"{top}/val/images/val_{number}.JPEG": f"val {number}".encode() for number in range(4)}
    rows = [f"val_{number}.JPEG\t{CLASSES[number % 2]}\t0\t32\t44\t62" for number in range(4)]
    files[f"{top}/val/val_annotations.txt"] = ("\n".join(rows) + "\n").encode()
    return files | {f"{top}/test/images/test_0.JPEG": b"test"}


def image_folder() -> dict[str, bytes]:
    return {f"{part}/{name}/{number}.png": b"x" for part in ("train", "val") for name in "ab" for number in range(3)}


def zipped(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def tarred(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


@pytest.fixture
def web(monkeypatch: pytest.MonkeyPatch) -> Iterator[Web]:
    monkeypatch.setattr(download, "_PAUSE_SECONDS", 0.0)
    with serve(zipped(tiny_imagenet())) as served:
        yield served


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "data" / "tiny-imagenet-200"


def arguments(web: Web, folder: Path, *more: str, kind: str = "tiny-imagenet") -> list[str]:
    checksum = () if "--md5" in more else ("--sha256", hashlib.sha256(web.content).hexdigest())
    return [str(folder), "--url", web.url, "--kind", kind, *checksum, *more]


def files(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def beside(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.parent.iterdir())


def test_tiny_imagenet_becomes_an_image_folder(web: Web, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert datasets.main(arguments(web, folder)) == 0
    found = files(folder)
    assert found["val/n01443537/val_0.JPEG"] == b"val 0"
    assert found["val/n01629819/val_3.JPEG"] == b"val 3"
    assert found["train/n01443537/images/n01443537_4.JPEG"] == b"train n01443537 4"
    assert not (folder / "val" / "images").exists()
    assert beside(folder) == ["tiny-imagenet-200"]  # the work folder is gone
    assert capsys.readouterr().out.splitlines()[-1] == f"{folder} is complete"


def test_the_trainer_sees_the_same_classes_in_both_parts(web: Web, folder: Path) -> None:
    datasets.main(arguments(web, folder))
    train, val = (scan(folder / part, folder) for part in ("train", "val"))
    assert (train.classes, len(train)) == (list(CLASSES), 10)
    assert (val.classes, len(val)) == (list(CLASSES), 4)


def test_a_second_run_does_nothing(web: Web, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    datasets.main(arguments(web, folder))
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    assert datasets.main(arguments(web, folder)) == 0
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before
    assert len(web.asked) == 1
    assert beside(folder) == ["tiny-imagenet-200"]
    assert capsys.readouterr().out.splitlines()[-1] == f"{folder} is complete, and was before"


@pytest.mark.parametrize("pack", [pytest.param(zipped, id="zip"), pytest.param(tarred, id="tar.gz")])
def test_an_image_folder_at_the_top_of_any_archive(web: Web, folder: Path, pack: Callable[[dict[str, bytes]], bytes]) -> None:
    if pack is tarred and not hasattr(tarfile, "data_filter"):
        pytest.skip("this Python is older than 3.11.4")
    web.content = pack(image_folder())
    checksum = hashlib.md5(web.content).hexdigest()
    assert datasets.main(arguments(web, folder, "--md5", checksum, kind="image-folder")) == 0
    assert set(files(folder)) == {*image_folder(), datasets.NOTE}


def parts(web: Web, size: int = 64) -> list[str]:
    """The Range of each part."""
    return [f"bytes={start}-{min(start + size, len(web.content)) - 1}" for start in range(0, len(web.content), size)]


def test_a_small_file_is_one_request(web: Web, folder: Path) -> None:
    assert datasets.main(arguments(web, folder)) == 0
    assert web.asked == [f"bytes=0-{download.PART_BYTES - 1}"]


def test_a_large_file_comes_in_parts_over_several_connections(web: Web, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "PART_BYTES", len(web.content) // download.CONNECTIONS)
    left = -(-len(web.content) // download.PART_BYTES) - 1
    web.together = threading.Barrier(left)  # broken after a minute, unless all of them are asked for at once
    assert left >= 7
    assert datasets.main(arguments(web, folder)) == 0
    assert sorted(map(str, web.asked)) == sorted(parts(web, download.PART_BYTES))
    assert not web.together.broken


def test_a_part_that_breaks_off_goes_on_where_it_stood(web: Web, folder: Path) -> None:
    web.break_after = [1000, 500]
    assert datasets.main(arguments(web, folder)) == 0
    last = len(web.content) - 1
    assert web.asked == [f"bytes=0-{download.PART_BYTES - 1}", f"bytes=1000-{last}", f"bytes=1500-{last}"]


def test_a_server_without_parts_is_read_in_one_stream(web: Web, folder: Path) -> None:
    web.break_after, web.ranges = [1000], False
    assert datasets.main(arguments(web, folder)) == 0
    assert len(web.asked) == 2  # one broke off, and all of it came again
    assert (folder / "wnids.txt").exists()


def test_an_empty_file_is_no_archive(web: Web, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    web.content = b""
    assert datasets.main(arguments(web, folder)) == 1
    assert "is neither a zip nor a tar archive" in capsys.readouterr().err
    assert web.asked == [f"bytes=0-{download.PART_BYTES - 1}", None]


def test_a_server_that_refuses_further_connections_is_asked_later(
    web: Web, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(download, "PART_BYTES", 64)
    web.most = 1
    assert datasets.main(arguments(web, folder)) == 0
    assert "503 Service Unavailable" in capsys.readouterr().out
    assert (folder / "wnids.txt").exists()


def test_a_server_that_stops_giving_parts_is_read_in_one_stream(web: Web, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work = interrupted(web, folder, monkeypatch)
    web.ranges = False
    assert datasets.main(arguments(web, folder)) == 0
    assert len(list(work.glob("*"))) == 0
    assert (folder / "wnids.txt").exists()


def test_parts_of_another_file_are_thrown_away(web: Web, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = web.content
    given = arguments(web, folder)
    web.content = zipped(image_folder())
    interrupted(web, folder, monkeypatch, given)
    web.content = wanted
    web.asked.clear()
    assert datasets.main(given) == 0
    assert set(parts(web)) <= set(map(str, web.asked))


def interrupted(web: Web, folder: Path, monkeypatch: pytest.MonkeyPatch, given: list[str] | None = None) -> Path:
    """The work folder of a run that had some parts when the server refused it."""
    monkeypatch.setattr(download, "PART_BYTES", 64)
    monkeypatch.setattr(download, "CONNECTIONS", 1)
    work = folder.parent / f".preparing-{folder.name}"
    web.refuse_after = 3
    assert datasets.main(given or arguments(web, folder)) == 1
    web.refuse_after = None
    (whole,) = work.glob("*.whole")
    assert whole.read_bytes().count(1) == 3
    return work


def test_an_overloaded_server_is_asked_again(web: Web, folder: Path) -> None:
    web.status = [503, 429]
    assert datasets.main(arguments(web, folder)) == 0
    assert len(web.asked) == 3


def test_no_progress_at_all_ends_in_a_sentence(web: Web, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    web.status = [503] * 20
    assert datasets.main(arguments(web, folder)) == 1
    assert len(web.asked) == 8
    assert "no progress in 8 attempts, the last one: 503 Service Unavailable" in capsys.readouterr().err


def test_a_wrong_address_is_not_tried_again(web: Web, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    web.status = [404]
    assert datasets.main(arguments(web, folder)) == 1
    assert len(web.asked) == 1
    assert capsys.readouterr().err == f"error: {web.url}: the server answers 404 Not Found: check the address\n"


def test_a_wrong_checksum_leaves_nothing_to_train_on(web: Web, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert datasets.main(arguments(web, folder, "--md5", "0" * 32)) == 1
    assert f"the md5 of the download is {hashlib.md5(web.content).hexdigest()}" in capsys.readouterr().err
    assert not folder.exists()
    assert datasets.main(arguments(web, folder)) == 0  # and the next run starts afresh
    assert len(web.asked) == 2


KILLED = {
    "while files are written": "shutil.copyfileobj = after(shutil.copyfileobj, 5)",
    "while validation is arranged": "datasets.arrange_validation = after(datasets.arrange_validation, 0)",
    "before the folder has its name": "os.sync = after(os.sync, 0)",
    "after the folder has its name": "shutil.rmtree = after(shutil.rmtree, 1)",  # the first call clears the way for unpacking
}
DIE = """
import os, shutil, sys
from trainer import datasets

def after(original, times):
    calls = []
    def call(*given, **named):
        calls.append(1)
        if len(calls) > times:
            os.kill(os.getpid(), 9)
        return original(*given, **named)
    return call

%s
datasets.main(sys.argv[1:])
"""


@pytest.mark.parametrize("moment", [pytest.param(code, id=name) for name, code in KILLED.items()])
def test_a_killed_run_leaves_nothing_half_done_and_is_taken_up(web: Web, folder: Path, moment: str) -> None:
    died = subprocess.run([sys.executable, "-c", DIE % moment, *arguments(web, folder)], timeout=60, check=False)
    assert died.returncode == -9
    if folder.exists():
        assert (folder / "val" / CLASSES[0]).is_dir()
    assert datasets.main(arguments(web, folder)) == 0
    assert beside(folder) == ["tiny-imagenet-200"]
    assert set(files(folder)) >= {"val/n01443537/val_2.JPEG", "train/n01629819/images/n01629819_0.JPEG"}
    assert len(web.asked) == 1  # the archive was whole: not fetched again


def test_runs_that_are_killed_in_the_download_repeat_only_the_parts_under_way(
    web: Web, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(download, "PART_BYTES", 64)
    code = DIE % "from trainer import download\ndownload.PART_BYTES = 64\nos.pwrite = after(os.pwrite, 20)"
    kept: set[str] = set()
    for _ in range(3):
        web.asked.clear()
        died = subprocess.run([sys.executable, "-c", code, *arguments(web, folder)], timeout=60, check=False)
        assert died.returncode == -9
        assert not folder.exists()
        assert not kept & set(map(str, web.asked))
        (whole,) = (folder.parent / f".preparing-{folder.name}").glob("*.whole")
        now = {part for part, here in zip(parts(web), whole.read_bytes(), strict=True) if here}
        assert now > kept
        kept = now
    web.asked.clear()
    assert datasets.main(arguments(web, folder)) == 0
    assert sorted(map(str, web.asked)) == sorted(set(parts(web)) - kept)
    assert (folder / "wnids.txt").exists()


def test_two_runs_at_once_download_once(web: Web, folder: Path) -> None:
    command = [sys.executable, "-m", "trainer.datasets", *arguments(web, folder)]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    said = [process.communicate(timeout=60)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert len(web.asked) == 1
    assert sorted(text.splitlines()[-1] for text in said) == [f"{folder} is complete", f"{folder} is complete, and was before"]


def test_a_folder_of_somebody_else_is_left_alone(web: Web, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder.mkdir(parents=True)
    (folder / "mine").write_text("x")
    assert datasets.main(arguments(web, folder)) == 1
    assert "exists and was not made by this program" in capsys.readouterr().err
    assert files(folder) == {"mine": b"x"}
    assert web.asked == []


def test_another_checksum_for_the_same_name_is_refused(web: Web, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    datasets.main(arguments(web, folder))
    assert datasets.main(arguments(web, folder, "--md5", "0" * 32)) == 1
    assert "give the data set another name, or remove the folder" in capsys.readouterr().err


STRAY = tiny_imagenet() | {"tiny-imagenet-200/val/images/stray.JPEG": b"x"}
WRONG = {
    "no archive": (b"<html>", "is neither a zip nor a tar archive"),
    "outside": (zipped({"../evil": b"x"}), "holds '../evil', which is outside of its folder"),
    "absolute": (zipped({"/etc/evil": b"x"}), "holds '/etc/evil', which is outside"),
    "other folders": (zipped({"a/b/c.png": b"x", "d/e.png": b"x"}), "found train: 0 folders, val: 0 folders; at its top: a, d"),
    "other classes": (zipped({"train/a/1.png": b"x", "val/b/1.png": b"x"}), "with the same classes"),
}


@pytest.mark.parametrize(("content", "sentence"), WRONG.values(), ids=WRONG)
def test_what_cannot_be_trained_on_is_refused(
    web: Web, folder: Path, capsys: pytest.CaptureFixture[str], content: bytes, sentence: str
) -> None:
    web.content = content
    assert datasets.main(arguments(web, folder, kind="image-folder")) == 1
    assert sentence in capsys.readouterr().err
    assert not folder.exists()


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        pytest.param(zipped(image_folder()), "it is not Tiny ImageNet", id="other kind"),
        pytest.param(
            zipped(STRAY), "1 files are in only one of val/images and val_annotations.txt, e.g. stray.JPEG", id="no label"
        ),
    ],
)
def test_what_is_not_tiny_imagenet_is_refused(
    web: Web, folder: Path, capsys: pytest.CaptureFixture[str], content: bytes, sentence: str
) -> None:
    web.content = content
    assert datasets.main(arguments(web, folder)) == 1
    assert sentence in capsys.readouterr().err


def test_only_addresses_of_the_web_are_fetched(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        datasets.main([str(folder), "--url", "file:///etc/passwd", "--md5", "0"])
    assert "only https://, http://, s3://, gs://, az:// can be fetched" in capsys.readouterr().err
