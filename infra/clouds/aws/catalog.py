"""Instance types of AWS: what is computed from machines.yaml, which has their facts, sources and dates.

AMI types: "Amazon EKS optimized accelerated AMIs" in the EKS user guide, read 2026-11-21.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from infra import machine_types
from infra.machine_types import MachineLine
from workloads.cluster import InstanceType, Network

AMI_CPU, AMI_GPU = "AL2023_x86_64_STANDARD", "AL2023_x86_64_NVIDIA"
# An assumption for estimates: AWS says up to 0.9 (https://aws.amazon.com/ec2/spot/, read 2026-11-21), and it moves by the hour.
SPOT_DISCOUNT = 0.6
# Machines with the EFA driver set aside 5128 pages of 2 MiB (https://docs.aws.amazon.com/eks/latest/userguide/node-efa.html, read
# 2026-11-21), which libfabric takes its buffers from.
HUGE_PAGES_MIB = 10256
# What a worker asks for of them, as that page's sample does: one that has none and maps any is killed by SIGBUS.
WORKER_HUGE_PAGES_MIB = 5120
EFA_ENVIRONMENT = {
    "FI_PROVIDER": "efa",
    # Loader processes are forked, and the kernel then copies huge pages that are in use for the device until none is left:
    # os.fork() fails with "Cannot allocate memory". AWS's advice for PyTorch's loaders, at a small cost
    # (https://github.com/aws/aws-ofi-nccl/pull/292). FI_EFA_FORK_SAFE is set by the plugin itself, says that page.
    "FI_EFA_USE_HUGE_PAGE": "0",
    # Not here: FI_EFA_USE_DEVICE_RDMA. Unset, libfabric uses what the machine has; 1 ends the program on those without RDMA, as
    # G4dn and G5 (https://github.com/ofiwg/libfabric, man/fi_efa.7.md, read 2026-11-23).
}
# The hypervisor and the kernel keep a share that is smaller on large machines. Seen: 5.5 % of 64 GiB (g6.4xlarge: 58,981 MiB
# allocatable, https://github.com/pytorch/ci-infra/pull/1082), 2.6 % of 1,152 GiB (p4d: 1,139.7 GiB in its e820 map, of which
# page structures take 1/64).
_KERNEL_SHARE, KERNEL_SHARE_OF_REST, _LARGE_MIB = 0.06, 0.03, 128 * 1024
# The kubelet keeps 255 MiB and 11 MiB for each pod that may be there, and begins to evict at 100 MiB (nodeadm/internal/kubelet/
# config.go of https://github.com/awslabs/amazon-eks-ami at 81fec2e8; pods: its instance-info.jsonl, ENIs x (addresses - 1) + 2).
_EVICTION_MIB = 100
_NO_DRIVER = (
    "NVIDIA's driver for it ended with branch 470, and the AMIs of EKS carry newer ones "
    "(https://github.com/eksctl-io/eksctl/issues/8226): take T4, the next cheapest"
)


@dataclass(frozen=True, kw_only=True)
class AwsInstance(InstanceType):
    """One machine of AWS. `efa`: how many EFA interfaces it can have; 0: none."""

    ami_type: str
    max_pods: int
    efa: int = 0
    network_cards: int = 1
    local_disk_gib: int = 0
    previous_generation: bool = False

    def allocatable_mib(self, settings: Any) -> int:
        """A machine's memory less what the kernel, the kubelet and the huge pages of EFA keep."""
        nominal = self.memory_gib * 1024
        kernel = _KERNEL_SHARE * min(nominal, _LARGE_MIB) + KERNEL_SHARE_OF_REST * max(nominal - _LARGE_MIB, 0)
        kubelet = 255 + 11 * self.max_pods + _EVICTION_MIB
        return int(nominal - kernel - kubelet - (HUGE_PAGES_MIB if settings is not None and settings.efa and self.efa else 0))

    def network(self, settings: Any) -> Network | None:
        """EFA, where the group's settings ask for it."""
        if settings is None or not settings.efa or not self.efa:
            return None
        asked = {"vpc.amazonaws.com/efa": str(self.efa), "hugepages-2Mi": f"{WORKER_HUGE_PAGES_MIB}Mi"}
        return Network(name="EFA", resources=asked, environment=EFA_ENVIRONMENT)

    @property
    def shape(self) -> dict[str, object]:
        """The machine's shape, with its EFA interfaces: the launch template lists them."""
        return {**super().shape, "EFA interfaces": self.efa}


class AwsLine(MachineLine):
    """One line of machines.yaml."""

    pods: int = Field(ge=1, description="The most that the machine may have.", examples=[29])
    efa: int = Field(default=0, ge=0, description="EFA interfaces.")
    network_cards: int = Field(default=1, ge=1, description="Network cards.")
    local_disk_gib: int = Field(default=0, ge=0, description="NVMe.")
    driver: Literal["current", "ended"] = Field(default="current", description="NVIDIA's newer ones lack it where ended.")


def made(line: AwsLine) -> AwsInstance:
    """The machine type of a line."""
    return AwsInstance(
        **line.facts,
        name=line.name,
        usd_per_hour=line.usd_per_hour,
        spot_discount=SPOT_DISCOUNT,
        ami_type=AMI_GPU if line.gpus else AMI_CPU,
        max_pods=line.pods,
        efa=line.efa,
        network_cards=line.network_cards,
        local_disk_gib=line.local_disk_gib,
        previous_generation=line.name.startswith(("p2.", "p3.", "p3dn.")),
        refused=_NO_DRIVER if line.driver == "ended" else "",
    )


TYPES = machine_types.read(Path(__file__).with_name("machines.yaml"), AwsLine, made)
