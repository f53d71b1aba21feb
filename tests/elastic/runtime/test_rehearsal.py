"""The pass before a newcomer's first step: called as the others call it, and without a trace."""

import json
from typing import Any

import pytest
import torch

from ebb.elastic.runtime.rehearsal import Calls, describe, make_zeros, rehearse

CPU = torch.device("cpu")


class Network(torch.nn.Module):
    """With a buffer, random numbers, and inputs of several kinds. `calls`: how it was called."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm, self.dropout = torch.nn.Linear(3, 3), torch.nn.BatchNorm1d(3), torch.nn.Dropout()
        self.calls: list[Any] = []
        self._compiled_call_impl = self._call_impl  # as after Module.compile(), in no time

    def forward(self, inputs: torch.Tensor, batch: dict[str, torch.Tensor], *, scale: float = 1.0) -> dict[str, Any]:
        self.calls.append((tuple(inputs.shape), batch["tokens"].dtype, scale, self.training))
        return {"logits": self.dropout(self.norm(self.linear(inputs))) * scale, "tokens": batch["tokens"]}


def call(network: Network, size: int) -> None:
    network(torch.randn(size, 3), {"tokens": torch.ones(size, dtype=torch.int64)}, scale=2.0)


def test_a_newcomer_calls_its_network_as_the_others_do() -> None:
    """And is as it was afterwards: buffers, random numbers, gradients."""
    first, newcomer, said = Network(), Network(), list[str]()
    calls = Calls([first], CPU)
    assert calls.known == []
    first.eval()
    call(first, 7)
    assert calls.known == [], "a validation's shapes are others"
    first.train()
    call(first, 4)
    call(first, 5)
    known = json.loads(json.dumps(calls.known))
    buffers, random = [each.clone() for each in newcomer.buffers()], torch.get_rng_state()
    rehearse([newcomer], CPU, known, say=said.append)
    assert newcomer.calls == [((4, 3), torch.int64, 2.0, True)]
    assert all(torch.equal(*pair) for pair in zip(newcomer.buffers(), buffers, strict=True))
    assert torch.equal(torch.get_rng_state(), random)
    assert all(each.grad is None for each in newcomer.parameters())
    (line,) = said
    assert line.startswith("the networks' first pass took ")


def test_a_backward_pass_is_compiled_too() -> None:
    network, gradients = Network(), list[bool]()
    network.linear.weight.register_hook(lambda each: gradients.append(bool(each.isfinite().all())))  # type: ignore[no-untyped-call]
    rehearse([network], CPU, [[[describe(torch.ones(2, 3)), describe({"tokens": torch.ones(2)})], {}]], say=print)
    assert gradients == [True]


def test_a_pass_that_fails_is_left_to_the_first_step() -> None:
    network, said = Network(), list[str]()
    buffers = [each.clone() for each in network.buffers()]
    rehearse([network], CPU, [[[describe(torch.ones(2, 8)), describe({"tokens": torch.ones(2)})], {}]], say=said.append)
    assert "is left to the first step, for which all wait (RuntimeError: " in said[0]
    assert all(torch.equal(*pair) for pair in zip(network.buffers(), buffers, strict=True))


@pytest.mark.parametrize("known", [[], [[[], {}], [[], {}]]], ids=["nothing was told", "of other networks"])
def test_without_a_call_that_fits_nothing_is_called(known: list[Any]) -> None:
    network = Network()
    rehearse([network], CPU, known, say=pytest.fail)
    assert network.calls == []


def test_on_a_gpu_all_networks_are_called_first() -> None:
    """Kernels are loaded when they are first needed. Played on the CPU: the run says where it computes."""
    network, newcomer, said, gpu = torch.nn.Linear(3, 1), torch.nn.Linear(3, 1), list[str](), torch.device("cuda")
    calls = Calls([network], gpu)
    network(torch.ones(2, 3))
    rehearse([newcomer], gpu, calls.known, say=said.append)
    assert len(said) == 1
    assert "took" in said[0]


def test_a_network_that_the_program_has_compiled_itself_is_called_too() -> None:
    network: Any = torch.compile(torch.nn.Linear(3, 1), backend="eager")
    calls, said = Calls([network], CPU), list[str]()
    network(torch.ones(2, 3))
    rehearse([network], CPU, calls.known, say=said.append)
    assert "took" in said[0]


def test_networks_that_are_not_compiled_are_left_alone() -> None:
    network = torch.nn.Linear(3, 1)
    calls = Calls([network], CPU)
    network(torch.ones(2, 3))
    assert calls.known == []
    rehearse([network], CPU, [[[describe(torch.ones(2, 3))], {}]], say=pytest.fail)


def test_inputs_that_json_cannot_hold_are_not_told() -> None:
    class Own:
        pass

    network = torch.nn.Identity()
    network._compiled_call_impl = network._call_impl
    calls = Calls([network], CPU)
    network(Own())
    assert calls.known == []


@pytest.mark.parametrize(
    "value",
    [3, None, "a", [1, (2.5, True)], {"a": [1], "b": ()}, (torch.zeros(2, 3).T, {"x": torch.zeros(1, dtype=torch.bfloat16)})],
    ids=str,
)
def test_calls_travel_as_json(value: Any) -> None:
    found = make_zeros(json.loads(json.dumps(describe(value))), CPU)
    assert describe(found) == describe(value)
