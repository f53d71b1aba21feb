"""The average of the weights: a function of the steps alone, kept through a restart to the last bit."""

import copy
import io
from typing import Any

import pytest
import torch
from torch.nn.functional import cross_entropy

from trainer.images.average import WeightAverage


def network() -> torch.nn.Sequential:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 3))


def train(model: torch.nn.Module, average: WeightAverage, first: int, last: int) -> None:
    """The steps first + 1 to last, each a function of its number."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(first + 1, last + 1):
        generator = torch.Generator().manual_seed(step)
        optimizer.zero_grad()
        cross_entropy(model(torch.randn(6, 4, generator=generator)), torch.arange(6) % 3).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        average.update(step)


def saved(*states: Any) -> Any:
    """Through a file, as a checkpoint does it."""
    buffer = io.BytesIO()
    torch.save(states, buffer)
    buffer.seek(0)
    return torch.load(buffer, map_location="cpu", weights_only=True)


def tensors(average: WeightAverage) -> dict[str, torch.Tensor]:
    found: dict[str, torch.Tensor] = average.state_dict()["tensors"]
    return found


@pytest.mark.parametrize("every", [1, 4])
@pytest.mark.parametrize("stops", [[7], [4, 5, 11], [1, 2, 3, 19]])
def test_interrupted_it_is_bit_for_bit_undisturbed(stops: list[int], every: int) -> None:
    calm = network()
    calm_average = WeightAverage(calm, decay=0.9, every=every)
    train(calm, calm_average, 0, 20)
    model = network()
    average = WeightAverage(model, decay=0.9, every=every)
    for first, last in zip([0, *stops], [*stops, 20], strict=True):
        weights, state = saved(model.state_dict(), average.state_dict())
        model = network()
        model.load_state_dict(weights)
        average = WeightAverage(model, decay=0.9, every=every)
        average.load_state_dict(state)
        train(model, average, first, last)
    assert all(torch.equal(tensor, tensors(calm_average)[name]) for name, tensor in tensors(average).items())


def test_it_is_the_average_by_its_definition() -> None:
    model = network()
    average = WeightAverage(model, decay=0.9)
    expected = {name: tensor.clone().double() for name, tensor in model.state_dict().items()}
    for step in range(1, 120):
        train(model, WeightAverage(model, decay=0), step - 1, step)
        average.update(step)
        decay = min(0.9, (1 + step) / (10 + step))
        for name, tensor in model.state_dict().items():
            whole = name.endswith("num_batches_tracked")
            expected[name] = tensor.double() if whole else decay * expected[name] + (1 - decay) * tensor.double()
    for name, tensor in tensors(average).items():
        assert torch.allclose(tensor.double(), expected[name], atol=1e-5), name
    assert tensors(average)["1.num_batches_tracked"] == 119


def test_with_fewer_turns_the_memory_is_as_long() -> None:
    """A weight that jumps from 0 to 1: how far the averages have followed after 320 steps."""
    reached = []
    for every in (1, 8):
        model = torch.nn.Linear(1, 1, bias=False)
        torch.nn.init.zeros_(model.weight)
        average = WeightAverage(model, decay=0.99, every=every)
        torch.nn.init.ones_(model.weight)
        for step in range(2001, 2321):
            average.update(step)
        reached.append(tensors(average)["weight"].item())
    assert reached == pytest.approx([1 - 0.99**320] * 2, rel=1e-3)


def test_it_answers_while_the_network_keeps_its_own_weights() -> None:
    model = network()
    average = WeightAverage(model, decay=0.9)
    train(model, average, 0, 5)
    before = copy.deepcopy(model.state_dict())
    model.eval()
    seen: list[bool] = []
    model[0].register_forward_hook(lambda module, *_: seen.append(torch.equal(module.weight, tensors(average)["0.weight"])))
    answers = average.answers(torch.ones(2, 4))
    assert seen == [True]
    other = network()
    other.load_state_dict(average.weights())
    assert torch.equal(answers, other.eval()(torch.ones(2, 4)))
    assert not torch.equal(answers, model(torch.ones(2, 4)))
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_sixteen_bits_are_averaged_in_thirty_two() -> None:
    model = torch.nn.Linear(1, 1, bias=False).bfloat16()
    torch.nn.init.zeros_(model.weight)
    average = WeightAverage(model, decay=0.9999)
    torch.nn.init.ones_(model.weight)
    for step in range(100_000, 100_100):
        average.update(step)
    assert tensors(average)["weight"].item() == pytest.approx(1 - 0.9999**100, rel=1e-3)
    assert average.answers(torch.ones(1, 1).bfloat16()).dtype == torch.bfloat16


def test_the_average_of_another_network_is_refused() -> None:
    average = WeightAverage(network(), decay=0.9)
    other = WeightAverage(torch.nn.Linear(4, 8), decay=0.9)
    with pytest.raises(ValueError, match="of another network"):
        average.load_state_dict(other.state_dict())


@pytest.mark.parametrize(
    ("decay", "every", "words"), [(1.0, 1, "--ema is 1.0"), (-0.1, 1, "--ema is"), (0.9, 0, "--ema-every is 0")]
)
def test_what_cannot_be(decay: float, every: int, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        WeightAverage(network(), decay=decay, every=every)
