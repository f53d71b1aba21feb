"""How long the training stands still for a checkpoint of a ResNet-50 (100 MB of weights, 100 MB of momentum).

    python -m tests.elastic.checkpoint.stall [--saves 12] [--size 64] [--batch 8] [--folder DIR]

It trains a ResNet-50 on random images, with a checkpoint as often as the disk allows. The last line is JSON: the stalls in
milliseconds; the median step without a write beside it, and with one; and, for comparison, what copying the state at once takes.
"""

import argparse
import contextlib
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torchvision.models import resnet50

from ebb.elastic.checkpoint import CheckpointFolder, FileFence
from ebb.elastic.checkpoint.cadence import Cadence
from ebb.elastic.checkpoint.saver import Saver
from ebb.elastic.checkpoint.snapshot import Buffers
from ebb.elastic.checkpoint.state import Reached, collect


def measure(folder: Path, *, saves: int, size: int, batch: int) -> dict[str, Any]:
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    network = resnet50().to(device)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9)
    images = torch.randn(batch, 3, size, size, device=device)
    place, fence = CheckpointFolder(folder, keep=2, identity={}), FileFence.claim(folder)
    place.prepare(fence.generation)
    cadence = Cadence(shortest_seconds=0, longest_seconds=300, overhead=1000)
    saver = Saver(place, fence, cadence=cadence, optimizer=optimizer)

    def state() -> dict[str, Any]:
        return collect(arch="resnet50", network=network, optimizer=optimizer, reached=Reached(step=0, samples=0, epoch=0), seed=0)

    def step() -> float:
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        network(images).square().mean().backward()
        optimizer.step()
        if device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - start

    for _ in range(3):
        step()
    alone = [step() for _ in range(8)]
    beside, number = [], 0
    while len(saver.stalls) < saves + 1:
        number += 1
        with _settled(saver, number):
            saver.maybe_save(number, state)
        beside.append(step())
    saver.finish()
    stalls = [seconds * 1000 for seconds in saver.stalls[:saves]]
    return {
        "stall_ms_median": round(statistics.median(stalls), 1),
        "stall_ms_all": [round(stall, 1) for stall in stalls],
        "step_ms_alone": round(statistics.median(alone) * 1000),
        "step_ms_with_writes": round(statistics.median(beside) * 1000),
        "write_seconds": round(saver._write_seconds, 2),
        "copy_at_once_ms": round(_copy_at_once(state()), 1),
        "megabytes": round(place.newest().manifest.size_bytes / 1e6),  # type: ignore[union-attr]
        "device": device.type,
    }


@contextlib.contextmanager
def _settled(saver: Saver, number: int) -> Iterator[None]:
    """The first call takes the memory, beside the training; here it is waited for, so that the stalls are those of later ones."""
    yield
    if number == 1:
        saver.finish()


def _copy_at_once(state: dict[str, Any]) -> float:
    buffers = Buffers()
    buffers.prepare(state)
    times = []
    for _ in range(7):
        start = time.perf_counter()
        buffers.copy(state).complete()
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1000


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--saves", type=int, default=12)
    parser.add_argument("--size", type=int, default=64, help="side of the images in pixels")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--folder", type=Path, default=None, help="where the checkpoints go; a temporary folder by default")
    settings = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(dir=settings.folder) as folder:
        print(json.dumps(measure(Path(folder), saves=settings.saves, size=settings.size, batch=settings.batch)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
