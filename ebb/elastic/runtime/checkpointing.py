"""The state that checkpoints hold, and the start from the newest one.

state = TrainingState(model=model, optimizer=optimizer, others={"schedule": schedule, "scaler": scaler})
checkpointing = Checkpointing.open(generation, group, state, models=[...], identity={...}, answer=ask)    # finds and loads it
checkpointing.first_step(facts, stream);  checkpointing.state(step, stream, account)
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from typing import Any

import torch

from ebb.compat import Self, dataclass
from ebb.elastic.checkpoint import Fence, ForeignCheckpointError
from ebb.elastic.checkpoint.optimizers import load_state
from ebb.elastic.checkpoint.parts import read
from ebb.elastic.checkpoint.saver import Saver
from ebb.elastic.checkpoint.seeds import load_optimizer
from ebb.elastic.checkpoint.sharded import Like, cut, from_local
from ebb.elastic.checkpoint.snapshot import tensors_in
from ebb.elastic.checkpoint.state import PREFIX, Reached, collect, load, restore_random, weights
from ebb.elastic.checkpoint.values import encode
from ebb.elastic.data import DataError
from ebb.elastic.data.order import Stream, mix
from ebb.elastic.runtime.config import RunConfig
from ebb.elastic.runtime.gradients import VirtualGradients
from ebb.elastic.runtime.members import Members
from ebb.elastic.runtime.pod import Pod
from ebb.elastic.runtime.process_group import Group
from ebb.elastic.runtime.report import TimeAccount
from ebb.elastic.runtime.sharding import FSDPModule
from ebb.elastic.runtime.snapshots import Snapshots, find_newest, owner_of
from ebb.elastic.runtime.start import Origin, Start, find, open_saver

Weights = Callable[[], Mapping[str, torch.Tensor]]  # by the names of the network's state_dict


class TrainingState:
    """`model` may be wrapped and compiled; its plain form is what is kept. `evaluated` gives the weights that validations judge
    where they are not the model's own: a moving average of them."""

    def __init__(
        self,
        *,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        others: Mapping[str, Any],
        arch: str = "",
        evaluated: Weights | None = None,
    ) -> None:
        for name, each in others.items():
            if not (hasattr(each, "state_dict") and hasattr(each, "load_state_dict")):
                raise TypeError(
                    f"run.register_state({name}=...) is a {type(each).__name__}, which has no state_dict and load_state_dict: "
                    "give it both, or leave it out"
                )
            encode(each.state_dict(), f"run.register_state({name}=...)")  # refused now, not at the first checkpoint
        self.network = unwrap(model)
        self.optimizer = optimizer
        self._others = dict(others)
        self._evaluated = evaluated
        # fully_shard() makes a class of its own of a network's
        plain = next(each for each in type(self.network).__mro__ if not issubclass(each, FSDPModule))
        self.arch = arch or plain.__name__

    @property
    def in_pairs(self) -> bool:
        """True if a forward pass needs two samples: batch normalisation of any kind."""
        return any(isinstance(each, torch.nn.modules.batchnorm._BatchNorm) for each in self.network.modules())

    @property
    def evaluated(self) -> list[torch.Tensor]:
        """Those weights; none where they are the model's own."""
        return [each.detach() for each in self._evaluated().values()] if self._evaluated else []

    def identity(self) -> dict[str, Any]:
        """The facts that must be the same for a checkpoint to fit."""
        digest = hashlib.sha256()
        for name, tensor in sorted(self.network.state_dict().items()):
            digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}\n".encode())
        return {
            "arch": self.arch,
            "weights": digest.hexdigest()[:12],  # of their names and shapes
            "optimizer": type(self.optimizer).__name__,
        }

    def state(self, reached: Reached, *, seed: int, virtual: VirtualGradients | None, parts: dict[str, Any]) -> dict[str, Any]:
        """References to the live tensors; the saver copies. Raises TypeError for a value that no checkpoint can hold."""
        state = collect(arch=self.arch, network=self.network, optimizer=self.optimizer, reached=reached, seed=seed, parts=parts)
        if self._evaluated is not None:  # where any program looks for weights are those that were judged
            state["trained"] = state["state_dict"]
            state["state_dict"] = {PREFIX + name: each.detach() for name, each in self._evaluated().items()}
        state["kept"] = {name: each.state_dict() for name, each in self._others.items()}
        if virtual is not None:
            state["virtual_buffers"] = virtual.buffers[1:]  # the first worker's are the model's own
        encoded: dict[str, Any] = encode(state)
        return encoded

    def live(self) -> Like:
        """The tensors that state() has, by their way in it: those in which a sharded model and its optimizer hold their parts."""
        networks = {PREFIX + name: each for name, each in self.network.state_dict().items()}
        parameters = dict(enumerate(each for group in self.optimizer.param_groups for each in group["params"]))
        kept = dict(tensors_in({name: each.state_dict() for name, each in self._others.items()}))

        def like(path: tuple[Any, ...]) -> torch.Tensor | None:
            if path[0] in ("state_dict", "trained"):
                return networks.get(path[1])
            if path[:2] == ("optimizer", "state"):
                return parameters.get(path[2])
            return kept.get(path[1:]) if path[0] == "kept" else None

        return like

    def load(self, saved: dict[str, Any], *, settings_stay: bool, same_names: bool = True) -> None:
        """Put the state in place. `settings_stay`: the optimizer's learning rate and the like stay those of this program.

        Raises ForeignCheckpointError when it does not fit; with `same_names` also where names differ, before anything is changed.
        """
        differences = self.differences(saved)
        if differences and same_names:
            raise ForeignCheckpointError(
                f"the checkpoint {differences}: they would start anew, or be lost. Register the same names; to go on without "
                "them, start a job with an --output folder of its own and --resume-from this one's"
            )
        try:
            self.network.load_state_dict(weights({"state_dict": saved.get("trained", saved["state_dict"])}))
            if settings_stay:
                load_optimizer(self.optimizer, saved["optimizer"])
            else:
                load_state(self.optimizer, saved["optimizer"])
            for name, state in saved.get("kept", {}).items():
                if name in self._others:
                    self._others[name].load_state_dict(state)
        except (RuntimeError, ValueError, KeyError, TypeError) as error:
            reason = " ".join(str(error).split())[:300]
            raise ForeignCheckpointError(
                f"the checkpoint does not fit what run.register_state() was given: {reason}. Give this job its own "
                "--output folder, or start it with the program of that run"
            ) from error

    def differences(self, saved: dict[str, Any]) -> str:
        """The names that only one side has, in words; empty where there are none."""
        held, given = set(saved.get("kept", ())), set(self._others)  # the original example's file has none
        missing = f"has no state of {', '.join(sorted(given - held))}" if given - held else ""
        unknown = f"holds {', '.join(sorted(held - given))}, which run.register_state() was not given" if held - given else ""
        return " and ".join(filter(None, (missing, unknown)))


