"""The runtime as a folder: each Python that it is for imports all of it, and what an image lacks is said in one sentence."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from benchmarks.install.__main__ import python_of
from ebb.elastic.contract import EXIT_NO_PROGRAM
from ebb.elastic.portable import entry
from ebb.elastic.portable.__main__ import make

VERSIONS = ("3.9", "3.10", "3.11", "3.12", "3.13", "3.14")
WALK = Path(__file__).with_name("walk.py")
TORCH = str(Path(torch.__file__).parents[1])
REQUIREMENTS = Path(entry.__file__).with_name("requirements.txt")

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As workloads/Dockerfile makes it."""
    work = tmp_path_factory.mktemp("portable")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--require-hashes"]
    subprocess.run([*pip, "--target", work / "urllib3", "--requirement", REQUIREMENTS], check=True, timeout=120)
    make(work / "ebb", work / "urllib3")
    return work / "ebb"


def run(*command: str | Path, path: str = "/nowhere", cwd: Path = Path("/")) -> "subprocess.CompletedProcess[str]":
    clean = {"PATH": path, "PYTHONPATH": TORCH, "TINI_SUBREAPER": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=120, check=False, env=clean, cwd=cwd)


@pytest.mark.parametrize("version", VERSIONS)
def test_every_python_imports_all_of_it(folder: Path, version: str) -> None:
    python = python_of(version)
    if python is None:
        pytest.skip(f"Python {version} is not on this machine")
    done = run(python, "-I", WALK, folder / "python", path=os.environ["PATH"])
    assert done.returncode == 0, done.stderr
    count, *foreign = done.stdout.split()
    assert int(count) > 100
    assert foreign == []  # the program finds the image's own, or none


def test_the_first_interpreter_that_is_there_starts_the_launcher(folder: Path, tmp_path: Path) -> None:
    bin_ = tmp_path / "bin"
    bin_.mkdir()
    (bin_ / "python").symlink_to(sys.executable)
    done = run(folder / "busybox", "sh", folder / "start", "python3 python", "--help", path=str(bin_))
    assert "usage: python -m ebb.elastic.launch" in done.stdout, done.stderr


def test_an_image_without_python_is_told_so(folder: Path) -> None:
    done = run(folder / "busybox", "sh", folder / "start", "python3 python", "train.py")
    assert done.returncode == EXIT_NO_PROGRAM == entry.EXIT_NO_PROGRAM
    assert done.stderr.startswith("ebb: the image has no python3 python on its PATH (/nowhere): take an image with Python 3.9")


def test_a_python_that_is_too_old_is_told_so(folder: Path) -> None:
    python = python_of("3.8") or python_of("3.7")
    if python is None:
        pytest.skip("no Python older than 3.9 is on this machine")
    done = run(python, folder / "python", "train.py", path=os.environ["PATH"])
    assert done.returncode == EXIT_NO_PROGRAM
    assert "needs 3.9 or newer" in done.stderr


def test_the_program_finds_ebb_and_the_images_own_modules(folder: Path, tmp_path: Path) -> None:
    """The image's PYTHONPATH stays, and what is beside the program comes before all."""
    image = tmp_path / "image"
    image.mkdir()
    (image / "urllib3.py").write_text("VERSION = 'of the image'\n")
    (tmp_path / "beside.py").write_text("VALUE = 1\n")
    (tmp_path / "show.py").write_text(
        "import beside, ebb, urllib3, importlib.metadata as m\n"
        "print('seen', urllib3.VERSION, ebb.__file__, *[e.value for e in m.entry_points(group='torchrun.handlers')])\n"
    )
    clean = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, folder / "python", "--standalone", "show.py"],
        capture_output=True, text=True, timeout=120, check=False, cwd=tmp_path,
        env={**clean, "PYTHONPATH": os.pathsep.join([str(image), TORCH]), "PYTHONDONTWRITEBYTECODE": "1"},
    )  # fmt: skip
    seen = next((line for line in done.stdout.splitlines() if line.startswith("seen")), done.stderr)
    assert seen.startswith(f"seen of the image {folder / 'python' / 'ebb' / '__init__.py'}")
    assert "ebb.elastic.rendezvous.entry_point:torchrun_handler" in seen
