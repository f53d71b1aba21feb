"""A small text that can be learnt: a few made-up words in any order. Needs no library.

write(folder)        # folder/train.bin and folder/val.bin; the same bytes each time
"""

import random
import string
from pathlib import Path

WINDOW = 64  # bytes, of the network that reads it
TRAIN, VALIDATION = 60, 30  # windows
_WORDS = 40


def write(folder: Path) -> None:
    rng = random.Random("words")  # noqa: S311 - the same each time
    words = ["".join(rng.choices(string.ascii_lowercase, k=rng.randint(2, 7))) for _ in range(_WORDS)]
    folder.mkdir(parents=True, exist_ok=True)
    for part, windows in (("train", TRAIN), ("val", VALIDATION)):
        size = windows * WINDOW + 1  # the last byte is only predicted
        text = " ".join(rng.choices(words, k=size // 2))
        (folder / f"{part}.bin").write_bytes(text.encode()[:size])
