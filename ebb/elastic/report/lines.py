"""Facts that come seldom, such as validations, as JSON lines: one file of the job, appended to by rank 0 of each generation.

    append(output / "validations.jsonl", {"step": 1200, "epoch": 3, "top1": 71.2})

A step that is done again after a loss has a second line: the last one of a step counts.
"""

import json
import sys
from pathlib import Path
from typing import Any


def append(path: Path, facts: dict[str, Any]) -> None:
    """A disk that is full costs the line, not the training."""
    try:
        with path.open("ab") as file:
            torn = file.tell() > 0 and path.read_bytes()[-1:] != b"\n"  # by a kill: it must not swallow this line too
            file.write((b"\n" if torn else b"") + json.dumps(facts).encode() + b"\n")
    except OSError as error:
        print(f"{path} cannot be written: {error.strerror}; training goes on", file=sys.stderr, flush=True)
