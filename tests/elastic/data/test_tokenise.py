"""Texts as rows of tokens: every token in its place, only the shards that are missing made again, and plain refusals."""

import gzip
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

from ebb.elastic.data import DataError, tokenise
from ebb.elastic.data.__main__ import main
from ebb.elastic.data.streams.tokens import tokens

WORDS = 200
END = 1


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Words w0, w1, ... are 2, 3, ..."""
    made = Tokenizer(WordLevel({"<unk>": 0, "</s>": END, **{f"w{word}": word + 2 for word in range(WORDS)}}, unk_token="<unk>"))
    made.pre_tokenizer = Whitespace()
    path = tmp_path_factory.mktemp("model") / "tokenizer.json"
    made.save(str(path))
    return path


@pytest.fixture
def texts(tmp_path: Path) -> list[Path]:
    """Forty texts of one to seven words, in four kinds of files."""
    every = [" ".join(f"w{(7 * text + word) % WORDS}" for word in range(text % 7 + 1)) for text in range(40)]
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / "a.txt").write_text(every[0])
    (folder / "b.jsonl").write_text("\n\n".join(json.dumps({"text": text}) for text in every[1:20]) + "\n")
    with gzip.open(folder / "c.jsonl.gz", "wt") as file:
        file.write("\n".join(json.dumps({"text": text}) for text in every[20:30]))
    pyarrow.parquet.write_table(pyarrow.table({"text": every[30:]}), folder / "d.parquet")
    return sorted(folder.iterdir())


def expected() -> list[int]:
    every = [[(7 * text + word) % WORDS + 2 for word in range(text % 7 + 1)] for text in range(40)]
    return [token for text in every for token in (*text, END)]


def run(out: Path, texts: list[Path], tokenizer: Path, *more: str) -> int:
    return main(["tokenise", str(out), *map(str, texts), "--tokenizer", str(tokenizer), "--length", "8", *more])


@pytest.fixture(autouse=True)
def _small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenise, "SHARD_CHARACTERS", 100)


def test_every_token_is_in_its_place(tmp_path: Path, texts: list[Path], tokenizer: Path) -> None:
    assert run(tmp_path / "out", texts, tokenizer) == 0
    data = tokens(tmp_path / "out")
    assert len(data.shard_sizes) > 3
    rows = [data[number] for number in range(len(data))]
    assert all(each["input_ids"].shape == each["labels"].shape == (8,) for each in rows)
    kept = torch.cat([each["labels"][each["labels"] != -100] for each in rows])
    assert kept.tolist() == expected()
    for each in rows:
        padded = each["labels"] == -100
        assert torch.equal(each["input_ids"][~padded], each["labels"][~padded])
        assert (each["input_ids"][padded] == END).all()
    assert sum(int((each["labels"] == -100).any()) for each in rows) <= len(data.shard_sizes), "at the end of a shard alone"


def test_a_run_that_was_killed_is_taken_up_again(
    tmp_path: Path, texts: list[Path], tokenizer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(tmp_path / "whole", texts, tokenizer)
    write, written = tokenise._write, list[str]()

    def dies(path: Path, *more: Any) -> Any:
        if len(written) == 3:
            raise KeyboardInterrupt
        written.append(path.name)
        return write(path, *more)

    monkeypatch.setattr(tokenise, "_write", dies)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "out", texts, tokenizer)
    with pytest.raises(DataError, match=r"tokenise .* makes it; one that was killed is taken up again"):
        tokens(tmp_path / "out")
    torn = tmp_path / "out" / written[1]
    torn.write_bytes(torn.read_bytes()[:-5])
    again = list[str]()

    def noted(path: Path, *more: Any) -> Any:
        again.append(path.name)
        return write(path, *more)

    monkeypatch.setattr(tokenise, "_write", noted)
    assert run(tmp_path / "out", texts, tokenizer) == 0
    assert written[0] not in again
    assert again[0] == written[1]
    for path in (tmp_path / "whole").glob("[!.]*"):
        assert path.read_bytes() == (tmp_path / "out" / path.name).read_bytes()


def test_a_second_run_does_nothing_and_others_are_refused(
    tmp_path: Path, texts: list[Path], tokenizer: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert run(out, texts, tokenizer) == run(out, texts, tokenizer) == 0
    assert "there already" in capsys.readouterr().out
    assert run(out, texts[1:], tokenizer) == 1
    assert "of other texts, or of another --tokenizer, --length, --field or --end" in capsys.readouterr().err
    (out / "tokens.json").unlink()
    assert run(out, texts[1:], tokenizer) == 1
    assert "000000.tokens was made of other texts" in capsys.readouterr().err


def test_verify_finds_a_changed_byte(
    tmp_path: Path, texts: list[Path], tokenizer: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    run(out, texts, tokenizer)
    assert main(["verify", str(out)]) == 0
    path = out / "000001.tokens"
    content = bytearray(path.read_bytes())
    content[3] ^= 1
    path.write_bytes(content)
    assert main(["verify", str(out)]) == 1
    assert "1 shards are damaged or missing:\n" + str(path) in capsys.readouterr().err


@pytest.mark.parametrize(
    ("spoil", "more", "message"),
    [
        (lambda folder: (folder / "b.jsonl").write_text("{"), (), "line 1 of .*b.jsonl is no JSON object"),
        (lambda folder: None, ("--field", "words"), "line 1 of .*b.jsonl has no 'words': name another --field"),
        (lambda folder: (folder / "d.parquet").write_bytes(b"x"), (), "d.parquet is damaged, or not parquet"),
        (lambda folder: (folder / "a.txt").unlink(), (), "a.txt is no file of texts; allowed: "),
        (lambda folder: None, ("--end", "<stop>"), "has no token '<stop>' to end a text with: name one of its tokens with --end"),
        (lambda folder: None, ("--length", "1"), "--length is 1; it must be at least 2"),
        (lambda folder: None, ("--tokenizer", "/nowhere"), "cannot read the tokenizer /nowhere"),
    ],
)
def test_what_is_wrong_is_said(  # noqa: PLR0917
    spoil: Callable[[Path], Any],
    more: tuple[str, ...],
    message: str,
    tmp_path: Path,
    texts: list[Path],
    tokenizer: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    spoil(texts[0].parent)
    assert run(tmp_path / "out", texts, tokenizer, *more) == 1
    assert re.search(message, capsys.readouterr().err)
