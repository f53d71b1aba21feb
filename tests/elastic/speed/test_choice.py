"""What is chosen on which device, and what cannot be asked of it."""

import json
from dataclasses import asdict
from typing import Any

import pytest
import torch

from ebb.elastic.runtime.config import ConfigError
from ebb.elastic.speed import Speed, SpeedOptions, choose
from ebb.elastic.speed.choice import Chip, choose_for, lowest

H200 = Chip(type="cuda", name="NVIDIA H200", capability=(9, 0))
A100 = Chip(type="cuda", name="NVIDIA A100", capability=(8, 0))
T4 = Chip(type="cuda", name="Tesla T4", capability=(7, 5))
V100 = Chip(type="cuda", name="Tesla V100", capability=(7, 0))
P100 = Chip(type="cuda", name="Tesla P100", capability=(6, 0))
CPU = Chip()


@pytest.mark.parametrize(
    ("chip", "arch", "line"),
    [
        pytest.param(
            H200,
            "resnet50",
            "bf16, channels_last, fused optimizer, not compiled "
            "(NVIDIA H200, compute capability 9.0: has units for bf16, and needs no scaler)",
            id="H200",
        ),
        pytest.param(
            A100,
            "vit_b_16",
            "bf16, fused optimizer, not compiled (NVIDIA A100, compute capability 8.0: has units for bf16, and needs no scaler)",
            id="attention-has-no-layout",
        ),
        pytest.param(
            T4,
            "resnet18",
            "fp16, channels_last, fused optimizer, not compiled "
            "(Tesla T4, compute capability 7.5: has units for fp16, none for bf16)",
            id="T4",
        ),
        pytest.param(
            V100,
            "efficientnet_b7",
            "fp16, channels_last, fused optimizer, not compiled "
            "(Tesla V100, compute capability 7.0: has units for fp16, none for bf16)",
            id="V100",
        ),
        pytest.param(
            P100,
            "resnet18",
            "fp32, fused optimizer, not compiled (Tesla P100, compute capability 6.0: no units for 16 bits)",
            id="P100",
        ),
        pytest.param(
            CPU,
            "resnet18",
            "fp32, channels_last, fused optimizer, not compiled (the CPU: the same numbers everywhere)",
            id="CPU",
        ),
        pytest.param(
            CPU, "decoder", "fp32, fused optimizer, not compiled (the CPU: the same numbers everywhere)", id="CPU-attention"
        ),
    ],
)
def test_the_choice_says_itself_and_why(chip: Chip, arch: str, line: str) -> None:
    assert str(choose_for(chip, arch, SpeedOptions())) == line


def test_what_is_asked_for_wins() -> None:
    asked = SpeedOptions(
        precision="fp32",
        channels_last="on",
        fused="off",
        compile=True,
        bucket_mb=50,
        static_graph=True,
        compress_gradients="bf16",
    )
    assert choose_for(H200, "vit_b_16", asked) == Speed(
        device_type="cuda",
        precision="fp32",
        channels_last=True,
        compiled=True,
        fused=False,
        bucket_mb=50,
        static_graph=True,
        compression="bf16",
    )


def test_several_kinds_of_gpu_in_one_job_compute_alike() -> None:
    chosen = choose_for(lowest([H200, T4, A100]), "resnet50", SpeedOptions())
    assert chosen.precision == "fp16"
    with pytest.raises(
        ConfigError, match="ranks compute on the cpu and the cuda: take machines with GPUs alone, or --device cpu"
    ):
        lowest([H200, CPU])


def test_what_the_other_ranks_have_counts() -> None:
    """This rank has a CPU; as if the job's ranks were two GPUs elsewhere, of which each says what it is through JSON."""

    def from_all_ranks(facts: Any) -> list[Any]:
        assert facts == {"type": "cpu", "name": "the CPU", "capability": (0, 0)}
        return [json.loads(json.dumps(asdict(chip))) for chip in (H200, V100)]

    chosen = choose(torch.device("cpu"), "resnet50", from_all_ranks=from_all_ranks)
    assert chosen == choose_for(V100, "resnet50", SpeedOptions())


def test_the_device_of_this_machine() -> None:
    assert choose(torch.device("cpu"), "resnet18") == Speed(channels_last=True, fused=True)


@pytest.mark.parametrize(
    ("options", "chip", "words"),
    [
        ({"precision": "fp8"}, CPU, "--precision is 'fp8'; allowed: auto, fp32, tf32, bf16, fp16"),
        ({"precision": "fp16"}, CPU, "a CPU computes in fp32 or bf16"),
        ({"precision": "tf32"}, CPU, "a CPU computes in fp32 or bf16"),
        ({"precision": "bf16"}, T4, "Tesla T4 has no units for it .compute capability 7.5; 8.0 has.: take fp16, or auto"),
        ({"channels_last": "yes"}, CPU, "--channels-last is 'yes'; allowed: auto, on, off"),
        ({"fused": ""}, CPU, "--fused is ''"),
        ({"compress_gradients": "int8"}, CPU, "--compress-gradients is 'int8'; allowed: none, bf16"),
        ({"bucket_mb": 0}, CPU, "--bucket-mb is 0; it must be above 0"),
    ],
)
def test_what_cannot_be(options: dict[str, object], chip: Chip, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        choose_for(chip, "resnet18", SpeedOptions(**options))  # type: ignore[arg-type]
