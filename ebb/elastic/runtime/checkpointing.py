"""What happens when a program says what it keeps: the newest checkpoint is found and loaded; and how the next ones are made.

keeping = Keeping.open(config, group, start, fence, kept, models=[...], identity={...})
keeping.first_step(facts, stream);  keeping.state(step, stream, account)
"""

from dataclasses import dataclass
from typing import Any, Self

import torch

from ebb.elastic.checkpoint import Fence
from ebb.elastic.checkpoint.saver import Saver
from ebb.elastic.checkpoint.state import Reached, load, restore_random
from ebb.elastic.data import DataError
from ebb.elastic.data.order import Stream, mix
from ebb.elastic.runtime.account import Account
from ebb.elastic.runtime.config import RunConfig
from ebb.elastic.runtime.kept import Kept, plain
from ebb.elastic.runtime.process_group import Group
from ebb.elastic.runtime.start import Origin, Start, find, open_saver
from ebb.elastic.runtime.virtual import Virtual

Facts = dict[str, Any]  # of a dataset: dataset_size, fingerprint


@dataclass(kw_only=True)
class Keeping:
    """`best` is the highest score of a validation so far."""

    config: RunConfig
    kept: Kept
    identity: dict[str, Any]
    origin: Origin
    saved: dict[str, Any]  # the checkpoint that was loaded, or nothing
    saver: Saver
    virtual: Virtual | None
    best: float = 0.0

    @classmethod
    def open(
        cls,
        config: RunConfig,
        group: Group,
        start: Start,
        fence: Fence,
        kept: Kept,
        *,
        models: list[torch.nn.Module],
        identity: dict[str, Any],
    ) -> Self:
        """Raises RefusedError when what is there must not be gone on from."""
        identity = {**kept.identity(), **_exactness(config), **identity}
        origin = find(config, start, fence, identity, group)
        saved = load(origin.content) if origin.content else {}
        if saved:
            kept.load(saved, settings_stay=not origin.own)
        if "random" in saved:  # the original example's file has none
            restore_random(saved["random"], rank=group.rank, seed=mix(config.seed, origin.step))
        virtual = None
        if config.virtual_workers:
            virtual = Virtual([plain(each) for each in models], group, config.virtual_workers)
            virtual.load(saved.get("virtual_buffers"))
        return cls(
            config=config,
            kept=kept,
            identity=identity,
            origin=origin,
            saved=saved,
            saver=open_saver(config, start, fence, identity, kept.optimizer),
            virtual=virtual,
            best=float(saved.get("best_acc1", 0.0)),
        )

    def first_step(self, facts: Facts, stream: Stream) -> int:
        """The number of steps that are done. Raises DataError when they were done on other data."""
        before = self.saved.get("sampler", {})
        for name, found in facts.items():
            if name in before and before[name] != found:
                raise DataError(
                    f"the checkpoint is of other data: its {name} was {before[name]!r} and is {found!r} here, so samples "
                    "would be lost and repeated. Use the same data, or give the new job another --output folder"
                )
        return self.origin.step or self.origin.epochs * stream.dataset_size // stream.global_batch

    def skipped(self, first: int, stream: Stream) -> int:
        """Samples that are in no step: --epochs was raised after a last step that was shorter than the others."""
        position = min(first * stream.global_batch, stream.total_samples)
        return position - int(self.saved.get("sampler", {}).get("samples", position))

    def state(
        self, step: int, stream: Stream, facts: Facts, account: Account, *, evaluation_pending: bool = False
    ) -> dict[str, Any]:
        """References to what a checkpoint keeps."""
        samples = min(step * stream.global_batch, stream.total_samples)
        reached = Reached(step=step, samples=samples, epoch=samples // stream.dataset_size, best_accuracy=self.best)
        parts = {
            "sampler": {"seed": stream.seed, "samples": samples, **facts},
            "account": account.saved(),
            "config": self.config.plain(),
            "identity": self.identity,
            "owes_evaluation": evaluation_pending,
        }
        return self.kept.state(reached, seed=stream.seed, virtual=self.virtual, parts=parts)


def _exactness(config: RunConfig) -> dict[str, Any]:
    """What gives a step its samples; with virtual workers, what gives it its bits."""
    found: dict[str, Any] = {"global_batch": config.global_batch, "seed": config.seed}
    if config.virtual_workers:
        found |= {name: getattr(config, name) for name in ("virtual_workers", "threads", "max_micro_batch")}
    return found
