"""Other weights in the place of the model's own are seen, however they came there."""

from collections.abc import Callable

import pytest
import torch

from ebb.elastic.runtime.loop import WeightsGuard


def network() -> torch.nn.Module:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.Conv2d(4, 2, 3))
    return model.to(memory_format=torch.channels_last)  # type: ignore[call-overload,no-any-return]


def load_others(model: torch.nn.Module) -> None:
    model.load_state_dict({name: each * 0.5 for name, each in model.state_dict().items()})


def behind_torchs_back(model: torch.nn.Module) -> None:
    for each in model.parameters():
        each.data.copy_(each.data * 0.5)


def in_new_memory(model: torch.nn.Module) -> None:
    for each in model.parameters():
        each.data = each.data * 0.5


@pytest.mark.parametrize("change", [load_others, behind_torchs_back, in_new_memory])
def test_it_holds_until_something_changes(change: Callable[[torch.nn.Module], None]) -> None:
    model = network()
    mark = WeightsGuard(list(model.parameters()))
    model.eval()(torch.rand(2, 3, 8, 8)).sum().backward()
    assert mark.holds()
    change(model)
    assert not mark.holds()
    mark.set()
    assert mark.holds()


def test_a_network_that_is_frozen_has_nothing_to_lose() -> None:
    model = network().requires_grad_(False)
    assert WeightsGuard(list(model.parameters())).holds()
