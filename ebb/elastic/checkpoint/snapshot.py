"""A copy of a running training's state that costs it almost no time.

    buffers = Buffers(); buffers.prepare(state)            # once, beside the training: memory is asked for and touched
    snapshot = buffers.copy(state, late=addresses(optimizer))
    ... forward, backward ...
    snapshot.settle()                                      # before the weights change: the copy must be done
    snapshot.tree                                          # the same state, on the CPU; good until the next copy()

The weights and the optimizer's state stay as they are between two updates. So on the CPU they may be copied by another thread
(`complete`) during the next forward and backward pass, and only what those passes change (the running statistics of BatchNorm)
is copied at once. On a GPU a stream of its own copies into pinned memory; the stream that computes waits for it, the host never.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch

_Key = tuple[int, tuple[int, ...], tuple[int, ...], torch.dtype]
Path = tuple[Any, ...]  # the way to a tensor in a tree


class Snapshot:
    """One copy, perhaps still being made."""

    def __init__(self, tree: Any, late: list[tuple[torch.Tensor, torch.Tensor]], event: torch.cuda.Event | None) -> None:
        self.tree = tree
        self._late = late
        self._event = event
        self._done = threading.Event()
        if not late:
            self._done.set()

    def complete(self) -> None:
        """Copy what is left; by the thread that writes."""
        try:
            for buffer, tensor in self._late:
                buffer.copy_(tensor)
        finally:
            self._late = []
            self._done.set()
        if self._event is not None:
            self._event.synchronize()

    def settle(self) -> None:
        """Return when the state may change again."""
        self._done.wait()


class Buffers:
    """The memory of one snapshot, used again and again; pinned where a GPU copies into it."""

    def __init__(self) -> None:
        self._buffers: dict[tuple[Any, ...], torch.Tensor] = {}
        self._stream: torch.cuda.Stream | None = None

    def prepare(self, state: Any) -> None:
        """Take the memory for a state of this form: the first touch of fresh pages takes longer than the copy."""
        for path, tensor in tensors_in(state):
            self._buffer(path, tensor).zero_()

    def copy(self, state: Any, *, late: frozenset[int] = frozenset()) -> Snapshot:
        """`late`: addresses (data_ptr) of tensors on the CPU that do not change before settle(). The others are copied here."""
        copies: dict[_Key, torch.Tensor] = {}
        pending: list[tuple[torch.Tensor, torch.Tensor]] = []
        on_gpu: list[tuple[torch.Tensor, torch.Tensor]] = []
        for path, tensor in tensors_in(state):
            key = memory_of(tensor)
            if key in copies and tensor.numel():  # tied weights stay tied
                continue
            buffer = copies[key] = self._buffer(path, tensor)
            if tensor.is_cuda:
                on_gpu.append((buffer, tensor))
            elif tensor.data_ptr() in late:
                pending.append((buffer, tensor))
            else:
                buffer.copy_(tensor)
        event = self._copy_from_gpu(on_gpu) if on_gpu else None
        return Snapshot(replace_tensors(state, lambda each: copies[memory_of(each)]), pending, event)

    def _copy_from_gpu(self, pairs: list[tuple[torch.Tensor, torch.Tensor]]) -> torch.cuda.Event:
        computing = torch.cuda.current_stream()
        self._stream = self._stream or torch.cuda.Stream()  # type: ignore[no-untyped-call]
        self._stream.wait_stream(computing)
        with torch.cuda.stream(self._stream):
            for buffer, tensor in pairs:
                buffer.copy_(tensor, non_blocking=True)
        event: torch.cuda.Event = self._stream.record_event()
        computing.wait_event(event)  # what is computed from here on comes after the copy; the host goes on
        return event

    def _buffer(self, path: tuple[Any, ...], tensor: torch.Tensor) -> torch.Tensor:
        found = self._buffers.get(path)
        if found is None or found.shape != tensor.shape or found.dtype != tensor.dtype or found.stride() != tensor.stride():
            found = torch.empty_strided(
                tensor.shape, tensor.stride(), dtype=tensor.dtype, device="cpu", pin_memory=tensor.is_cuda
            )
            self._buffers[path] = found
        return found


def addresses(optimizer: torch.optim.Optimizer) -> frozenset[int]:
    """Of the tensors that only optimizer.step() changes: its parameters and its own state."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    state = [tensor for _, tensor in tensors_in(list(optimizer.state.values()))]
    # of a sharded model's, which have no address, this rank's part: torch's class for them would load all of torch.distributed
    return frozenset(getattr(tensor, "_local_tensor", tensor).data_ptr() for tensor in (*parameters, *state))


def tensors_in(tree: Any, path: Path = ()) -> Iterator[tuple[Path, torch.Tensor]]:
    """Each tensor in a tree of dicts, lists and tuples, with its way there; the same order for the same tree."""
    if isinstance(tree, torch.Tensor):
        yield path, tree.detach()
    elif isinstance(tree, dict):
        for key, value in tree.items():
            yield from tensors_in(value, (*path, key))
    elif isinstance(tree, (list, tuple)):
        for number, value in enumerate(tree):
            yield from tensors_in(value, (*path, number))


def memory_of(tensor: torch.Tensor) -> _Key:
    """A key that two views of the same numbers share: tied weights."""
    return tensor.data_ptr(), tuple(tensor.shape), tuple(tensor.stride()), tensor.dtype


def replace_tensors(tree: Any, replace: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """The same tree with others in the place of its tensors."""
    return replace_with_path(tree, lambda _, tensor: replace(tensor))


def replace_with_path(tree: Any, replace: Callable[[Path, torch.Tensor], Any], path: Path = ()) -> Any:
    """The same with the way to each of them, as tensors_in gives it."""
    if isinstance(tree, torch.Tensor):
        return replace(path, tree)
    if isinstance(tree, dict):
        copied = copy.copy(tree)  # a Counter stays one (MultiStepLR's), an OrderedDict too
        for key, value in tree.items():
            copied[key] = replace_with_path(value, replace, (*path, key))
        return copied
    if isinstance(tree, (list, tuple)):
        items = [replace_with_path(value, replace, (*path, number)) for number, value in enumerate(tree)]
        return type(tree)(*items) if hasattr(tree, "_fields") else type(tree)(items)
    return tree
