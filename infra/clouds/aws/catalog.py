"""Instance types of AWS that Ebb makes machines of: those that an AMI of EKS supports. Data, sourced and dated.

vCPU, memory, GPUs, EFA interfaces, network cards, NVMe and on-demand prices of us-east-1: the generated tables of
https://github.com/aws/karpenter-provider-aws at commit 1d927085dd81 (prices generated 2026-07-20, limits 2026-08); p3 without
the letters dn: its table of v1.0, as newer ones leave p3 out. AMI types: "Amazon EKS optimized accelerated AMIs" in the EKS user
guide, read 2026-11-21. p5e is missing, as no on-demand price is published for us-east-1; Arm machines are, as the trainer's image
is built for x86.
"""

from dataclasses import dataclass
from typing import Any

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


def _gpu(
    name: str, size: tuple[int, int], gpus: tuple[int, str], usd_per_hour: float, *,
    pods: int, efa: int = 0, cards: int = 1, disk: int = 0, refused: str = "",
) -> AwsInstance:  # fmt: skip
    return AwsInstance(
        name=name, cpu=size[0], memory_gib=size[1], usd_per_hour=usd_per_hour, spot_discount=SPOT_DISCOUNT,
        gpus=gpus[0], gpu_type=gpus[1], ami_type=AMI_GPU, max_pods=pods, efa=efa, network_cards=cards, local_disk_gib=disk,
        previous_generation=name.startswith(("p2.", "p3.", "p3dn.")), refused=refused,
    )  # fmt: skip


def _cpu(name: str, size: tuple[int, int], usd_per_hour: float, *, pods: int) -> AwsInstance:
    return AwsInstance(
        name=name,
        cpu=size[0],
        memory_gib=size[1],
        usd_per_hour=usd_per_hour,
        spot_discount=SPOT_DISCOUNT,
        ami_type=AMI_CPU,
        max_pods=pods,
    )


