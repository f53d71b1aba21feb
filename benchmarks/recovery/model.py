"""The network and the data that all systems train: a multilayer perceptron under Adam, whose state has a size of one's choice.

    network = perceptron(1600)         # 133 million parameters; weights and Adam's two moments take 1,600 MB
    data = Noise(1440)

Its work fits two cores: 19 GFLOP a step of 24 samples at 1,600 MB, while a state of that size costs what any other one does.
"""

import math

import torch
from torch import nn
from torch.utils.data import Dataset

INPUTS, LAYERS, CLASSES = 64, 8, 10
STATE_BYTES = 12  # of a parameter: itself and Adam's two moments, in float32


def perceptron(state_megabytes: float) -> nn.Sequential:
    """LAYERS square layers, which hold nearly all of the parameters."""
    width = round(math.sqrt(state_megabytes * 1e6 / STATE_BYTES / LAYERS))
    parts: list[nn.Module] = [nn.Linear(INPUTS, width)]
    for _ in range(LAYERS):
        parts += [nn.ReLU(), nn.Linear(width, width)]
    return nn.Sequential(*parts, nn.ReLU(), nn.Linear(width, CLASSES))


def adam(network: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Adam(network.parameters(), 1e-4, fused=True)  # one pass over the state, where the default makes ten


class Noise(Dataset[tuple[torch.Tensor, int]]):
    """Samples that cost nothing to read, each one always the same."""

    def __init__(self, size: int) -> None:
        numbers = torch.Generator().manual_seed(0)
        self._inputs = torch.randn(size, INPUTS, generator=numbers)
        self._labels = torch.randint(CLASSES, (size,), generator=numbers).tolist()

    def __len__(self) -> int:
        return len(self._labels)

    def __getitem__(self, number: int) -> tuple[torch.Tensor, int]:
        return self._inputs[int(number)], self._labels[int(number)]
