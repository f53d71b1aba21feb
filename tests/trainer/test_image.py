"""The image is reproducible: what is installed is pinned, and the lines that another torch must do without are marked."""

import importlib.metadata
import re
from pathlib import Path

import pytest
import torch

TRAINER = Path(__file__).parents[2] / "trainer"
MARK = "# What these bring along"


def pins(text: str) -> dict[str, str]:
    return dict(re.findall(r"^([a-z0-9.-]+)==(\S+)$", text, re.MULTILINE))


def test_everything_that_is_installed_is_pinned() -> None:
    environment = Path(torch.__file__).parents[1]
    if (environment / "pytest").exists():
        pytest.skip("torch is not in a folder of its own here")
    every = importlib.metadata.distributions(path=[str(environment)])
    found = {each.name.lower().replace("_", "-"): each.version for each in every}
    others = found.keys() - {"nvidia-ml-py"}  # ours, by name alone one of CUDA's
    cuda = {name for name in others if name.startswith(("nvidia-", "cuda-")) or name == "triton"}  # pinned by torch's wheel
    assert pins((TRAINER / "requirements.txt").read_text()) == {name: found[name] for name in found.keys() - cuda}


def test_another_torch_is_free_to_bring_others() -> None:
    asked, _, brought = (TRAINER / "requirements.txt").read_text().partition(MARK)
    ours = {"asyncssh", "nvidia-ml-py", "python-etcd", "safetensors", "scikit-learn", "torch", "torchvision", "urllib3", "uv"}
    assert set(pins(asked)) == ours
    assert "numpy" in pins(brought)
    assert f"'/^{MARK}/,$d'" in (TRAINER / "Dockerfile").read_text()


def test_only_an_image_that_holds_torch_holds_a_compiler() -> None:
    """It is larger than all else in the box's; torch.compile needs g++ and Python.h at run time."""
    layers = (TRAINER / "Dockerfile").read_text().split("\nRUN ")
    [compiler] = [layer for layer in layers if "g++" in layer.partition("\n\n")[0]]
    assert compiler.startswith('if [ "$ENVIRONMENT" = image ]; then')
    assert "Python.h" in compiler
    assert layers.index(compiler) < next(number for number, layer in enumerate(layers) if "pip install" in layer)


def test_the_image_finds_the_driver_where_gke_mounts_it() -> None:
    """GKE's device plugin mounts it at /usr/local/nvidia and sets no variable; the other clouds put it on the loader's path."""
    said = [line for line in (TRAINER / "Dockerfile").read_text().splitlines() if line.startswith("ENV ")]
    variables = dict(one.split("=", 1) for line in said for one in line.removeprefix("ENV ").split())
    assert "/usr/local/nvidia/lib64" in variables.get("LD_LIBRARY_PATH", "").split(":")
    assert variables["PATH"].split(":")[0] == "/usr/local/nvidia/bin"


def test_a_build_without_googles_plugin_needs_no_image_of_google() -> None:
    """The stage that it comes from is then the base itself, which every builder has already."""
    words = (TRAINER / "Dockerfile").read_text().split("\nFROM ")
    assert "\nARG GIB=${BASE}" in words[0]
    assert words[1].startswith("${GIB} AS gib\n")
    assert not any("docker.pkg.dev" in line for line in "\n".join(words).splitlines() if not line.startswith("#"))
