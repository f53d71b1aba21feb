"""A pass of compiled networks before a newcomer's first step: what takes a minute there is done while the others train.

    calls = Calls(models)                # on every rank, once its models are ready: notes how a program calls them
    calls.known                          # as JSON, or [] before all have been called: goes to newcomers with other facts
    rehearse(models, known, say=print)   # in a newcomer: each is called so once, and what that changed is put back

torch compiles a network when it is first called, and its backward pass with the first loss. In a newcomer that is its first
step, for which all others wait. So it calls each network once before it asks for its place, with zeros in the shapes that rank
0's last call had; whatever cannot be called so is compiled in the first step, as before. Networks that are not compiled gain
little by it and are left alone; and so are sharded ones, whose passes are collectives.
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
    """Of the compiled networks among some; the others are left as they are."""

    def __init__(self, models: Sequence[torch.nn.Module]) -> None:
        self._compiled = compiled(models)
        self._calls: dict[int, Any] = {}
        for number, model in enumerate(self._compiled):
            self._listen(number, model)

    @property
    def known(self) -> list[Any]:
        """A call of each network; none where one of them was not called yet, or in a way that JSON does not hold."""
        found = [self._calls.get(number) for number in range(len(self._compiled))]
        return [] if any(each is None for each in found) else found

    def _listen(self, number: int, model: torch.nn.Module) -> None:
        inner = model._compiled_call_impl

        def call(*inputs: Any, **more: Any) -> Any:
            if model.training and number not in self._calls:
                try:
                    self._calls[number] = [[describe(each) for each in inputs], {key: describe(more[key]) for key in more}]
                except TypeError:
                    self._calls[number] = None
            return inner(*inputs, **more)  # type: ignore[misc]  # there is one

        model._compiled_call_impl = call


def compiled(models: Sequence[torch.nn.Module]) -> list[torch.nn.Module]:
    """Those whose call is compiled by torch's Module.compile()."""
    return [each for each in models if getattr(each, "_compiled_call_impl", None) is not None]


def rehearse(models: Sequence[torch.nn.Module], known: Sequence[Any], *, say: Callable[[str], None]) -> None:
    """Forward and backward, without an effect but that they are compiled. What fails is said, and done in the first step."""
    wanted = compiled(models)
    if not wanted or len(wanted) != len(known):
        return
    began = time.monotonic()
    try:
        for model, (inputs, more) in zip(wanted, known, strict=True):
            device = next(model.parameters()).device
            with _without_trace(model, device):
                found = model.train()(
                    *(made(each, device) for each in inputs), **{key: made(each, device) for key, each in more.items()}
                )
                sum(each.sum() for each in _tensors(found) if each.requires_grad).backward()  # type: ignore[union-attr]
    except Exception as error:  # of the program's network, given zeros: whatever it raises
        say(f"the network is compiled in the first step, for which the others wait ({type(error).__name__}: {str(error)[:200]})")
        return
    say(f"the network is compiled: {time.monotonic() - began:.1f} s, in which the others trained")


def describe(value: Any) -> Any:
    """A tree of tensors and plain values as JSON. Raises TypeError for what it cannot hold."""
    if isinstance(value, torch.Tensor):
        shape, stride = ([int(each) for each in numbers] for numbers in (value.shape, value.stride()))
        return {
            "tensor": shape,
            "stride": stride,
            "dtype": str(value.dtype).rpartition(".")[2],
        }  # compiled for an order in memory
    if isinstance(value, _PLAIN):
        return {"plain": value}
    if type(value) in (list, tuple):
        return {type(value).__name__: [describe(each) for each in value]}
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {"dict": {key: describe(value[key]) for key in value}}
    raise TypeError(f"{type(value).__name__} is no tensor, number or text, nor a list, tuple or dict of them")


def made(described: Mapping[str, Any], device: torch.device) -> Any:
    """The reverse of describe(), with zeros: they are valid as pixels, as classes and as tokens."""
    if "tensor" in described:
        kind = getattr(torch, described["dtype"])
        return torch.empty_strided(described["tensor"], described["stride"], dtype=kind, device=device).zero_()
    if "dict" in described:
        return {key: made(each, device) for key, each in described["dict"].items()}
    if "plain" in described:
        return described["plain"]
    ((kind, parts),) = described.items()
    found = [made(each, device) for each in parts]
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
