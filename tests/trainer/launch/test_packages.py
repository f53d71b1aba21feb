"""What a requirements.txt asks for: added to the image once, and never in place of what the image has."""

import importlib.metadata
import re
import threading
from pathlib import Path

import pytest

from tests.trainer.launch.wheels import make_wheel
from trainer.launch import packages
from trainer.launch.packages import PackagesError, ensure, key

ENVIRONMENT = {"EBB_JOB": "digits", "EBB_WORKER_INDEX": "3"}
TORCH = importlib.metadata.version("torch")


@pytest.fixture(autouse=True)
def _image(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in the image, the folder with torch comes first on the path."""
    folder = str(importlib.metadata.distribution("torch").locate_file(""))
    monkeypatch.setenv("PYTHONPATH", folder)
    monkeypatch.syspath_prepend(folder)


def asks(tmp_path: Path, *lines: str) -> Path:
    """A requirements.txt that finds wheels in its folder, and asks no index."""
    (tmp_path / "code").mkdir(exist_ok=True)
    path = tmp_path / "code" / "requirements.txt"
    path.write_text("\n".join(["--no-index", f"--find-links {(tmp_path / 'wheels').as_uri()}", *lines]) + "\n")
    return path


def test_only_what_the_image_lacks_is_added(tmp_path: Path) -> None:
    """A package that needs torch gets the image's; a dependency that is missing comes along."""
    make_wheel(tmp_path / "wheels", "ebbnet", needs="torch>=2\nRequires-Dist: ebbword")
    make_wheel(tmp_path / "wheels", "ebbword")
    told = list[str]()
    folder = ensure(asks(tmp_path, "ebbnet", "torch"), tmp_path / "packages", ENVIRONMENT, told.append)
    assert sorted(path.name for path in folder.glob("*.py")) == ["ebbnet.py", "ebbword.py"]
    assert not (folder / "torch").exists()
    assert told[0] == "installing requirements.txt for this job and all later ones with the same"
    assert told[-1].startswith("installed ebbnet 1.0, ebbword 1.0 in ")
    assert [path.name for path in folder.parent.iterdir()] == [folder.name], "nothing else stays"
    told.clear()
    assert ensure(asks(tmp_path, "ebbnet", "torch"), tmp_path / "packages", ENVIRONMENT, told.append) == folder
    assert told == []


def test_what_the_image_has_already_makes_an_empty_folder(tmp_path: Path) -> None:
    told = list[str]()
    folder = ensure(asks(tmp_path, "torch>=2"), tmp_path / "packages", {}, told.append)
    assert list(folder.iterdir()) == []
    assert told[-1] == "the image has all of requirements.txt already"


REFUSED = {
    "another torch": (
        ["torch==1.0"],
        rf"The image's own packages \(torch {re.escape(TORCH)} among them\) stay as they are",
    ),
    "unknown": (["ebbnothing"], "No matching distribution found for ebbnothing"),
    "not a line": (["what is this"], "Invalid requirement"),
}


@pytest.mark.parametrize(("lines", "words"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_installed_is_said_with_pips_words(lines: list[str], words: str, tmp_path: Path) -> None:
    with pytest.raises(PackagesError, match=words) as raised:
        ensure(asks(tmp_path, *lines), tmp_path / "packages", ENVIRONMENT, print)
    assert str(raised.value).startswith("requirements.txt could not be installed; pip ended with 1 after:\n")
    assert [path.suffix for path in (tmp_path / "packages").iterdir()] == [".failed"]


def test_a_mended_environment_is_tried_again(tmp_path: Path) -> None:
    with pytest.raises(PackagesError, match="ebbword"):
        ensure(asks(tmp_path, "ebbword"), tmp_path / "packages", ENVIRONMENT, print)
    make_wheel(tmp_path / "wheels", "ebbword")
    folder = ensure(asks(tmp_path, "ebbword"), tmp_path / "packages", ENVIRONMENT, print)
    assert (folder / "ebbword.py").exists()


def test_of_many_workers_one_installs_and_the_others_say_that_they_wait(tmp_path: Path) -> None:
    make_wheel(tmp_path / "wheels", "ebbword")
    requirements, told, found = asks(tmp_path, "ebbword"), list[str](), list[Path]()

    def worker(index: int) -> None:
        environment = {"EBB_JOB": "digits", "EBB_WORKER_INDEX": str(index)}
        found.append(ensure(requirements, tmp_path / "packages", environment, told.append))

    threads = [threading.Thread(target=worker, args=(index,)) for index in range(3)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(set(found)) == 1
    assert len([line for line in told if line.startswith("installed ")]) == 1
    assert len([line for line in told if "installs requirements.txt; waiting for it since" in line]) == 2


def test_who_waited_for_a_failure_does_not_repeat_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    requirements, root = asks(tmp_path, "ebbword"), tmp_path / "packages"
    root.mkdir()
    name = key(requirements)
    (root / f"{name}.lock").write_text("4f1c 000000000000 worker 0 of digits\n")
    (root / f"{name}.failed").write_text("pip said no")
    monkeypatch.setattr(packages, "_install", lambda *_: pytest.fail("it was tried again"))
    with pytest.raises(PackagesError, match="as another worker found: pip said no"):
        ensure(requirements, root, ENVIRONMENT, print)


def test_the_folder_is_of_the_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = asks(tmp_path, "ebbword")
    path.write_text("ebbword\n")
    first = key(path)
    (path.parent / "train.py").write_text("other code")
    assert key(path) == first, "the code does not say what is installed"
    path.write_text("ebbword==2\n")
    assert key(path) != first
    path.write_text("ebbword\n")
    monkeypatch.setattr(packages, "version_of", lambda name: "9.9")
    assert key(path) != first, "another torch"


@pytest.mark.parametrize("line", ["-e .", ".", "./lib", "-r more.txt", "--find-links wheels", "x @ file:///code/x.whl"])
def test_where_files_of_the_code_say_what_is_installed_they_count(line: str, tmp_path: Path) -> None:
    path = asks(tmp_path)
    path.write_text(line + "\n")
    first = key(path)
    (path.parent / "more.txt").write_text("ebbword\n")
    assert key(path) != first


def test_a_place_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "packages").write_text("a file")
    with pytest.raises(PackagesError, match=r"requirements.txt cannot be installed into .*: File exists.*Free space"):
        ensure(asks(tmp_path), tmp_path / "packages", ENVIRONMENT, print)
