"""Images a second beside the original example, and what each choice brings: `python -m benchmarks.trainer --upstream main.py`."""

import argparse
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from benchmarks.controller.processes import BenchmarkError
from benchmarks.trainer import contenders, figures, folder
from benchmarks.trainer.contenders import CHECKPOINTS, CONTENDERS, Contender, Work
from devcluster.commands import say

KEPT, BROKEN, FAILED, UNCLEAR, INTERRUPTED = 0, 1, 2, 3, 130
CHOICE_ROUNDS = 2  # what promises hang on is measured in every round
HELP = f"""\
All train the same network on the same JPEGs of 500 x 375, with the same batch, one process, on all cores or the GPU:

{chr(10).join(f"  {each.name:18}{each.title}" for each in CONTENDERS)}

The original is examples/imagenet/main.py of pytorch/elastic; name the file. It is run as it is; where there is no GPU its calls
of .cuda() do nothing. What the trainer does not offer is left out. In turns, medians; choices in {CHOICE_ROUNDS} rounds alone.
The last line is one JSON object; "noise" is the smallest difference of a ratio that these rounds can show.

exit status: 0 every promise is kept, 1 one is broken, 2 it could not be measured, 3 the noise hides whether one is kept,
130 interrupted
"""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Options of the command line."""

    upstream: Path | None
    only: tuple[str, ...]
    arch: str
    batch: int
    steps: int
    repeat: int
    folder: Path


def read_settings(arguments: Sequence[str]) -> Settings:
    """The only reader of argv."""
    names = [each.name for each in CONTENDERS]
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.trainer", description=__doc__, epilog=HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("--upstream", metavar="PATH", type=Path, help="main.py of the original; without it only ours is measured")
    parser.add_argument("--only", metavar="A,B", default=",".join(names), help="of those below (default: all)")
    parser.add_argument("--arch", default="resnet18", help="(default: %(default)s; on a GPU try resnet50)")
    parser.add_argument("--batch", metavar="N", type=int, default=16, help="images a step (default: %(default)d)")
    parser.add_argument("--steps", metavar="N", type=int, default=12, help="of each run (default: %(default)d)")
    parser.add_argument("--repeat", metavar="N", type=int, default=5, help="rounds (default: %(default)d)")
    given = parser.parse_args(arguments)
    only = tuple(given.only.split(","))
    for word in only:
        if word not in names:
            parser.error(f"--only {word!r} is none of {', '.join(names)}")
    if given.upstream is not None and not given.upstream.is_file():
        parser.error(f"--upstream {given.upstream}: there is no such file; it is examples/imagenet/main.py of pytorch/elastic")
    if given.steps <= figures.WARM_UP_STEPS + 1 or given.repeat < 1 or given.batch < 2:
        parser.error(f"--steps must be above {figures.WARM_UP_STEPS + 1}, --repeat at least 1, --batch at least 2")
    return Settings(
        upstream=given.upstream.resolve() if given.upstream else None,
        only=only,
        arch=given.arch,
        batch=given.batch,
        steps=given.steps,
        repeat=given.repeat,
        folder=Path(tempfile.mkdtemp(prefix="ebb-trainer-")),
    )


def measure(settings: Settings) -> figures.Figures:
    """All figures. Raises BenchmarkError."""
    work = Work(
        upstream=settings.upstream,
        data=settings.folder / "data",
        shards=settings.folder / "shards",
        arch=settings.arch,
        batch=settings.batch,
        steps=settings.steps,
        cores=len(os.sched_getaffinity(0)),
        device="cuda" if torch.cuda.is_available() else "cpu",
    )
    chosen = [each for each in CONTENDERS if each.name in settings.only and (each.flags is not None or settings.upstream)]
    chosen = contenders.offered([each for each in chosen if each.device in ("", work.device)], contenders.known_flags())
    say("making images")
    folder.write(work.data, train=work.batch * work.steps)
    if any(each.shards for each in chosen):
        contenders.convert(work.data, work.shards, settings.folder / "convert.log")
    rates: dict[str, list[float]] = {}
    found: figures.Figures = {}
    turns, began = in_turns(chosen, settings.repeat), time.monotonic()
    for number, each in enumerate(turns, start=1):
        done = contenders.run(each, work, settings.folder / f"{each.name}-{number}")
        rates.setdefault(each.name, []).append(_rate(each, done, work))
        left = (time.monotonic() - began) / number * (len(turns) - number) / 60
        say(f"run {number} of {len(turns)}, {each.title}: {rates[each.name][-1]:.2f} images/s; {left:.0f} min left")
        found |= _besides(each, done)
    return found | figures.summary(rates) | {"arch": work.arch, "batch": work.batch, "device": _device(work), "cores": work.cores}


def in_turns(chosen: Sequence[Contender], rounds: int) -> list[Contender]:
    """So that a machine that is busy for a while hinders all alike. Every second round goes the other way round: what comes
    early in one is late in the next."""
    turns: list[Contender] = []
    for number in range(rounds):
        each = [one for one in chosen if one.name in contenders.PROMISED or number < CHOICE_ROUNDS]
        turns += each if number % 2 == 0 else each[::-1]
    return turns


def _rate(contender: Contender, done: Path, work: Work) -> float:
    try:
        if contender.flags is None:
            return figures.rate_of_original((done / "log.txt").read_text(), work.batch)
        return figures.rate_of_ours((done / "output" / "metrics.jsonl").read_text(), work.batch)
    except ValueError as error:
        raise BenchmarkError(f"{contender.title}: {error}") from error


def _besides(contender: Contender, done: Path) -> figures.Figures:
    """Figures that some contenders have besides the rate."""
    if contender.flags is None:
        return {}
    written = (done / "output" / "metrics.jsonl").read_text()
    if contender.name == CHECKPOINTS:
        seconds, share = figures.stalls(written)
        return {"checkpoint_stall_seconds": round(seconds, 4), "checkpoint_every_5_s_share": round(share, 5)}
    waited = figures.waited(written) if contender.name == contenders.OURS else None
    return {} if waited is None else {"waited_for_data_share": waited}


def _device(work: Work) -> str:
    return torch.cuda.get_device_name() if work.device == "cuda" else "cpu"


def main(arguments: Sequence[str]) -> int:
    """Returns the exit status."""
    settings, began = read_settings(arguments), time.monotonic()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    status = FAILED
    try:
        found = measure(settings)
        told, unclear = figures.broken(found), figures.unclear(found)
        for line in told:
            say(f"LOST {line}")
        for line in unclear:
            say(f"not to be told: {line}")
        status = BROKEN if told else UNCLEAR if unclear else KEPT
        print(json.dumps(found | {"broken": told, "unclear": unclear, "seconds": round(time.monotonic() - began, 1)}), flush=True)
    except BenchmarkError as error:
        print(f"it could not be measured; logs are in {settings.folder}: {error}", file=sys.stderr)
    except KeyboardInterrupt:
        say("interrupted")
        status = INTERRUPTED
    finally:
        if status != FAILED:
            shutil.rmtree(settings.folder, ignore_errors=True)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
