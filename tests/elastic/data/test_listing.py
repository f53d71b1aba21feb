"""Which list of images a job uses: shared, made once, the same for as long as the job runs."""

import os
import shutil
import threading
import time
from pathlib import Path

import pytest

from ebb.elastic.data import listing
from ebb.elastic.data.index import Listed
from ebb.elastic.data.listing import changed_folders, load_or_scan, scan
from ebb.elastic.data.sealed import DataError
from tests.elastic import images


def settle(root: Path) -> Path:
    """As if nothing had happened in it for a minute."""
    then = time.time() - 60
    for folder, _, _ in os.walk(root):
        os.utime(folder, (then, then))
    return root


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return settle(images.make(tmp_path / "data", classes=3, train=2)) / "train"


def shared(root: Path) -> list[Path]:
    return sorted((root.parent / ".ebb-index").iterdir())


def forbid(monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError(what)

    monkeypatch.setattr(listing, "_list", refuse)


def test_names_are_sorted_other_files_are_left_out(root: Path, tmp_path: Path) -> None:
    (root / "class0/readme.txt").write_text("no image")
    (root / "class0/more").mkdir()
    (root / "class0/1.png").rename(root / "class0/more/A.PNG")
    (root / ".hidden").mkdir()
    index = load_or_scan(root, tmp_path / "out")
    assert [str(index[number][0].relative_to(root)) for number in range(2)] == ["class0/0.png", "class0/more/A.PNG"]
    assert (len(index), index.classes) == (6, ["class0", "class1", "class2"])


def test_all_jobs_share_one_list(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = load_or_scan(root, tmp_path / "job1")
    assert shared(root) == [first.path]
    forbid(monkeypatch, "listed again")
    assert load_or_scan(root, tmp_path / "job2").path == first.path


def test_a_restart_goes_on_with_its_list_and_says_what_changed(root: Path, tmp_path: Path) -> None:
    first = load_or_scan(root, tmp_path / "out")
    shutil.copy(root / "class0/0.png", root / "class0/9.png")
    said: list[str] = []
    again = load_or_scan(root, tmp_path / "out", say=said.append)
    assert (len(again), again.fingerprint) == (6, first.fingerprint)
    assert said == [
        f"1 of 4 folders of {root} have changed since this job began ({root}/class0): it goes on with the 6 images of then; "
        "a new job will use those of now"
    ]


def test_a_new_job_sees_the_change_and_the_old_one_keeps_its_list(root: Path, tmp_path: Path) -> None:
    old = load_or_scan(root, tmp_path / "old")
    shutil.copy(root / "class0/0.png", root / "class0/9.png")
    settle(root)
    new = load_or_scan(root, tmp_path / "new")
    assert (len(new), len(load_or_scan(root, tmp_path / "old"))) == (7, 6)
    assert shared(root) == sorted([old.path, new.path])
    assert len(load_or_scan(root, tmp_path / "newer")) == 7


def test_only_what_has_changed_is_listed_again(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load_or_scan(root, tmp_path / "old")
    shutil.copy(root / "class1/0.png", root / "class1/9.png")
    (root / "class9").mkdir()
    listed = []
    original = listing._list

    def spy(place: Path, kind: str) -> Listed:
        listed.append(kind)
        return original(place, kind)

    monkeypatch.setattr(listing, "_list", spy)
    index = load_or_scan(root, tmp_path / "new")
    assert sorted(listed) == ["class1", "class9"]
    assert index.images_per_class == [2, 3, 2, 0]
    assert index.fingerprint == scan(root, tmp_path / "fresh").fingerprint


@pytest.mark.parametrize("change", ["removed class", "new class", "file in a folder below"])
def test_changes_that_are_noticed(root: Path, tmp_path: Path, change: str) -> None:
    (root / "class2/below").mkdir()
    settle(root)
    index = load_or_scan(root, tmp_path / "out")
    assert changed_folders(index) == []
    if change == "removed class":
        shutil.rmtree(root / "class1")
    elif change == "new class":
        (root / "class9").mkdir()
    else:
        (root / "class2/below/1.png").write_bytes(b"")
    expected = {"removed class": ["", "class1"], "new class": [""], "file in a folder below": ["class2/below"]}
    assert changed_folders(index) == expected[change]


def test_a_folder_that_was_changing_while_it_was_listed_is_listed_again(tmp_path: Path) -> None:
    """Two files within one tick of the file system's clock: the second leaves no trace in the folder's time."""
    root = images.make(tmp_path / "data", classes=1, train=1) / "train"
    first = load_or_scan(root, tmp_path / "job1")
    assert first.folders == [("", None), ("class0", None)]
    kept = (root / "class0").stat()
    shutil.copy(root / "class0/0.png", root / "class0/1.png")
    os.utime(root / "class0", ns=(kept.st_atime_ns, kept.st_mtime_ns))
    assert len(load_or_scan(root, tmp_path / "job2")) == 2


def test_a_folder_that_cannot_be_written_to(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "_writable", lambda _: False)  # tests may run as root, whom permissions do not stop
    said: list[str] = []
    index = load_or_scan(root, tmp_path / "out", say=said.append)
    assert index.path.parent == tmp_path / "out"
    assert said[0].startswith(f"{root.parent} cannot be written to: the list of its images is kept in {tmp_path / 'out'}")
    forbid(monkeypatch, "listed again")
    assert len(load_or_scan(root, tmp_path / "out")) == 6


def test_a_probe_tells_what_can_be_written_to(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert listing._writable(tmp_path / "new")
    assert not listing._writable(tmp_path / "file")
    assert list((tmp_path / "new").iterdir()) == []


def test_a_damaged_list_is_made_again(root: Path, tmp_path: Path) -> None:
    index = load_or_scan(root, tmp_path / "out")
    index.path.write_bytes(index.path.read_bytes()[:-5])
    assert load_or_scan(root, tmp_path / "out").fingerprint == index.fingerprint


def test_a_list_that_is_gone_and_cannot_be_made_again_is_refused(root: Path, tmp_path: Path) -> None:
    load_or_scan(root, tmp_path / "out").path.unlink()
    (root / "class0/0.png").unlink()
    with pytest.raises(DataError, match=r"other images than those that this job began with \(6 then, 5 now\)"):
        load_or_scan(root, tmp_path / "out")


def test_a_list_that_nobody_has_used_for_long_is_removed(root: Path, tmp_path: Path) -> None:
    old = load_or_scan(root, tmp_path / "old").path
    os.utime(old, (0, time.time() - 31 * 86400))
    (root / "class0/0.png").unlink()
    settle(root)
    os.utime(old, (0, time.time() - 31 * 86400))
    index = scan(root, old.parent)
    listing._remove_unused(index)
    assert shared(root) == [index.path]


def test_a_folder_without_images_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "train/class0").mkdir(parents=True)
    with pytest.raises(DataError, match=r"has no image: it must hold <class>/<image>, with images named \*.png"):
        load_or_scan(tmp_path / "train", tmp_path / "out")
    assert shared(tmp_path / "train") == []


def test_two_at_once_make_one_list(root: Path, tmp_path: Path) -> None:
    found = []
    threads = [threading.Thread(target=lambda: found.append(load_or_scan(root, tmp_path / "out").path)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [shared(root)[0]] * 2


def test_progress_is_said(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "_PROGRESS_SECONDS", -1.0)
    said: list[str] = []
    load_or_scan(root, tmp_path / "out", say=said.append)
    assert said == [f"listing {root}: {2 * count} images in {count} of 3 classes after 0 s" for count in (1, 2, 3)]
