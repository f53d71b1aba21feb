"""Leaves a finished run's last figures where the platform finds them: in the termination message of its container.

    leave(os.environ)     # {"ebb": {"step": 47, "loss": 0.12, ...}} in /dev/termination-log, from the last line of metrics.jsonl

The platform reads a run's metrics every few seconds and so misses its last steps; the pods' status, which it watches anyway, then
has them. A container that failed leaves nothing: there its last words in the log count.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path

from ebb.elastic.contract import ENV_OUTPUT_DIR, ENV_POD_UID, LAST_FIGURES
from ebb.elastic.runtime.metrics import last_record

MESSAGE = Path("/dev/termination-log")  # the default terminationMessagePath: the kubelet makes it
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


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
