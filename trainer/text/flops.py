"""Model FLOP utilisation: the arithmetic that the model needs, over what the device could do in the same time.

    meter = FlopMeter(flops_per_token(config, adapters=False) * config.context, device)
    run.on_progress(lambda progress: run.log(meter.text(progress.samples_per_second, progress.world_size)))

A token costs 6 N + 12 L C T (Chowdhery et al. 2022, arXiv 2204.02311, appendix B), with N the parameters of all matrix products,
L layers of width C, and T tokens in a window: 2 N forward and 4 N backward. What activation checkpointing computes again does not
count. With adapters the gradients of frozen matrices are not needed: 4 N + 12 L C T.
"""

import torch

from trainer.text.decoder import DecoderConfig

# FLOP/s of dense products in 16 bits, without sparsity, by a part of the device's name: NVIDIA's data sheets of each.
PEAKS = {
    "H200": 989e12,
    "H100 PCIe": 756e12,
    "H100": 989e12,
    "A100": 312e12,
    "L40S": 362e12,
    "A10G": 70e12,
    "L4": 121e12,
    "V100": 125e12,
    "T4": 65e12,
}


def flops_per_token(config: DecoderConfig, *, adapters: bool) -> float:
    size = config.width // config.heads
    attention = config.width * size * (2 * config.heads + 2 * config.kv_heads)
    products = config.layers * (attention + 3 * config.width * config.hidden) + config.vocabulary * config.width
    return (4.0 if adapters else 6.0) * products + 12.0 * config.layers * config.width * config.context


def peak_flops(name: str) -> float | None:
    """None for a device that is not in PEAKS, a CPU among them."""
    return next((peak for part, peak in PEAKS.items() if part in name), None)


class FlopMeter:
    def __init__(self, flops_per_sample: float, device: torch.device) -> None:
        self._flops = flops_per_sample
        self._name = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"

    def text(self, samples_per_second: float, world_size: int) -> str:
        """For the log: "41.2 TFLOP/s a rank, 13.2 % of NVIDIA A100-SXM4-40GB"."""
        found = self._flops * samples_per_second / world_size
        text = f"{found / 1e12:.3g} TFLOP/s a rank"
        peak = peak_flops(self._name)
        return f"{text}, {100 * found / peak:.1f} % of {self._name}" if peak else text
