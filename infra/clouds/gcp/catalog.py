"""Machine types of Google Cloud that Ebb makes machines of. Data, sourced and dated.

On-demand and spot prices of us-central1 (Iowa): github.com/cloudpilot-ai/karpenter-provider-gcp, pkg/providers/pricing/
initial-prices.json of 2026-08-03 (commit 373e2baa9665), which reads them from Google's billing catalog. It lacks a3-ultragpu-8g
and GPUs that are attached to N1 machines, by the GPU: those are Google's list prices as they are quoted in many public
repositories (searched 2026-11-22; Google's own pages, .../products/compute/pricing/accelerator-optimized and
.../compute/gpus-pricing, could not be read). vCPU, memory, GPUs and local SSDs:
https://docs.cloud.google.com/compute/docs/accelerator-optimized-machines. Missing are a3-megagpu and a3-edgegpu (GPUs that
a3-highgpu has too), a4 (no price in that list), A4X (Arm; the trainer's image is built for x86), P4 (8 GiB), and fractions of a
GPU.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from workloads.cluster import InstanceType

# GKE's names of the GPUs (gcloud compute accelerator-types list).
ACCELERATORS = {
    "T4": "nvidia-tesla-t4",
    "P100": "nvidia-tesla-p100",
    "V100": "nvidia-tesla-v100",
    "L4": "nvidia-l4",
    "A100": "nvidia-tesla-a100",
    "A100-80GB": "nvidia-a100-80gb",
    "H100": "nvidia-h100-80gb",
    "H200": "nvidia-h200-141gb",
    "RTX-PRO-6000": "nvidia-rtx-pro-6000",
}
# What one GPU adds to an N1 machine, in USD per hour.
ATTACHED_USD = {"T4": 0.35, "P100": 1.46, "V100": 2.48}
# Fractions of the on-demand price, by family, as of the price list above; for attached GPUs an assumption, the least of the 60 to
# 91 % that Google promises (pages that quote it, read 2026-11-22). They change up to once a day.
SPOT = {"a2-highgpu": 0.48, "a2-ultragpu": 0.46, "a3-highgpu": 0.43, "a3-ultragpu": 0.43, "g2": 0.44, "g4": 0.60, "n1": 0.60}
CPU_SPOT = {"e2": 0.40, "n2": 0.53, "n2d": 0.71, "n4": 0.51}


# GPUs that compact placement is for: kubernetes-engine/docs/how-to/compact-placement, a stored copy, read 2026-11-22. That list
# is Autopilot's; the one of node pools was not seen.
COMPACT = frozenset({"A100", "A100-80GB", "L4", "H100"})
# "You must either use Spot VMs or a feature that uses the Dynamic Workload Scheduler":
# https://docs.cloud.google.com/compute/docs/accelerator-optimized-machines#a3-high-vms, a stored copy, read 2026-11-23.
NOT_ON_DEMAND = frozenset({"a3-highgpu-1g", "a3-highgpu-2g", "a3-highgpu-4g"})
# The kernel sees 98 % of a machine's memory; GKE keeps a share by tiers, (GiB, share), and evicts at 100 MiB. Tiers:
# https://cloud.google.com/kubernetes-engine/docs/concepts/plan-node-sizes. Seen: n2-highmem-4, -16 and -64 with 28,404,
# 119,346 and 498,636 MiB (https://github.com/2i2c-org/infrastructure/issues/2121): 37, 540 and 2,342 MiB more than this says.
_SEEN_SHARE, _EVICTION_MIB = 0.98, 100
_KEPT = ((4, 0.25), (4, 0.20), (8, 0.10), (112, 0.06), (math.inf, 0.02))


@dataclass(frozen=True, kw_only=True)
class GcpInstance(InstanceType):
    """One machine. `machine_type`: Google's name, to which GPUs may be attached. `local_ssds`: of 375 GiB, that it comes with."""

    machine_type: str
    local_ssds: int = 0

    def like(self, name: str, facts: Mapping[str, Any]) -> Self:
        """See InstanceType. GPUs that are attached come from `like`; a name of its own is Google's."""
        return super().like(name, {"machine_type": self.machine_type if name == self.name else name, **facts})

    def allocatable_mib(self, _settings: Any) -> int:
        """A machine's memory less what the kernel and GKE keep."""
        kept, rest = 0.0, float(self.memory_gib)
        for size, share in _KEPT:
            kept += min(rest, size) * share
            rest -= min(rest, size)
        return int((self.memory_gib * _SEEN_SHARE - kept) * 1024) - _EVICTION_MIB

    @property
    def family(self) -> str:
        return self.machine_type.partition("-")[0]

    @property
    def accelerator(self) -> str:
        return ACCELERATORS[self.gpu_type]

    @property
    def compact(self) -> bool:
        """True if machines may be placed close to each other."""
        return self.gpu_type in COMPACT


def _gpu(name: str, size: tuple[int, int], gpus: tuple[int, str], usd_per_hour: float, ssds: int = 0) -> GcpInstance:
    family = name.partition("-")[0]
    kind = name.rpartition("-")[0] if family in {"a2", "a3"} else family
    return GcpInstance(
        name=name, machine_type=name, cpu=size[0], memory_gib=size[1], gpus=gpus[0], gpu_type=gpus[1],
        usd_per_hour=usd_per_hour, spot_discount=SPOT[kind], local_ssds=ssds,
    )  # fmt: skip


