"""A training script as one finds it for torchrun: DistributedDataParallel, and a checkpoint at the end of each epoch.

    torchrun ... -m benchmarks.recovery.stock --output DIR --state-megabytes 5 --batch-size 12 --step-seconds 0.1

It is written as the well-known image examples are: the batch is that of a process, the data are split by DistributedSampler,
rank 0 saves by a temporary file and a rename, all load the checkpoint at the start. Each process writes what it did into
OUTPUT/steps/<pid>.jsonl: a header, then the samples that the job had used before and after each step, with the time.
"""

import argparse
import json
import os
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

from benchmarks.recovery.model import Noise, adam, perceptron

EPOCHS = 1_000_000  # it is ended from outside


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--state-megabytes", type=float, default=5.0)
    parser.add_argument("--batch-size", type=int, default=12, help="of each process")
    parser.add_argument("--step-seconds", type=float, default=0.0, help="shortest time of a step")
    parser.add_argument("--samples", type=int, default=1440, help="of an epoch")
    train(parser.parse_args())


def train(arguments: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(minutes=5))
    world_size = dist.get_world_size()
    data = Noise(arguments.samples)
    sampler: DistributedSampler[Any] = DistributedSampler(data)
    loader = DataLoader(data, batch_size=arguments.batch_size, sampler=sampler)
    network = perceptron(arguments.state_megabytes)
    model = DistributedDataParallel(network)
    optimizer = adam(network)
    criterion = torch.nn.CrossEntropyLoss()
    checkpoint = arguments.output / "checkpoint.pt"
    first_epoch = _load(checkpoint, model, optimizer)

    steps = arguments.output / "steps"
    steps.mkdir(parents=True, exist_ok=True)
    with (steps / f"{os.getpid()}.jsonl").open("w", buffering=1) as lines:
        lines.write(json.dumps({"rank": dist.get_rank(), "world_size": world_size, "started": time.time()}) + "\n")
        for epoch in range(first_epoch, EPOCHS):
            sampler.set_epoch(epoch)
            for number, (inputs, labels) in enumerate(loader):
                began = time.monotonic()
                optimizer.zero_grad()
                criterion(model(inputs), labels).backward()
                optimizer.step()
                time.sleep(max(0.0, arguments.step_seconds - (time.monotonic() - began)))
                each = arguments.batch_size * world_size
                before = epoch * len(data) + number * each
                lines.write(json.dumps({"time": time.time(), "from": before, "to": before + len(inputs) * world_size}) + "\n")
            if dist.get_rank() == 0:
                _save(checkpoint, epoch, model, optimizer)


def _load(path: Path, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """The epoch to begin with."""
    if not path.exists():
        return 0
    state = torch.load(path)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return int(state["epoch"]) + 1


def _save(path: Path, epoch: int, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    temporary = path.with_suffix(".tmp")
    torch.save({"epoch": epoch, "model": model.state_dict(), "optimizer": optimizer.state_dict()}, temporary)
    temporary.rename(path)


if __name__ == "__main__":
    main()
