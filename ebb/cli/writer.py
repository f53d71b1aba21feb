"""How log lines are shown: text with worker and rank in front, or one JSON object a line. Notes about the job go to stderr."""

import json
import sys
from dataclasses import dataclass, field
from typing import TextIO

from ebb.client.logs import Line

COLOURS = (36, 33, 35, 32, 34, 31)  # ANSI: cyan, yellow, magenta, green, blue, red


@dataclass(kw_only=True)
class Writer:
    """Where `ebb logs` lets lines go. `prefix`: whether the worker is told, `ranks`: whether the rank is, where it is known."""

    out: TextIO = field(default_factory=lambda: sys.stdout)
    notes: TextIO = field(default_factory=lambda: sys.stderr)
    colour: bool = False
    json: bool = False
    prefix: bool = True
    ranks: bool = True

    def line(self, worker: int, line: Line) -> None:
        if self.json:
            facts = {"worker": worker, "rank": line.rank, "stream": line.stream, "time": line.stamp, "text": line.text}
            self.out.write(json.dumps(facts) + "\n")
        else:
            self.out.write(f"{self._prefix(worker, line.rank)}{line.text}\n")
        self.out.flush()

    def note(self, text: str) -> None:
        self.notes.write(f"\x1b[2m{text}\x1b[0m\n" if self.colour else f"{text}\n")
        self.notes.flush()

    def _prefix(self, worker: int, rank: int | None) -> str:
        names = [f"w{worker}"] if self.prefix else []
        if self.ranks and rank is not None:
            names.append(f"r{rank}")
        if not names:
            return ""
        text = f"{' '.join(names)} | "
        return f"\x1b[{COLOURS[worker % len(COLOURS)]}m{text}\x1b[0m" if self.colour else text
