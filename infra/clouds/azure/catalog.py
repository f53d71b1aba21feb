"""VM sizes of Azure: what is computed from machines.yaml, which has their facts, sources and dates.

Drivers: 580 for compute sizes, 570 ("GRID") for those with an A10.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from infra import machine_types
from infra.machine_types import MachineLine
from workloads.cluster import InstanceType, Network

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
# The machine's InfiniBand, all of its interfaces: one worker has the whole machine. That the device plugin calls it so says its
# settings, plugins.py.
IB_RESOURCE = "rdma/ib"
# With NCCL_NET a worker that finds no InfiniBand ends with an error, and does not use TCP in silence.
IB_ENVIRONMENT = {"NCCL_NET": "IB"}
_RETIRED = "Azure has retired it on 2025-09-30: take T4, the next cheapest, or A100-80GB, the next faster"
_FRACTION = "it has {share} of a GPU, and jobs count in whole ones: take Standard_NV36ads_A10_v5, the smallest with one"


@dataclass(frozen=True, kw_only=True)
class AzureInstance(InstanceType):
    """One VM size. `temp_disk_gib`: the local disk that may hold an ephemeral system disk. `driver`: NVIDIA's major version.
    `infiniband`: whether machines of it are connected by it."""

    temp_disk_gib: int = 0
    driver: int = 0
    infiniband: bool = False
    spot_taints: tuple[tuple[str, str], ...] = (SPOT_MARK,)
    spot_labels: tuple[tuple[str, str], ...] = (SPOT_MARK,)

    def allocatable_mib(self, _settings: Any) -> int:
        """A machine's memory less what the kernel and AKS keep."""
        nominal = self.memory_gib * 1024
        return int(nominal * _SEEN_SHARE - min(_POD_MIB * MAX_PODS + _KUBELET_MIB, nominal / 4)) - _EVICTION_MIB

    def network(self, settings: Any) -> Network | None:
        """InfiniBand, where the group's settings ask for it."""
        if settings is None or not settings.infiniband or not self.infiniband:
            return None
        return Network(name="InfiniBand", resources={IB_RESOURCE: "1"}, environment=IB_ENVIRONMENT)


class AzureLine(MachineLine):
    """One line of machines.yaml; the name is without Standard_."""

    temp_disk_gib: int = Field(default=0, ge=0, description="The local disk.")
    driver: Literal["cuda", "grid"] = Field(default="cuda", description="Which of NVIDIA's.")
    retired: bool = Field(default=False, description="Azure sells it no more.")
    share: str | None = Field(default=None, description="Of a GPU, where it has no whole one.")
    infiniband: bool = Field(default=False, description="Between machines.")


def made(line: AzureLine) -> AzureInstance:
    """The machine type of a line."""
    driver = DRIVER_GRID if line.driver == "grid" else DRIVER_CUDA
    refused = _FRACTION.format(share=line.share) if line.share else _RETIRED if line.retired else ""
    return AzureInstance(
        **line.facts,
        name=f"Standard_{line.name}",
        usd_per_hour=line.usd_per_hour,
        spot_discount=SPOT_DISCOUNT,
        temp_disk_gib=line.temp_disk_gib,
        driver=driver if line.gpus else 0,
        infiniband=line.infiniband,
        refused=refused,
    )


TYPES = machine_types.read(Path(__file__).with_name("machines.yaml"), AzureLine, made)
