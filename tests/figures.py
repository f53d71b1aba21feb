"""The figures of a proof, as one JSON line: printed, and in the file that `make prove-...` names and shows last."""

import json
import os
from collections.abc import Mapping
from pathlib import Path


def wanted_file() -> Path | None:
    """$EBB_FIGURES; None where a test of a proof runs beside all others, which need no figures."""
    named = os.environ.get("EBB_FIGURES")
    return Path(named) if named else None


def report(figures: Mapping[str, object]) -> None:
    """Report what is known so far, in place of what was reported before."""
    line = json.dumps(figures)
    print(line, flush=True)
    if file := wanted_file():
        file.parent.mkdir(exist_ok=True)
        file.write_text(line + "\n", encoding="utf-8")
