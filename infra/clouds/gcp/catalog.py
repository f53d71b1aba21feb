"""Machine types of Google Cloud: what is computed from machines.yaml, which has their facts, sources and dates.

GPUs that are attached to N1 machines, by the GPU: Google's list prices as they are quoted in many public repositories (searched
2026-11-22; Google's own page, .../compute/gpus-pricing, could not be read).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from pydantic import Field

from infra import machine_types
from infra.config.section import ConfigError
from infra.machine_types import MachineLine
from workloads.cluster import DeviceClaim, InstanceType, Network

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
    "B200": "nvidia-b200",
    "RTX-PRO-6000": "nvidia-rtx-pro-6000",
}
# What one GPU adds to an N1 machine, in USD per hour.
ATTACHED_USD = {"T4": 0.35, "P100": 1.46, "V100": 2.48}
# Fractions of the on-demand price, by family, as of the price list above; for attached GPUs an assumption, the least of the 60 to
# 91 % that Google promises (pages that quote it, read 2026-11-22). They change up to once a day.
SPOT = {
    **{"a2-highgpu": 0.48, "a2-ultragpu": 0.46, "a3-highgpu": 0.43, "a3-ultragpu": 0.43, "g2": 0.44, "g4": 0.60, "n1": 0.60},
    **{"e2": 0.40, "n2": 0.53, "n2d": 0.71, "n4": 0.51},
}


# GPUs that compact placement is for: kubernetes-engine/docs/how-to/compact-placement, a stored copy, read 2026-11-22. That list
# is Autopilot's; the one of node pools was not seen. H200: a3-ultragpu-8g as spot, placed so, in Google's own test of its toolkit
# (https://github.com/GoogleCloudPlatform/cluster-toolkit/pull/6171, 2026-08-19).
COMPACT = frozenset({"A100", "A100-80GB", "L4", "H100", "H200"})
# "You must either use Spot VMs or a feature that uses the Dynamic Workload Scheduler":
# https://docs.cloud.google.com/compute/docs/accelerator-optimized-machines#a3-high-vms, a stored copy, read 2026-11-23.
NOT_ON_DEMAND = frozenset({"a3-highgpu-1g", "a3-highgpu-2g", "a3-highgpu-4g"})
# GPUDirect RDMA. GKE makes the networks (its accelerator network profile), and its driver for dynamic resource allocation hands
# out their interfaces: https://docs.cloud.google.com/kubernetes-engine/docs/how-to/allocate-network-resources-dra, a stored copy,
# read 2026-11-25. Device class, label and count are as in gpudirect-rdma/nccl-test-managed-rdma.yaml of https://github.com/
# GoogleCloudPlatform/container-engine-accelerators at 992db8125755, and in modules/compute/gke-node-pool of .../cluster-toolkit
# at 1047080375af. The autoscaler brings such machines for pods alone that ask for the profile's label.
RDMA_CLASS, RDMA_LABELS = "mrdma.google.com", {"cloud.google.com/gke-networking-dra-driver": "true"}
RDMA_SELECTOR = {"gke.networks.io/accelerator-network-profile": "auto"}
# What set_nccl_env.sh of NCCL's plugin gIB sets, which nobody sources here; written out in .../cluster-toolkit, examples/
# machine-learning/a3-ultragpu-8g/nemo-framework/Dockerfile. With NCCL_NET a worker without the plugin ends with an error, and
# does not use TCP in silence.
GIB_ENVIRONMENT = {
    "NCCL_NET": "gIB",
    "NCCL_CROSS_NIC": "0",
    "NCCL_NET_GDR_LEVEL": "PIX",
    "NCCL_P2P_NET_CHUNKSIZE": "131072",
    "NCCL_NVLS_CHUNKSIZE": "524288",
    "NCCL_IB_ADAPTIVE_ROUTING": "1",
    "NCCL_IB_QPS_PER_CONNECTION": "4",
    "NCCL_IB_TC": "52",
    "NCCL_IB_FIFO_TC": "84",
    # The pod's first interface, for the first contact: the others are networks of their own, without a way out.
    "NCCL_SOCKET_IFNAME": "eth0",
}
TUNERS = {"a3-ultragpu": "a3u", "a4-highgpu": "a4"}  # its files, /usr/local/gib/configs/tuner_config_<tuner>.txtpb
# The kernel sees 98 % of a machine's memory; GKE keeps a share by tiers, (GiB, share), and evicts at 100 MiB. Tiers:
# https://cloud.google.com/kubernetes-engine/docs/concepts/plan-node-sizes. Seen: n2-highmem-4, -16 and -64 with 28,404,
# 119,346 and 498,636 MiB (https://github.com/2i2c-org/infrastructure/issues/2121): 37, 540 and 2,342 MiB more than this says.
_SEEN_SHARE, _EVICTION_MIB = 0.98, 100
_KEPT = ((4, 0.25), (4, 0.20), (8, 0.10), (112, 0.06), (math.inf, 0.02))


@dataclass(frozen=True, kw_only=True)
class GcpInstance(InstanceType):
    """One machine. `machine_type`: Google's name, to which GPUs may be attached. `local_ssds`: of 375 GiB, that it comes with.
    `rdma`: its interfaces for GPUDirect RDMA."""

    machine_type: str
    local_ssds: int = 0
    rdma: int = 0

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

    def network(self, settings: Any) -> Network | None:
        """GPUDirect RDMA, where the group's settings ask for it."""
        if settings is None or not settings.gpu_direct or not self.rdma:
            return None
        tuner = TUNERS.get(self.machine_type.rpartition("-")[0])
        tuned = {"NCCL_TUNER_CONFIG_PATH": f"/usr/local/gib/configs/tuner_config_{tuner}.txtpb"} if tuner else {}
        return Network(
            name="GPUDirect RDMA",
            environment={**GIB_ENVIRONMENT, **tuned},
            claim=DeviceClaim(name=f"gpudirect-rdma-{self.rdma}", device_class=RDMA_CLASS, count=self.rdma),
            labels=RDMA_LABELS,
            selector=RDMA_SELECTOR,
        )

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


