"""A whole state from one rank to others, over the connections of their generation: no file, and no second copy at its source.

    state = pass_on(world, state, chain=[2, 0, 3], rank=2)     # the source's own
    state = pass_on(world, None, chain=[2, 0, 3], rank=3)      # a copy, tensor by tensor, in memory of its own

Along a chain: each rank passes a piece on while the next one comes, so several receivers take hardly longer than one. What is
not a tensor goes first, with the shapes of those that are. A receiver keeps the state that it has until the whole new one is
there: the source may be gone in the middle.
"""

import io
from collections import deque
from collections.abc import Sequence
from typing import Any

import torch

from ebb.elastic.checkpoint.snapshot import memory_of, replace_tensors, tensors_in

_PIECE_BYTES = 16 * 2**20  # large enough for the network, small enough for the ranks of a chain to work at the same time
_AHEAD = 4  # pieces on their way to the next rank while others come
_TAG = 1


def pass_on(world: Any, state: Any, *, chain: Sequence[int], rank: int) -> Any:
    """The state of chain[0], a tree of tensors on the CPU and plain values, on each rank of the chain.

    `world` is one of torch's process groups or backends: their send and recv are the same. Raises what those do.
    """
    line = _Line(world, chain, rank)
    if rank == chain[0]:
        tensors = {memory_of(each): _dense(each) for _, each in tensors_in(state)}  # tied weights once
        line.move_bytes(_outline(state, tensors))
        for tensor in tensors.values():
            line.move(tensor)
        line.finish()
        return state
    outline = torch.load(io.BytesIO(line.move_bytes(b"")), weights_only=True)
    received: dict[int, torch.Tensor] = {}

    def allocate(shape: torch.Tensor) -> torch.Tensor:
        return received.setdefault(id(shape), torch.empty_strided(shape.shape, shape.stride(), dtype=shape.dtype))

    state = replace_tensors(outline, allocate)
    for tensor in received.values():
        line.move(tensor)
    line.finish()
    return state


def _outline(state: Any, tensors: dict[Any, torch.Tensor]) -> bytes:
    """The state with tensors that have a shape and no numbers."""
    shapes = {
        key: torch.empty_strided(each.shape, each.stride(), dtype=each.dtype, device="meta") for key, each in tensors.items()
    }
    buffer = io.BytesIO()
    torch.save(replace_tensors(state, lambda each: shapes[memory_of(each)]), buffer)
    return buffer.getvalue()


def _dense(tensor: torch.Tensor) -> torch.Tensor:
    """Its numbers without gaps, in any order of the dimensions: channels_last stays."""
    span = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor if tensor.numel() in (0, span) else tensor.contiguous()


class _Line:
    """One rank's place in the chain."""

    def __init__(self, world: Any, chain: Sequence[int], rank: int) -> None:
        place = chain.index(rank)
        self._world = world
        self._before = chain[place - 1] if place else None
        self._after = chain[place + 1] if place + 1 < len(chain) else None
        self._sending: deque[Any] = deque()

    def move_bytes(self, content: bytes) -> bytes:
        size = torch.tensor([len(content)])
        self._move_piece(size)
        buffer = torch.frombuffer(bytearray(content or bytes(int(size))), dtype=torch.uint8)
        self._move_piece(buffer)
        return buffer.numpy().tobytes()

    def move(self, tensor: torch.Tensor) -> None:
        """Into it, and out of it to the next rank."""
        if tensor.numel():
            content = tensor.as_strided((tensor.numel(),), (1,)).view(torch.uint8)
            for start in range(0, len(content), _PIECE_BYTES):
                self._move_piece(content[start : start + _PIECE_BYTES])

    def finish(self) -> None:
        """Return when the next rank has all."""
        while self._sending:
            self._sending.popleft().wait()

    def _move_piece(self, piece: torch.Tensor) -> None:
        if self._before is not None:
            self._world.recv([piece], self._before, _TAG).wait()
        if self._after is None:
            return
        self._sending.append(self._world.send([piece], self._after, _TAG))
        if len(self._sending) > _AHEAD:
            self._sending.popleft().wait()
