"""From what a run printed or wrote to images a second, and from those to the table and the last line. Pure.

The first steps are left out: they fill caches, choose kernels and start the loader.

Two are compared within a round, where one ran soon after the other, and the ratio is the median over the rounds. Its noise is
twice the standard error of that median, from the rounds' own deviations: a smaller difference cannot be seen. So there are three
answers: kept, broken, and, where the wanted ratio lies within the noise of the found one, not to be told.
"""

import json
import math
import re
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.trainer.contenders import ORIGINAL, OURS, PROMISED, SYNTHETIC

WARM_UP_STEPS = 3
WANTED = {**{f"ratio_to_{name}": 1.0 for name in ORIGINAL}, "real_to_synthetic": 0.9}
# The median of n normal numbers deviates by 1.2533 / sqrt(n) of their deviation, which is 1.4826 of the median absolute one
_DEVIATION, _OF_MEDIAN = 1.4826, 1.2533
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
    """Medians over the rounds, and ratios with their noise."""
    found: Figures = {f"{name}_images_per_second": round(statistics.median(each), 2) for name, each in rates.items()}
    ours = rates.get(OURS)
    if ours is None:
        return found
    pairs = {f"ratio_to_{name}": (ours, rates[name]) for name in ORIGINAL if name in rates}
    if SYNTHETIC in rates:
        pairs["real_to_synthetic"] = ours, rates[SYNTHETIC]
    found |= {name: round(ratio(*pair)[0], 3) for name, pair in pairs.items()}
    found["noise"] = {name: round(ratio(*pair)[1], 3) for name, pair in pairs.items()}
    found["choices"] = {name: round(ratio(each, ours)[0], 3) for name, each in rates.items() if name not in PROMISED}
    return found


def ratio(above: Sequence[float], below: Sequence[float]) -> tuple[float, float]:
    """Of two that ran in the same rounds, and its noise; the noise of a single round is not known, and 0."""
    each = [one / other for one, other in zip(above, below, strict=False)]  # a choice has fewer rounds
    median = statistics.median(each)
    deviation = _DEVIATION * statistics.median(abs(one - median) for one in each)
    return median, 2 * _OF_MEDIAN * deviation / math.sqrt(len(each))


def broken(found: Figures) -> list[str]:
    """Which promises are not kept, of those that were measured."""
    told = [
        f"{name} is {found[name]} (noise {_noise(found, name)}), less than {wanted:g}"
        for name, wanted in WANTED.items()
        if name in found and found[name] + _noise(found, name) < wanted
    ]
    if found.get("checkpoint_stall_seconds", 0.0) > STALL_LIMIT_SECONDS:
        told.append(f"a checkpoint stops the training for {found['checkpoint_stall_seconds']} s, more than {STALL_LIMIT_SECONDS}")
    return told


def unclear(found: Figures) -> list[str]:
    """Which promises this run cannot judge, one way or the other: on a machine that does other work too."""
    return [
        f"{name} is {found[name]}, wanted {wanted:g}, and the noise {_noise(found, name)}: take more rounds on a quiet machine"
        for name, wanted in WANTED.items()
        if name in found and found[name] - _noise(found, name) < wanted <= found[name] + _noise(found, name)
    ]


def _noise(found: Figures, name: str) -> float:
    return float(found.get("noise", {}).get(name, 0.0))


def _lines(written: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in written[: written.rfind("\n") + 1].splitlines()]
