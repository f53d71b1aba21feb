"""Gradients summed over the ranks of a group that changes under the model: recovery in memory.

    buckets = Buckets(parameters, group)                  # or dtype=torch.bfloat16: half the bytes, 8 significant bits
    buckets.arm()                      # the next backward pass is the last of the step
    loss.backward()                    # each bucket travels as soon as its gradients are there; may raise PeerLostError
    buckets.finish()                   # .grad holds the sums, the same on every rank; raises PeerLostError

DistributedDataParallel does the same, faster, over ranks that stay: it lays its buckets out anew after the first backward pass,
so that a process which has just joined would sum other numbers than those which have trained for a while. Here the layout follows
from the parameters alone. Gradients are copied into a bucket and back, which costs memory for a second set of them. Those of a
sharded model move instead: they leave the parameters when their bucket is packed, and what comes back is the bucket's own memory.

A parameter that took no part in any rank's passes keeps the gradient None: how many ranks had one travels with the bucket.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import torch

from ebb.compat import pairwise, zip
from ebb.elastic.checkpoint.sharded import DTensor, local, wrap_like
from ebb.elastic.runtime.process_group import PeerLostError

# DistributedDataParallel's default; 10 to 25 MB are best for networks of 10 Gb/s and more (arXiv 2006.15704, section 5.2)
BUCKET_BYTES = 25 * 2**20


class Summing(Protocol):
    """The part of members.Members that is needed here."""

    @property
    def world_size(self) -> int: ...
    @property
    def is_over(self) -> bool: ...
    def abandon(self) -> None: ...
    def raise_if_broken(self) -> None: ...
    def start_sum(self, values: torch.Tensor) -> torch.distributed.Work | None: ...
    def finish_sum(self, work: torch.distributed.Work) -> None: ...


class Bucket:
    """Some parameters of one dtype, and the room in which their gradients travel. `moves`: it has one while they do."""

    def __init__(self, parameters: list[torch.nn.Parameter], dtype: torch.dtype, *, moves: bool = False) -> None:
        self.parameters, self._dtype, self._moves = parameters, dtype, moves
        self._local = [local(each) for each in parameters]  # this rank's part of a sharded one
        self.missing = len(parameters)
        self._flat: torch.Tensor | None = None
        if not moves:
            self.renew()

    def renew(self) -> None:
        """Other room: a sum of a generation that is over may still write into the present one, as gloo never ends some."""
        parameters = self._local
        ends = torch.tensor([0, *(each.numel() for each in parameters)]).cumsum(0).tolist()
        numbers, first = ends[-1] + len(parameters), parameters[0]
        # Written now: the kernel's pages come while a newcomer gets ready, and not in its first step, for which all wait.
        self._flat = torch.empty(numbers, dtype=self._dtype, device=first.device).zero_()
        self._parts = [self._flat[start:end] for start, end in pairwise(ends)]
        self._counts = self._flat[ends[-1] :]

    def leave(self) -> None:
        """A sum that is on its way comes to nothing."""
        if self._moves:
            self._flat, self._parts, self._counts = None, [], torch.empty(0)
        else:
            self.renew()

    @torch.no_grad()
    def pack(self) -> torch.Tensor:
        """The gradients one after the other, then for each parameter 1 if it has one."""
        if self._moves:
            self.renew()
        assert self._flat is not None
        gradients = [None if each.grad is None else local(each.grad) for each in self.parameters]
        self._counts.copy_(torch.tensor([each is not None for each in gradients]))
        for held, gradient, part in zip(self._local, gradients, self._parts, strict=True):
            if gradient is None:
                part.zero_()
            elif gradient.is_sparse:
                raise RuntimeError("a gradient is sparse: make the layer with sparse=False, or set --recovery restart")
            else:
                part.view_as(held).copy_(gradient)
        if self._moves:
            for each in self.parameters:
                each.grad = None
        return self._flat

    @torch.no_grad()
    def unpack(self) -> None:
        """The sums, into the gradients, or as them."""
        for count, parameter, held, part in zip(self._counts.tolist(), self.parameters, self._local, self._parts, strict=True):
            if count and parameter.grad is None:
                found = part.view_as(held).to(held.dtype, copy=not self._moves)
                parameter.grad = wrap_like(found, parameter) if isinstance(parameter, DTensor) else found
            elif count and parameter.grad is not None:
                local(parameter.grad).copy_(part.view_as(held))
        if self._moves:
            self.leave()


class Buckets:
    """Of all parameters of a run, the last ones first: their gradients come first."""

    def __init__(
        self,
        parameters: Iterable[torch.nn.Parameter],
        group: Summing,
        *,
        limit_bytes: int = BUCKET_BYTES,
        dtype: torch.dtype | None = None,
        in_lockstep: bool = False,
    ) -> None:
        """`dtype`: in which gradients travel and are summed; None: their own. `in_lockstep`: other ranks are in the same pass,
        and none may leave it."""
        self._group, self._in_lockstep = group, in_lockstep
        buckets = _cut(list(parameters), limit_bytes)
        self._buckets = [Bucket(each, dtype or each[0].dtype, moves=in_lockstep) for each in buckets]
        self._bucket_of = {parameter: bucket for bucket in self._buckets for parameter in bucket.parameters}
        self._works: list[torch.distributed.Work] = []
        self._started = 0
        self._armed = False
        for parameter in self._bucket_of:
            parameter.register_post_accumulate_grad_hook(self._ready)  # type: ignore[no-untyped-call]

    def arm(self) -> None:
        """From here on a gradient that comes is the step's whole one of this rank."""
        self._works, self._started, self._armed = [], 0, self._group.world_size > 1
        for bucket in self._buckets:
            bucket.missing = len(bucket.parameters)

    def disarm(self) -> None:
        """No backward pass is the step's last one until arm() says so. What is on its way comes to nothing."""
        self._armed = False
        for work, bucket in zip(self._works, self._buckets, strict=False):
            if not work.is_completed():
                bucket.leave()
        self._works = []

    def finish(self) -> None:
        """Wait for the sums. Raises PeerLostError where a rank is gone: then the gradients are worth nothing."""
        if self._group.is_over:
            self._group.abandon()
        self._group.raise_if_broken()
        if not self._armed:
            return
        self._armed = False
        while self._started < len(self._buckets):  # of parameters that took no part
            self._start()
        for work, bucket in zip(self._works, self._buckets, strict=False):
            self._group.finish_sum(work)
            bucket.unpack()
        self._group.raise_if_broken()

    def _ready(self, parameter: torch.Tensor) -> None:
        if not self._armed:
            return
        if self._group.is_over and not self._in_lockstep:
            raise PeerLostError("the generation is over")  # the rest of the pass, seconds perhaps, would be for nothing
        bucket = self._bucket_of[parameter]  # type: ignore[index]  # the hook's own parameter
        bucket.missing -= 1
        if bucket.missing < 0:
            raise RuntimeError(
                "a parameter got two gradients in one backward pass; torch.utils.checkpoint does that unless use_reentrant=False"
            )
        while self._started < len(self._buckets) and not self._buckets[self._started].missing:
            self._start()  # in the same order on every rank

    def _start(self) -> None:
        work = self._group.start_sum(self._buckets[self._started].pack())
        self._started += 1
        if work is not None:
            self._works.append(work)


def _cut(parameters: list[torch.nn.Parameter], limit_bytes: int) -> list[list[torch.nn.Parameter]]:
    found: list[list[torch.nn.Parameter]] = []
    size = 0
    for each in reversed([one for one in parameters if one.requires_grad]):
        if not found or found[-1][0].dtype != each.dtype or size + local(each).nbytes > limit_bytes:
            found.append([])
            size = 0
        found[-1].append(each)
        size += local(each).nbytes
    return found
