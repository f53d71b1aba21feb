"""Fifty histories of a job whose machines come and go while it reads real shards: which samples count, and what was read for it.

    python -m tests.elastic.data.streams.histories FOLDER          prints {format: {streams_lost, ...}} and changes

A history is drawn by its seed: batches, sections, epochs, and generations of one to seven ranks, each of which ends by agreement
at a step boundary, by a loss in a step that is done again, or by a loss that throws back to a checkpoint. Each rank has a machine
of its own, with an empty cache, as a newcomer has; a survivor keeps its. Numbers are taken out of what was read.
"""

import json
import random
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fsspec
import torch

from ebb.elastic.data.order import Stream
from ebb.elastic.data.streams.mds import mds
from ebb.elastic.data.streams.parquet import parquet
from ebb.elastic.data.streams.sharded import Sharded
from ebb.elastic.data.streams.webdataset import webdataset
from ebb.elastic.runtime.loading import Loader
from ebb.elastic.runtime.plan import MicroBatchPlan
from tests.elastic.data.streams import written

HISTORIES = 50


@dataclass
class Played:
    lost: int = 0
    repeated: int = 0
    changes: int = 0
    samples: int = 0

    def add(self, other: "Played") -> None:
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)


def store(format: str, folder: Path) -> Callable[[Path], Sharded]:
    """Write shards and put them into a store; returns how a machine with this cache opens them."""
    root = f"memory://{folder.name}-{format}"
    here = folder / format
    here.mkdir(parents=True)
    write: dict[str, Callable[[Path], object]] = {
        "webdataset": written.tars,
        "mds": written.mds,
        "parquet": written.parquet,
    }
    pattern = write[format](here)
    for path in here.iterdir():
        if path.is_file():
            fsspec.filesystem("memory").pipe_file(f"{folder.name}-{format}/{path.name}", path.read_bytes())
    address = str(pattern).replace(str(here), root)
    opened: dict[str, Callable[[Path], Sharded]] = {
        "webdataset": lambda cache: webdataset(address, transform=lambda each: int(each["cls"]), cache=cache, index=folder / "i"),
        "mds": lambda cache: mds(address, transform=lambda each: each["id"], cache=cache),
        "parquet": lambda cache: parquet(address, transform=lambda each: each["id"], cache=cache, index=folder / "p"),
    }
    return opened[format]


@dataclass
class Machine:
    """A rank alone on it. It reads what its plan says, from its own cache."""

    dataset: Sharded
    options: dict[str, Any]

    def start(self, plan: MicroBatchPlan) -> Any:
        return Loader(self.dataset, seed=0, workers=0, **self.options).start(plan, torch.device("cpu"), say=print)


def play(seed: int, opened: Callable[[Path], Sharded], folder: Path) -> Played:
    rng = random.Random(seed)
    sections = rng.randint(1, 8)
    made = 0

    def machine() -> Machine:
        nonlocal made
        made += 1
        return Machine(opened(folder / f"machine{made}"), {"sections": sections})

    machines = [machine() for _ in range(rng.randint(1, 4))]
    loader = Loader(machines[0].dataset, seed=0, workers=0, sections=sections)
    stream = Stream(
        dataset_size=len(loader),
        epochs=rng.randint(1, 2),
        global_batch=rng.randint(3, 16),
        seed=seed,
        sections=loader.sections,
    )
    trained: list[list[tuple[int, int]]] = []  # by step: epoch and number of the samples that count
    checkpoint, found = 0, Played()
    while len(trained) < stream.total_steps:
        virtual_workers = rng.choice((0, 0, 8))
        plans = [
            MicroBatchPlan(
                stream=stream,
                first_step=len(trained),
                rank=rank,
                world_size=len(machines),
                max_micro_batch=rng.randint(1, 6),
                virtual_workers=virtual_workers,
            )
            for rank in range(len(machines))
        ]
        sources = [each.start(plan) for each, plan in zip(machines, plans, strict=True)]
        for step in range(len(trained), min(stream.total_steps, len(trained) + rng.randint(1, 9))):
            samples = [_read(stream, plan, source, step) for plan, source in zip(plans, sources, strict=True)]
            trained.append([each for rank in samples for each in rank])
        if len(trained) == stream.total_steps:
            break
        found.changes += 1
        how = rng.choice(("agreed", "lost in a step", "back to a checkpoint"))
        if how == "lost in a step" and len(trained) > checkpoint:
            trained.pop()
        elif how == "back to a checkpoint":
            checkpoint = rng.randint(checkpoint, len(trained))
            del trained[checkpoint:]
        rng.shuffle(machines)
        machines = machines[: rng.randint(0, len(machines))]
        machines += [machine() for _ in range(rng.randint(0 if machines else 1, 7 - len(machines)))]
    counts = Counter(each for step in trained for each in step)
    due = Counter((epoch, number) for epoch in range(stream.epochs) for number in range(stream.dataset_size))
    found.lost, found.repeated = (due - counts).total(), (counts - due).total()
    found.samples = counts.total()
    return found


def _read(stream: Stream, plan: MicroBatchPlan, source: Any, step: int) -> list[tuple[int, int]]:
    """One rank's samples of a step: the epoch by the plan, the number by what the shard held."""
    found = []
    for each in plan.micro_batches(step):
        numbers, batch = next(source)
        if each.num_samples:
            epochs = [sample.epoch for sample in plan.samples(each)]
            assert numbers == batch.tolist(), "a sample is another one than its number says"
            found += list(zip(epochs, batch.tolist(), strict=True))
    return found


def play_all(folder: Path, format: str, histories: int = HISTORIES) -> Played:
    total = Played()
    opened = store(format, folder)
    for seed in range(histories):
        total.add(play(seed, opened, folder / f"{format}-{seed}"))
    return total


if __name__ == "__main__":
    print(json.dumps({each: vars(play_all(Path(sys.argv[1]), each)) for each in written.FORMATS}))
