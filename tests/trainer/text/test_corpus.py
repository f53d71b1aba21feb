"""The corpus is the same bytes every time, and made of nothing but the library's own sources."""

import hashlib
import json
from array import array
from pathlib import Path

import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

from trainer.text.__main__ import main
from trainer.text.corpus import SEPARATOR, CorpusError, sources, write
from trainer.text.windows import Windows


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


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Words, with a real tokenizer's file."""
    made = Tokenizer(WordLevel({"<unk>": 0, "</s>": 1, "fish": 2, "red": 3, "blue": 4}, unk_token="<unk>"))
    made.pre_tokenizer = Whitespace()
    path = tmp_path_factory.mktemp("model") / "tokenizer.json"
    made.save(str(path))
    return path


def test_own_texts_are_packed_as_tokens(tmp_path: Path, tokenizer: Path) -> None:
    texts = [tmp_path / f"{number}.txt" for number in range(3)]
    for path, words in zip(texts, ("red fish", "blue fish", "green fish"), strict=True):
        path.write_text(words)
    assert main([str(tmp_path / "text"), "--tokenizer", str(tokenizer), "--text", *map(str, texts)]) == 0
    train, val = (array("H", (tmp_path / "text" / f"{part}.bin").read_bytes()).tolist() for part in ("train", "val"))
    assert (train, val) == ([4, 2, 1, 0, 2, 1], [3, 2, 1])
    windows = Windows(tmp_path / "text" / "train.bin", context=2)
    assert (len(windows), windows.vocabulary) == (2, 5)
    assert [each.tolist() for each in windows[1][:2]] == [[1, 0], [0, 2]]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        pytest.param("{}", "cannot read the tokenizer", id="broken"),
        pytest.param(None, "cannot read the tokenizer", id="missing"),
        pytest.param("no end", "has none of the end tokens </s>", id="no-end"),
    ],
)
def test_a_tokenizer_that_cannot_be_used_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str | None, words: str
) -> None:
    path = tmp_path / "tokenizer.json"
    if content == "no end":
        Tokenizer(WordLevel({"<unk>": 0}, unk_token="<unk>")).save(str(path))
    elif content is not None:
        path.write_text(content)
    assert main([str(tmp_path / "text"), "--tokenizer", str(path)]) == 1
    said = capsys.readouterr().err
    assert said.startswith("error: ")
    assert words in said
    assert not (tmp_path / "text").exists()


def test_one_text_is_no_corpus(tmp_path: Path) -> None:
    path = tmp_path / "only.txt"
    path.write_text("fish")
    with pytest.raises(CorpusError, match=r"only\.txt alone is no corpus: give at least two files"):
        write(tmp_path / "text", texts=[path])


@pytest.mark.parametrize(("arguments", "code"), [([], 2), (["--help"], 0), (["--all"], 2), (["a", "b"], 2)])
def test_without_a_folder_it_teaches(arguments: list[str], code: int, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == code
    told = capsys.readouterr()
    assert "usage: python -m trainer.text" in told.out + told.err
