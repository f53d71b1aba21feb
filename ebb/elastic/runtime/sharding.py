"""FSDP2 inside a pod, replicas across pods: `run.distribute(model, shard=True)`.

    shard(model, pod)                                       # in place: its parameters are DTensors, of which a rank holds a part
    gradients = ShardedGradients([model], group, pod, summed_as=None)

Inside a pod FSDP gathers weights and adds up gradients; its mesh lives as long as the pod. Between pods the ranks that hold the
same part of the model, a lane, add up their parts of the gradient. So the loss of a pod moves no weights, and a pod that comes
takes part by part from another one.

FSDP has a hook for a sum over replicas (set_all_reduce_hook). It is called with the part of one backward pass, without those that
came before it in the same step, and has to wait for the sum before the pass goes on. The hooks of the parameters, which FSDP
calls once their part is added up within the pod, know the gradient of the whole step, and their sums travel beside the pass
(buckets.py), as they do for a model that is not sharded.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, cast

import torch
import torch.distributed as dist
from torch.distributed import fsdp

from ebb.elastic.checkpoint.sharded import local
from ebb.elastic.runtime.buckets import Buckets
from ebb.elastic.runtime.config import ConfigError, RunConfig
from ebb.elastic.runtime.gradients import SavedBuffers
from ebb.elastic.runtime.members import Members
from ebb.elastic.runtime.plan import MicroBatch
from ebb.elastic.runtime.pod import Pod
from ebb.elastic.runtime.process_group import Group, PeerLostError
from ebb.elastic.runtime.weights import Weights, multiply
from ebb.elastic.torch_compat import GradScaler

__all__ = ["FSDPModule", "ShardedGradients", "check", "fsdp_modules", "shard"]

if TYPE_CHECKING or hasattr(fsdp, "FSDPModule"):
    from torch.distributed.fsdp import FSDPModule, fully_shard
else:

    class FSDPModule:
        """Before torch 2.6: no module is one."""


# Of a module that fully_shard() has made; torch 2.9 is the first that has all of them.
_NEEDED = ("set_gradient_divide_factor", "set_force_sum_reduction_for_comms", "set_custom_reduce_scatter")


def check(config: RunConfig, group: Group, options: Iterable[str]) -> None:
    """Raises ConfigError where a model cannot be sharded."""
    if not all(hasattr(FSDPModule, name) for name in _NEEDED):
        raise ConfigError(
            f"run.distribute(shard=True) needs torch 2.9 or newer, and this one is {torch.__version__}: take an image with "
            "it, or leave shard out"
        )
    if not isinstance(group, Members):
        raise ConfigError(
            f"run.distribute(shard=True) needs recovery in memory, and --recovery is {config.recovery!r} here: set --recovery "
            "memory and start the program with `python -m ebb.elastic.launch`"
        )
    if config.virtual_workers:
        raise ConfigError(
            f"run.distribute(shard=True) and --virtual-workers {config.virtual_workers} exclude each other: virtual workers hold "
            "whole gradients; leave one of them out"
        )
    if config.checkpoint_file:
        raise ConfigError(
            f"--checkpoint-file {config.checkpoint_file} is one file, and a sharded model's checkpoint has parts: leave it out; "
            "`python -m ebb.elastic.checkpoint export` makes one file of the weights"
        )
    if options := sorted(options):
        raise ConfigError(f"run.distribute(shard=True, {options[0]}=...) is DistributedDataParallel's: leave it out")
    place = config.place
    if place.world_size % place.local_world_size or place.rank % place.local_world_size != place.local_rank:
        raise ConfigError(
            f"run.distribute(shard=True) needs as many processes on every machine; this one has {place.local_world_size} of "
            f"{place.world_size}, and rank {place.rank} is number {place.local_rank} here: start each launcher with the same "
            "--nproc-per-node"
        )


def check_state(models: Iterable[torch.nn.Module], optimizer: torch.optim.Optimizer, others: Mapping[str, Any]) -> None:
    """Raises ConfigError for what would train another model than this one, or its ranks apart."""
    known = {id(each) for model in models for each in model.parameters()}
    if any(id(each) not in known for group in optimizer.param_groups for each in group["params"]):
        raise ConfigError(
            f"run.register_state(optimizer={type(optimizer).__name__}) has weights that are not the sharded model's: those are "
            "new ones; make the optimizer after run.distribute(shard=True), of the parameters of the model that it returns"
        )
    for name, each in others.items():
        if isinstance(each, GradScaler) and each.is_enabled():
            raise ConfigError(
                f"run.register_state({name}=GradScaler) with run.distribute(shard=True): every rank would judge its own part of "
                "the gradient alone; use bf16, which needs no scaler, or GradScaler(enabled=False)"
            )


def shard(model: torch.nn.Module, pod: Pod) -> None:
    """In place. Weights are gathered for as long as they compute: those of each entry of a ModuleList, as the blocks of a
    transformer are, and then all that are in none. Raises ConfigError."""
    check_kinds(model)
    for each in [*_blocks(model), model]:
        fully_shard(each, mesh=pod.mesh, reshard_after_forward=True)
    for module in fsdp_modules(model):
        module.set_gradient_divide_factor(1.0)  # the weights of micro-batches make the sum a mean
        module.set_force_sum_reduction_for_comms(True)


def check_kinds(model: torch.nn.Module) -> None:
    """Raises ConfigError where weights that are gathered together have gradients of several kinds: FSDP says so in a step."""
    held: set[int] = set()
    for module in [*_blocks(model), model]:
        own = [(name, each) for name, each in module.named_parameters() if each.requires_grad and id(each) not in held]
        held |= {id(each) for _, each in own}
        kinds: dict[torch.dtype, str] = {}
        for name, each in own:
            kinds.setdefault(each.dtype, name)
        if len(kinds) > 1:
            found = ", ".join(f"{name} is of {kind}" for kind, name in kinds.items())
            raise ConfigError(
                "run.distribute(shard=True) needs trained weights of one type in each entry of a ModuleList, and in the rest: in "
                f"{type(module).__name__} {found}; call model.float(), and compute in bf16 by autocast"
            )


def fsdp_modules(model: torch.nn.Module) -> list[FSDPModule]:
    return [each for each in model.modules() if isinstance(each, FSDPModule)]


def _blocks(model: torch.nn.Module) -> Iterator[torch.nn.Module]:
    for child in model.children():
        if isinstance(child, torch.nn.ModuleList):
            yield from (each for each in child if any(True for _ in each.parameters()))
        else:
            yield from _blocks(child)


class Lane:
    """The ranks of all pods that hold the same part of the model, in the group's present generation: Buckets' group."""

    def __init__(self, members: Members, pod: Pod) -> None:
        self._members, self._pod = members, pod
        self._backend: Any = None
        self._store: Any = None  # of the generation for which that is
        self._error: PeerLostError | None = None

    @property
    def world_size(self) -> int:
        """Pods."""
        return self._members.world_size // self._pod.size

    @property
    def is_over(self) -> bool:
        return self._members.is_over

    def abandon(self) -> None:
        self._members.abandon()

    def raise_if_broken(self) -> None:
        if self._error is not None:
            raise self._error
        self._members.raise_if_broken()

    def connect(self) -> None:
        """Once a generation, before its first sum. A peer that is lost meanwhile is noticed at the sum."""
        if self._store is self._members._store and self._error is None:
            return
        self._store, self._backend, self._error = self._members._store, None, None
        if self.world_size > 1:
            try:
                self._backend = self._members.connect(f"lane-{self._pod.rank}", self._members.lane(self._pod.size))
            except PeerLostError as error:
                self._error = error

    def start_sum(self, values: torch.Tensor) -> dist.Work | None:
        """As Members.start_sum."""
        if self._error is not None:
            return None
        return self._members.start_sum(values, self._backend)

    def finish_sum(self, work: dist.Work) -> None:
        self._members.finish_sum(work, self._backend)


class ShardedGradients:
    """Gradients (see gradients.py) of sharded models. A backward pass runs to its end on all ranks of a pod, whatever is lost
    meanwhile; then they decide together whether it counts."""

    def __init__(self, models: list[torch.nn.Module], group: Members, pod: Pod, *, summed_as: torch.dtype | None) -> None:
        self._pod, self._lane = pod, Lane(group, pod)
        self._modules = [each for model in models for each in fsdp_modules(model)]
        self._parameters = [each for model in models for each in model.parameters()]
        self._saved = SavedBuffers([each for model in models for each in model.buffers()])
        self._buckets = Buckets(self._parameters, self._lane, dtype=summed_as, in_lockstep=True)
        self._weights = Weights(group)
        self._scatter = _Scatter()
        for module in self._modules:
            module.set_custom_reduce_scatter(self._scatter)  # type: ignore[arg-type]  # its base class is not public

    def begin(self, micro_batch: MicroBatch) -> None:
        self._saved.keep()
        if micro_batch.last:
            self._lane.connect()
            self._buckets.arm()

    def weight(self, micro_batch: MicroBatch, step_size: int, given: float | None = None) -> float:
        self._weights.add(given, last=micro_batch.last)
        return micro_batch.num_samples / step_size if given is None else self._weights.part(given, step_size)

    def pass_of_nothing(self) -> contextlib.AbstractContextManager[None]:
        return self._scatter.of_zeros()

    def end(self, micro_batch: MicroBatch) -> None:
        """Nothing: gradients add up in the parameters."""

    def share(self, step_size: int) -> float:
        def finish() -> tuple[float, float]:
            self._buckets.finish()
            return self._weights.settle(step_size)

        total, factor = self._pod.together(finish)
        if factor != 1.0:
            multiply((None if each.grad is None else local(each.grad) for each in self._parameters), factor)
        return total

    def commit(self) -> None:
        self._saved.forget()

    def may_repeat(self, *, given: bool) -> bool:
        """The other ranks of the pod are in the same pass."""
        return False

    def undo(self) -> None:
        self._buckets.disarm()
        self._weights.forget()
        self._saved.put_back()
        for each in self._parameters:
            each.grad = None

    def follow(self) -> None:
        self._weights.follow()


class _Scatter:
    """FSDP's sum of gradients within a pod, each rank getting its part; of a pass that counts nothing on this rank its zeros."""

    def __init__(self) -> None:
        self._zeros = False

    @contextlib.contextmanager
    def of_zeros(self) -> Iterator[None]:
        self._zeros = True
        try:
            yield
        finally:
            self._zeros = False

    def allocate(self, size: Iterable[int], *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(
        self,
        output_tensor: torch.Tensor,
        input_tensor: torch.Tensor,
        group: dist.ProcessGroup,
        op: dist.ReduceOp.RedOpType,
        async_op: bool = False,
    ) -> dist.Work | None:
        if self._zeros:
            input_tensor.zero_()
        reduce_scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor  # its name before torch 2.13
        work = reduce_scatter(output_tensor, input_tensor, op=op, group=group, async_op=async_op)
        return cast("dist.Work | None", work)
