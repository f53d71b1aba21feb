"""Sources of the images: a build runs again only when they change, and gets the same files as `docker build`."""

import io
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from infra import images
from infra.config import ROOT
from infra.images import Recipe, archive

SOURCES = ("app", "LICENSE")
DOCKERFILES = {images.CONTROLLER_SOURCES: "workloads/Dockerfile", images.TRAINER_SOURCES: "trainer/Dockerfile"}


def checkout(root: Path) -> Path:
    (root / "app" / "inner").mkdir(parents=True)
    (root / "app" / "Dockerfile").write_text("FROM scratch\n")
    (root / "app" / "main.py").write_text("print(1)\n")
    (root / "app" / "inner" / "run.sh").write_text("#!/bin/sh\n")
    (root / "LICENSE").write_text("free\n")
    return root


def tag(root: Path, **arguments: str) -> str:
    return Recipe(
        repository="trainer", name="default", dockerfile="app/Dockerfile", sources=SOURCES, arguments=arguments, root=root
    ).tag


CHANGES: dict[str, Callable[[Path], object]] = {
    "a file's text": lambda root: (root / "app" / "main.py").write_text("print(2)\n"),
    "a new file": lambda root: (root / "app" / "new.py").write_text(""),
    "a file beside the folder": lambda root: (root / "LICENSE").write_text("mine\n"),
    "a file gone": lambda root: (root / "app" / "main.py").unlink(),
    "a file's name": lambda root: (root / "app" / "main.py").rename(root / "app" / "other.py"),
    "the Dockerfile": lambda root: (root / "app" / "Dockerfile").write_text("FROM other\n"),
    "the right to execute": lambda root: (root / "app" / "inner" / "run.sh").chmod(0o755),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_the_tag_changes_with_the_sources(tmp_path: Path, change: Callable[[Path], object]) -> None:
    before = tag(checkout(tmp_path))
    change(tmp_path)
    assert tag(tmp_path) != before


def _junk(path: Path) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text("junk")


JUNK: dict[str, Callable[[Path], object]] = {
    "compiled": lambda root: _junk(root / "app" / "__pycache__" / "main.cpython-311.pyc"),
    "a lone .pyc": lambda root: _junk(root / "app" / "main.pyc"),
    "an editor's file": lambda root: _junk(root / "app" / ".main.py.swp"),
    "a hidden folder": lambda root: _junk(root / "app" / ".pytest_cache" / "x"),
    "another folder": lambda root: _junk(root / "other" / "x"),
    "a newer time": lambda root: (root / "app" / "main.py").touch(),
    "a group's right": lambda root: (root / "app" / "main.py").chmod(0o664),
}


@pytest.mark.parametrize("change", JUNK.values(), ids=JUNK.keys())
def test_the_tag_does_not_change_with_junk(tmp_path: Path, change: Callable[[Path], object]) -> None:
    before, packed = tag(checkout(tmp_path)), archive(tmp_path, SOURCES)
    change(tmp_path)
    assert (tag(tmp_path), archive(tmp_path, SOURCES)) == (before, packed)


def test_build_arguments_are_part_of_the_tag(tmp_path: Path) -> None:
    checkout(tmp_path)
    assert len({tag(tmp_path), tag(tmp_path, EFA="1"), tag(tmp_path, EFA="0"), tag(tmp_path, TORCH="2.12.0")}) == 4


def test_a_tag_is_one_that_a_registry_takes(tmp_path: Path) -> None:
    name, _, digest = tag(checkout(tmp_path)).partition(".")
    assert name == "default"
    assert len(digest) == 12
    assert set(digest) <= set("0123456789abcdef")


def test_the_archive_holds_what_the_dockerfile_copies(tmp_path: Path) -> None:
    checkout(tmp_path)
    (tmp_path / "app" / "inner" / "run.sh").chmod(0o700)
    packed = zipfile.ZipFile(io.BytesIO(archive(tmp_path, SOURCES)))
    assert packed.namelist() == ["LICENSE", "app/Dockerfile", "app/inner/run.sh", "app/main.py"]
    assert packed.read("app/main.py") == b"print(1)\n"
    assert [packed.getinfo(name).external_attr >> 16 for name in packed.namelist()] == [0o100644, 0o100644, 0o100755, 0o100644]


def test_a_source_that_is_missing_is_an_error(tmp_path: Path) -> None:
    (checkout(tmp_path) / "LICENSE").unlink()
    with pytest.raises(FileNotFoundError, match="LICENSE goes into an image, and is missing"):
        archive(tmp_path, SOURCES)


def test_a_build_service_gets_one_archive_for_each_context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "ROOT", tmp_path)
    recipe = Recipe(repository="trainer", name="default", dockerfile="app/Dockerfile", sources=SOURCES, root=checkout(tmp_path))
    first = images.packed(recipe, archive, ".zip")
    assert first.read_bytes() == archive(tmp_path, SOURCES)
    assert images.packed(recipe, archive, ".zip") == first
    (tmp_path / "app" / "new.py").write_text("")
    second = images.packed(recipe, archive, ".zip")
    assert [path.name for path in first.parent.iterdir()] == [second.name] != [first.name]


@pytest.mark.parametrize("sources", [images.CONTROLLER_SOURCES, images.TRAINER_SOURCES], ids=["controller", "trainer"])
def test_the_dockerfiles_copy_only_files_that_are_hashed(sources: tuple[str, ...]) -> None:
    """COPY takes sources and files in them, and nothing else; `docker build` ignores what the hash ignores."""
    dockerfile = ROOT / DOCKERFILES[sources]
    lines = [line.split() for line in dockerfile.read_text().splitlines() if line.startswith(("COPY ", "ADD "))]
    copied = [word for line in lines if not line[1].startswith("--from=") for word in line[1:-1]]
    assert copied
    assert [path for path in copied if not any(path == one or path.startswith(f"{one}/") for one in sources)] == []
    ignored = dockerfile.with_name("Dockerfile.dockerignore").read_text().splitlines()
    allowed = [f"!{source}" for source in sources]
    assert [line for line in ignored if not line.startswith("#")] == ["*", *allowed, "**/__pycache__", "**/*.pyc", "**/.*"]


def test_dependencies_are_a_layer_below_the_code() -> None:
    for path in DOCKERFILES.values():
        text = (ROOT / path).read_text()
        image = text[text.rindex("\nFROM ") :]
        assert image.index("requirements.txt") < image.index("pip install") < image.index("COPY --from=wheel ")
        assert "COPY ebb " not in image
