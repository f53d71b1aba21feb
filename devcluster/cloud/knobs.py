"""The two files by which a user turns the cloud of a box while it runs; read at every tick.

    dry         JSON list of zones that have no machines to give (`python -m devcluster dry ZONE`, `wet ZONE`)
    cloud.json  {"scaleDownDelaySeconds": 20}, optional

A file that cannot be understood is said once in the log and counts as absent.
"""

import json
from pathlib import Path
from typing import Any

from devcluster.cloud.attempts import Attempts
from devcluster.cloud.scaling import SCALE_DOWN_DELAY_SECONDS

DELAY_KEY = "scaleDownDelaySeconds"


class Knobs:
    """The files in the folder of one box."""

    def __init__(self, folder: Path, attempt: Attempts) -> None:
        self._folder, self._attempt = folder, attempt

    def dry(self) -> frozenset[str]:
        """The zones that are out of capacity."""
        try:
            return read_dry(self._folder / "dry")
        except ValueError as error:
            self._attempt.say("dry zones", str(error))
            return frozenset()

    def scale_down_delay_seconds(self) -> float:
        """How long a machine must be idle before it goes."""
        path = self._folder / "cloud.json"
        written = _read(path, {})
        seconds = written.get(DELAY_KEY, SCALE_DOWN_DELAY_SECONDS) if isinstance(written, dict) else None
        if isinstance(seconds, int | float) and seconds >= 0:
            return float(seconds)
        self._attempt.say("settings", f'{path} must look like {{"{DELAY_KEY}": 20}}, it says {written!r}; 20 is used')
        return SCALE_DOWN_DELAY_SECONDS


def read_dry(path: Path) -> frozenset[str]:
    """The zones in the dry file, none if there is no file. Raises ValueError."""
    zones = _read(path, [])
    if isinstance(zones, list) and all(isinstance(zone, str) for zone in zones):
        return frozenset(zones)
    raise ValueError(f"{path} must be a JSON list of zones, it says {zones!r}: write it with `python -m devcluster dry ZONE`")


def write_dry(path: Path, zones: frozenset[str]) -> None:
    """Replace the dry file as a whole."""
    beside = path.with_suffix(".new")
    beside.write_text(json.dumps(sorted(zones)))
    beside.replace(path)


def _read(path: Path, absent: object) -> Any:
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        return absent
    except ValueError:
        return path.read_text()[:100]
