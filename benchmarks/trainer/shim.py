"""Runs the original example, as it is, where there is no GPU: `python -m benchmarks.trainer.shim PATH/main.py ARGUMENTS...`

It calls .cuda() without asking. Here that leaves everything where it is, and DistributedDataParallel is made without device_ids.
With a GPU nothing is changed at all. The file is neither copied nor edited.
"""

import runpy
import sys
from typing import Any

import torch


class _OnCpu(torch.nn.parallel.DistributedDataParallel):
    def __init__(self, module: torch.nn.Module, device_ids: object = None, **more: Any) -> None:
        super().__init__(module, **more)


def adapt() -> None:
    """Only for this process, which runs nothing else."""

    def same(this: Any, *_: object, **__: object) -> Any:
        return this

    torch.nn.Module.cuda = same  # type: ignore[method-assign, assignment]
    torch.Tensor.cuda = same  # type: ignore[method-assign, assignment]
    torch.cuda.set_device = lambda *_: None
    torch.nn.parallel.DistributedDataParallel = _OnCpu  # type: ignore[misc, assignment]


def main(arguments: list[str]) -> None:
    if not torch.cuda.is_available():
        adapt()
    sys.argv = arguments
    runpy.run_path(arguments[0], run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])
