"""Weights as Hugging Face stores Llama models: config.json, and safetensors files beside it.

    config = read_config(folder, context=2048)
    network = read(folder, config)               # no tensor is in memory twice
    save(network, folder)                        # config.json and model.safetensors

Errors name the file, the key and what is supported. Checked by hand against transformers 5.24 with random models, tied and not,
with and without scaled RoPE: what either writes the other reads, with the same scores within 2e-7.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from ebb.elastic import ConfigError
from trainer.text.decoder import Decoder, DecoderConfig, RopeScaling

_KINDS = ("llama", "mistral")  # one architecture; Mistral's sliding window is refused


class WeightsError(ConfigError):
    """A folder holds no weights that this network can take."""


def read_config(folder: Path, *, context: int = 0) -> DecoderConfig:
    """`context`: a shorter one than the model's; 0: the model's own. Raises WeightsError."""
    path = folder / "config.json"
    try:
        found = json.loads(path.read_text())
    except OSError as error:
        raise WeightsError(f"cannot read {path}: {error.strerror}; it is a folder as Hugging Face stores a model") from None
    except ValueError as error:
        raise WeightsError(f"{path} is no JSON: {error}") from None
    kind = found.get("model_type")
    if kind not in _KINDS:
        raise WeightsError(f"{path}: model_type is {kind!r}; allowed: {', '.join(_KINDS)}")
    for key, allowed in (("hidden_act", "silu"), ("attention_bias", False), ("mlp_bias", False), ("sliding_window", None)):
        if found.get(key, allowed) != allowed:
            raise WeightsError(f"{path}: {key} is {found[key]!r}; allowed: {json.dumps(allowed)}")
    longest = int(found["max_position_embeddings"])
    if context > longest:
        raise WeightsError(f"--context is {context}; {path} allows {longest} at most")
    heads, width = int(found["num_attention_heads"]), int(found["hidden_size"])
    if found.get("head_dim") not in (None, width // heads):
        raise WeightsError(
            f"{path}: head_dim is {found['head_dim']}; allowed: {width // heads}, hidden_size / num_attention_heads"
        )
    rope = found.get("rope_parameters") or {"rope_theta": found.get("rope_theta", 10_000.0), **(found.get("rope_scaling") or {})}
    return DecoderConfig(
        layers=int(found["num_hidden_layers"]),
        heads=heads,
        kv_heads=int(found.get("num_key_value_heads") or heads),
        width=width,
        hidden=int(found["intermediate_size"]),
        context=context or longest,
        vocabulary=int(found["vocab_size"]),
        rope_theta=float(rope.get("rope_theta", 10_000.0)),
        rope_scaling=_scaling(path, rope),
        norm_epsilon=float(found["rms_norm_eps"]),
        tied=bool(found.get("tie_word_embeddings", False)),
    )


def _scaling(path: Path, rope: dict[str, Any]) -> RopeScaling | None:
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind == "default":
        return None
    if kind != "llama3":
        raise WeightsError(f"{path}: rope_type is {kind!r}; allowed: default, llama3")
    return RopeScaling(
        factor=float(rope["factor"]),
        low_freq_factor=float(rope["low_freq_factor"]),
        high_freq_factor=float(rope["high_freq_factor"]),
        original_context=int(rope["original_max_position_embeddings"]),
    )


def read(folder: Path, config: DecoderConfig, *, recompute: bool = False) -> Decoder:
    """Raises WeightsError where a tensor is missing or has another shape. Tensors keep the precision of the files."""
    with torch.device("meta"):
        network = Decoder(config, recompute=recompute)
    wanted = network.state_dict()
    found = {name: tensor for name, tensor in _tensors(folder) if name in wanted}
    for name, like in wanted.items():
        if name not in found:
            raise WeightsError(f"{folder} has no tensor {name!r}: its config.json is of another model")
        if found[name].shape != like.shape:
            shape = tuple(found[name].shape)
            raise WeightsError(f"{folder}: {name} has the shape {shape}; by config.json it is {tuple(like.shape)}")
    network.load_state_dict(found, assign=True)
    return network


def _tensors(folder: Path) -> Iterator[tuple[str, torch.Tensor]]:
    paths = sorted(folder.glob("*.safetensors"))
    if not paths:
        raise WeightsError(f"{folder} has no *.safetensors: files of another kind are not read")
    for path in paths:
        try:
            with safe_open(path, framework="pt") as file:
                for name in file.keys():  # noqa: SIM118  # it is no mapping
                    yield name, file.get_tensor(name)
        except SafetensorError as error:
            raise WeightsError(f"{path} cannot be read: {error}; copy it again") from None


def save(network: Decoder, folder: Path) -> None:
    """Write files for transformers' from_pretrained(); they appear whole or not at all."""
    config = network.config
    rope: dict[str, Any] = {"rope_type": "default", "rope_theta": config.rope_theta}
    if (scaling := config.rope_scaling) is not None:
        rope |= {
            "rope_type": "llama3",
            "factor": scaling.factor,
            "low_freq_factor": scaling.low_freq_factor,
            "high_freq_factor": scaling.high_freq_factor,
            "original_max_position_embeddings": scaling.original_context,
        }
    described = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.kv_heads,
        "hidden_size": config.width,
        "intermediate_size": config.hidden,
        "max_position_embeddings": config.context,
        "vocab_size": config.vocabulary,
        "rms_norm_eps": config.norm_epsilon,
        "tie_word_embeddings": config.tied,
        "rope_theta": config.rope_theta,
        "rope_parameters": rope,
    }
    if config.rope_scaling is not None:
        described["rope_scaling"] = rope
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / "model.safetensors", {name: each.detach().contiguous() for name, each in network.state_dict().items()})
    _write_text(folder / "config.json", json.dumps(described, indent=1))


def write_whole(path: Path, tensors: dict[str, torch.Tensor]) -> None:
    temporary = path.with_name(f".tmp-{path.name}")
    save_file(tensors, temporary, metadata={"format": "pt"})
    temporary.rename(path)


def _write_text(path: Path, text: str) -> None:
    temporary = path.with_name(f".tmp-{path.name}")
    temporary.write_text(text)
    temporary.rename(path)
