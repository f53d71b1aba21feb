"""Adapters: nothing changes until they are trained, and they alone are trained and kept."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from trainer.text.decoder import Decoder, DecoderConfig, losses
from trainer.text.lora import TARGETS, LoraLinear, add_lora, save_adapters

SHAPE = DecoderConfig(layers=2, heads=4, kv_heads=2, width=32, hidden=48, context=64)


@pytest.fixture
def inputs() -> torch.Tensor:
    return torch.randint(256, (4, 20), generator=torch.Generator().manual_seed(0))


def network() -> Decoder:
    torch.manual_seed(0)
    return Decoder(SHAPE)


def test_nothing_changes_until_they_are_trained(inputs: torch.Tensor) -> None:
    model = network()
    before = model(inputs)
    adapters = add_lora(model, rank=4)
    assert torch.equal(model(inputs), before)
    frozen = {name: each.clone() for name, each in model.named_parameters() if not each.requires_grad}
    optimizer = torch.optim.AdamW(model.parameter_groups(0.0), lr=1e-2)
    history = []
    for _ in range(30):
        optimizer.zero_grad()
        loss = losses(model(inputs), inputs).mean()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        history.append(loss.item())
    assert history[-1] < history[0] - 0.01  # the embeddings are frozen at their start: there is little to learn
    assert all(torch.equal(each, frozen[name]) for name, each in model.named_parameters() if name in frozen)
    trained = [id(each) for each in model.parameters() if each.requires_grad]
    assert sorted(trained) == sorted(id(each) for each in adapters.parameters())
    assert len(adapters.state_dict()) == 2 * 2 * len(TARGETS)


def test_a_state_of_adapters_alone_gives_the_same_model(inputs: torch.Tensor) -> None:
    one, other = network(), network()
    trained, fresh = add_lora(one, rank=2), add_lora(other, rank=2)
    with torch.no_grad():
        for each in trained.parameters():
            each.normal_(std=0.1)
    assert not torch.allclose(one(inputs), other(inputs))
    fresh.load_state_dict(trained.state_dict())
    assert torch.equal(one(inputs), other(inputs))


def test_the_product_is_scaled_by_alpha_over_the_rank(inputs: torch.Tensor) -> None:
    model = network()
    name = "model.layers.0.mlp.up_proj"
    weight = model.state_dict()[f"{name}.weight"].clone()
    add_lora(model, rank=2, alpha=6.0)
    layer = model.get_submodule(name)
    assert isinstance(layer, LoraLinear)
    torch.nn.init.normal_(layer.lora_B.weight)
    x = torch.randn(3, 32)
    expected = x @ (weight + 3.0 * layer.lora_B.weight @ layer.lora_A.weight).T
    assert torch.allclose(layer(x), expected, atol=1e-5)


def test_files_are_those_of_peft(tmp_path: Path) -> None:
    save_adapters(add_lora(network(), rank=2), tmp_path, base="/models/llama")
    told = json.loads((tmp_path / "adapter_config.json").read_text())
    assert (told["peft_type"], told["r"], told["lora_alpha"], told["base_model_name_or_path"]) == (
        "LORA",
        2,
        4.0,
        "/models/llama",
    )
    tensors = load_file(tmp_path / "adapter_model.safetensors")
    assert tensors["base_model.model.model.layers.1.self_attn.q_proj.lora_A.weight"].shape == (2, 32)
    assert tensors["base_model.model.model.layers.0.mlp.down_proj.lora_B.weight"].shape == (32, 2)
    assert len(tensors) == 28
