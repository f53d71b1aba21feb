"""A decoder-only transformer as Llama is built: rotary positions, grouped queries, SwiGLU, RMS norms, no biases.

    network = Decoder(SIZES["10m"])
    scores_BTV = network(inputs_BT)
    losses_B = losses(scores_BTV, targets_BT)     # the mean over a window's tokens: one number per sample

Shapes: B windows, T tokens in each (up to the context), C width, H heads, K heads of keys and values, D = C / H, V vocabulary.
Inputs and targets may be any integers, as the dataset gives them. A sample's loss does not depend on the others in its batch, so
the weights 1/G of a step hold here as they do for images.

Parameters have the names that Hugging Face's Llama models give them, so that files of those fit as they are (weights.py).
Sources: Touvron et al. 2023, arXiv 2302.13971 (the architecture); Su et al. 2021, arXiv 2104.09864 (RoPE); Ainslie et al. 2023,
arXiv 2305.13245 (GQA); Shazeer 2020, arXiv 2002.05202 (SwiGLU).
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn.functional import cross_entropy, linear, rms_norm, scaled_dot_product_attention, silu
from torch.utils.checkpoint import checkpoint

BYTES = 256
_STD = 0.02  # of the weights at the start; what is added to the sum of all layers is smaller with their number, as in GPT-2


@dataclass(frozen=True, kw_only=True)
class RopeScaling:
    """Llama 3.1's longer context: slow rotations are slowed down by `factor`, fast ones stay, and between them it is blended."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_context: int


