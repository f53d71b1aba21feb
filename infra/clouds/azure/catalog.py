"""VM sizes of Azure that Ebb makes machines of: those that AKS installs NVIDIA's driver on. Data, sourced and dated.

On-demand prices of East US (of ND96isr_H200_v5: West US 2), vCPUs of the name: the generated price list of
https://github.com/Azure/karpenter-provider-azure at commit 352646f59929 (prices generated 2026-06-18). Memory, GPUs and temporary
disks: https://github.com/MicrosoftDocs/azure-compute-docs, articles/virtual-machines/sizes/gpu-accelerated, as of 2024 to 2026.
Drivers: pkg/utils/gpu.go of the former repository, which follows the node images of AKS: 580 for compute sizes, 570 ("GRID") for
those with an A10. Missing: the RTX PRO 6000 sizes, whose list of GPUs by size has not settled; GB200 and GB300, which are Arm
machines; MI300X, which is not NVIDIA's; NC*_A10_v4, which few regions have.
"""

from dataclasses import dataclass
from typing import Any

from workloads.cluster import InstanceType

# AKS sets it on machines of spot pools by itself, as a taint and as a label (https://learn.microsoft.com/azure/aks/spot-node-pool,
# as of 2026-08). It is declared too, so that workers tolerate it, and what is declared is what is there.
SPOT_MARK = ("kubernetes.azure.com/scalesetpriority", "spot")
# An assumption for estimates: Azure says up to 0.9 (https://azure.microsoft.com/pricing/spot-advisor/), and it moves by the day.
SPOT_DISCOUNT = 0.6
DRIVER_CUDA, DRIVER_GRID = 580, 570
# The kernel sees 96 % of a machine's memory or more (Standard_F2s_v2 with 4 GiB: 4,025,836 KiB, https://github.com/Azure/AKS/
# issues/3525). AKS keeps 20 MiB for each pod that may be there and 50 MiB, at most a quarter, and evicts at 100 MiB
# (https://learn.microsoft.com/azure/aks/node-resource-reservations, as of 2026-08).
_SEEN_SHARE, _POD_MIB, _KUBELET_MIB, _EVICTION_MIB = 0.96, 20, 50, 100
MAX_PODS = 30  # on a machine for jobs: a worker takes all GPUs of its machine
_RETIRED = "Azure has retired it on 2025-09-30: take T4, the next cheapest, or A100-80GB, the next faster"
_FRACTION = "it has {share} of a GPU, and jobs count in whole ones: take Standard_NV36ads_A10_v5, the smallest with one"


@dataclass(frozen=True, kw_only=True)
class AzureInstance(InstanceType):
    """One VM size. `temp_disk_gib`: the local disk that may hold an ephemeral system disk. `driver`: NVIDIA's major version."""

    temp_disk_gib: int = 0
    driver: int = 0
    spot_taints: tuple[tuple[str, str], ...] = (SPOT_MARK,)
    spot_labels: tuple[tuple[str, str], ...] = (SPOT_MARK,)

    def allocatable_mib(self, _settings: Any) -> int:
        """A machine's memory less what the kernel and AKS keep."""
        nominal = self.memory_gib * 1024
        return int(nominal * _SEEN_SHARE - min(_POD_MIB * MAX_PODS + _KUBELET_MIB, nominal / 4)) - _EVICTION_MIB


def _gpu(
    name: str, size: tuple[int, int], gpus: tuple[int, str], usd_per_hour: float, *,
    disk: int, driver: int = DRIVER_CUDA, refused: str = "",
) -> AzureInstance:  # fmt: skip
    return AzureInstance(
        name=f"Standard_{name}", cpu=size[0], memory_gib=size[1], gpus=gpus[0], gpu_type=gpus[1], usd_per_hour=usd_per_hour,
        spot_discount=SPOT_DISCOUNT, temp_disk_gib=disk, driver=driver, refused=refused,
    )  # fmt: skip


def _cpu(name: str, size: tuple[int, int], usd_per_hour: float) -> AzureInstance:
    return AzureInstance(
        name=f"Standard_{name}", cpu=size[0], memory_gib=size[1], usd_per_hour=usd_per_hour, spot_discount=SPOT_DISCOUNT
    )


def _part(name: str, size: tuple[int, int], share: str, usd_per_hour: float) -> AzureInstance:
    """A size with a part of a GPU: known, so that it is refused with words."""
    return _gpu(name, size, (1, "A10"), usd_per_hour, disk=0, driver=DRIVER_GRID, refused=_FRACTION.format(share=share))


# name, (vCPU, GiB of memory), (GPUs, GPU type), USD per hour on-demand, GiB of temporary disk
TYPES: tuple[AzureInstance, ...] = (
    _gpu("NC4as_T4_v3", (4, 28), (1, "T4"), 0.526, disk=176),
    _gpu("NC8as_T4_v3", (8, 56), (1, "T4"), 0.752, disk=352),
    _gpu("NC16as_T4_v3", (16, 110), (1, "T4"), 1.204, disk=352),
    _gpu("NC64as_T4_v3", (64, 440), (4, "T4"), 4.352, disk=2816),
    _part("NV6ads_A10_v5", (6, 55), "1/6", 0.454),
    _part("NV12ads_A10_v5", (12, 110), "1/3", 0.908),
    _part("NV18ads_A10_v5", (18, 220), "1/2", 1.6),
    _gpu("NV36ads_A10_v5", (36, 440), (1, "A10"), 3.2, disk=1440, driver=DRIVER_GRID),
    _gpu("NV36adms_A10_v5", (36, 880), (1, "A10"), 4.52, disk=2880, driver=DRIVER_GRID),
    _gpu("NV72ads_A10_v5", (72, 880), (2, "A10"), 6.52, disk=2880, driver=DRIVER_GRID),
    _gpu("NC6s_v3", (6, 112), (1, "V100"), 3.06, disk=736, refused=_RETIRED),
    _gpu("NC12s_v3", (12, 224), (2, "V100"), 6.12, disk=1474, refused=_RETIRED),
    _gpu("NC24s_v3", (24, 448), (4, "V100"), 12.24, disk=2948, refused=_RETIRED),
    _gpu("NC24ads_A100_v4", (24, 220), (1, "A100-80GB"), 3.673, disk=64),
    _gpu("NC48ads_A100_v4", (48, 440), (2, "A100-80GB"), 7.346, disk=128),
    _gpu("NC96ads_A100_v4", (96, 880), (4, "A100-80GB"), 14.692, disk=256),
    _gpu("ND96asr_v4", (96, 900), (8, "A100"), 27.197, disk=6000),
    _gpu("ND96amsr_A100_v4", (96, 1900), (8, "A100-80GB"), 32.77, disk=6400),
    _gpu("NC40ads_H100_v5", (40, 320), (1, "H100-NVL"), 6.98, disk=3576),
    _gpu("NC80adis_H100_v5", (80, 640), (2, "H100-NVL"), 13.96, disk=7152),
    _gpu("ND96isr_H100_v5", (96, 1900), (8, "H100"), 98.32, disk=1024),
    _gpu("ND96isr_H200_v5", (96, 1850), (8, "H200"), 84.8, disk=1024),
    _cpu("D4s_v5", (4, 16), 0.192),
    _cpu("D8s_v5", (8, 32), 0.384),
    _cpu("D4ds_v5", (4, 16), 0.226),
    _cpu("D8ds_v5", (8, 32), 0.452),
    _cpu("D4s_v6", (4, 16), 0.202),
    _cpu("D8s_v6", (8, 32), 0.403),
    _cpu("F8s_v2", (8, 16), 0.338),
)
