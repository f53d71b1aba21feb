"""Weights in Hugging Face's layout: what is written is read, shards too, and what does not fit is one sentence."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from trainer.text.decoder import Decoder, DecoderConfig, RopeScaling
from trainer.text.weights import WeightsError, read, read_config, save

SHAPE = DecoderConfig(layers=2, heads=4, kv_heads=2, width=32, hidden=48, context=64, vocabulary=100, tied=False)
SCALING = RopeScaling(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_context=16)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    save(Decoder(SHAPE), tmp_path)
    return tmp_path


def described(folder: Path, **changes: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


@pytest.mark.parametrize("shape", [SHAPE, replace(SHAPE, tied=True), replace(SHAPE, rope_scaling=SCALING, rope_theta=5e5)])
def test_what_is_saved_is_read(tmp_path: Path, shape: DecoderConfig) -> None:
    network = Decoder(shape)
    save(network, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.json", "model.safetensors"]
    assert read_config(tmp_path) == shape
    again = read(tmp_path, shape)
    inputs = torch.randint(100, (2, 20), generator=torch.Generator().manual_seed(0))
    assert torch.equal(again(inputs), network(inputs))
    assert ("lm_head.weight" in load_file(tmp_path / "model.safetensors")) is not shape.tied


def test_shards_are_read_and_keep_their_precision(folder: Path) -> None:
    tensors = {name: each.bfloat16() for name, each in load_file(folder / "model.safetensors").items()}
    (folder / "model.safetensors").unlink()
    for number, names in enumerate((sorted(tensors)[::2], sorted(tensors)[1::2])):
        save_file({name: tensors[name] for name in names}, folder / f"model-0000{number + 1}-of-00002.safetensors")
    network = read(folder, read_config(folder))
    assert {each.dtype for each in network.parameters()} == {torch.bfloat16}
    assert all(torch.equal(each, tensors[name]) for name, each in network.state_dict().items())


def test_older_files_name_their_rotations_otherwise(folder: Path) -> None:
    described(folder, rope_parameters=None, rope_theta=12.5, rope_scaling=None)
    assert read_config(folder).rope_theta == 12.5
    assert read_config(folder, context=32).context == 32


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model_type": "gpt2"}, "model_type is 'gpt2'; allowed: llama, mistral"),
        ({"attention_bias": True}, "attention_bias is True; allowed: false"),
        ({"sliding_window": 4096}, "sliding_window is 4096; allowed: null"),
        ({"head_dim": 16}, "head_dim is 16; allowed: 8,"),
        ({"rope_parameters": {"rope_type": "yarn"}}, "rope_type is 'yarn'; allowed: default, llama3"),
    ],
)
def test_a_model_of_another_kind_is_refused(folder: Path, changes: dict[str, Any], words: str) -> None:
    described(folder, **changes)
    with pytest.raises(WeightsError, match=r"config\.json: ") as error:
        read_config(folder)
    assert words in str(error.value)


def test_weights_that_do_not_fit_are_refused(folder: Path) -> None:
    with pytest.raises(WeightsError, match=r"--context is 65; .* allows 64 at most"):
        read_config(folder, context=65)
    with pytest.raises(WeightsError, match=r"embed_tokens.weight has the shape \(100, 32\); by config.json it is \(101, 32\)"):
        read(folder, replace(SHAPE, vocabulary=101))
    with pytest.raises(WeightsError, match=r"has no tensor 'model.layers.2"):
        read(folder, replace(SHAPE, layers=3))
    (folder / "model.safetensors").write_bytes(b"torn")
    with pytest.raises(WeightsError, match="cannot be read"):
        read(folder, SHAPE)
    (folder / "model.safetensors").unlink()
    with pytest.raises(WeightsError, match=r"has no \*\.safetensors"):
        read(folder, SHAPE)
    (folder / "config.json").unlink()
    with pytest.raises(WeightsError, match=r"cannot read .*config\.json"):
        read_config(folder)
