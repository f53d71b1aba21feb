"""A first pass of a newcomer's networks, made while the others train: what it takes more than later ones is nobody's wait.

    calls = Calls(models, device)                # on every rank, once its models are ready: notes how a program calls them
    calls.known                                  # as JSON, or [] before all have been called: goes to newcomers with other facts
    rehearse(models, device, known, say=print)   # in a newcomer: each is called so once, and what that changed is put back

torch compiles a network when it is first called, and its backward pass with the first loss: a minute or more. On a GPU
kernels are loaded, and cuDNN tries its algorithms, when they are first needed. In a newcomer that is its first step, for which
all others wait. So it calls each network once before it asks for its place, with zeros in the shapes that rank 0's call had;
whatever cannot be called so is left to the first step. Other networks gain little by it and are left alone; and so are sharded
ones, whose passes are collectives.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from ebb.compat import zip

_PLAIN = (bool, int, float, str, type(None))


class Calls:
    """Of those among some networks whose first pass is slow; the others are left as they are."""

    def __init__(self, models: Sequence[torch.nn.Module], device: torch.device) -> None:
        self._slow = slow_at_first(models, device)
        self._calls: dict[int, Any] = {}
        for number, model in enumerate(self._slow):
            self._listen(number, model)

    @property
    def known(self) -> list[Any]:
        """A call of each network; none where one of them was not called yet, or in a way that JSON does not hold."""
        found = [self._calls.get(number) for number in range(len(self._slow))]
        return [] if any(each is None for each in found) else found

    def _listen(self, number: int, model: torch.nn.Module) -> None:
        inner = model._compiled_call_impl

        def note(_: torch.nn.Module, inputs: tuple[Any, ...], more: dict[str, Any]) -> None:
            # a program may compile a network after it has distributed it, and then this is traced as well
            if not torch._dynamo.is_compiling() and model.training and number not in self._calls:
                try:
                    self._calls[number] = [[describe(each) for each in inputs], {key: describe(more[key]) for key in more}]
                except TypeError:
                    self._calls[number] = None

        def call(*inputs: Any, **more: Any) -> Any:
            note(model, inputs, more)
            return inner(*inputs, **more)  # type: ignore[misc]  # there is one

        if inner is None:
            model.register_forward_pre_hook(note, with_kwargs=True)
        else:  # hooks would be compiled too
            model._compiled_call_impl = call


def slow_at_first(models: Sequence[torch.nn.Module], device: torch.device) -> list[torch.nn.Module]:
    """Those that are compiled, by Module.compile() or torch.compile(); on a GPU all."""

    def is_compiled(model: torch.nn.Module) -> bool:
        return getattr(model, "_compiled_call_impl", None) is not None or hasattr(model, "_orig_mod")

    return [each for each in models if device.type == "cuda" or is_compiled(each)]


def rehearse(
    models: Sequence[torch.nn.Module], device: torch.device, known: Sequence[Any], *, say: Callable[[str], None]
) -> None:
    """Forward and backward, with no effect but that they are ready. What fails is said, and left to the first step."""
    wanted = slow_at_first(models, device)
    if not wanted or len(wanted) != len(known):
        return
    began = time.monotonic()
    try:
        for model, (inputs, more) in zip(wanted, known, strict=True):
            place = next(model.parameters()).device
            with _without_trace(model, place):
                found = model.train()(
                    *(make_zeros(each, place) for each in inputs), **{key: make_zeros(each, place) for key, each in more.items()}
                )
                sum(each.sum() for each in _tensors(found) if each.requires_grad).backward()  # type: ignore[union-attr]
                if place.type == "cuda":
                    torch.cuda.synchronize(place)
    except Exception as error:  # of the program's network, given zeros: whatever it raises
        say(f"the first pass is left to the first step, for which all wait ({type(error).__name__}: {str(error)[:200]})")
        return
    say(f"the networks' first pass took {time.monotonic() - began:.1f} s, in which the others trained")


def describe(value: Any) -> Any:
    """A tree of tensors and plain values as JSON. Raises TypeError for what it cannot hold."""
    if isinstance(value, torch.Tensor):
        shape, stride = ([int(each) for each in numbers] for numbers in (value.shape, value.stride()))
        # the strides too: a network is compiled for an order in memory
        return {"tensor": shape, "stride": stride, "dtype": str(value.dtype).rpartition(".")[2]}
    if isinstance(value, _PLAIN):
        return {"plain": value}
    if type(value) in (list, tuple):
        return {type(value).__name__: [describe(each) for each in value]}
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {"dict": {key: describe(value[key]) for key in value}}
    raise TypeError(f"{type(value).__name__} is no tensor, number or text, nor a list, tuple or dict of them")


def make_zeros(described: Mapping[str, Any], device: torch.device) -> Any:
    """Reverse describe(), with zeros: they are valid as pixels, as classes and as tokens."""
    if "tensor" in described:
        kind = getattr(torch, described["dtype"])
        return torch.empty_strided(described["tensor"], described["stride"], dtype=kind, device=device).zero_()
    if "dict" in described:
        return {key: make_zeros(each, device) for key, each in described["dict"].items()}
    if "plain" in described:
        return described["plain"]
    ((kind, parts),) = described.items()
    found = [make_zeros(each, device) for each in parts]
    return tuple(found) if kind == "tuple" else found


@contextlib.contextmanager
def _without_trace(model: torch.nn.Module, device: torch.device) -> Iterator[None]:
    """Buffers and random numbers are as they were, and no gradients are left."""
    buffers = [(each, each.detach().clone()) for each in model.buffers()]
    try:
        with torch.random.fork_rng([device] if device.type == "cuda" else []):
            yield
    finally:
        with torch.no_grad():
            for each, before in buffers:
                each.copy_(before)
        for parameter in model.parameters():
            parameter.grad = None


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, Mapping):
        value = list(value.values())
    return [tensor for each in value for tensor in _tensors(each)] if isinstance(value, (list, tuple)) else []
