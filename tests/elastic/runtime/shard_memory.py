"""Memory of the ranks of a pod while a checkpoint is saved beside the training, and loaded: in units of a rank's part. With
snapshots in memory, and without."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.distributed.tensor import DTensor

from ebb import elastic
from ebb.elastic.notices.notice import Notice
from ebb.elastic.runtime.config import resolve
from tests.elastic.runtime import pods
from tests.elastic.runtime.programs import wait_for_memory

_WIDTH, _LAYERS, _SAMPLES = 2048, 8, 24  # 34 million parameters, with gradient and averages 537 MB


@dataclass(kw_only=True)
class Sizes(pods.Program):
    """Sent by pods.play to a rank, which runs this one's program in the place of pods.train."""

    def run(self) -> dict[str, Any]:
        return live(self)


def live(program: pods.Program) -> dict[str, Any]:
    """One rank, which trains a few steps and saves after each; its peak above what it has without a state, in bytes."""
    config = resolve(os.environ, output=program.output, global_batch=4, epochs=1, workers=0, log_every=1, **program.settings)
    with elastic.start(config, notice=Notice()) as run:
        before = resident("VmRSS")
        network = torch.nn.Module()
        network.layers = torch.nn.ModuleList(torch.nn.Linear(_WIDTH, _WIDTH, bias=False) for _ in range(_LAYERS))
        run.distribute(network, shard=True)
        part = 4 * sum(local(each).nbytes for each in network.parameters())  # with the gradient and Adam's two averages
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # VmHWM starts again
        optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3, foreach=False)
        run.register_state(model=network, optimizer=optimizer)
        for step in run.steps(run.loader(torch.eye(_SAMPLES, _WIDTH))):
            wait_for_memory(run)
            for batch in step:
                values = batch
                for layer in network.layers:
                    values = torch.tanh(layer(values))
                step.backward(values.square().mean())
            optimizer.step()
            optimizer.zero_grad()
            if step.number == program.stop_at:
                break
    snapshots = run._checkpointing.snapshots  # type: ignore[union-attr]
    return {"left": False, "part": part, "peak": resident("VmHWM") - before, "copies": snapshots._number if snapshots else 0}


def resident(name: str) -> int:
    """Bytes, as the kernel has them."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


def local(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def measure(output: Path) -> dict[str, float]:
    """The largest peak in parts, of a pod of two ranks, and of two such pods, which load what the first one has saved and add up
    their gradients; the same with a snapshot in each step; and a part in MiB."""
    plain, snapped = (_peaks(output / name, overhead) for name, overhead in (("plain", 0.0), ("snapshots", 1e9)))
    assert not any(each["copies"] for each in plain)
    assert all(each["copies"] for each in snapped), "each rank has taken some"
    part = max(each["part"] for each in plain)
    return {
        "peak_parts": round(max(each["peak"] for each in plain) / part, 2),
        "peak_parts_with_snapshots": round(max(each["peak"] for each in snapped) / part, 2),
        "part_mib": round(part / 2**20, 1),
    }


def _peaks(output: Path, overhead: float) -> list[dict[str, Any]]:
    settings = {"recovery": "memory", "checkpoint_seconds": 0.2, "checkpoint_min_seconds": 0.0, "snapshot_overhead": overhead}
    found = []
    for count, stop_at in ((1, 2), (2, 5)):
        program = Sizes(output=output, settings=settings, stop_at=stop_at)
        answers = pods.play(program, pods=count, size=2, limit_seconds=900.0)
        found += [each for pod in answers.values() for each in pod]
    return found
