"""Instance types of AWS that Ebb makes machines of: those that an AMI of EKS supports. Data, sourced and dated.

vCPU, memory, GPUs, EFA interfaces, network cards, NVMe and on-demand prices of us-east-1: the generated tables of
https://github.com/aws/karpenter-provider-aws at commit 1d927085dd81 (prices generated 2026-07-20, limits 2026-08); p3 without
the letters dn: its table of v1.0, as newer ones leave p3 out. AMI types: "Amazon EKS optimized accelerated AMIs" in the EKS user
guide, read 2026-11-21. p5e is missing, as no on-demand price is published for us-east-1; Arm machines are, as the trainer's image
is built for x86.
"""

from dataclasses import dataclass

from workloads.cluster import InstanceType

AMI_CPU, AMI_GPU = "AL2023_x86_64_STANDARD", "AL2023_x86_64_NVIDIA"
# An assumption for estimates: AWS says up to 0.9 (https://aws.amazon.com/ec2/spot/, read 2026-11-21), and it moves by the hour.
SPOT_DISCOUNT = 0.6
_NO_DRIVER = (
    "NVIDIA's driver for it ended with branch 470, and the AMIs of EKS carry newer ones "
    "(https://github.com/eksctl-io/eksctl/issues/8226): take T4, the next cheapest"
)


@dataclass(frozen=True, kw_only=True)
class AwsInstance(InstanceType):
    """One machine of AWS. `efa`: how many EFA interfaces it can have; 0: none."""

    ami_type: str
    efa: int = 0
    network_cards: int = 1
    local_disk_gib: int = 0
    previous_generation: bool = False

    @property
    def shape(self) -> dict[str, object]:
        """The machine's shape, with its EFA interfaces: the launch template lists them."""
        return {**super().shape, "EFA interfaces": self.efa}


def _gpu(
    name: str, size: tuple[int, int], gpus: tuple[int, str], usd_per_hour: float, *,
    efa: int = 0, cards: int = 1, disk: int = 0, refused: str = "",
) -> AwsInstance:  # fmt: skip
    return AwsInstance(
        name=name, cpu=size[0], memory_gib=size[1], usd_per_hour=usd_per_hour, spot_discount=SPOT_DISCOUNT,
        gpus=gpus[0], gpu_type=gpus[1], ami_type=AMI_GPU, efa=efa, network_cards=cards, local_disk_gib=disk,
        previous_generation=name.startswith(("p2.", "p3.", "p3dn.")), refused=refused,
    )  # fmt: skip


def _cpu(name: str, size: tuple[int, int], usd_per_hour: float) -> AwsInstance:
    return AwsInstance(
        name=name, cpu=size[0], memory_gib=size[1], usd_per_hour=usd_per_hour, spot_discount=SPOT_DISCOUNT, ami_type=AMI_CPU
    )


