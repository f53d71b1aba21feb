"""Images that were decoded once: the same samples as the files, whole or refused, made by a converter that may be killed."""

import fcntl
import os
import pickle
import re
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torchvision.io import write_jpeg

from ebb.elastic.data import DataError, convert, open_images
from ebb.elastic.data.__main__ import main
from ebb.elastic.data.images import open_source
from ebb.elastic.data.order import Sample
from ebb.elastic.data.shards import MANIFEST, Layout, Shards, shard_name, write_shard
from tests.elastic import images


def photos(root: Path, count: int = 20) -> Path:
    """Of different shapes, in two classes."""
    generator = torch.Generator().manual_seed(0)
    for number in range(count):
        folder = root / ("train" if number % 4 else "val") / f"class{number % 2}"
        folder.mkdir(parents=True, exist_ok=True)
        height, width = torch.randint(20, 90, (2,), generator=generator).tolist()
        small = torch.randint(0, 256, (3, 5, 5), dtype=torch.uint8, generator=generator)
        image = torch.nn.functional.interpolate(small[None], (height, width), mode="bilinear")[0]
        write_jpeg(image, str(folder / f"{number:03}.jpg"))
    then = time.time() - 60
    for place, _, _ in os.walk(root):
        os.utime(place, (then, then))
    return root


def ratio(image: torch.Tensor) -> float:
    height, width = image.shape[1:]
    return max(height, width) / min(height, width)


def run(*arguments: object) -> int:
    return main([str(argument) for argument in arguments])


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return photos(tmp_path_factory.mktemp("photos"))


@pytest.fixture
def out(data: Path, tmp_path: Path) -> Path:
    assert run("convert", data, tmp_path / "out", "--size", 32) == 0
    return tmp_path / "out"


def test_both_forms_give_the_same_samples(data: Path, tmp_path: Path) -> None:
    """Bit for bit where nothing had to be made smaller or cut; numbers, labels and random crops in any case."""
    assert run("convert", data, tmp_path / "large", "--size", 100) == 0
    for augment in ("imagenet", "shift", "none"):
        files, shards = (
            open_images(root / "train", tmp_path / "job", image_size=24, augment=augment, seed=3)
            for root in (data, tmp_path / "large")
        )
        assert (len(files), files.classes, files.source.fingerprint) == (len(shards), shards.classes, shards.source.fingerprint)
        nearly_square = [number for number in range(len(files)) if ratio(files.source.read(number)[0]) <= 2]
        assert len(nearly_square) > 5
        for number in nearly_square:
            one, other = files[Sample(1, number)], shards[Sample(1, number)]
            assert one[1:] == other[1:]
            assert torch.equal(one[0], other[0])


def test_images_are_kept_whole_with_a_shorter_side_of_the_size(data: Path, out: Path) -> None:
    files, shards = open_source(data / "train", out), Shards(out / "train")
    for number in range(len(shards)):
        before, after = files.read(number)[0].shape[1:], shards.read(number)[0].shape[1:]
        shorter = min(before)
        if shorter <= 32:
            assert min(after) == shorter
            assert max(after) == min(max(before), 2 * shorter)
        else:
            assert min(after) == 32
            assert max(after) == pytest.approx(32 * min(max(before) / shorter, 2), abs=1)


def test_it_is_safe_to_repeat(data: Path, out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = contents(out)
    capsys.readouterr()
    assert run("convert", data, out, "--size", 32) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"{out / 'val'}: 5 images of {data / 'val'}, there already"
    assert contents(out) == before


def test_a_folder_of_classes_alone(data: Path, tmp_path: Path) -> None:
    assert run("convert", data / "val", tmp_path / "out", "--size", 32, "--workers", 2) == 0
    assert len(Shards(tmp_path / "out")) == 5


def test_shards_travel_to_processes_that_are_not_forked(out: Path) -> None:
    shards = Shards(out / "train")
    first = shards.read(7)
    again: tuple[torch.Tensor, int] = pickle.loads(pickle.dumps(shards)).read(7)
    assert torch.equal(first[0], again[0])


def die_after(times: int, original: Callable[..., Any]) -> Callable[..., Any]:
    calls = []

    def call(*given: Any, **named: Any) -> Any:
        calls.append(1)
        if len(calls) > times:
            os.kill(os.getpid(), signal.SIGKILL)
        return original(*given, **named)

    return call


def convert_and_die(moment: str, times: int, arguments: list[str]) -> int:
    """In a process of its own; returns how it ended."""
    process = os.fork()
    if not process:
        place: Any = {"shrunk": convert, "rename": Path, "fsync": os}[moment]
        setattr(place, moment, die_after(times, getattr(place, moment)))
        os._exit(main(arguments))
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


@pytest.mark.parametrize("times", [0, 1, 5])
@pytest.mark.parametrize("moment", ["shrunk", "rename", "fsync"])
def test_a_killed_conversion_is_taken_up_and_ends_with_the_same_bytes(
    data: Path, out: Path, tmp_path: Path, moment: str, times: int
) -> None:
    again = tmp_path / "again"
    arguments = ["convert", str(data), str(again), "--size", "32", "--workers", "2"]
    assert convert_and_die(moment, times, arguments) == -signal.SIGKILL
    assert not Shards.are_in(again / "val")
    assert run(*arguments) == 0
    assert contents(again) == contents(out)


def test_what_is_done_is_not_done_again(data: Path, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (out / "train" / MANIFEST).unlink()
    (out / "train" / shard_name(3)).unlink()
    made = []
    original = write_shard

    def spy(path: Path, *given: Any) -> None:
        made.append(path.name)
        original(path, *given)

    monkeypatch.setattr(convert, "write_shard", spy)
    assert run("convert", data, out, "--size", 32) == 0
    assert made == [shard_name(3)]


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(("size", "made from other images than those of now, or for another size"), id="other-size"),
        pytest.param(("size, unfinished", r"made from other images, or for another --size \(32\)"), id="other-size-unfinished"),
        pytest.param(("images", "holds 15 images of --size 32 that were made from other images"), id="other-images"),
    ],
)
def test_another_conversion_is_not_mixed_in(
    data: Path, out: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], case: tuple[str, str]
) -> None:
    change, words = case
    folder = data
    if change == "images":
        folder = tmp_path / "other"
        shutil.copytree(data, folder)
        (folder / "train/class1/new.jpg").write_bytes((folder / "train/class1/001.jpg").read_bytes())
    if "unfinished" in change:
        (out / "train" / MANIFEST).unlink()
    before = contents(out)
    assert run("convert", folder, out, "--size", 32 if change == "images" else 16) == 1
    assert re.search(words, capsys.readouterr().err)
    assert {name: content for name, content in contents(out).items() if name in before} == before


