"""The data of the programs beside this file: lines of random tokens, of different lengths."""

import os
import time

import torch
from torch.utils.data import Dataset

LONGEST, WORDS, LINES, EPOCHS, GLOBAL_BATCH = 16, 64, 50, 20, 8
BATCH_SECONDS = float(os.environ.get("BATCH_SECONDS", "0"))  # so that machines can come and go between steps


def lines() -> list[dict[str, list[int]]]:
    generator = torch.Generator().manual_seed(1)
    return [_line(int(length), generator) for length in torch.randint(4, LONGEST, (LINES,), generator=generator)]


class Lines(Dataset[dict[str, list[int]]]):
    """The same, as torch has it."""

    def __init__(self) -> None:
        self._lines = lines()

    def __len__(self) -> int:
        return len(self._lines)

    def __getitem__(self, number: int) -> dict[str, list[int]]:
        return self._lines[number]


def texts() -> list[dict[str, str]]:
    """The same lines, as words of the tokenizer in base.py."""
    return [{"text": " ".join(f"w{number}" for number in each["labels"] if number > 0)} for each in lines()]


def _line(length: int, generator: torch.Generator) -> dict[str, list[int]]:
    ids = torch.randint(3, WORDS - 4, (length,), generator=generator).tolist()
    padding = LONGEST - length
    return {
        "input_ids": ids + [0] * padding,
        "attention_mask": [1] * length + [0] * padding,
        "labels": ids + [-100] * padding,
    }


def batch(items: list[dict[str, list[int]]]) -> dict[str, torch.Tensor]:
    time.sleep(BATCH_SECONDS)
    return {name: torch.tensor([each[name] for each in items]) for name in items[0] if name in _NAMES}


_NAMES = ("input_ids", "attention_mask", "labels")
