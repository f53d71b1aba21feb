"""Whether the weights are still those that the optimizer left: a program may put others in their place for a while.

    mark = Mark(parameters)
    mark.set()              # after each update, and where a step ends
    mark.holds()            # before something is kept as the state after that update

Averaged weights that are copied over the model's own for a validation must never get into a checkpoint as its own. What torch
counts as a change of a tensor is seen, and so is a change behind torch's back (through .data) of the few numbers that are kept.
It costs some microseconds a step, and waits for no device before holds().
"""

import torch

_PROBES = 4  # tensors of which the first number is kept


class Mark:
    def __init__(self, parameters: list[torch.nn.Parameter]) -> None:
        self._parameters = [each for each in parameters if each.requires_grad and each.numel()]
        self._probed = self._parameters[:: max(1, len(self._parameters) // _PROBES)][:_PROBES]
        self.set()

    def set(self) -> None:
        self._versions, self._numbers = self._changes(), self._first_numbers()

    def holds(self) -> bool:
        if self._versions != self._changes():
            return False
        pairs = zip(self._numbers, self._first_numbers(), strict=True)
        return all(torch.equal(before, now) for before, now in pairs)

    def _changes(self) -> int:
        return sum(each._version for each in self._parameters)

    @torch.no_grad()
    def _first_numbers(self) -> list[torch.Tensor]:
        return [each.as_strided((1,), (1,)).clone() for each in self._probed]