def _attached(machine_type: str, size: tuple[int, int], gpus: tuple[int, str], usd_per_hour: float) -> GcpInstance:
    """An N1 machine with GPUs; its name here says so, as Google's does not."""
    count, gpu_type = gpus
    name = f"{machine_type}-{count}x{gpu_type.lower()}" if count > 1 else f"{machine_type}-{gpu_type.lower()}"
    return GcpInstance(
        name=name, machine_type=machine_type, cpu=size[0], memory_gib=size[1], gpus=count, gpu_type=gpu_type,
        usd_per_hour=round(usd_per_hour + count * ATTACHED_USD[gpu_type], 6), spot_discount=SPOT["n1"],
    )  # fmt: skip


def _cpu(name: str, size: tuple[int, int], usd_per_hour: float) -> GcpInstance:
    family = name.partition("-")[0]
    return GcpInstance(
        name=name, machine_type=name, cpu=size[0], memory_gib=size[1], usd_per_hour=usd_per_hour, spot_discount=CPU_SPOT[family]
    )


# name, (vCPU, GiB of memory), (GPUs, GPU type), USD per hour on-demand (of N1: without the GPUs), local SSDs
TYPES: tuple[GcpInstance, ...] = (
    _attached("n1-standard-4", (4, 15), (1, "T4"), 0.189999),
    _attached("n1-standard-8", (8, 30), (1, "T4"), 0.379998),
    _attached("n1-standard-16", (16, 60), (2, "T4"), 0.759996),
    _attached("n1-standard-32", (32, 120), (4, "T4"), 1.519992),
    _attached("n1-standard-8", (8, 30), (1, "P100"), 0.379998),
    _attached("n1-standard-8", (8, 30), (1, "V100"), 0.379998),
    _attached("n1-standard-32", (32, 120), (4, "V100"), 1.519992),
    _attached("n1-standard-96", (96, 360), (8, "V100"), 4.559976),
    _gpu("g2-standard-4", (4, 16), (1, "L4"), 0.706832),
    _gpu("g2-standard-8", (8, 32), (1, "L4"), 0.853624),
    _gpu("g2-standard-12", (12, 48), (1, "L4"), 1.000416),
    _gpu("g2-standard-16", (16, 64), (1, "L4"), 1.147208),
    _gpu("g2-standard-32", (32, 128), (1, "L4"), 1.734376),
    _gpu("g2-standard-24", (24, 96), (2, "L4"), 2.000833),
    _gpu("g2-standard-48", (48, 192), (4, "L4"), 4.001665),
    _gpu("g2-standard-96", (96, 384), (8, "L4"), 8.003330),
    _gpu("g4-standard-48", (48, 180), (1, "RTX-PRO-6000"), 4.49993),
    _gpu("g4-standard-96", (96, 360), (2, "RTX-PRO-6000"), 8.99986),
    _gpu("g4-standard-192", (192, 720), (4, "RTX-PRO-6000"), 17.99972),
    _gpu("g4-standard-384", (384, 1440), (8, "RTX-PRO-6000"), 35.99944),
    _gpu("a2-highgpu-1g", (12, 85), (1, "A100"), 3.673385),
    _gpu("a2-highgpu-2g", (24, 170), (2, "A100"), 7.34677),
    _gpu("a2-highgpu-4g", (48, 340), (4, "A100"), 14.69354),
    _gpu("a2-highgpu-8g", (96, 680), (8, "A100"), 29.38708),
    _gpu("a2-ultragpu-1g", (12, 170), (1, "A100-80GB"), 5.068798, 1),
    _gpu("a2-ultragpu-2g", (24, 340), (2, "A100-80GB"), 10.137596, 2),
    _gpu("a2-ultragpu-4g", (48, 680), (4, "A100-80GB"), 20.275192, 4),
    _gpu("a2-ultragpu-8g", (96, 1360), (8, "A100-80GB"), 40.550383, 8),
    _gpu("a3-highgpu-1g", (26, 234), (1, "H100"), 11.06125, 2),
    _gpu("a3-highgpu-2g", (52, 468), (2, "H100"), 22.1225, 4),
    _gpu("a3-highgpu-4g", (104, 936), (4, "H100"), 44.245, 8),
    _gpu("a3-highgpu-8g", (208, 1872), (8, "H100"), 88.49, 16),
    _gpu("a3-ultragpu-8g", (224, 2952), (8, "H200"), 84.806908, 32),
    _cpu("e2-standard-2", (2, 8), 0.067011),
    _cpu("e2-standard-4", (4, 16), 0.134023),
    _cpu("e2-standard-8", (8, 32), 0.268046),
    _cpu("n2-standard-2", (2, 8), 0.097118),
    _cpu("n2-standard-4", (4, 16), 0.194236),
    _cpu("n2d-standard-2", (2, 8), 0.084492),
    _cpu("n4-standard-2", (2, 8), 0.0907),
    _cpu("n4-standard-4", (4, 16), 0.1814),
)
