"""The largest micro-batch that fits into a device's memory: halved where a step ran out of it, and kept with the job.

    limit = halve(plan.micro_batches(step), device)            # raises NoRoomError at one sample
    keep_limit(config.output, device, limit)
    read_limit(config, device)                                    # --max-micro-batch, or what was kept for such a device

It is kept by the name of the device, in micro-batch.json of the job's folder: a job that moves to a larger GPU begins with
--max-micro-batch again. Deleting the file has it tried again on the same.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Sequence
from pathlib import Path

import torch

from ebb.elastic.faults import Fault, fault_of
from ebb.elastic.runtime.config import RunConfig
from ebb.elastic.runtime.plan import MicroBatch
from ebb.elastic.torch_compat import DistError, OutOfMemoryError

FILE = "micro-batch.json"


class NoRoomError(RuntimeError):
    """A step ran out of memory with one sample in a micro-batch; the message says what to do."""


def is_out_of_memory(error: BaseException | None) -> bool:
    """True if the device, or the machine, had no room for what a program computes. A collective's own is another matter: its
    other ranks have gone on."""
    if isinstance(error, OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and not isinstance(error, DistError) and fault_of(str(error)) is Fault.MEMORY


def halve(micro_batches: Sequence[MicroBatch], device: torch.device, *, together: int = 1) -> int:
    """The limit under which the largest of these comes in two. Raises NoRoomError where it cannot be cut any more."""
    largest = max((each.num_samples for each in micro_batches), default=0)
    if largest <= together:
        what = "one sample does" if together == 1 else f"{together} samples, which this program keeps together, do"
        raise NoRoomError(
            f"out of memory: {what} not fit into the memory of {device_name(device)}. Take a GPU with more memory, smaller "
            "inputs or a smaller model, --precision bf16, or torch.utils.checkpoint in the model"
        )
    return -(-largest // 2)


def read_limit(config: RunConfig, device: torch.device) -> int:
    """Samples in one forward pass at most. Virtual workers promise the same bits, so theirs stay as they were set."""
    if config.virtual_workers:
        return config.max_micro_batch
    return min(config.max_micro_batch, _read_limits(config.output).get(device_name(device), config.max_micro_batch))


def keep_limit(output: Path, device: torch.device, limit: int) -> None:
    kept, name = _read_limits(output), device_name(device)
    temporary = output / f".tmp-{FILE}-{socket.gethostname()}-{os.getpid()}"  # several ranks may write at once
    temporary.write_text(json.dumps({**kept, name: min(limit, kept.get(name, limit))}) + "\n", encoding="utf-8")
    temporary.rename(output / FILE)


def device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "this machine's CPU"


def _read_limits(output: Path) -> dict[str, int]:
    try:
        found = json.loads((output / FILE).read_text(encoding="utf-8"))
        return {str(name): max(1, int(limit)) for name, limit in found.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}  # it is found out again
