"""From what a run printed or wrote to images a second, and from those to the table and the last line. Pure.

The first steps are left out: they fill caches, choose kernels and start the loader.
"""

import json
import re
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.trainer.contenders import CHECKPOINTS, ORIGINAL, OURS, SYNTHETIC

WARM_UP_STEPS = 3
WANTED_TO_SYNTHETIC = 0.9
STALL_LIMIT_SECONDS, STALL_LIMIT_SHARE = 0.050, 0.01
Figures = dict[str, Any]
# "Epoch: [0][ 3/16]	Time  0.512 ( 0.600)	Data ..."
_STEP = re.compile(r"Epoch: \[\d+\]\[ *(\d+)/\d+\]\s+Time +([\d.]+)")


def rate_of_original(printed: str, batch: int) -> float:
    """Images a second, from the time of each step. Raises ValueError when there are too few."""
    seconds = [float(found[2]) for found in _STEP.finditer(printed) if int(found[1]) >= WARM_UP_STEPS]
    if not seconds:
        raise ValueError(f"no step after the first {WARM_UP_STEPS} was printed: {printed[-500:]!r}")
    return batch * len(seconds) / sum(seconds)


def rate_of_ours(written: str, batch: int) -> float:
    """Images a second, from the moments at which steps were done. Raises ValueError when there are too few."""
    times = [line["time"] for line in _lines(written)][WARM_UP_STEPS - 1 :]
    if len(times) < 2:
        raise ValueError(f"no step after the first {WARM_UP_STEPS} was written: {written[-500:]!r}")
    return float(batch * (len(times) - 1) / (times[-1] - times[0]))


def stalls(written: str) -> tuple[float, float]:
    """Seconds for which the training stood still for one checkpoint, and that time's share of all."""
    lines = _lines(written)
    checkpoints = len({line["checkpoint_step"] for line in lines} - {0})
    stall = lines[-1]["checkpoint_seconds"]
    return stall / max(1, checkpoints), stall / (lines[-1]["useful_seconds"] + stall)


def waited(written: str) -> float | None:
    """The share of the time that was waited for data; None when this trainer does not say."""
    lines = _lines(written)[WARM_UP_STEPS:]
    if not all("data_seconds" in line for line in lines) or not lines:
        return None
    return float(round(sum(line["data_seconds"] for line in lines) / sum(line["step_seconds"] for line in lines), 4))


def summary(rates: Mapping[str, Sequence[float]]) -> Figures:
    """Medians, and each as a part of ours as it comes."""
    medians = {name: statistics.median(found) for name, found in rates.items()}
    ours = medians.get(OURS)
    found: Figures = {f"{name}_images_per_second": round(value, 2) for name, value in medians.items()}
    if ours is None:
        return found
    for name in ORIGINAL:
        if name in medians:
            found[f"ratio_to_{name}"] = round(ours / medians[name], 3)
    if SYNTHETIC in medians:
        found["real_to_synthetic"] = round(ours / medians[SYNTHETIC], 3)
    skipped = (*ORIGINAL, OURS, SYNTHETIC, CHECKPOINTS)
    found["choices"] = {name: round(value / ours, 3) for name, value in medians.items() if name not in skipped}
    return found


def broken(found: Figures) -> list[str]:
    """Which promises are not kept, of those that were measured."""
    told = [
        f"{name} is {found[name]}, less than 1: slower than the original"
        for name in (f"ratio_to_{original}" for original in ORIGINAL)
        if name in found and found[name] < 1
    ]
    if found.get("real_to_synthetic", 1.0) < WANTED_TO_SYNTHETIC:
        told.append(
            f"real data bring {found['real_to_synthetic']} of the rate of synthetic ones, less than {WANTED_TO_SYNTHETIC}"
        )
    if found.get("checkpoint_stall_seconds", 0.0) > STALL_LIMIT_SECONDS:
        told.append(f"a checkpoint stops the training for {found['checkpoint_stall_seconds']} s, more than {STALL_LIMIT_SECONDS}")
    return told


def _lines(written: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in written[: written.rfind("\n") + 1].splitlines()]