class GcpLine(MachineLine):
    """One line of machines.yaml."""

    attached: bool = Field(default=False, description="GPUs are attached to an N1 machine; its price is without them.")
    local_ssds: int = Field(default=0, ge=0, description="Of 375 GiB, that it comes with.")
    rdma: int = Field(default=0, ge=0, description="Interfaces for GPUDirect RDMA.")


def made(line: GcpLine) -> GcpInstance:
    """The machine type of a line. Raises ConfigError for a family without a spot discount, or a GPU that is not attached."""
    family = line.name.partition("-")[0]
    kind = line.name.rpartition("-")[0] if family in {"a2", "a3"} else family
    if kind not in SPOT:
        raise ConfigError(f"{FILE}: {line.name}.name: its family, {kind!r}, has no spot discount in catalog.py; add it to SPOT")
    name, usd = line.name, line.usd_per_hour
    if line.attached:  # its name here says so, as Google's does not
        if line.gpu not in ATTACHED_USD:
            raise ConfigError(f"{FILE}: {line.name}.gpu: found {line.gpu!r}; attached may be {', '.join(ATTACHED_USD)}")
        name += f"-{line.gpus}x{line.gpu.lower()}" if line.gpus > 1 else f"-{line.gpu.lower()}"
        usd = round(usd + line.gpus * ATTACHED_USD[line.gpu], 6)
    return GcpInstance(
        **line.facts,
        name=name,
        machine_type=line.name,
        usd_per_hour=usd,
        spot_discount=SPOT[kind],
        local_ssds=line.local_ssds,
        rdma=line.rdma,
    )


FILE = Path(__file__).with_name("machines.yaml")
TYPES = machine_types.read(FILE, GcpLine, made)