# name, (vCPU, GiB of memory), (GPUs, GPU type), USD per hour on-demand, pods, EFA interfaces, network cards, GB of NVMe
TYPES: tuple[AwsInstance, ...] = (
    _gpu("p2.xlarge", (4, 61), (1, "K80"), 0.9, pods=58, refused=_NO_DRIVER),
    _gpu("p2.8xlarge", (32, 488), (8, "K80"), 7.2, pods=234, refused=_NO_DRIVER),
    _gpu("p2.16xlarge", (64, 732), (16, "K80"), 14.4, pods=234, refused=_NO_DRIVER),
    _gpu("g4dn.xlarge", (4, 16), (1, "T4"), 0.526, pods=29, disk=125),
    _gpu("g4dn.2xlarge", (8, 32), (1, "T4"), 0.752, pods=29, disk=225),
    _gpu("g4dn.4xlarge", (16, 64), (1, "T4"), 1.204, pods=29, disk=225),
    _gpu("g4dn.8xlarge", (32, 128), (1, "T4"), 2.176, pods=58, efa=1, disk=900),
    _gpu("g4dn.12xlarge", (48, 192), (4, "T4"), 3.912, pods=234, efa=1, disk=900),
    _gpu("g4dn.16xlarge", (64, 256), (1, "T4"), 4.352, pods=58, efa=1, disk=900),
    _gpu("g4dn.metal", (96, 384), (8, "T4"), 7.824, pods=737, efa=1, disk=1800),
    _gpu("g5.xlarge", (4, 16), (1, "A10G"), 1.006, pods=58, disk=250),
    _gpu("g5.2xlarge", (8, 32), (1, "A10G"), 1.212, pods=58, disk=450),
    _gpu("g5.4xlarge", (16, 64), (1, "A10G"), 1.624, pods=234, disk=600),
    _gpu("g5.8xlarge", (32, 128), (1, "A10G"), 2.448, pods=234, efa=1, disk=900),
    _gpu("g5.12xlarge", (48, 192), (4, "A10G"), 5.672, pods=737, efa=1, disk=3800),
    _gpu("g5.16xlarge", (64, 256), (1, "A10G"), 4.096, pods=234, efa=1, disk=1900),
    _gpu("g5.24xlarge", (96, 384), (4, "A10G"), 8.144, pods=737, efa=1, disk=3800),
    _gpu("g5.48xlarge", (192, 768), (8, "A10G"), 16.288, pods=345, efa=1, disk=7600),
    _gpu("g6.xlarge", (4, 16), (1, "L4"), 0.8048, pods=58, disk=250),
    _gpu("g6.2xlarge", (8, 32), (1, "L4"), 0.9776, pods=58, disk=450),
    _gpu("g6.4xlarge", (16, 64), (1, "L4"), 1.3232, pods=234, disk=600),
    _gpu("g6.8xlarge", (32, 128), (1, "L4"), 2.0144, pods=234, efa=1, disk=900),
    _gpu("g6.12xlarge", (48, 192), (4, "L4"), 4.6016, pods=234, efa=1, disk=3760),
    _gpu("g6.16xlarge", (64, 256), (1, "L4"), 3.3968, pods=737, efa=1, disk=1880),
    _gpu("g6.24xlarge", (96, 384), (4, "L4"), 6.6752, pods=737, efa=1, disk=3760),
    _gpu("g6.48xlarge", (192, 768), (8, "L4"), 13.3504, pods=737, efa=1, disk=7520),
    _gpu("g6e.xlarge", (4, 32), (1, "L40S"), 1.861, pods=58, disk=250),
    _gpu("g6e.2xlarge", (8, 64), (1, "L40S"), 2.24208, pods=58, disk=450),
    _gpu("g6e.4xlarge", (16, 128), (1, "L40S"), 3.00424, pods=234, disk=600),
    _gpu("g6e.8xlarge", (32, 256), (1, "L40S"), 4.52856, pods=234, efa=1, disk=900),
    _gpu("g6e.12xlarge", (48, 384), (4, "L40S"), 10.49264, pods=292, efa=1, disk=3800),
    _gpu("g6e.16xlarge", (64, 512), (1, "L40S"), 7.57719, pods=737, efa=1, disk=1900),
    _gpu("g6e.24xlarge", (96, 768), (4, "L40S"), 15.06559, pods=492, efa=2, cards=2, disk=3800),
    _gpu("g6e.48xlarge", (192, 1536), (8, "L40S"), 30.13118, pods=492, efa=4, cards=4, disk=7600),
    _gpu("g7e.2xlarge", (8, 64), (1, "RTX-PRO-6000"), 3.36312, pods=254, disk=1900),
    _gpu("g7e.4xlarge", (16, 128), (1, "RTX-PRO-6000"), 3.99816, pods=506, disk=1900),
    _gpu("g7e.8xlarge", (32, 256), (1, "RTX-PRO-6000"), 5.26824, pods=506, efa=1, disk=1900),
    _gpu("g7e.12xlarge", (48, 512), (2, "RTX-PRO-6000"), 8.28608, pods=632, efa=1, disk=3800),
    _gpu("g7e.24xlarge", (96, 1024), (4, "RTX-PRO-6000"), 16.57216, pods=632, efa=2, cards=2, disk=7600),
    _gpu("g7e.48xlarge", (192, 2048), (8, "RTX-PRO-6000"), 33.14432, pods=632, efa=4, cards=4, disk=15200),
    _gpu("p3.2xlarge", (8, 61), (1, "V100"), 3.06, pods=58),
    _gpu("p3.8xlarge", (32, 244), (4, "V100"), 12.24, pods=234),
    _gpu("p3.16xlarge", (64, 488), (8, "V100"), 24.48, pods=234),
    _gpu("p3dn.24xlarge", (96, 768), (8, "V100-32GB"), 31.212, pods=737, efa=1, disk=1800),
    _gpu("p4d.24xlarge", (96, 1152), (8, "A100"), 21.957642, pods=737, efa=4, cards=4, disk=8000),
    _gpu("p4de.24xlarge", (96, 1152), (8, "A100-80GB"), 27.44705, pods=737, efa=4, cards=4, disk=8000),
    _gpu("p5.4xlarge", (16, 256), (1, "H100"), 6.88, pods=118, efa=1, disk=3800),
    _gpu("p5.48xlarge", (192, 2048), (8, "H100"), 55.04, pods=100, efa=32, cards=32, disk=30400),
    _gpu("p5en.48xlarge", (192, 2048), (8, "H200"), 63.296, pods=198, efa=16, cards=16, disk=30400),
    _gpu("p6-b200.48xlarge", (192, 2048), (8, "B200"), 113.9328, pods=198, efa=8, cards=8, disk=30400),
    _gpu("p6-b300.48xlarge", (192, 4096), (8, "B300"), 142.416, pods=198, efa=16, cards=17, disk=30400),
    _cpu("m7i.large", (2, 8), 0.1008, pods=29),
    _cpu("m7i.xlarge", (4, 16), 0.2016, pods=58),
    _cpu("m7i.2xlarge", (8, 32), 0.4032, pods=58),
    _cpu("c7i.xlarge", (4, 8), 0.1785, pods=58),
    _cpu("c7i.2xlarge", (8, 16), 0.357, pods=58),
    _cpu("c5.xlarge", (4, 8), 0.17, pods=58),
    _cpu("c5.2xlarge", (8, 16), 0.34, pods=58),
    _cpu("m5.large", (2, 8), 0.096, pods=29),
    _cpu("m6i.large", (2, 8), 0.096, pods=29),
    _cpu("m6i.xlarge", (4, 16), 0.192, pods=58),
    _cpu("m7a.large", (2, 8), 0.11592, pods=29),
)
