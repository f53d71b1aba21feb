"""A corpus as files of tokens: one's own texts, or one that any machine can make by itself, the sources of Python's library.

    write(Path("/mnt/data/text"))                                                       # train.bin, val.bin, corpus.json; bytes
    write(folder, texts=[Path("a.txt"), ...], tokenizer=Path("model/tokenizer.json"))   # tokens, two or four bytes each

Texts follow each other without padding, packed: one's end token, or a zero byte, parts them. Every tenth is for validation.

The same Python gives the same bytes: files are taken in the order of their names, tests and generated tables are left out.
Another Python (3.11.2, 3.11.9) gives another corpus, so a job's machines share one
folder, as they do for images; corpus.json says which Python and what came out. Files are joined by a zero byte, which no
source contains. It is for trying and proving things: a model trained on it writes plausible nonsense.
"""

import hashlib
import json
import os
import platform
import sysconfig
from array import array
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

SEPARATOR = b"\0"
_LEFT_OUT = {"test", "tests", "idle_test", "site-packages", "dist-packages", "__pycache__", "lib2to3", "idlelib", "turtledemo"}
_LARGEST_BYTES = 400_000  # above are tables made by programs
_VALIDATION_EVERY = 10
_LARGEST_SHORT = 1 << 16
_ENDS = ("</s>", "<|end_of_text|>", "<|endoftext|>", "<eos>")  # of Llama 2, Llama 3, GPT-2 and Gemma


class CorpusError(Exception):
    """There is nothing to make it from."""


def write(
    folder: Path, library: Path | None = None, *, texts: Sequence[Path] = (), tokenizer: Path | None = None
) -> dict[str, Any]:
    """Make the corpus; returns what corpus.json says. The files appear whole or not at all; made again they are the same.

    `library`: of Python sources, where no `texts` are given. `tokenizer`: a tokenizer.json as Hugging Face stores it; without one
    a token is a byte. Raises CorpusError where there are too few texts or the tokenizer cannot be read, and OSError of the disk.
    """
    library = library or Path(sysconfig.get_path("stdlib"))
    paths = list(texts) or sources(library)
    if len(paths) < _VALIDATION_EVERY and not texts:
        raise CorpusError(f"{library} has only {len(paths)} Python sources: use a Python that is installed with its library")
    if len(paths) < 2:  # one to train on, one to validate with
        raise CorpusError(f"{paths[0]} alone is no corpus: give at least two files, of which every tenth is for validation")
    encode = Bytes() if tokenizer is None else Tokens(tokenizer)
    facts: dict[str, Any] = {"python": platform.python_version(), "files": len(paths)}
    facts |= {"token_bytes": encode.width, "vocabulary": encode.vocabulary}
    parts = {
        "train": encode.joined(path.read_bytes() for number, path in enumerate(paths) if number % _VALIDATION_EVERY),
        "val": encode.joined(path.read_bytes() for path in paths[::_VALIDATION_EVERY]),
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in parts.items():
        _write_whole(folder / f"{name}.bin", content)
        facts[name] = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    _write_whole(folder / "corpus.json", json.dumps(facts, indent=1).encode())
    return facts


class Bytes:
    width, vocabulary = 1, 256

    def joined(self, texts: Iterable[bytes]) -> bytes:
        return SEPARATOR.join(texts)


class Tokens:
    """By a tokenizer of Hugging Face's tokenizers, which is imported only here."""

    def __init__(self, path: Path) -> None:
        try:
            from tokenizers import Tokenizer  # noqa: PLC0415
        except ImportError:
            raise CorpusError("--tokenizer needs the package tokenizers: pip install tokenizers") from None
        try:
            self._tokenizer = Tokenizer.from_file(str(path))
        except Exception as error:  # it raises nothing more exact
            raise CorpusError(f"cannot read the tokenizer {path}: {error}; it is the model's tokenizer.json") from None
        self.vocabulary = self._tokenizer.get_vocab_size()
        self.width = 2 if self.vocabulary <= _LARGEST_SHORT else 4
        ends = [self._tokenizer.token_to_id(word) for word in _ENDS]
        known = [end for end in ends if end is not None]
        if not known:
            raise CorpusError(f"the tokenizer {path} has none of the end tokens {', '.join(_ENDS)}, which part texts")
        self._end: int = known[0]

    def joined(self, texts: Iterable[bytes]) -> bytes:
        tokens = array("H" if self.width == 2 else "i")
        for text in texts:
            tokens.extend(self._tokenizer.encode(text.decode(errors="replace"), add_special_tokens=False).ids)
            tokens.append(self._end)
        return tokens.tobytes()


def sources(library: Path) -> list[Path]:
    """In the order of their names, which is the same on every machine."""
    return sorted(_walk(library), key=lambda path: path.relative_to(library).as_posix())


def _walk(library: Path) -> Iterator[Path]:
    for folder, folders, files in os.walk(library):
        folders[:] = [name for name in folders if name not in _LEFT_OUT]
        paths = [Path(folder, name) for name in files if name.endswith(".py")]
        yield from (path for path in paths if path.is_file() and 0 < path.stat().st_size <= _LARGEST_BYTES)


def _write_whole(path: Path, content: bytes) -> None:
    temporary = path.with_name(f".tmp-{path.name}-{os.getpid()}")
    temporary.write_bytes(content)
    temporary.rename(path)
