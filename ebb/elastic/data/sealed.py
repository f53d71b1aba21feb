"""Files that end in their own description: content, then facts as JSON, then a tail with the length and checksum of the facts.

A file that was cut off, or is something else, has no such end. seal() is the last write to a temporary file that is then renamed.
"""

import json
import mmap
import os
import struct
import zlib
from pathlib import Path
from typing import IO, Any

_TAIL = struct.Struct("<QQI8s")  # start of the facts, their length, their CRC, the mark
_MARK = b"EBB-DATA"


class DataError(ValueError):
    """The data cannot be trained on; the message says which file or folder, and what to do."""


class DamagedError(DataError):
    """A file is torn or of another kind: it can be made again."""


def seal(file: IO[bytes], facts: dict[str, Any]) -> None:
    """Write the end of the file, and see it on the disk."""
    text = json.dumps(facts, separators=(",", ":")).encode()
    start = file.tell()
    file.write(text + _TAIL.pack(start, len(text), zlib.crc32(text), _MARK))
    file.flush()
    os.fsync(file.fileno())


def unseal(path: Path, *, kind: str, schema: int, access: int = mmap.ACCESS_READ) -> tuple[dict[str, Any], mmap.mmap]:
    """The facts of a file, and its content by mmap.

    Raises DamagedError for a file that is torn, or of another kind or schema, FileNotFoundError for none.
    """
    with path.open("rb") as file:
        try:
            content = mmap.mmap(file.fileno(), 0, access=access)
            facts = _facts(content)
            if (facts["kind"], facts["schema"]) != (kind, schema):
                raise ValueError(f"it is {facts['kind']} of schema {facts['schema']}, not {kind} of schema {schema}")
        except (ValueError, KeyError, TypeError, struct.error) as error:
            raise DamagedError(f"{path} is damaged: {error}") from None
    return facts, content


def _facts(content: mmap.mmap) -> dict[str, Any]:
    start, length, checksum, mark = _TAIL.unpack(content[-_TAIL.size :])
    if mark != _MARK or start + length + _TAIL.size != len(content):
        raise ValueError("it is cut off, or another kind of file")
    text = content[start : start + length]
    if zlib.crc32(text) != checksum:
        raise ValueError("its description has changed")
    facts: dict[str, Any] = json.loads(text)
    return facts
