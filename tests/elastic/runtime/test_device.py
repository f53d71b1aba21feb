"""The device of a run: `auto` is the CPU where no GPU was given, and never instead of one that was."""

from pathlib import Path

import pytest
import torch

from ebb.elastic.runtime import start
from ebb.elastic.runtime.config import ConfigError, RunConfig, resolve


def config(tmp_path: Path, device: str) -> RunConfig:
    return resolve({}, output=tmp_path, device=device)


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(start, "keep_freed_memory", lambda environment: None)


def test_auto_fails_where_a_gpu_was_given_and_torch_sees_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("NVIDIA_VISIBLE_DEVICES", "GPU-8f6d8c2e")
    with pytest.raises(ConfigError, match=r"NVIDIA_VISIBLE_DEVICES=GPU-8f6d8c2e.*LD_LIBRARY_PATH.*--device cpu trains without"):
        start.choose_device(config(tmp_path, "auto"))
    assert start.choose_device(config(tmp_path, "cpu")) == torch.device("cpu")


@pytest.mark.parametrize(
    ("environment", "devices", "found"),
    [
        pytest.param({}, (), "", id="a laptop, or the local cluster"),
        pytest.param({}, ("nvidiactl", "nvidia-uvm"), "", id="a driver without a GPU of ours"),
        pytest.param({}, ("nvidia1", "nvidia0", "nvidiactl"), "nvidia0", id="GKE: device files alone"),
        pytest.param({"NVIDIA_VISIBLE_DEVICES": "GPU-1,GPU-2"}, (), "NVIDIA_VISIBLE_DEVICES=GPU-1,GPU-2", id="a device plugin"),
        pytest.param({"NVIDIA_VISIBLE_DEVICES": "all"}, (), "", id="an image's default"),
        pytest.param({"NVIDIA_VISIBLE_DEVICES": "void"}, (), "", id="a pod that asked for none"),
        pytest.param({"CUDA_VISIBLE_DEVICES": ""}, ("nvidia0",), "", id="hidden on purpose"),
    ],
)
def test_the_signs_of_a_gpu(tmp_path: Path, environment: dict[str, str], devices: tuple[str, ...], found: str) -> None:
    for name in devices:
        (tmp_path / name).touch()
    said = start.given_gpu(environment, tmp_path)
    assert said.removeprefix(f"{tmp_path}/") == found
