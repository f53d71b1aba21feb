"""Spot prices on Google Cloud, one for a region: the SKUs of Compute Engine in the Cloud Billing Catalog API, summed.

A machine has no SKU. Its cores, its memory and its GPUs have one each, of the usage type Preemptible, which spot machines have
too (https://docs.cloud.google.com/billing/v1/how-tos/catalog-api, read 2026-11-24). SKUs are told apart by their descriptions
alone, such as "Spot Preemptible N1 Predefined Instance Core running in Americas" and "Nvidia Tesla T4 GPU attached to Spot
Preemptible VMs running in Iowa". Where a part is not found, or two SKUs would fit, the machine gets no price.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from infra.account.records import Offered
from infra.clouds.gcp.calls import Account, Calls
from infra.clouds.gcp.catalog import GcpInstance
from infra.config import Stack
from workloads.cluster import InstanceType

COMPUTE = "https://cloudbilling.googleapis.com/v1/services/6F81-5844-456A/skus"
# In descriptions of SKUs; the others are called as here.
GPU_NAMES: Mapping[str, str] = {"A100-80GB": "A100 80GB", "H100": "H100 80GB", "H200": "H200 141GB"}


def read(stack: Stack, types: Sequence[InstanceType], calls: Calls | None = None) -> Offered:
    """Raises Refused, NoAccess."""
    region = stack.settings.region
    listed = (calls or Account()).all(COMPUTE, "skus", currencyCode="USD", pageSize="5000")
    skus = [one for one in listed if one["category"]["usageType"] == "Preemptible" and region in one["serviceRegions"]]
    found: dict[str, dict[str, float]] = {}
    notes = []
    for one in types:
        assert isinstance(one, GcpInstance)
        parts = {what: _usd(skus, pattern) for what, (pattern, _) in _parts(one)}
        missing = [what for what, usd in parts.items() if usd is None]
        if missing or one.local_ssds:
            notes.append(f"{one.name}: no price, as there is no one SKU of its {', '.join(missing) or 'local SSDs'}")
            continue
        usd = sum((parts[what] or 0.0) * number for what, (_, number) in _parts(one))
        found[one.name] = {region: round(usd, 6)}
    return Offered(source="Cloud Billing Catalog API", region=region, usd_per_hour=found, notes=tuple(notes))


def _parts(one: GcpInstance) -> Iterator[tuple[str, tuple[str, float]]]:
    """Its parts: the pattern of the SKU's description, and how many."""
    family = one.family.upper()
    yield "cores", (rf"Spot Preemptible {family}( AMD)?( Predefined)? Instance Core running in .*", one.cpu)
    yield "memory", (rf"Spot Preemptible {family}( AMD)?( Predefined)? Instance Ram running in .*", one.memory_gib)
    if one.gpus:
        name = re.escape(GPU_NAMES.get(one.gpu_type, one.gpu_type))
        yield "GPUs", (rf"Nvidia (Tesla )?{name} GPU attached to Spot Preemptible VMs running in .*", one.gpus)


def _usd(skus: Sequence[Mapping[str, Any]], pattern: str) -> float | None:
    """Per hour, of the one SKU that fits; None where there is none, or more than one price."""
    fitting = {_rate(one) for one in skus if re.fullmatch(pattern, one["description"])}
    return fitting.pop() if len(fitting) == 1 else None


def _rate(sku: Mapping[str, Any]) -> float:
    """The last tier's: the first may be a free one. `units` is a text, `nanos` are billionths."""
    price = sku["pricingInfo"][-1]["pricingExpression"]["tieredRates"][-1]["unitPrice"]
    return int(price.get("units") or 0) + int(price.get("nanos") or 0) / 1e9
