"""The trainer's own sentences in a worker's log, taken back into the facts of a metric line: for when the lines are out of reach.

    said("2026-11-22T10:00:00.5Z", "step 120/560  epoch 2.14  loss 0.1234  512 samples/s  step 0.125 s ...")

The sentence is ebb/elastic/runtime/report.py's; a test holds the two together. What it does not say (seconds useful and lost,
steps done again) is not in the facts.
"""

import re
from typing import Any

from ebb.api.clock import unix

_SENTENCE = re.compile(
    r"step (?P<step>\d+)/(?P<total_steps>\d+)  epoch (?P<epoch>\S+)  loss (?P<loss>\S+)  (?P<figures>.*?)"
    r"(?P<samples_per_second>\S+) samples/s  step (?P<step_seconds>\S+) s  data (?P<data_seconds>\S+) s  "
    r"world (?P<world_size>\d+)  generation (?P<generation>\d+)"
)


def said(stamp: str, text: str) -> dict[str, Any] | None:
    """None: another line of the log."""
    match = _SENTENCE.fullmatch(text.strip())
    if match is None:
        return None
    words = match.groupdict()
    figures = dict(part.rsplit(" ", 1) for part in words.pop("figures").strip().split("  ") if " " in part)
    try:
        counts = {key: int(words.pop(key)) for key in ("step", "total_steps", "world_size", "generation")}
        return {
            "time": unix(stamp),
            **counts,
            **{key: float(value) for key, value in words.items()},
            "figures": {name: float(value) for name, value in figures.items()},
        }
    except ValueError:
        return None
