"""Cost estimates: machines, dollars per hour and in all, by capacity type. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass

from ebb.api.platform import SPOT, Platform
from ebb.client.errors import BadRequest
from ebb.client.submission.fit import Fit, find_fit, price
from ebb.client.submission.request import Request

NAME = "estimate"  # of a job that is never sent


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """GPUs for so many hours. None: not said."""

    gpus: int
    hours: float
    gpu: str | None = None
    capacity: str | None = None
    zone: str | None = None


@dataclass(frozen=True, kw_only=True)
class Offer:
    """One way to buy the machines."""

    capacity: str
    gpu: str
    machines: int
    instance_types: tuple[str, ...]
    zones: tuple[str, ...]
    usd_per_hour: float
    usd: float
    usd_on_demand: float  # the same machines, had they been bought so
    boot_seconds: int  # until a machine is there, at most; they are paid for from the start of each
    assumed: bool  # a spot price


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """The cheapest first. Waiting costs nothing; what a reclaim makes a job do again is not in it."""

    gpus: int
    hours: float
    offers: tuple[Offer, ...]


def estimate_of(wanted: Wanted, platform: Platform) -> Estimate:
    """Raises BadRequest for what this platform does not have."""
    if not wanted.hours > 0:
        raise BadRequest(f"hours {wanted.hours:g} is not a length of time: use more than 0, for example --hours 5.")
    offers = tuple(sorted(_offers(wanted, platform), key=lambda offer: offer.usd))
    return Estimate(gpus=wanted.gpus, hours=wanted.hours, offers=offers)


def _offers(wanted: Wanted, platform: Platform) -> Iterator[Offer]:
    """Return what was said is found or refused; of what was not, all that there is."""
    groups = platform.gpu_groups(gpu_type=wanted.gpu, capacity_type=wanted.capacity, zone=wanted.zone)
    kinds: dict[tuple[str | None, str | None], None] = {(group.gpu_type, group.capacity_type): None for group in groups}
    refused: BadRequest | None = None
    found = False
    for gpu, capacity in kinds or {(wanted.gpu, wanted.capacity): None}:
        try:
            fit = find_fit(_request(wanted, gpu, capacity), platform)
        except BadRequest as error:
            refused = refused or error
            continue
        found = True
        yield _offer(fit, wanted.hours)
    if refused is not None and not found:
        raise refused


def _request(wanted: Wanted, gpu: str | None, capacity: str | None) -> Request:
    return Request(name=NAME, arguments=("train.py",), gpus=wanted.gpus, gpu=gpu, capacity=capacity, zone=wanted.zone)


def _offer(fit: Fit, hours: float) -> Offer:
    found = price(fit, fit.workers)
    return Offer(
        capacity=fit.capacity,
        gpu=fit.gpu_type,
        machines=found.machines,
        instance_types=fit.instance_types,
        zones=fit.zones,
        usd_per_hour=found.usd_per_hour,
        usd=found.usd_per_hour * hours,
        usd_on_demand=found.on_demand_usd_per_hour * hours,
        boot_seconds=max(group.provision_seconds for group in fit.groups),
        assumed=fit.capacity == SPOT,
    )
