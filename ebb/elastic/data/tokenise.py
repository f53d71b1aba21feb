"""Tokenise and pack texts once and for all: `python -m ebb.elastic.data tokenise OUT TEXTS... --tokenizer FILE --length 2048`.

A shard is made of the next 64 million characters, whatever was made before: a run that was killed is taken up again, reads the
texts that are done, and tokenises at most one shard twice. Texts are joined by the end token and cut into rows of equal length,
so nothing is padded but the end of a shard, some thousandth of it. The tokenizer's own threads use all cores.
"""

from __future__ import annotations

import gzip
import hashlib
import json
from array import array
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy

from ebb.elastic.data.convert import alone
from ebb.elastic.data.listing import Say
from ebb.elastic.data.sealed import DamagedError, DataError, seal, unseal
from ebb.elastic.data.streams.parquet import arrow
from ebb.elastic.data.streams.tokens import MANIFEST, SCHEMA, Manifest, read_manifest, shard_name, write_manifest

SHARD_CHARACTERS = 64 * 10**6
_KIND = "token shard"
_TOGETHER = 512  # texts that are given to the tokenizer at once
_ENDS = ("</s>", "<|end_of_text|>", "<|endoftext|>", "<eos>")  # of Llama 2, Llama 3, GPT-2 and Gemma
_LARGEST_SHORT = 1 << 16
_SUFFIXES = (".txt", ".jsonl", ".jsonl.gz", ".parquet")


def tokenise(
    out: Path, texts: Sequence[Path], *, tokenizer: Path, length: int, say: Say, field: str = "text", end: str = ""
) -> bool:
    """Make the rows of `texts` in `out`; False when they were all there. Safe to repeat and to kill.

    Each .txt is a text, and so is the `field` of each line of a .jsonl and of each row of a .parquet. `end`: the token after
    each, where the tokenizer has none of the usual ones. Raises DataError, and OSError when the disk fails.
    """
    if length < 2:
        raise DataError(f"--length is {length}; it must be at least 2 tokens a row")
    for path in texts:
        if not path.name.endswith(_SUFFIXES) or not path.is_file():
            raise DataError(f"{path} is no file of texts; allowed: *{', *'.join(_SUFFIXES)}")
    encoder = _Encoder(tokenizer, end)
    fingerprint = _fingerprint(texts, tokenizer, length, field, encoder.end)
    out.mkdir(parents=True, exist_ok=True)
    with alone(out):
        if (out / MANIFEST).exists():
            _refuse_others(read_manifest(str(out)), fingerprint, out)
            return False
        found = []
        for number, shard in enumerate(_shards(documents(texts, field))):
            path = out / shard_name(number)
            facts = _made_before(path, fingerprint)
            if facts is None:
                facts = _write(path, _rows(encoder, shard, length), fingerprint, length, encoder)
                say(f"{path}: {facts['rows']} rows of {length} tokens")
            found.append((facts["rows"], facts["padding"], path.stat().st_size, facts["sha256"]))
        if not found:
            raise DataError(f"{', '.join(map(str, texts[:3]))} hold no text in {field!r}: name another --field, or other files")
        manifest = Manifest(
            fingerprint=fingerprint,
            length=length,
            token_bytes=encoder.width,
            vocabulary=encoder.vocabulary,
            end=encoder.end,
            shards=found,
        )
        write_manifest(out, manifest)
    return True


def damaged(out: Path) -> list[Path]:
    """The shards whose bytes have changed, or that are missing. Raises DataError."""
    return [
        out / shard_name(number)
        for number, (*_, sha256) in enumerate(read_manifest(str(out)).shards)
        if not _whole(out / shard_name(number), sha256)
    ]


def _whole(path: Path, sha256: str) -> bool:
    try:
        facts, content = unseal(path, kind=_KIND, schema=SCHEMA)
    except (FileNotFoundError, DamagedError):
        return False
    rows = content[: facts["rows"] * facts["length"] * facts["token_bytes"]]
    return bool(hashlib.sha256(rows).hexdigest() == sha256 == facts["sha256"])


def _refuse_others(found: Manifest, fingerprint: str, out: Path) -> None:
    if found.fingerprint != fingerprint:
        raise DataError(
            f"{out} holds {found.tokens} tokens of other texts, or of another --tokenizer, --length, --field or --end: name "
            "another folder, or remove that one"
        )


def _made_before(path: Path, fingerprint: str) -> dict[str, Any] | None:
    try:
        facts, _ = unseal(path, kind=_KIND, schema=SCHEMA)
    except (FileNotFoundError, DamagedError):
        return None
    if facts["fingerprint"] != fingerprint:
        raise DataError(
            f"{path} was made of other texts, or for another --tokenizer, --length, --field or --end: name another folder, or "
            "remove that one"
        )
    return facts


