"""The models and machines of the model up to 64 GPUs, with what is assumed of each, and what the articles report.

Articles: A. Pinhasi, "How We Built a Multi-Cloud, Distributed Training Platform Over Spot Instances with TorchElastic and
Kubernetes" (2021), and AWS, "Distributed training with Amazon EKS and Torch Distributed Elastic" (2022).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from benchmarks.scaling.model import Ring, Work, network_of, step_seconds
from ebb.client.diagnostics.network import ARTICLE as ALL_REDUCES

SIZES = (4, 8, 16, 32, 64)
FIRST, NEARLY_LINEAR, LAST = 4, 16, 64
NEAR = 0.85  # efficiency that "nearly linear" is taken to be
SPEED_UPS_64 = (8.0, 10.0)  # from 4 to 64 GPUs, on V100 and T4
EFA_WORTH = {"resnet50": (0.05, 0.08), "efficientnet_b7_batch_1": (0.15, 0.18)}  # of an epoch's time, on three p4d.24xlarge
ARTICLE_GPUS = 24

# nccl-tests between 16 A100 of two p4d.24xlarge, from 8 bytes to 1 GB
_RANKS, _SIZES = 16, [8 << number for number in range(28)]
_GB = 1e9
_EFA, _ONE_EFA, _SOCKETS = (
    network_of(row.most_gb_s * _GB, row.average_gb_s * _GB, ranks=_RANKS, sizes=_SIZES) for row in ALL_REDUCES
)
NVLINK = Ring(hop_seconds=2e-6, bytes_per_second=230e9)
TEN_GIGABIT = Ring(hop_seconds=_SOCKETS.hop_seconds, bytes_per_second=0.95 * 1.25e9)


@dataclass(frozen=True, kw_only=True)
class MachineKind:
    """MachineKind of one kind. A ring that leaves a machine is as fast as the network between two of them."""

    title: str
    gpu: str
    gpus_each: int
    inside: Ring
    between: Ring

    def all_reduce(self, size: float, ranks: int) -> float:
        return (self.inside if ranks <= self.gpus_each else self.between).all_reduce(size, ranks)


MACHINES: Mapping[str, MachineKind] = {
    "p4d_efa": MachineKind(title="p4d.24xlarge, 4 EFA", gpu="A100", gpus_each=8, inside=NVLINK, between=_EFA),
    "p4d_one_efa": MachineKind(title="p4d.24xlarge, 1 EFA", gpu="A100", gpus_each=8, inside=NVLINK, between=_ONE_EFA),
    "p4d_sockets": MachineKind(title="p4d.24xlarge, TCP", gpu="A100", gpus_each=8, inside=NVLINK, between=_SOCKETS),
    "p3_small": MachineKind(title="p3.2xlarge, 10 Gb/s", gpu="V100", gpus_each=1, inside=TEN_GIGABIT, between=TEN_GIGABIT),
}

PEAKS = {"A100": 312e12, "V100": 125e12}  # FLOP/s in 16 bits, by NVIDIA's data sheets


@dataclass(frozen=True, kw_only=True)
class ModelledPreset:
    """A model as `ebb bench scaling` has it. `flops`: of a step's samples, forward and backward; `share`: of a GPU's peak.
    `least_seconds`: below which no step is, however few samples it has, since kernels have to be started."""

    title: str
    parameters: float
    batch: int
    flops: float
    share: float
    least_seconds: float = 0.0

    def work(self, gpu: str) -> Work:
        return Work(
            name=self.title,
            parameters=self.parameters,
            seconds=max(self.least_seconds, self.batch * self.flops / (PEAKS[gpu] * self.share)),
        )


TEXT_TOKENS = 1024
TEXT_FLOPS = 6 * 203.2e6 + 12 * 18 * 1024 * TEXT_TOKENS  # of a token: trainer/text/flops.py
PRESETS: Mapping[str, ModelledPreset] = {
    "resnet50": ModelledPreset(title="ResNet-50, batch 64", parameters=25.6e6, batch=64, flops=3 * 8.2e9, share=0.2),
    "efficientnet_b7": ModelledPreset(title="EfficientNet-B7, batch 8", parameters=66.3e6, batch=8, flops=3 * 74e9, share=0.05),
    "text_200m": ModelledPreset(
        title="text, 200 million, batch 16", parameters=203.2e6, batch=16, flops=TEXT_FLOPS * TEXT_TOKENS, share=0.4
    ),
}
BATCH_1 = ModelledPreset(
    title="EfficientNet-B7, batch 1", parameters=66.3e6, batch=1, flops=3 * 74e9, share=0.05, least_seconds=0.1
)  # fmt: skip

ASSUMPTIONS = (
    "An all-reduce is a ring: 2 (n - 1) hops, and 2 (n - 1) / n of the bytes over the slowest link. NCCL's trees need fewer "
    "hops, so on many GPUs it may be faster than here.",
    "Hop and bandwidth of p4d are those of AWS' article (16 A100 of two machines, 8 bytes to 1 GB), and hold for any number of "
    "machines: nothing is lost in switches, and no other job uses them. Inside a machine NVLink has 230 GB/s and 2 us a hop.",
    "p3.2xlarge has the hop of the article's sockets and 95 % of 10 Gb/s, which AWS promises for bursts alone.",
    "Gradients are 32 bits, in buckets of 25 MiB that are ready evenly over the backward pass, which is two thirds of a step; "
    "they are sent beside the pass and cost the GPU nothing.",
    "A GPU does its work at a share of its peak in 16 bits (A100 312, V100 125 TFLOP/s): ResNet-50 20 % (2540 images/s on an "
    "A100), EfficientNet-B7 at 600 pixels 5 %, the language model 40 %; no step of EfficientNet-B7 with batch 1 is below 0.1 s. "
    "None of these was measured; one H200 had 12 % (ResNet-50, batch 256) and 43 % (text of a billion parameters).",
    "Every GPU has the same batch at any number of them, and all are equally fast. Reading data, validation, checkpoints and "
    "machines that come and go cost nothing. So the model is what the network alone allows, and real jobs are below it.",
)


def step(preset: ModelledPreset, machines: MachineKind, gpus: int) -> float:
    return step_seconds(preset.work(machines.gpu), machines.all_reduce, gpus)


def speed_up(preset: ModelledPreset, machines: MachineKind, gpus: int, *, of: int = FIRST) -> float:
    """Samples per second in those of `of` GPUs."""
    return gpus / of * step(preset, machines, of) / step(preset, machines, gpus)


def worth(work: Work, gpus: int = ARTICLE_GPUS) -> float:
    """The part of an epoch's time that EFA saves against TCP."""
    fast, slow = (step_seconds(work, MACHINES[name].all_reduce, gpus) for name in ("p4d_efa", "p4d_sockets"))
    return 1 - fast / slow


def seconds_for(work: Work, share: float) -> float:
    """The step of one GPU with which EFA would save that part: the slower a GPU, the less its network counts."""
    low, high = 1e-4, 100.0
    for _ in range(60):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if worth(replace(work, seconds=middle)) > share else (low, middle)
    return low
