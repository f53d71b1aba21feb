"""The scaling of training, on ranks of this machine and by a model up to 64 GPUs: `python -m benchmarks.scaling`."""

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.controller.processes import BenchmarkError
from benchmarks.scaling.figures import LEAST_EFFICIENCY, NEAR_MEASURED, broken, here, modelled
from benchmarks.scaling.measured import BATCH, CONTEXT, SIZE, STEPS, Epoch, time_all_reduces, time_epoch, write_corpus
from benchmarks.scaling.model import Point
from benchmarks.scaling.page import page
from benchmarks.verdict import Say, conclude

MOST_RANKS = 4
HELP = f"""\
Measured: an epoch of a language model ({SIZE}) on 1 to {MOST_RANKS} ranks of this machine, under Ebb's launcher and runtime,
with gloo and one thread a rank; each has the same batch at any number of them. And all-reduces between as many, by the program
of `ebb check network`. The model says the step of n ranks by that of one and by the all-reduces (benchmarks/scaling/model.py):
n ranks compute as fast as one on n cores, and more of them share the cores.

Modelled: the presets of `ebb bench scaling` on 4 to 64 GPUs, with the all-reduces that AWS' article measured, beside the curves
of both articles. What is assumed is in benchmarks/scaling/cases.py and on the page.

The last line is one JSON object: here, model, broken.

exit status: 0 all promises are kept: with 2 ranks or more, up to the number of cores, the model is within {NEAR_MEASURED:.0%}
of the measured step and the efficiency is {LEAST_EFFICIENCY:g} or more; with EFA the model has each preset nearly linear to 16
GPUs, and 8 times as fast on 64 as on 4. 1 one of them is not, 2 it could not be measured, 130 interrupted
"""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Options of the command line."""

    ranks: int
    rounds: int
    page: Path


def read_settings(arguments: Sequence[str]) -> Settings:
    """The only reader of argv."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.scaling", description=__doc__, epilog=HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("--ranks", metavar="N", type=int, default=MOST_RANKS, help="the most of them (default: %(default)d)")
    parser.add_argument("--rounds", metavar="N", type=int, default=3, help="of all sizes; the best counts (default: %(default)d)")
    parser.add_argument("--page", metavar="FILE", type=Path, default=Path("build/scaling.html"), help="(default: %(default)s)")
    given = parser.parse_args(arguments)
    if not 2 <= given.ranks <= MOST_RANKS or given.rounds < 1:
        parser.error(f"--ranks {given.ranks} must be 2 to {MOST_RANKS}, --rounds {given.rounds} 1 or more")
    return Settings(ranks=given.ranks, rounds=given.rounds, page=given.page)


def measure(settings: Settings, folder: Path, say: Say) -> dict[str, Any]:
    """All of it, and the page. Raises BenchmarkError."""
    cores, load = len(os.sched_getaffinity(0)), os.getloadavg()[0]
    epochs, points, sizes = list[Epoch](), list[Point](), range(1, settings.ranks + 1)
    corpus = write_corpus(folder)
    for number in range(settings.rounds):
        for ranks in sizes:
            epochs.append(time_epoch(corpus, ranks))
            say(f"round {number + 1} of {settings.rounds}, {ranks} ranks: {epochs[-1].step_seconds:.3f} s a step")
    for ranks in sizes[1:]:
        points += time_all_reduces(ranks)
        say(f"{ranks} ranks: an all-reduce of {points[-1][1] / 2**20:.0f} MB in {points[-1][2]:.3f} s")
    found, model = here(epochs, points, cores=cores), modelled()
    about = (
        f"Measured on {cores} cores with gloo: {STEPS} steps of {BATCH} windows of {CONTEXT} tokens, model {SIZE}, the best of "
        f"{settings.rounds} rounds, with a load of {load:.1f} before. Beyond that machine it is a model, whose assumptions are "
        "below."
    )
    settings.page.parent.mkdir(parents=True, exist_ok=True)
    settings.page.write_text(page(found, points, model, about=about, command="make scaling"))
    say(f"the page: {settings.page}")
    return {"here": {"load": round(load, 1), **found}, "model": model, "broken": broken(found, model)}


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    measured = partial(measure, read_settings(sys.argv[1:]))
    sys.exit(conclude("scaling", measured, lambda found: list(found["broken"]), failures=(BenchmarkError,)))
