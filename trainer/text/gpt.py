"""A small GPT on bytes: a decoder-only transformer with learned positions, the norm before each part, and tied embeddings.

    network = Gpt(SIZES["small"])
    scores_BTV = network(inputs_BT)
    losses_B = losses(scores_BTV, targets_BT)     # the mean over a window's bytes: one number per sample

Shapes: B windows, T bytes in each (up to the context), C width, H heads, D = C / H, V = 256 values of a byte. Inputs and targets
may be uint8, as the dataset gives them. A sample's loss does not depend on the others in its batch, so the weights 1/G of a
step hold here as they do for images.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn.functional import cross_entropy, embedding, linear, scaled_dot_product_attention

BYTES = 256


@dataclass(frozen=True, kw_only=True)
class GptConfig:
    layers: int
    heads: int
    width: int
    context: int  # the longest window
    dropout: float = 0.0

    def __post_init__(self) -> None:
        if min(self.layers, self.heads, self.width, self.context) < 1:
            raise ValueError(f"layers, heads, width and context must be at least 1: {self}")
        if self.width % self.heads:
            raise ValueError(f"the width {self.width} is not a multiple of the heads {self.heads}: change one of them")


SIZES = {
    "tiny": GptConfig(layers=2, heads=2, width=64, context=64),  # 0.1 million parameters: tests, one core
    "small": GptConfig(layers=6, heads=6, width=384, context=256),  # 10.8 million: a GPU for minutes
    "medium": GptConfig(layers=12, heads=12, width=768, context=512),  # 86 million: the size of GPT-2's smallest
}


class Gpt(nn.Module):
    def __init__(self, config: GptConfig) -> None:
        super().__init__()
        self.config = config
        self.bytes_VC = nn.Parameter(torch.empty(BYTES, config.width))
        self.positions_TC = nn.Parameter(torch.empty(config.context, config.width))
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.width)
        self.dropout = nn.Dropout(config.dropout)
        self._start()

    def forward(self, inputs_BT: torch.Tensor) -> torch.Tensor:
        """Scores (B, T, V) of the byte that follows each input."""
        length = inputs_BT.shape[1]
        if length > self.config.context:
            raise ValueError(f"a window of {length} bytes; this network takes {self.config.context} at most")
        x_BTC = self.dropout(embedding(inputs_BT.long(), self.bytes_VC) + self.positions_TC[:length])
        for block in self.blocks:
            x_BTC = block(x_BTC)
        scores_BTV: torch.Tensor = linear(self.norm(x_BTC), self.bytes_VC)
        return scores_BTV

    def parameter_groups(self, weight_decay: float) -> list[dict[str, Any]]:
        """For an optimizer: only matrices are decayed; a norm or a bias that is drawn to zero learns worse."""
        matrices = [parameter for parameter in self.parameters() if parameter.dim() >= 2]
        vectors = [parameter for parameter in self.parameters() if parameter.dim() < 2]
        return [{"params": matrices, "weight_decay": weight_decay}, {"params": vectors, "weight_decay": 0.0}]

    @torch.no_grad()
    def _start(self) -> None:
        """GPT-2's: small normal numbers; what is added to the sum of all layers is smaller with their number."""
        for name, parameter in self.named_parameters():
            if parameter.dim() >= 2:
                ends_a_branch = name.endswith(("mix.weight", "down.weight"))
                nn.init.normal_(parameter, std=0.02 / math.sqrt(2 * self.config.layers) if ends_a_branch else 0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)


class Block(nn.Module):
    """Attention, then a network for each position; both added to their input."""

    def __init__(self, config: GptConfig) -> None:
        super().__init__()
        self._heads, self._dropout = config.heads, config.dropout
        self.attention_norm = nn.LayerNorm(config.width)
        self.queries_keys_values = nn.Linear(config.width, 3 * config.width)
        self.mix = nn.Linear(config.width, config.width)
        self.thought_norm = nn.LayerNorm(config.width)
        self.up = nn.Linear(config.width, 4 * config.width)
        self.down = nn.Linear(4 * config.width, config.width)
        self.activation = nn.GELU(approximate="tanh")
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x_BTC: torch.Tensor) -> torch.Tensor:
        x_BTC = x_BTC + self.dropout(self.mix(self._attend(self.attention_norm(x_BTC))))
        thought_BTC = self.down(self.activation(self.up(self.thought_norm(x_BTC))))
        result_BTC: torch.Tensor = x_BTC + self.dropout(thought_BTC)
        return result_BTC

    def _attend(self, x_BTC: torch.Tensor) -> torch.Tensor:
        batch, length, width = x_BTC.shape
        parts = self.queries_keys_values(x_BTC).view(batch, length, 3, self._heads, width // self._heads)
        queries_BHTD, keys_BHTD, values_BHTD = parts.permute(2, 0, 3, 1, 4)
        dropout = self._dropout if self.training else 0.0
        seen_BHTD = scaled_dot_product_attention(queries_BHTD, keys_BHTD, values_BHTD, dropout_p=dropout, is_causal=True)
        return seen_BHTD.transpose(1, 2).reshape(batch, length, width)


def losses(scores_BTV: torch.Tensor, targets_BT: torch.Tensor) -> torch.Tensor:
    """(B,): the mean cross entropy over the bytes of each window, in nats."""
    flat = cross_entropy(scores_BTV.float().flatten(0, 1), targets_BT.long().flatten(), reduction="none")
    return flat.view(targets_BT.shape).mean(1)


def bits_per_byte(nats: float) -> float:
    """Describe a loss in words: 8 is knowing nothing."""
    return nats / math.log(2)
