"""A small image folder that can be learnt: noise over a brightness and a stripe that the class decides. Needs no library.

write(folder)        # folder/train/<class>/<n>.png and folder/val/<class>/<n>.png; the same bytes each time
"""

import random
import struct
import zlib
from pathlib import Path

SIDE = 32
CLASSES, TRAIN, VALIDATION = 3, 40, 20  # per class: 120 images to train on, 60 to validate with


def write(folder: Path) -> None:
    rng = random.Random("pictures")  # noqa: S311 - the same each time
    for part, count in (("train", TRAIN), ("val", VALIDATION)):
        for label in range(CLASSES):
            place = folder / part / f"class{label}"
            place.mkdir(parents=True)
            for number in range(count):
                (place / f"{number:02}.png").write_bytes(png(_rows(rng, label)))


def _rows(rng: random.Random, label: int) -> list[bytes]:
    rows = []
    for line in range(SIDE):
        light = 60 + 40 * label + (50 if line % (label + 2) == 0 else 0)
        rows.append(bytes(min(255, light + byte // 4) for byte in rng.randbytes(3 * SIDE)))
    return rows


def png(rows: list[bytes]) -> bytes:
    """An RGB image of 8 bits: https://www.w3.org/TR/png-3/."""
    header = struct.pack(">IIBBBBB", len(rows[0]) // 3, len(rows), 8, 2, 0, 0, 0)
    pixels = zlib.compress(b"".join(b"\0" + row for row in rows))
    return b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", header) + _chunk(b"IDAT", pixels) + _chunk(b"IEND", b"")


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
