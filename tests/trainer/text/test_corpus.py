"""The corpus is the same bytes every time, and made of nothing but the library's own sources."""

import hashlib
import json
from pathlib import Path

import pytest

from trainer.text.__main__ import main
from trainer.text.corpus import SEPARATOR, CorpusError, sources, write


@pytest.fixture
def library(tmp_path: Path) -> Path:
    root = tmp_path / "lib"
    for number in range(25):
        path = root / f"part{number % 3}" / f"module{number:02}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"answer = {number}\n")
    for name in (
        "test/test_x.py",
        "site-packages/other.py",
        "part0/__pycache__/y.py",
        "notes.txt",
        "part1/table.py",
        "part1/empty.py",
    ):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("" if "empty" in name else "x" * (500_000 if "table" in name else 9))
    return root


def test_every_source_is_in_one_part_whole(library: Path, tmp_path: Path) -> None:
    facts = write(tmp_path / "text", library)
    parts = {name: (tmp_path / "text" / f"{name}.bin").read_bytes() for name in ("train", "val")}
    found = [text for name in ("train", "val") for text in parts[name].split(SEPARATOR)]
    assert sorted(found) == sorted(path.read_bytes() for path in library.rglob("module*.py"))
    assert len(parts["val"].split(SEPARATOR)) == 3  # every tenth of 25
    assert facts["files"] == 25
    for name, content in parts.items():
        assert facts[name] == {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    assert json.loads((tmp_path / "text" / "corpus.json").read_text()) == facts


def test_made_again_it_is_the_same(library: Path, tmp_path: Path) -> None:
    assert write(tmp_path / "one", library) == write(tmp_path / "two", library) == write(tmp_path / "one", library)
    assert sorted(path.name for path in (tmp_path / "one").iterdir()) == ["corpus.json", "train.bin", "val.bin"]


def test_this_pythons_own_library_is_enough(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path)]) == 0
    facts = json.loads((tmp_path / "corpus.json").read_text())
    assert facts["train"]["bytes"] > 5e6
    assert facts["val"]["bytes"] > 3e5
    assert b"def " in (tmp_path / "val.bin").read_bytes()
    assert "train " in capsys.readouterr().out


def test_a_python_without_sources_is_said(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="only 0 Python sources"):
        write(tmp_path / "text", tmp_path)
    assert sources(tmp_path) == []


@pytest.mark.parametrize(("arguments", "code"), [([], 0), (["--help"], 0), (["--all"], 1), (["a", "b"], 1)])
def test_without_a_folder_it_teaches(arguments: list[str], code: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == code
    assert "python -m trainer.text DIR" in capsys.readouterr().out