def test_broken_images_are_all_named_and_the_rest_is_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = photos(tmp_path / "data", 40)
    kept = {}
    for name in ("class1/001.jpg", "class1/017.jpg"):
        kept[name] = (data / "train" / name).read_bytes()
        (data / "train" / name).write_bytes(b"no image")
    assert run("convert", data, tmp_path / "out", "--size", 32) == 1
    error = capsys.readouterr().err
    assert error.startswith("error: 2 images cannot be converted:\n")
    assert all(str(data / "train" / name) in error for name in kept)
    assert not Shards.are_in(tmp_path / "out" / "train")
    assert len(list((tmp_path / "out/train").glob("*.shard"))) == 13  # of 15, of two images each
    for name, content in kept.items():
        (data / "train" / name).write_bytes(content)
    assert run("convert", data, tmp_path / "out", "--size", 32) == 0
    assert len(Shards(tmp_path / "out" / "train")) == 30


def test_a_disk_that_will_not_hold_it_all_is_told_early(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(convert, "_PROGRESS_SECONDS", -1.0)
    monkeypatch.setattr(convert.shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(100, 90, 10))  # type: ignore[attr-defined]
    assert run("convert", data, tmp_path / "out", "--size", 32) == 1
    assert "has 0.0 GB free, and about" in capsys.readouterr().err


def test_progress_is_said(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(convert, "_PROGRESS_SECONDS", -1.0)
    assert run("convert", data, tmp_path / "out", "--size", 32, "--workers", 1) == 0
    first, *_ = capsys.readouterr().out.splitlines()
    assert re.fullmatch(rf"{tmp_path}/out/train: 1 of 15 images, \d+ a second, 0 minutes and 0.0 GB to go", first)


def test_two_at_once_are_refused(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "out/train").mkdir(parents=True)
    with (tmp_path / "out/train/.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert run("convert", data, tmp_path / "out") == 1
    assert "another conversion into" in capsys.readouterr().err


def test_verify_finds_one_changed_bit(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("verify", out) == 0
    path = out / "train" / shard_name(2)
    content = bytearray(path.read_bytes())
    content[100] ^= 1
    path.write_bytes(content)
    (out / "val" / shard_name(0)).unlink()
    assert run("verify", out) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"error: 2 shards are damaged or missing:\n{path}\n{out / 'val' / shard_name(0)}\n")


def test_what_cannot_be_read_is_a_sentence(out: Path) -> None:
    path = out / "train" / shard_name(0)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DataError, match=f"{path} is damaged: it is cut off"):
        Shards(out / "train").read(0)
    (out / "train" / MANIFEST).write_text("{")
    with pytest.raises(DataError, match=r"shards.json is damaged.*convert the images again"):
        Shards(out / "train")


def test_a_shard_of_another_folder_is_refused(out: Path) -> None:
    shutil.copy(out / "val" / shard_name(0), out / "train" / shard_name(0))
    with pytest.raises(DataError, match="was made from other images"):
        Shards(out / "train").read(0)


@pytest.mark.parametrize(
    ("samples", "size", "per_shard", "shards"),
    [
        pytest.param(1_281_167, 256, 4096, 313, id="imagenet"),
        pytest.param(1500, 32, 94, 16, id="digits"),
        pytest.param(1, 256, 1, 1, id="one"),
    ],
)
def test_layout(samples: int, size: int, per_shard: int, shards: int) -> None:
    layout = Layout("", size, samples)
    assert (layout.per_shard, layout.shards) == (per_shard, shards)
    assert [number for shard in range(shards) for number in layout.numbers(shard)] == list(range(samples))


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(["convert", "a", "b", "--size", "4"], id="size"),
        pytest.param(["verify", "b", "--workers", "-1"], id="workers"),
        pytest.param([], id="nothing"),
    ],
)
def test_wrong_arguments(arguments: list[str]) -> None:
    with pytest.raises(SystemExit):
        main(arguments)


def test_folders_that_are_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("convert", tmp_path / "none", tmp_path / "out") == 1
    assert run("verify", tmp_path) == 1
    error = capsys.readouterr().err
    assert f"{tmp_path / 'none'} is no folder" in error
    assert "holds no shards: `python -m ebb.elastic.data convert" in error


def test_the_images_of_tests_can_be_converted(tmp_path: Path) -> None:
    """PNG, and a network can be trained on the result: the trainer's own tests do."""
    assert run("convert", images.make(tmp_path / "data"), tmp_path / "out", "--size", 32) == 0
    assert Shards(tmp_path / "out/train").read(26)[0].shape == (3, 32, 32)
