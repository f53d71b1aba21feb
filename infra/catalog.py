"""Machine types, GPUs and builds of torch: data, sourced and dated.

    catalog.by_gpu("local", "T4")               # the smallest machine with that GPU
    catalog.gpu_types("local")                  # ("T4",)
    catalog.torch_build("2.13.0", "13.0")       # for which GPUs that wheel has code

Instance types live with their cloud (infra/clouds/<cloud>, TYPES); GPUs and builds of torch are the same everywhere.
Prices are assumptions for estimates, in USD per hour; the bill is the cloud's.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from infra import clouds
from workloads.cluster import InstanceType


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """One kind of GPU."""

    capability: str  # compute capability, "7.5" is sm_75 (https://developer.nvidia.com/cuda-gpus, read 2026-11-21)
    memory_gib: int  # as clouds advertise it, rounded down


GPUS: Mapping[str, Gpu] = {
    "K80": Gpu(capability="3.7", memory_gib=11),
    "P100": Gpu(capability="6.0", memory_gib=16),
    "V100": Gpu(capability="7.0", memory_gib=16),
    "V100-32GB": Gpu(capability="7.0", memory_gib=32),
    "T4": Gpu(capability="7.5", memory_gib=16),
    "A100": Gpu(capability="8.0", memory_gib=40),
    "A100-80GB": Gpu(capability="8.0", memory_gib=80),
    "A10": Gpu(capability="8.6", memory_gib=24),
    "A10G": Gpu(capability="8.6", memory_gib=22),
    "L4": Gpu(capability="8.9", memory_gib=22),
    "A30": Gpu(capability="8.0", memory_gib=24),
    "A40": Gpu(capability="8.6", memory_gib=48),
    "RTX-A6000": Gpu(capability="8.6", memory_gib=48),
    "RTX-3090": Gpu(capability="8.6", memory_gib=24),
    "RTX-4090": Gpu(capability="8.9", memory_gib=24),
    "RTX-6000-ADA": Gpu(capability="8.9", memory_gib=48),
    "L40": Gpu(capability="8.9", memory_gib=48),
    "RTX-5090": Gpu(capability="12.0", memory_gib=32),
    "L40S": Gpu(capability="8.9", memory_gib=44),
    "H100": Gpu(capability="9.0", memory_gib=80),
    "H100-NVL": Gpu(capability="9.0", memory_gib=93),
    "H200": Gpu(capability="9.0", memory_gib=141),
    "B200": Gpu(capability="10.0", memory_gib=179),
    "B300": Gpu(capability="10.3", memory_gib=268),
    "RTX-PRO-6000": Gpu(capability="12.0", memory_gib=96),
}


@dataclass(frozen=True, kw_only=True)
class TorchBuild:
    """One published build of torch: the GPUs that its wheel has code for, and the oldest driver that its CUDA runs on."""

    torch: str  # major.minor
    cuda: str
    architectures: tuple[str, ...]
    driver: int

    def runs_on(self, gpu: Gpu) -> bool:
        """Code for 8.0 also runs on 8.6 and 8.9 (same major, minor not above the GPU's); never on another major."""
        major, minor = _version(gpu.capability)
        return any(_version(one)[0] == major and _version(one)[1] <= minor for one in self.architectures)


# For which GPUs: 2.13 with CUDA 13.0 is what its wheel from PyPI says of itself (torch._C._cuda_getArchFlags, 2026-11-21; a test
# asks it again); the others, "PyTorch CUDA Support Matrix" in RELEASE.md of https://github.com/pytorch/pytorch as changed in
# pull requests 175253 (2.11) and issues 172352 and 178665 (2.12), Linux x86. 2.14 is the last release with CUDA 12.6, and so for
# V100 and P100 (issue 190385). Drivers: https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html.
_CUDA_12 = ("5.0", "6.0", "7.0", "7.5", "8.0", "8.6", "9.0")
_CUDA_13 = ("7.5", "8.0", "8.6", "9.0", "10.0", "12.0")
BUILDS: tuple[TorchBuild, ...] = tuple(
    TorchBuild(torch=torch, cuda=cuda, architectures=architectures, driver=driver)
    for torch in ("2.13", "2.12", "2.11")
    for cuda, architectures, driver in (("13.0", _CUDA_13, 580), ("12.6", _CUDA_12, 525))
)
TORCHVISION_OFFSET = 15  # torchvision 0.28 was built for torch 2.13, 0.27 for 2.12 (https://github.com/pytorch/vision, README)


def torch_build(torch: str, cuda: str) -> TorchBuild | None:
    """The build of that version (of which the third number does not matter) for that CUDA."""
    minor = ".".join(torch.split(".")[:2])
    return next((one for one in BUILDS if (one.torch, one.cuda) == (minor, cuda)), None)


class OwnType(Protocol):
    """A stack's own word on a machine type."""

    @property
    def like(self) -> str | None: ...

    @property
    def facts(self) -> Mapping[str, Any]: ...


class HasTypes(Protocol):
    """The part of a stack's settings that says which machine types there are."""

    @property
    def cloud(self) -> str: ...

    @property
    def instance_types(self) -> Mapping[str, OwnType]: ...


def types(of: str | HasTypes, *, refused: bool = False) -> tuple[InstanceType, ...]:
    """The instance types of a cloud, or of a stack on it, its own among them; with refused=True also those of which no node group
    may be. None of a cloud that is not there."""
    cloud, own = (of, {}) if isinstance(of, str) else (of.cloud, of.instance_types)
    if cloud not in clouds.names():
        return ()
    found = {one.name: one for one in clouds.named(cloud).TYPES}
    found |= {name: made for name, one in own.items() if (made := _made(name, one, found))}
    return tuple(one for one in found.values() if refused or not one.refused)


def _made(name: str, own: OwnType, known: Mapping[str, InstanceType]) -> InstanceType | None:
    """None where it is like one that is not known, lacks what cannot be guessed, or has an unknown GPU: the checks say so."""
    base = known.get(own.like or name)
    if base is None and (own.like or not {"cpu", "memory_gib"} <= set(own.facts)):
        return None
    if own.facts.get("gpu_type", "") not in {"", *GPUS}:
        return None
    return (base or InstanceType(name=name, cpu=0, memory_gib=0, usd_per_hour=0.0)).like(name, own.facts)


def names(of: str | HasTypes, *, gpus: bool = True) -> tuple[str, ...]:
    """The names of the instance types; with gpus=False only of those without GPUs."""
    return tuple(one.name for one in types(of) if gpus or not one.gpus)


def gpu_types(of: str | HasTypes) -> tuple[str, ...]:
    """The GPU types that there are, each once."""
    return tuple(dict.fromkeys(one.gpu_type for one in types(of) if one.gpu_type))


def by_name(of: str | HasTypes, name: str) -> InstanceType | None:
    """The instance type of that name."""
    return next((one for one in types(of, refused=True) if one.name == name), None)


def by_gpu(of: str | HasTypes, gpu_type: str) -> InstanceType | None:
    """The smallest machine with that GPU, spelt in any case: one that may be used, fewest GPUs, the lowest price."""
    fitting = [one for one in types(of, refused=True) if one.gpu_type.lower() == gpu_type.lower()]
    return min(fitting, key=lambda one: (bool(one.refused), one.gpus, one.usd_per_hour), default=None)


class MachineChoice(Protocol):
    """The part of a line of the settings that chooses machines."""

    @property
    def instance_types(self) -> Sequence[str]: ...

    @property
    def gpu(self) -> str | None: ...


def machines(of: str | HasTypes, line: MachineChoice) -> tuple[InstanceType, ...]:
    """The instance types of a line of the settings, those that there are."""
    if line.instance_types:
        found = [by_name(of, name) for name in line.instance_types]
    else:
        found = [by_gpu(of, line.gpu)] if line.gpu else []
    return tuple(one for one in found if one)


def nearest_gpu(of: str | HasTypes, gpu_type: str) -> str | None:
    """Of a GPU type that is not there, the most alike of those that it has: first by the compute capability, as that decides
    what code runs on it, then by its memory. None for what is no GPU type at all."""
    wanted = next((gpu for name, gpu in GPUS.items() if name.lower() == gpu_type.lower()), None)
    here = gpu_types(of)
    if wanted is None or not here:
        return None
    return min(here, key=lambda one: _unlike(wanted, GPUS[one]))


def _unlike(one: Gpu, other: Gpu) -> tuple[float, int]:
    (major, minor), (other_major, other_minor) = _version(one.capability), _version(other.capability)
    return abs(10 * (major - other_major) + minor - other_minor), abs(one.memory_gib - other.memory_gib)


def _version(text: str) -> tuple[int, int]:
    major, _, minor = text.partition(".")
    return int(major), int(minor)
