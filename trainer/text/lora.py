"""LoRA: a few small matrices are trained beside frozen weights (Hu et al. 2021, arXiv 2106.09685).

    adapters = add_lora(network, rank=16)                     # the network's linear layers, in place
    run.register_state(model=adapters, optimizer=optimizer)   # checkpoints hold the adapters alone
    save_adapters(adapters, folder, base="meta-llama/...")    # as PEFT stores them; PEFT 0.21 gives the same scores within 3e-7

Each linear layer W of the blocks becomes W x + (alpha / rank) B A x, with A (rank, in) random and B (out, rank) zero at first.
"""

import json
import math
from pathlib import Path

import torch
from torch import nn

from trainer.text.decoder import Decoder
from trainer.text.weights import write_whole

TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


class LoraLinear(nn.Module):
    def __init__(self, base: nn.Linear, *, rank: int, alpha: float) -> None:
        super().__init__()
        self.base = base.requires_grad_(False)
        self.lora_A = nn.Linear(base.in_features, rank, bias=False)
        self.lora_B = nn.Linear(rank, base.out_features, bias=False)
        self._scale = alpha / rank
        nn.init.kaiming_uniform_(self.lora_A.weight, a=math.sqrt(5))
        nn.init.zeros_(self.lora_B.weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.base(x) + self.lora_B(self.lora_A(x)) * self._scale
        return result


class Adapters(nn.Module):
    """The trained matrices of a network, which shares them: what a checkpoint needs."""

    def __init__(self, layers: dict[str, LoraLinear], *, rank: int, alpha: float) -> None:
        super().__init__()
        self.rank, self.alpha = rank, alpha
        pairs = {name: nn.ModuleDict({"lora_A": each.lora_A, "lora_B": each.lora_B}) for name, each in layers.items()}
        self.layers = nn.ModuleDict({name.replace(".", "/"): pair for name, pair in pairs.items()})  # torch allows no dot


def add_lora(network: Decoder, *, rank: int, alpha: float = 0.0) -> Adapters:
    """Freeze the network and put an adapter beside each linear layer of its blocks. `alpha` is twice the rank by default."""
    alpha = alpha or 2.0 * rank
    network.requires_grad_(False)
    found = {name: each for name, each in network.named_modules() if name.rpartition(".")[2] in TARGETS}
    layers = {}
    for name, linear in found.items():
        assert isinstance(linear, nn.Linear)
        parent, _, last = name.rpartition(".")
        layers[name] = LoraLinear(linear, rank=rank, alpha=alpha)
        setattr(network.get_submodule(parent), last, layers[name])
    return Adapters(layers, rank=rank, alpha=alpha)


def save_adapters(adapters: Adapters, folder: Path | None, *, base: str) -> None:
    """Write files for PEFT's PeftModel.from_pretrained(). `base` is the name or the folder of the frozen model. To be called on
    all ranks, since those of a machine may hold a sharded network together; they give None but for the one that writes."""
    tensors = {
        f"base_model.model.{name.removeprefix('layers.').replace('/', '.')}": _whole(each.detach()).contiguous()
        for name, each in adapters.state_dict().items()
    }
    if folder is None:
        return
    described = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base,
        "r": adapters.rank,
        "lora_alpha": adapters.alpha,
        "lora_dropout": 0.0,
        "bias": "none",
        "target_modules": list(TARGETS),
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "adapter_config.json").write_text(json.dumps(described, indent=1))
    write_whole(folder / "adapter_model.safetensors", tensors)


def _whole(tensor: torch.Tensor) -> torch.Tensor:
    """Of a sharded network each rank has some rows (DTensor)."""
    gather = getattr(tensor, "full_tensor", None)
    return tensor if gather is None else gather()
