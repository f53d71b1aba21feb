"""An optimizer's state goes on in a program that computes otherwise, with the numbers of one that was never stopped."""

import copy
from collections.abc import Callable

import pytest
import torch

from ebb.elastic.checkpoint.optimizers import load_state

FIRST, LAST = torch.contiguous_format, torch.channels_last
MADE: dict[str, Callable[[torch.nn.Parameter, bool], torch.optim.Optimizer]] = {
    "sgd": lambda weight, fused: torch.optim.SGD([weight], 0.1, momentum=0.9, fused=fused),
    "adam": lambda weight, fused: torch.optim.AdamW([weight], 0.1, fused=fused),
}


def parameter(layout: torch.memory_format) -> torch.nn.Parameter:
    numbers = torch.randn((8, 4, 3, 3), generator=torch.Generator().manual_seed(0))
    return torch.nn.Parameter(numbers.contiguous(memory_format=layout))


def step(weight: torch.nn.Parameter, optimizer: torch.optim.Optimizer, number: int) -> None:
    numbers = torch.randn(weight.shape, generator=torch.Generator().manual_seed(number))
    weight.grad = torch.empty_like(weight).copy_(numbers)
    optimizer.step()


@pytest.mark.parametrize("kind", MADE)
@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize(("before", "after"), [(FIRST, LAST), (LAST, FIRST), (LAST, LAST)])
def test_the_layout_of_a_checkpoint_changes_no_number(
    kind: str, fused: bool, before: torch.memory_format, after: torch.memory_format
) -> None:
    calm = parameter(before)
    optimizer = MADE[kind](calm, False)
    step(calm, optimizer, 1)
    stopped, saved = calm.detach().clone(), copy.deepcopy(optimizer.state_dict())
    step(calm, optimizer, 2)
    resumed = parameter(after)
    with torch.no_grad():
        resumed.copy_(stopped)
    optimizer = MADE[kind](resumed, fused)
    load_state(optimizer, saved)
    step(resumed, optimizer, 2)
    assert torch.allclose(resumed, calm, atol=1e-6)
    assert all(each.stride() == resumed.stride() for each in optimizer.state[resumed].values() if each.dim())


@pytest.mark.parametrize("fused", [True, False])
def test_whether_it_is_fused_is_the_programs_own_matter(fused: bool) -> None:
    weight = parameter(FIRST)
    saving = MADE["sgd"](weight, not fused)
    saving.param_groups[0]["lr"] = 0.025
    step(weight, saving, 1)
    saved = saving.state_dict()
    loading = MADE["sgd"](weight, fused)
    load_state(loading, saved)
    [group] = loading.param_groups
    assert (group["fused"], group["lr"]) == (fused, 0.025)
    assert saved["param_groups"][0]["fused"] is not fused, "the file's own stays as it is"


def test_another_optimizers_groups_are_refused_by_torch() -> None:
    with pytest.raises(ValueError, match="parameter group"):
        load_state(MADE["sgd"](parameter(FIRST), False), {"state": {}, "param_groups": []})