def unwrap(model: torch.nn.Module) -> torch.nn.Module:
    """Without DistributedDataParallel and torch.compile around it, in any order."""
    while True:
        inner = getattr(model, "_orig_mod", None) or (
            model.module if isinstance(model, torch.nn.parallel.DistributedDataParallel) else None
        )
        if inner is None:
            return model
        model = inner


Facts = dict[str, Any]  # of a dataset: dataset_size, fingerprint
_REMEMBERED = ("sampler", "account", "evaluation_pending")  # parts of a checkpoint that are needed after it is loaded


@dataclass(kw_only=True)
class Checkpointing:
    """`best` is the highest score of a validation so far."""

    config: RunConfig
    kept: TrainingState
    identity: dict[str, Any]
    origin: Origin
    saved: dict[str, Any]  # the small parts of the checkpoint that was loaded, or nothing
    saver: Saver
    virtual: VirtualGradients | None
    snapshots: Snapshots | None
    best: float = 0.0

    @classmethod
    def open(
        cls,
        generation: Callable[[], tuple[RunConfig, Start, Fence]],
        group: Group,
        kept: TrainingState,
        *,
        models: list[torch.nn.Module],
        identity: dict[str, Any],
        answer: Callable[[Callable[[], Any]], Any],
        pod: Pod | None = None,
    ) -> Self:
        """`answer` gives what all ranks find together, and asks them again where one is lost meanwhile, in another `generation`;
        or what others have found before: then one of them will give the state too (come_in). Raises RefusedError when what is
        there must not be gone on from."""
        config, start, _ = generation()
        identity = {**kept.identity(), **_exactness(config), **identity}
        owner = owner_of(start, identity, pod)
        snapshots = Snapshots.find(config, os.environ, owner=owner, optimizer=kept.optimizer, pod=pod)
        saved: dict[str, Any] = {}

        def look() -> dict[str, Any]:
            config, start, fence = generation()
            if isinstance(group, Members) and (found := find_newest(snapshots, config, start, fence, group, pod=pod)):
                origin, state = found
            else:
                origin = find(config, start, fence, identity, group)
                state = load(origin.content) if origin.content else {}
            saved.clear()
            saved.update(state)
            return asdict(replace(origin, content=b"")) | {"content": None}

        origin = Origin(**{**answer(look), "content": b""})  # the content is as large as the state: it must not stay in memory
        config, start, fence = generation()
        if saved:
            live = kept.live()
            if origin.parts:
                read(saved, origin.parts, live)
            put = from_local if origin.in_memory else cut
            kept.load(put(saved, live), settings_stay=not origin.own, same_names=origin.generation > 0)
            if (differences := kept.differences(saved)) and group.rank == 0:
                print(f"the checkpoint {differences}: they start anew, or are left out", file=sys.stderr, flush=True)
        if "random" in saved:  # the original example's file has none
            restore_random(saved["random"], rank=group.rank, seed=mix(config.seed, origin.step))
        virtual = None
        if config.virtual_workers:
            virtual = VirtualGradients([unwrap(each) for each in models], group, config.virtual_workers)
            virtual.load(saved.get("virtual_buffers"))
        return cls(
            config=config,
            kept=kept,
            identity=identity,
            origin=origin,
            saved=_remembered(saved),
            saver=open_saver(config, start, fence, identity, kept.optimizer, pod=pod),
            virtual=virtual,
            snapshots=snapshots,
            best=float(saved.get("best_acc1", 0.0)),
        )

    def come_in(self, saved: dict[str, Any], origin: Origin, *, rank: int) -> None:
        """Go on from the state of another rank, in a process that has done no step."""
        self.take(saved)
        restore_random(saved["random"], rank=rank, seed=mix(self.config.seed, origin.step))
        self.origin, self.saved = origin, _remembered(saved)

    def take(self, saved: dict[str, Any]) -> bool:
        """Put the state of a rank that is ahead in place; True if that one's evaluation was cut short."""
        if self.snapshots is not None:
            self.snapshots.settle()
        self.kept.load(from_local(saved, self.kept.live()), settings_stay=False)
        if self.virtual is not None:
            self.virtual.load(saved.get("virtual_buffers"))
        self.best = float(saved.get("best_acc1", 0.0))
        return bool(saved.get("evaluation_pending", False))  # older checkpoints have another word for it

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
        self, step: int, stream: Stream, facts: Facts, account: TimeAccount, *, evaluation_pending: bool = False
    ) -> dict[str, Any]:
        """References to what a checkpoint keeps."""
        samples = min(step * stream.global_batch, stream.total_samples)
        reached = Reached(step=step, samples=samples, epoch=samples // stream.dataset_size, best_accuracy=float(self.best))
        parts = {
            "sampler": {"seed": stream.seed, "samples": samples, **facts},
            "account": account.saved(),
            "config": self.config.plain(),
            "identity": self.identity,
            "evaluation_pending": evaluation_pending,
        }
        return self.kept.state(reached, seed=stream.seed, virtual=self.virtual, parts=parts)


def _remembered(saved: dict[str, Any]) -> dict[str, Any]:
    return {name: saved[name] for name in _REMEMBERED if name in saved}


def _exactness(config: RunConfig) -> dict[str, Any]:
    """The settings that give a step its samples; with virtual workers, also its bits."""
    found: dict[str, Any] = {"global_batch": config.global_batch, "seed": config.seed}
    if config.virtual_workers:
        found |= {name: getattr(config, name) for name in ("virtual_workers", "threads", "max_micro_batch")}
    return found
