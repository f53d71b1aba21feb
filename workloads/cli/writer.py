"""How log lines are shown: text with a prefix for each worker, or one JSON object a line. Notes about the job go to stderr."""

import json
import sys
from dataclasses import dataclass, field
from typing import TextIO

from workloads.client.replay import Line

COLOURS = (36, 33, 35, 32, 34, 31)  # ANSI: cyan, yellow, magenta, green, blue, red


@dataclass(kw_only=True)
class Writer:
    """Where `ebb logs` lets lines go."""

    out: TextIO = field(default_factory=lambda: sys.stdout)
    notes: TextIO = field(default_factory=lambda: sys.stderr)
    colour: bool = False
    json: bool = False
    prefix: bool = True

    def line(self, worker: int, line: Line) -> None:
        if self.json:
            self.out.write(json.dumps({"worker": worker, "time": line.stamp, "text": line.text}) + "\n")
        else:
            self.out.write(f"{self._prefix(worker)}{line.text}\n")
        self.out.flush()

    def note(self, text: str) -> None:
        self.notes.write(f"\x1b[2m{text}\x1b[0m\n" if self.colour else f"{text}\n")
        self.notes.flush()

    def _prefix(self, worker: int) -> str:
        if not self.prefix:
            return ""
        text = f"w{worker} | "
        return f"\x1b[{COLOURS[worker % len(COLOURS)]}m{text}\x1b[0m" if self.colour else text
