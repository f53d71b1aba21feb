"""Instance types that node groups are made of, per cloud: what one machine has and what it costs. Data, sourced and dated.

    t4 = catalog.by_gpu("local", "T4")          # the smallest machine with that GPU
    catalog.gpu_types("local")                  # ("T4",)

Prices are assumptions for estimates, in USD per hour; the bill is the cloud's.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class InstanceType:
    """One machine. `spot_discount` is a fraction of the on-demand price: 0.6 means that spot costs 40 % of it."""

    name: str
    cpu: int
    memory_gib: int
    usd_per_hour: float
    gpu_type: str = ""
    gpus: int = 0
    spot_discount: float = 0.0


# The cloud in a box makes machines of any size, but no larger than the computer that it runs on: 2 cores and 8 GiB are what
# the smallest computers have that we care for. Prices are those of AWS on-demand in us-east-1, so that estimates look real:
# g4dn.xlarge (1 T4) 0.526 USD/h, m7i.large 0.1008 USD/h, spot about 60 % off (https://aws.amazon.com/ec2/pricing/on-demand/,
# read 2026-07-20).
_LOCAL = (
    InstanceType(name="ebb.cpu", cpu=2, memory_gib=8, usd_per_hour=0.1008, spot_discount=0.6),
    InstanceType(name="ebb.t4", cpu=2, memory_gib=8, usd_per_hour=0.526, gpu_type="T4", gpus=1, spot_discount=0.6),
)

TYPES: Mapping[str, tuple[InstanceType, ...]] = {"local": _LOCAL}


def names(cloud: str | None, *, gpus: bool = True) -> tuple[str, ...]:
    """The names of a cloud's instance types; with gpus=False only of those without GPUs."""
    return tuple(one.name for one in TYPES.get(cloud or "", ()) if gpus or not one.gpus)


def gpu_types(cloud: str | None) -> tuple[str, ...]:
    """The GPU types that a cloud has, each once."""
    return tuple(dict.fromkeys(one.gpu_type for one in TYPES.get(cloud or "", ()) if one.gpu_type))


def by_name(cloud: str | None, name: str) -> InstanceType | None:
    """The instance type of that name."""
    return next((one for one in TYPES.get(cloud or "", ()) if one.name == name), None)


def by_gpu(cloud: str | None, gpu_type: str) -> InstanceType | None:
    """The smallest machine with that GPU, spelt in any case: fewest GPUs, then the lowest price."""
    fitting = [one for one in TYPES.get(cloud or "", ()) if one.gpu_type.lower() == gpu_type.lower()]
    return min(fitting, key=lambda one: (one.gpus, one.usd_per_hour), default=None)