@dataclass(frozen=True, kw_only=True)
class DecoderConfig:
    layers: int
    heads: int
    kv_heads: int
    width: int
    hidden: int  # of the network for each position
    context: int  # the longest window
    vocabulary: int = BYTES
    rope_theta: float = 10_000.0
    rope_scaling: RopeScaling | None = None
    norm_epsilon: float = 1e-5
    tied: bool = True  # scores are made with the embeddings

    def __post_init__(self) -> None:
        if min(self.layers, self.heads, self.kv_heads, self.width, self.hidden, self.context, self.vocabulary) < 1:
            raise ValueError(f"layers, heads, widths, context and vocabulary must be at least 1: {self}")
        if self.width % self.heads or (self.width // self.heads) % 2:
            raise ValueError(f"the width {self.width} is not an even multiple of the heads {self.heads}: change one of them")
        if self.heads % self.kv_heads:
            raise ValueError(f"the heads {self.heads} are not a multiple of the kv_heads {self.kv_heads}: change one of them")


# Parameters with a vocabulary of bytes.
SIZES = {
    "tiny": DecoderConfig(layers=2, heads=2, kv_heads=1, width=64, hidden=192, context=64),  # 0.1 million: tests, one core
    "10m": DecoderConfig(layers=6, heads=6, kv_heads=2, width=384, hidden=1024, context=256),  # 9.5 million: a GPU for minutes
    "100m": DecoderConfig(layers=16, heads=12, kv_heads=4, width=768, hidden=2048, context=1024),  # 101 million
    "200m": DecoderConfig(layers=18, heads=16, kv_heads=4, width=1024, hidden=2816, context=1024),  # 203 million
    # 974 million: the shape of Llama 3.2 1B
    "1b": DecoderConfig(layers=16, heads=32, kv_heads=8, width=2048, hidden=8192, context=2048),
    # 6.5 billion: the shape of Llama 2 7B
    "7b": DecoderConfig(layers=32, heads=32, kv_heads=32, width=4096, hidden=11008, context=4096, tied=False),
}


class RmsNorm(nn.Module):
    def __init__(self, width: int, epsilon: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self._epsilon = epsilon

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return rms_norm(x, self.weight.shape, self.weight, self._epsilon)


class Attention(nn.Module):
    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self._size = config.width // config.heads
        self._grouped = config.kv_heads < config.heads
        self.q_proj = nn.Linear(config.width, config.heads * self._size, bias=False)
        self.k_proj = nn.Linear(config.width, config.kv_heads * self._size, bias=False)
        self.v_proj = nn.Linear(config.width, config.kv_heads * self._size, bias=False)
        self.o_proj = nn.Linear(config.heads * self._size, config.width, bias=False)

    def forward(self, x_BTC: torch.Tensor, turns_TD: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        batch, length, _ = x_BTC.shape
        parts = (part(x_BTC).view(batch, length, -1, self._size) for part in (self.q_proj, self.k_proj, self.v_proj))
        queries_BHTD, keys_BKTD, values_BKTD = (part.transpose(1, 2) for part in parts)
        queries_BHTD, keys_BKTD = rotate(queries_BHTD, turns_TD), rotate(keys_BKTD, turns_TD)
        seen_BHTD = scaled_dot_product_attention(queries_BHTD, keys_BKTD, values_BKTD, is_causal=True, enable_gqa=self._grouped)
        mixed: torch.Tensor = self.o_proj(seen_BHTD.transpose(1, 2).reshape(batch, length, -1))
        return mixed


class FeedForward(nn.Module):
    """SwiGLU."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(config.width, config.hidden, bias=False)
        self.up_proj = nn.Linear(config.width, config.hidden, bias=False)
        self.down_proj = nn.Linear(config.hidden, config.width, bias=False)

    def forward(self, x_BTC: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.down_proj(silu(self.gate_proj(x_BTC)) * self.up_proj(x_BTC))
        return result


class Block(nn.Module):
    """Attention, then a network for each position; both added to their input."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.input_layernorm = RmsNorm(config.width, config.norm_epsilon)
        self.self_attn = Attention(config)
        self.post_attention_layernorm = RmsNorm(config.width, config.norm_epsilon)
        self.mlp = FeedForward(config)

    def forward(self, x_BTC: torch.Tensor, turns_TD: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        x_BTC = x_BTC + self.self_attn(self.input_layernorm(x_BTC), turns_TD)
        result: torch.Tensor = x_BTC + self.mlp(self.post_attention_layernorm(x_BTC))
        return result


class Trunk(nn.Module):
    """All but the scores."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(config.vocabulary, config.width)
        self.layers = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = RmsNorm(config.width, config.norm_epsilon)


class Decoder(nn.Module):
    def __init__(self, config: DecoderConfig, *, recompute: bool = False) -> None:
        """`recompute`: activation checkpointing. Each layer is computed again in the backward pass, a third more work, and only
        its input is kept meanwhile."""
        super().__init__()
        self.config, self._recompute = config, recompute
        self.model = Trunk(config)
        if not config.tied:
            self.lm_head = nn.Linear(config.width, config.vocabulary, bias=False)
        self._turns: tuple[torch.Tensor, torch.Tensor] | None = None
        self._start()

    def forward(self, inputs_BT: torch.Tensor) -> torch.Tensor:
        """Scores (B, T, V) of the token that follows each input."""
        length = inputs_BT.shape[1]
        if length > self.config.context:
            raise ValueError(f"a window of {length} tokens; this network takes {self.config.context} at most")
        x_BTC = self.model.embed_tokens(inputs_BT.long())
        turns_TD = self._turns_of(length, x_BTC.device)
        for layer in self.model.layers:
            if self._recompute and self.training:
                x_BTC = checkpoint(layer, x_BTC, turns_TD, use_reentrant=False)
            else:
                x_BTC = layer(x_BTC, turns_TD)
        scores = self.model.embed_tokens.weight if self.config.tied else self.lm_head.weight
        scores_BTV: torch.Tensor = linear(self.model.norm(x_BTC), scores)
        return scores_BTV

    def parameter_groups(self, weight_decay: float) -> list[dict[str, Any]]:
        """For an optimizer, of what is trained: only matrices are decayed; a norm that is drawn to zero learns worse."""
        trained = [parameter for parameter in self.parameters() if parameter.requires_grad]
        matrices = [parameter for parameter in trained if parameter.dim() >= 2]
        vectors = [parameter for parameter in trained if parameter.dim() < 2]
        groups = [{"params": matrices, "weight_decay": weight_decay}, {"params": vectors, "weight_decay": 0.0}]
        return [group for group in groups if group["params"]]

    def _turns_of(self, length: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
        """Cosine and sine (T, D), made once: they are no weights, and no checkpoint holds them."""
        if self._turns is None or self._turns[0].device != device:
            angles_TD = torch.arange(self.config.context, dtype=torch.float32)[:, None] * frequencies(self.config)[None, :]
            angles_TD = torch.cat((angles_TD, angles_TD), dim=1)
            self._turns = angles_TD.cos().to(device), angles_TD.sin().to(device)
        return self._turns[0][:length], self._turns[1][:length]

    @torch.no_grad()
    def _start(self) -> None:
        small = _STD / math.sqrt(2 * self.config.layers)
        for name, parameter in self.named_parameters():
            if parameter.dim() >= 2:
                nn.init.normal_(parameter, std=small if name.endswith(("o_proj.weight", "down_proj.weight")) else _STD)


def frequencies(config: DecoderConfig) -> torch.Tensor:
    """(D / 2,): radians by which a pair of a head's numbers turns from one position to the next."""
    size = config.width // config.heads
    plain = config.rope_theta ** -(torch.arange(0, size, 2, dtype=torch.float32) / size)
    scaling = config.rope_scaling
    if scaling is None:
        return plain
    turns = scaling.original_context * plain / (2 * math.pi)  # in the context that it was trained on first
    share = (turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor)
    return torch.lerp(plain / scaling.factor, plain, share.clamp(0.0, 1.0))


def rotate(x: torch.Tensor, turns_TD: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """Turn each pair (d, d + D / 2) of (..., T, D) by its position's angle."""
    cosine, sine = turns_TD
    first, second = x.float().chunk(2, dim=-1)
    return (x.float() * cosine + torch.cat((-second, first), dim=-1) * sine).to(x.dtype)


def losses(scores_BTV: torch.Tensor, targets_BT: torch.Tensor) -> torch.Tensor:
    """(B,): the mean cross entropy over the tokens of each window, in nats."""
    flat = cross_entropy(scores_BTV.float().flatten(0, 1), targets_BT.long().flatten(), reduction="none")
    return flat.view(targets_BT.shape).mean(1)


def bits(nats: float) -> float:
    """Describe a loss in words: with a vocabulary of bytes, 8 bits a token is knowing nothing."""
    return nats / math.log(2)
