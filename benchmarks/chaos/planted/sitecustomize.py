"""Python imports this first in every process whose path begins here: it breaks one function of Ebb, as $EBB_PLANTED says.

fencing   a checkpoint is committed whatever generation etcd has by now          in workers
sampler   every step takes the samples one further than its own                  in workers
budget    a worker that was lost with its machine counts as a failed program     in controllers

The modules are patched when they are imported, so that a launcher does not import torch for it.
"""

import importlib.abc
import importlib.util
import os
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


def fencing(module: Any) -> None:
    def commit(self: Any, manifest: Any) -> None:
        held, membership = self._register.read(self._key), self._read_membership()
        revision = held[1] if held else 0
        value = module._value(manifest)
        self._register.put_if(self._key, value, revision=revision, guard=self._membership_key, guard_value=membership)

    module.EtcdFence.commit = commit


def sampler(module: Any) -> None:
    samples = module.Stream.samples

    def one_further(self: Any, piece: Any) -> Any:
        last = piece.stop == self.total_samples
        return samples(self, piece if last else module.Piece(piece.start + 1, piece.stop + 1))

    module.Stream.samples = one_further


def budget(module: Any) -> None:
    def failed(_: str, message: str, *, force: bool = False, until: float | None = None) -> Any:
        cause = module.names.CAUSE_PROGRAM
        return module.WorkerVerdict(outcome=module.Outcome.FAILED, cause=cause, message=message, force=force, notice_until=until)

    module._reclaimed = failed


PLANTED: dict[str, tuple[str, Callable[[Any], None]]] = {
    "fencing": ("ebb.elastic.checkpoint.fence", fencing),
    "sampler": ("ebb.elastic.data.order", sampler),
    "budget": ("ebb.controller.reconciler.worker_state", budget),
}


class Planter(importlib.abc.MetaPathFinder):
    """Finds one module as everybody does, and breaks it when it has run."""

    def __init__(self, name: str, plant: Callable[[Any], None]) -> None:
        self._name, self._plant = name, plant

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if fullname != self._name:
            return None
        sys.meta_path.remove(self)
        found = importlib.util.find_spec(fullname)
        assert found is not None
        assert found.loader is not None
        run, plant = found.loader.exec_module, self._plant

        def run_and_plant(module: ModuleType) -> None:
            run(module)
            plant(module)

        found.loader.exec_module = run_and_plant  # type: ignore[method-assign]
        return found


if chosen := os.environ.get("EBB_PLANTED"):
    sys.meta_path.insert(0, Planter(*PLANTED[chosen]))
