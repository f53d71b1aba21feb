"""A corpus that any machine can make by itself: the sources of Python's standard library, as bytes.

    write(Path("/mnt/data/text"))     # train.bin, val.bin, corpus.json

The same Python gives the same bytes: files are taken in the order of their names, tests and generated tables are left out, and
every tenth file is for validation. Another Python (3.11.2, 3.11.9) gives another corpus, so a job's machines share one
folder, as they do for images; corpus.json says which Python and what came out. Files are joined by a zero byte, which no
source contains. It is for trying and proving things: a model trained on it writes plausible nonsense.
"""

import hashlib
import json
import os
import platform
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SEPARATOR = b"\0"
_LEFT_OUT = {"test", "tests", "idle_test", "site-packages", "dist-packages", "__pycache__", "lib2to3", "idlelib", "turtledemo"}
_LARGEST_BYTES = 400_000  # above are tables made by programs
_VALIDATION_EVERY = 10


class CorpusError(Exception):
    """There is nothing to make it from."""


def write(folder: Path, library: Path | None = None) -> dict[str, Any]:
    """Make the corpus; returns what corpus.json says. The files appear whole or not at all; made again they are the same.

    Raises CorpusError where Python has no sources of its own, and OSError of the disk.
    """
    library = library or Path(sysconfig.get_path("stdlib"))
    texts = [path.read_bytes() for path in sources(library)]
    if len(texts) < _VALIDATION_EVERY:
        raise CorpusError(f"{library} has only {len(texts)} Python sources: use a Python that is installed with its library")
    parts = {
        "train": SEPARATOR.join(text for number, text in enumerate(texts) if number % _VALIDATION_EVERY),
        "val": SEPARATOR.join(texts[::_VALIDATION_EVERY]),
    }
    facts: dict[str, Any] = {"python": platform.python_version(), "files": len(texts)}
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in parts.items():
        _write_whole(folder / f"{name}.bin", content)
        facts[name] = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    _write_whole(folder / "corpus.json", json.dumps(facts, indent=1).encode())
    return facts


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
