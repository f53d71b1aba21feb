"""The ledger: which samples this rank trained on in which step. Written only with --ledger; checked by testing/exactness.py.

One file a rank and generation, ledger/g<generation>-r<rank>.jsonl: a header, then a line per step. The ids are those that came
out of the loader with the batch, not what the order says they should be. A line is written and flushed before the step's
gradients are shared: so there is no checkpoint that holds a step whose lines are missing, whenever a process is killed. A line
may therefore belong to a step that was never finished; the lineage of the checkpoints says which ones count.
"""

import json
import time
from pathlib import Path
from typing import Any


class Ledger:
    """The writer of one rank in one generation."""

    def __init__(self, folder: Path, header: dict[str, Any]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"g{header['generation']}-r{header['rank']}.jsonl"
        self._file = path.open("x", encoding="utf-8")
        self._write(header)

    def write(self, step: int, ids: list[int]) -> None:
        self._write({"step": step, "time": time.time(), "ids": ids})

    def _write(self, line: dict[str, Any]) -> None:
        self._file.write(json.dumps(line, separators=(",", ":")) + "\n")
        self._file.flush()

    def close(self) -> None:
        self._file.close()
