"""A whole state from one rank to others, over connections of their own: no file, and no second copy at its source.

    pass_on(backend, state, first=True, wait=group.wait)               # rank 0 of the backend, whose state it is
    state = pass_on(backend, None, first=False, wait=group.wait)       # a copy, tensor by tensor, in memory of its own

By gloo's broadcasts, each of a piece and several at once. Its send and recv are no way to do it: they wait for their whole
timeout where the other rank dies in the middle (process_group.py). What is not a tensor goes first, with the shapes of those that
are. A receiver keeps the state that it has until the whole new one is there: the source may be gone in the middle.
"""

import io
from collections import deque
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from ebb.compat import zip
from ebb.elastic.checkpoint.snapshot import memory_of, replace_tensors, tensors_in

_PIECE_BYTES = 16 * 2**20  # large enough for the network, small enough for all ranks to work at the same time
_AHEAD = 4  # pieces on their way at once


def pass_on(backend: Any, state: Any, *, first: bool, wait: Callable[[dist.Work], object]) -> Any:
    """The state of rank 0, the `first`, a tree of tensors and plain values, on each rank of the backend: there on the CPU.

    `wait` waits for one of its collectives; what it raises comes out of here.
    """
    pieces = _Pieces(backend, wait)
    if first:
        tensors = {memory_of(each): dense(each) for _, each in tensors_in(state)}  # tied weights once
        pieces.move_bytes(outline(state, tensors))
        for tensor in tensors.values():
            pieces.move(tensor)
        pieces.finish()
        return state
    state, received = allocate(pieces.move_bytes(b""))
    for tensor in received:
        pieces.move(tensor)
    pieces.finish()
    return state


def outline(state: Any, tensors: dict[Any, torch.Tensor]) -> bytes:
    """The state with the number of each tensor in its place, and their shapes. Tensors of the device `meta` would say both, but
    torch 2.1 reads them in no file."""
    numbers = dict(zip(tensors, torch.arange(len(tensors)), strict=True))  # views: the file has all in one piece
    shapes = [(list(each.shape), list(each.stride()), str(each.dtype).rpartition(".")[2]) for each in tensors.values()]
    buffer = io.BytesIO()
    torch.save({"state": replace_tensors(state, lambda each: numbers[memory_of(each)]), "shapes": shapes}, buffer)
    return buffer.getvalue()


def allocate(content: bytes) -> tuple[Any, list[torch.Tensor]]:
    """The state of an outline, with tensors in memory of their own, and these, in the order of the source's; tied ones once."""
    found = torch.load(io.BytesIO(content), weights_only=True)
    tensors = [torch.empty_strided(shape, stride, dtype=getattr(torch, kind)) for shape, stride, kind in found["shapes"]]
    return replace_tensors(found["state"], lambda number: tensors[int(number)]), tensors


def dense(tensor: torch.Tensor) -> torch.Tensor:
    """Its numbers without gaps, in any order of the dimensions: channels_last stays."""
    span = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor if tensor.numel() in (0, span) else tensor.contiguous()


class _Pieces:
    """From rank 0 to the others, in the order in which all ranks ask for them."""

    def __init__(self, backend: Any, wait: Callable[[dist.Work], object]) -> None:
        self._backend, self._wait = backend, wait
        self._moving: deque[dist.Work] = deque()

    def move_bytes(self, content: bytes) -> bytes:
        size = torch.tensor([len(content)])
        self._start(size)
        self.finish()
        buffer = torch.frombuffer(bytearray(content or bytes(int(size))), dtype=torch.uint8)
        self._start(buffer)
        self.finish()
        return buffer.numpy().tobytes()

    def move(self, tensor: torch.Tensor) -> None:
        """It is there, or taken, after finish()."""
        if tensor.numel():
            content = tensor.as_strided((tensor.numel(),), (1,)).view(torch.uint8)
            for start in range(0, len(content), _PIECE_BYTES):
                self._start(content[start : start + _PIECE_BYTES])

    def finish(self) -> None:
        while self._moving:
            self._wait(self._moving.popleft())

    def _start(self, piece: torch.Tensor) -> None:
        self._moving.append(self._backend.broadcast(piece.cpu(), 0))  # of a GPU's tensor it copies this piece alone
        if len(self._moving) > _AHEAD:
            self._wait(self._moving.popleft())