# name, (vCPU, GiB of memory), (GPUs, GPU type), USD per hour on-demand, EFA interfaces, network cards, GB of NVMe
TYPES: tuple[AwsInstance, ...] = (
    _gpu("p2.xlarge", (4, 61), (1, "K80"), 0.9, refused=_NO_DRIVER),
    _gpu("p2.8xlarge", (32, 488), (8, "K80"), 7.2, refused=_NO_DRIVER),
    _gpu("p2.16xlarge", (64, 732), (16, "K80"), 14.4, refused=_NO_DRIVER),
    _gpu("g4dn.xlarge", (4, 16), (1, "T4"), 0.526, disk=125),
    _gpu("g4dn.2xlarge", (8, 32), (1, "T4"), 0.752, disk=225),
    _gpu("g4dn.4xlarge", (16, 64), (1, "T4"), 1.204, disk=225),
    _gpu("g4dn.8xlarge", (32, 128), (1, "T4"), 2.176, efa=1, disk=900),
    _gpu("g4dn.12xlarge", (48, 192), (4, "T4"), 3.912, efa=1, disk=900),
    _gpu("g4dn.16xlarge", (64, 256), (1, "T4"), 4.352, efa=1, disk=900),
    _gpu("g4dn.metal", (96, 384), (8, "T4"), 7.824, efa=1, disk=1800),
    _gpu("g5.xlarge", (4, 16), (1, "A10G"), 1.006, disk=250),
    _gpu("g5.2xlarge", (8, 32), (1, "A10G"), 1.212, disk=450),
    _gpu("g5.4xlarge", (16, 64), (1, "A10G"), 1.624, disk=600),
    _gpu("g5.8xlarge", (32, 128), (1, "A10G"), 2.448, efa=1, disk=900),
    _gpu("g5.12xlarge", (48, 192), (4, "A10G"), 5.672, efa=1, disk=3800),
    _gpu("g5.16xlarge", (64, 256), (1, "A10G"), 4.096, efa=1, disk=1900),
    _gpu("g5.24xlarge", (96, 384), (4, "A10G"), 8.144, efa=1, disk=3800),
    _gpu("g5.48xlarge", (192, 768), (8, "A10G"), 16.288, efa=1, disk=7600),
    _gpu("g6.xlarge", (4, 16), (1, "L4"), 0.8048, disk=250),
    _gpu("g6.2xlarge", (8, 32), (1, "L4"), 0.9776, disk=450),
    _gpu("g6.4xlarge", (16, 64), (1, "L4"), 1.3232, disk=600),
    _gpu("g6.8xlarge", (32, 128), (1, "L4"), 2.0144, efa=1, disk=900),
    _gpu("g6.12xlarge", (48, 192), (4, "L4"), 4.6016, efa=1, disk=3760),
    _gpu("g6.16xlarge", (64, 256), (1, "L4"), 3.3968, efa=1, disk=1880),
    _gpu("g6.24xlarge", (96, 384), (4, "L4"), 6.6752, efa=1, disk=3760),
    _gpu("g6.48xlarge", (192, 768), (8, "L4"), 13.3504, efa=1, disk=7520),
    _gpu("g6e.xlarge", (4, 32), (1, "L40S"), 1.861, disk=250),
    _gpu("g6e.2xlarge", (8, 64), (1, "L40S"), 2.24208, disk=450),
    _gpu("g6e.4xlarge", (16, 128), (1, "L40S"), 3.00424, disk=600),
    _gpu("g6e.8xlarge", (32, 256), (1, "L40S"), 4.52856, efa=1, disk=900),
    _gpu("g6e.12xlarge", (48, 384), (4, "L40S"), 10.49264, efa=1, disk=3800),
    _gpu("g6e.16xlarge", (64, 512), (1, "L40S"), 7.57719, efa=1, disk=1900),
    _gpu("g6e.24xlarge", (96, 768), (4, "L40S"), 15.06559, efa=2, cards=2, disk=3800),
    _gpu("g6e.48xlarge", (192, 1536), (8, "L40S"), 30.13118, efa=4, cards=4, disk=7600),
    _gpu("g7e.2xlarge", (8, 64), (1, "RTX-PRO-6000"), 3.36312, disk=1900),
    _gpu("g7e.4xlarge", (16, 128), (1, "RTX-PRO-6000"), 3.99816, disk=1900),
    _gpu("g7e.8xlarge", (32, 256), (1, "RTX-PRO-6000"), 5.26824, efa=1, disk=1900),
    _gpu("g7e.12xlarge", (48, 512), (2, "RTX-PRO-6000"), 8.28608, efa=1, disk=3800),
    _gpu("g7e.24xlarge", (96, 1024), (4, "RTX-PRO-6000"), 16.57216, efa=2, cards=2, disk=7600),
    _gpu("g7e.48xlarge", (192, 2048), (8, "RTX-PRO-6000"), 33.14432, efa=4, cards=4, disk=15200),
    _gpu("p3.2xlarge", (8, 61), (1, "V100"), 3.06),
    _gpu("p3.8xlarge", (32, 244), (4, "V100"), 12.24),
    _gpu("p3.16xlarge", (64, 488), (8, "V100"), 24.48),
    _gpu("p3dn.24xlarge", (96, 768), (8, "V100-32GB"), 31.212, efa=1, disk=1800),
    _gpu("p4d.24xlarge", (96, 1152), (8, "A100"), 21.957642, efa=4, cards=4, disk=8000),
    _gpu("p4de.24xlarge", (96, 1152), (8, "A100-80GB"), 27.44705, efa=4, cards=4, disk=8000),
    _gpu("p5.4xlarge", (16, 256), (1, "H100"), 6.88, efa=1, disk=3800),
    _gpu("p5.48xlarge", (192, 2048), (8, "H100"), 55.04, efa=32, cards=32, disk=30400),
    _gpu("p5en.48xlarge", (192, 2048), (8, "H200"), 63.296, efa=16, cards=16, disk=30400),
    _gpu("p6-b200.48xlarge", (192, 2048), (8, "B200"), 113.9328, efa=8, cards=8, disk=30400),
    _gpu("p6-b300.48xlarge", (192, 4096), (8, "B300"), 142.416, efa=16, cards=17, disk=30400),
    _cpu("m7i.large", (2, 8), 0.1008),
    _cpu("m7i.xlarge", (4, 16), 0.2016),
    _cpu("m7i.2xlarge", (8, 32), 0.4032),
    _cpu("c7i.xlarge", (4, 8), 0.1785),
    _cpu("c7i.2xlarge", (8, 16), 0.357),
    _cpu("c5.xlarge", (4, 8), 0.17),
    _cpu("c5.2xlarge", (8, 16), 0.34),
    _cpu("m5.large", (2, 8), 0.096),
    _cpu("m6i.large", (2, 8), 0.096),
    _cpu("m6i.xlarge", (4, 16), 0.192),
    _cpu("m7a.large", (2, 8), 0.11592),
)
