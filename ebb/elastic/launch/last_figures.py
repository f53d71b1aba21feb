"""The last figures of a finished run, out of its files into the termination message of its container.

    find_metric(output, "val_acc")     # as `ebb sweep show` finds it
    leave(os.environ)     # {"ebb": {"step": 47, "loss": 0.12, ...}} in /dev/termination-log, from the last line of metrics.jsonl

The platform reads a run's metrics every few seconds and so misses its last steps; the pods' status, which it watches anyway, then
has them. A container that failed leaves nothing: there its last words in the log count.
"""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ebb.elastic.contract import ENV_OUTPUT_DIR, ENV_POD_UID, LAST_FIGURES
from ebb.elastic.runtime.metrics import last_record

MESSAGE = Path("/dev/termination-log")  # the default terminationMessagePath: the kubelet makes it
_TAIL_BYTES = 2**16
_KNOWN = ("step", "total_steps", "epoch", "loss", "samples_per_second")


def leave(environment: Mapping[str, str], message: Path = MESSAGE) -> None:
    """Write them if this is a pod with such a file. What cannot be read or written costs only the figures."""
    output = environment.get(ENV_OUTPUT_DIR)
    if not output or ENV_POD_UID not in environment or not message.is_file():
        return
    found = last_record(Path(output) / "metrics.jsonl") or {}
    figures = {name: found[name] for name in _KNOWN if _is_number(found.get(name))}
    if "step" in figures:
        try:
            message.write_text(json.dumps({LAST_FIGURES: figures}))
        except OSError:
            return


def find_metric(output: Path, name: str) -> float | None:
    """The metric where `ebb sweep show` finds it: the loss and the rate in the last line of metrics.jsonl; others in result.json,
    then in the last validation that has it, then among the figures of that line. None: nowhere, or it is no number."""
    line = last_record(output / "metrics.jsonl") or {}
    figures = line.get("figures")
    places: list[Mapping[str, Any]] = [line]
    if name not in ("loss", "samples_per_second"):
        places = [read_object(output / "result.json") or {}, *_validations(output / "validations.jsonl")]
        places += [figures if isinstance(figures, dict) else {}, line]
    for each in places:
        value = each.get(name)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return float(value) if math.isfinite(value) else None
    return None


def read_object(path: Path) -> dict[str, Any] | None:
    """A file with one JSON object; None where it cannot be read."""
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _validations(path: Path) -> Iterator[Mapping[str, Any]]:
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
            lines = file.read().splitlines()
    except OSError:
        return
    for line in reversed(lines):
        with contextlib.suppress(ValueError):
            if isinstance(found := json.loads(line), dict):
                yield found


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
