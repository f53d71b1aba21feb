"""A file of tokens as samples: windows of a fixed length, addressed by their number.

    windows = Windows(Path("/mnt/data/text/train.bin"), context=256)
    inputs, targets, number = windows[17]          # (256,) each: targets are the inputs one token later

A token is a byte, or two or four of them where corpus.json beside the file says so (corpus.py). Window n predicts the tokens
n x context + 1 to (n + 1) x context, so that every token of the file but the first and an incomplete window at its end is
predicted exactly once in an epoch. It is a map-style dataset: a sample number of ebb/elastic/data/order.py is all that it needs.
The file is mapped, not read: processes that are forked later share its pages.
"""

import json
import mmap
from pathlib import Path

import torch
from torch.utils.data import Dataset

from ebb.elastic.data import DataError
from trainer.text.decoder import BYTES

_TYPES = {1: torch.uint8, 2: torch.uint16, 4: torch.int32}


class Windows(Dataset[tuple[torch.Tensor, torch.Tensor, int]]):
    """The windows of one file. Raises DataError for a file that is missing or too short for one window."""

    def __init__(self, path: Path, *, context: int) -> None:
        if context < 1:
            raise ValueError(f"--context is {context!r}; it must be at least 1")
        self.context = context
        width, self.vocabulary = _token_facts(path.with_name("corpus.json"))
        try:
            with path.open("rb") as file:
                size = path.stat().st_size
                self._count = max(0, size // width - 1) // context
                content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY) if self._count else None
        except OSError as error:
            raise DataError(f"cannot read the text {path}: {error.strerror}; `python -m trainer.text DIR` writes one") from None
        if content is None:
            raise DataError(
                f"{path} has {size // width} tokens; a window of {context} needs {context + 1}: lower --context or take more text"
            )
        self._tokens = torch.frombuffer(content, dtype=_TYPES[width], count=size // width)  # keeps the map open

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, number: int) -> tuple[torch.Tensor, torch.Tensor, int]:
        if not 0 <= number < self._count:
            raise IndexError(f"window {int(number)} of {self._count}")
        start = int(number) * self.context
        window = self._tokens[start : start + self.context + 1]
        if window.dtype == torch.uint16:
            window = window.to(torch.int32)  # torch can do little with uint16
        return window[:-1], window[1:], int(number)


def _token_facts(path: Path) -> tuple[int, int]:
    """Bytes of a token, and how many different ones there are."""
    if not path.exists():
        return 1, BYTES
    facts = json.loads(path.read_text())
    return int(facts.get("token_bytes", 1)), int(facts.get("vocabulary", BYTES))
