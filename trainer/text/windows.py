"""A file of bytes as samples: windows of a fixed length, addressed by their number.

    windows = Windows(Path("/mnt/data/text/train.bin"), context=256)
    inputs, targets, number = windows[17]          # uint8 (256,) each: targets are the inputs one byte later

Window n predicts the bytes n x context + 1 to (n + 1) x context, so that every byte of the file but the first and an incomplete
window at its end is predicted exactly once in an epoch. It is a map-style dataset: a sample number of ebb/elastic/data/order.py
is all that it needs. The file is mapped, not read: processes that are forked later share its pages.
"""

import mmap
from pathlib import Path

import torch
from torch.utils.data import Dataset

from ebb.elastic.data import DataError


class Windows(Dataset[tuple[torch.Tensor, torch.Tensor, int]]):
    """The windows of one file. Raises DataError for a file that is missing or too short for one window."""

    def __init__(self, path: Path, *, context: int) -> None:
        if context < 1:
            raise ValueError(f"--context is {context!r}; it must be at least 1")
        self.context = context
        try:
            with path.open("rb") as file:
                size = path.stat().st_size
                self._count = max(0, size - 1) // context
                content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY) if self._count else None
        except OSError as error:
            raise DataError(f"cannot read the text {path}: {error.strerror}; `python -m trainer.text DIR` writes one") from None
        if content is None:
            raise DataError(
                f"{path} has {size} bytes; a window of {context} needs {context + 1}: lower --context, or take more text"
            )
        self._bytes = torch.frombuffer(content, dtype=torch.uint8)  # keeps the map open

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, number: int) -> tuple[torch.Tensor, torch.Tensor, int]:
        if not 0 <= number < self._count:
            raise IndexError(f"window {int(number)} of {self._count}")
        start = int(number) * self.context
        window = self._bytes[start : start + self.context + 1]
        return window[:-1], window[1:], int(number)
