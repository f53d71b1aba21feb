"""All of it as figures, and the promises that were not kept. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.scaling.cases import (
    BATCH_1,
    EFA_WORTH,
    FIRST,
    LAST,
    MACHINES,
    NEAR,
    NEARLY_LINEAR,
    PRESETS,
    SIZES,
    SPEED_UPS_64,
    seconds_for,
    speed_up,
    worth,
)
from benchmarks.scaling.measured import FROM_BYTES, PARAMETERS, SIZE, Epoch
from benchmarks.scaling.model import Point, Ring, Work, fit, step_seconds

NEAR_MEASURED = 0.25  # of the measured time of a step, with as many ranks as there are cores
LEAST_EFFICIENCY = 0.6  # of as many ranks as cores, on gloo, whose threads want the cores too
PROMISED = "p4d_efa"
Figures = dict[str, Any]


def here(epochs: Sequence[Epoch], points: Sequence[Point], *, cores: int) -> Figures:
    """This machine. `epochs`: all that were timed, of which the fastest of each number of ranks counts."""
    best = {one.ranks: one for one in sorted(epochs, key=lambda one: -one.step_seconds)}
    work = Work(name=SIZE, parameters=PARAMETERS, seconds=best[1].step_seconds)
    ranks: dict[int, Figures] = {}
    for count in sorted(best):
        network = network_here(points, count)
        slowdown = max(1.0, count / cores)
        predicted = step_seconds(work, network.all_reduce, count, overlap=False, slowdown=slowdown) if network else work.seconds
        times_as_fast = best[1].seconds / best[count].seconds
        ranks[count] = {
            "epoch_seconds": round(best[count].seconds, 3),
            "step_seconds": round(best[count].step_seconds, 4),
            "speed_up": round(times_as_fast, 3),
            "efficiency": round(times_as_fast / count, 3),
            "model_step_seconds": round(predicted, 4),
            "model_speed_up": round(count * work.seconds / predicted, 3),
            "model_off": round(predicted / best[count].step_seconds - 1, 3),
            "hop_us": round(network.hop_seconds * 1e6, 1) if network else None,
            "bus_gb_s": round(network.bytes_per_second / 1e9, 3) if network else None,
        }
    return {"cores": cores, "ranks": ranks}


def network_here(points: Sequence[Point], ranks: int) -> Ring | None:
    """Fitted to the large sizes between so many ranks; None for one rank."""
    own = [point for point in points if point[0] == ranks and point[1] >= FROM_BYTES]
    return fit(own) if own else None


def modelled() -> Figures:
    """Speed-up from FIRST GPUs on, of each kind of machines and each preset; and what EFA is worth."""
    speed_ups = {
        name: {preset: {gpus: round(speed_up(one, machines, gpus), 2) for gpus in SIZES} for preset, one in PRESETS.items()}
        for name, machines in MACHINES.items()
    }
    works = {"resnet50": PRESETS["resnet50"].work("A100"), "efficientnet_b7_batch_1": BATCH_1.work("A100")}
    efa = {
        name: {
            "model": round(worth(work), 3),
            "article": list(EFA_WORTH[name]),
            "step_seconds_of_the_article": [round(seconds_for(work, share), 2) for share in reversed(EFA_WORTH[name])],
        }
        for name, work in works.items()
    }
    article = {"speed_up_4_to_64": list(SPEED_UPS_64), "nearly_linear_to": NEARLY_LINEAR}
    return {"speed_up": speed_ups, "efa_worth": efa, "article": article}


def broken(found_here: Mapping[str, Any], model: Mapping[str, Any]) -> list[str]:
    """The promises that are not kept, in sentences."""
    wrong = []
    for count, one in found_here["ranks"].items():
        if not 1 < count <= found_here["cores"]:
            continue
        if abs(one["model_off"]) > NEAR_MEASURED:
            wrong.append(
                f"{count} ranks here: the model's step of {one['model_step_seconds']} s is {abs(one['model_off']):.0%} off the "
                f"measured {one['step_seconds']} s, more than {NEAR_MEASURED:.0%}"
            )
        if one["efficiency"] < LEAST_EFFICIENCY:
            wrong.append(f"{count} ranks here: efficiency {one['efficiency']}, less than {LEAST_EFFICIENCY:g}")
    for preset, speed_ups in model["speed_up"][PROMISED].items():
        near, last = NEAR * NEARLY_LINEAR / FIRST, SPEED_UPS_64[0]
        if speed_ups[NEARLY_LINEAR] < near:
            wrong.append(f"{preset} on EFA: {speed_ups[NEARLY_LINEAR]} times on {NEARLY_LINEAR} GPUs, less than {near:g}")
        if speed_ups[LAST] < last:
            wrong.append(f"{preset} on EFA: {speed_ups[LAST]} times on {LAST} GPUs, less than {last:g}")
    return wrong
