"""A training script as torchft's documentation shows it: its Manager, DistributedDataParallel and Optimizer, on gloo.

    torchrun --standalone ... -m benchmarks.recovery.torchft_program --output DIR --lighthouse http://HOST:PORT --replica 0 ...

A machine is a replica group of one process. Survivors keep their process, drop the step under way, and go on in a new quorum; one
that is new takes the state from a peer over HTTP. A checkpoint, once in SAVED_STEPS, is for the case that none is left. Each
process writes what it did into OUTPUT/steps/<pid>.jsonl, one line for a step that was committed: the quorum, its rank and size in
it, and the samples that the job had used before and after it.
"""

import argparse
import json
import os
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader
from torchft import DistributedDataParallel, DistributedSampler, Manager, Optimizer, ProcessGroupGloo

from benchmarks.recovery.model import Noise, adam, perceptron

MOST_REPLICAS = 4  # into so many parts its sampler divides the data, whoever is there
SAVED_STEPS = 60  # as long as an epoch of stock.py, after which that one saves
_TIMEOUT = timedelta(seconds=30)  # half of its default; the largest state takes seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--lighthouse", required=True)
    parser.add_argument("--address", required=True, help="of this machine")
    parser.add_argument("--replica", type=int, required=True, help="number of this machine")
    parser.add_argument("--state-megabytes", type=float, default=5.0)
    parser.add_argument("--batch-size", type=int, default=12, help="of each process")
    parser.add_argument("--step-seconds", type=float, default=0.0, help="shortest time of a step")
    parser.add_argument("--samples", type=int, default=1440, help="of an epoch")
    train(parser.parse_args())


def train(arguments: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    network = perceptron(arguments.state_megabytes)
    inner = adam(network)

    def state() -> dict[str, Any]:
        return {"model": network.state_dict(), "optimizer": inner.state_dict()}

    def load(saved: dict[str, Any]) -> None:
        network.load_state_dict(saved["model"])
        inner.load_state_dict(saved["optimizer"])

    manager = Manager(
        pg=ProcessGroupGloo(timeout=_TIMEOUT),
        load_state_dict=load,
        state_dict=state,
        min_replica_size=1,
        timeout=_TIMEOUT,
        replica_id=f"machine_{arguments.replica}",
        lighthouse_addr=arguments.lighthouse,
        hostname=arguments.address,
    )
    model = DistributedDataParallel(manager, network)
    optimizer = Optimizer(manager, inner)
    criterion = torch.nn.CrossEntropyLoss()
    data = Noise(arguments.samples)
    checkpoint = arguments.output / "checkpoint.pt"
    if checkpoint.exists():
        saved = torch.load(checkpoint)
        load(saved)
        manager.load_state_dict(saved["torchft"])
    sampler = DistributedSampler(
        data, replica_rank=arguments.replica % MOST_REPLICAS, num_replica_groups=MOST_REPLICAS, group_rank=0, num_replicas=1
    )
    loader = DataLoader(data, batch_size=arguments.batch_size, sampler=sampler)

    steps = arguments.output / "steps"
    steps.mkdir(parents=True, exist_ok=True)
    with (steps / f"{os.getpid()}.jsonl").open("w", buffering=1) as lines:
        while True:  # it is ended from outside
            for inputs, labels in loader:
                began = time.monotonic()
                optimizer.zero_grad()  # asks for the quorum
                criterion(model(inputs), labels).backward()
                before = manager.current_step()
                optimizer.step()
                time.sleep(max(0.0, arguments.step_seconds - (time.monotonic() - began)))
                rank, size = manager.participating_rank(), manager.num_participants()
                if rank is None or manager.current_step() != before + 1:
                    continue  # it took a peer's state in this step, or the step was dropped
                end = manager.batches_committed()
                line = {"generation": manager._quorum_id, "rank": rank, "world_size": size}  # it has no public name
                batch = arguments.batch_size
                if rank == 0 and manager.current_step() % SAVED_STEPS == 0:
                    temporary = checkpoint.with_suffix(".tmp")
                    torch.save({**state(), "torchft": manager.state_dict()}, temporary)
                    temporary.rename(checkpoint)
                lines.write(json.dumps({"time": time.time(), **line, "from": (end - size) * batch, "to": end * batch}) + "\n")


if __name__ == "__main__":
    main()
