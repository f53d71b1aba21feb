"""Utilisation by the published formula."""

import pytest
import torch

from trainer.text.decoder import SIZES, Decoder
from trainer.text.flops import FlopMeter, flops_per_token, peak_flops


@pytest.mark.parametrize("size", ["10m", "1b", "7b"])
def test_a_token_costs_six_operations_a_parameter_and_its_attention(size: str) -> None:
    config = SIZES[size]
    with torch.device("meta"):
        matrices = sum(each.numel() for each in Decoder(config).parameters() if each.dim() == 2)
    products = matrices if config.tied else matrices - config.vocabulary * config.width  # a look into the embeddings is none
    attention = 12 * config.layers * config.width * config.context
    assert flops_per_token(config, adapters=False) == 6 * products + attention
    assert flops_per_token(config, adapters=True) == 4 * products + attention


def test_the_log_says_so() -> None:
    meter = FlopMeter(2e12, torch.device("cpu"))
    assert meter.text(4.0, 8) == "1 TFLOP/s a rank"
    meter._name = "NVIDIA A100-SXM4-40GB"
    assert meter.text(4.0, 8) == "1 TFLOP/s a rank, 0.3 % of NVIDIA A100-SXM4-40GB"


@pytest.mark.parametrize(
    ("name", "peak"),
    [
        ("NVIDIA H100 80GB HBM3", 989e12),
        ("NVIDIA H100 PCIe", 756e12),
        ("NVIDIA L40S", 362e12),
        ("NVIDIA L4", 121e12),
        ("CPU", None),
    ],
)
def test_peaks_by_name(name: str, peak: float | None) -> None:
    assert peak_flops(name) == peak
