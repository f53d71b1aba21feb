"""An optimizer's saved state, put in place as this program computes, not as the one that saved it did.

    load_state(optimizer, saved)

torch's own load_state_dict takes over two things that belong to the program:

- How the state lies in memory. A fused optimizer on the CPU reads weights and momentum side by side, in the order of memory: the
  momentum of a run with channels first, loaded beside weights with channels last, is added to the wrong weights, and nothing says
  so (torch 2.13). So it is laid out like its weights.
- Whether it is fused. A job whose machines change would go on for ever as it began.
"""

from typing import Any

import torch

from ebb.compat import zip

_OF_THE_PROGRAM = ("fused", "foreach")


def load_state(optimizer: torch.optim.Optimizer, saved: dict[str, Any]) -> None:
    """Raises ValueError or KeyError when it is another optimizer's."""
    groups = saved["param_groups"]
    if len(groups) == len(optimizer.param_groups):  # torch says it when they are not
        pairs = zip(groups, optimizer.param_groups, strict=True)
        groups = [group | {name: own[name] for name in _OF_THE_PROGRAM if name in own} for group, own in pairs]
    optimizer.load_state_dict({**saved, "param_groups": groups})
    for weight, state in optimizer.state.items():
        state.update({name: _like(weight, each) for name, each in state.items()})


def _like(weight: torch.Tensor, each: Any) -> Any:
    """The same numbers in the order in which the weight has its own."""
    if not isinstance(each, torch.Tensor) or each.shape != weight.shape or each.stride() == weight.stride():
        return each
    return torch.empty_strided(weight.shape, weight.stride(), dtype=each.dtype, device=each.device).copy_(each)