def _fingerprint(texts: Sequence[Path], tokenizer: Path, length: int, field: str, end: int) -> str:
    parts = [[path.name, path.stat().st_size] for path in texts]
    given = [parts, hashlib.sha256(tokenizer.read_bytes()).hexdigest(), length, field, end, SHARD_CHARACTERS]
    return hashlib.sha256(json.dumps(given).encode()).hexdigest()


def documents(texts: Iterable[Path], field: str) -> Iterator[str]:
    """Raises DataError."""
    for path in texts:
        if path.name.endswith(".txt"):
            yield path.read_text(encoding="utf-8", errors="replace")
        elif path.name.endswith(".parquet"):
            yield from _of_parquet(path, field)
        else:
            yield from _of_lines(path, field)


def _of_parquet(path: Path, field: str) -> Iterator[str]:
    pyarrow, parquet = arrow()
    try:
        with parquet.ParquetFile(path) as file:
            if field not in file.schema_arrow.names:
                raise DataError(f"{path} has no column {field!r}; allowed as --field: {', '.join(file.schema_arrow.names)}")
            for batch in file.iter_batches(columns=[field]):
                yield from (text for text in batch.column(0).to_pylist() if text)
    except pyarrow.ArrowException as error:
        raise DataError(f"{path} is damaged, or not parquet: {error}. Copy it again from where it was made") from None


def _of_lines(path: Path, field: str) -> Iterator[str]:
    with (gzip.open if path.name.endswith(".gz") else open)(path, "rt", encoding="utf-8") as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            try:
                text = json.loads(line)[field]
            except (ValueError, TypeError):
                raise DataError(f"line {number} of {path} is no JSON object: repair it, or leave it out") from None
            except KeyError:
                raise DataError(f"line {number} of {path} has no {field!r}: name another --field") from None
            if text:
                yield str(text)


def _shards(texts: Iterable[str]) -> Iterator[list[str]]:
    """So many texts as make a shard."""
    found: list[str] = []
    size = 0
    for text in texts:
        found.append(text)
        size += len(text)
        if size >= SHARD_CHARACTERS:
            yield found
            found, size = [], 0
    if found:
        yield found


class _Encoder:
    def __init__(self, path: Path, end: str) -> None:
        try:
            from tokenizers import Tokenizer  # noqa: PLC0415  # training does without
        except ImportError:
            raise DataError("tokenise needs the package tokenizers: pip install tokenizers") from None
        try:
            self._tokenizer = Tokenizer.from_file(str(path))
        except Exception as error:  # it raises nothing more exact
            raise DataError(f"cannot read the tokenizer {path}: {error}; it is the model's tokenizer.json") from None
        self.vocabulary: int = self._tokenizer.get_vocab_size()
        self.width = 2 if self.vocabulary <= _LARGEST_SHORT else 4
        known = [token for word in ([end] if end else _ENDS) if (token := self._tokenizer.token_to_id(word)) is not None]
        if not known:
            asked = repr(end) if end else f"none of {', '.join(_ENDS)}"
            raise DataError(f"the tokenizer {path} has no token {asked} to end a text with: name one of its tokens with --end")
        self.end: int = known[0]

    def encode(self, texts: list[str]) -> numpy.ndarray[Any, Any]:
        found = array("I")  # of millions: a list would take ten times as much
        for start in range(0, len(texts), _TOGETHER):
            for each in self._tokenizer.encode_batch(texts[start : start + _TOGETHER], add_special_tokens=False):
                found.extend(each.ids)
                found.append(self.end)
        return numpy.array(found, dtype=f"<u{self.width}")


def _rows(encoder: _Encoder, texts: list[str], length: int) -> tuple[numpy.ndarray[Any, Any], int]:
    """The rows, and the number of padding tokens in the last one."""
    tokens = encoder.encode(texts)
    padding = -len(tokens) % length
    return numpy.concatenate([tokens, numpy.full(padding, encoder.end, tokens.dtype)]).reshape(-1, length), padding


def _write(
    path: Path, made: tuple[numpy.ndarray[Any, Any], int], fingerprint: str, length: int, encoder: _Encoder
) -> dict[str, Any]:
    rows, padding = made
    content = rows.tobytes()
    facts = {
        **{"kind": _KIND, "schema": SCHEMA, "fingerprint": fingerprint, "length": length, "token_bytes": encoder.width},
        **{"rows": len(rows), "padding": padding, "sha256": hashlib.sha256(content).hexdigest()},
    }
    temporary = path.with_name(f".tmp-{path.name}")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            seal(file, facts)
        temporary.rename(path)
    finally:
        temporary.unlink(missing_ok=True)
    return facts
