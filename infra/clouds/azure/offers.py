"""Checks that this subscription has what the stack's file names: machines in their zones, quotas, versions of Kubernetes.

Prices aside, the catalog's facts of each machine are held to what the region says of it. One list has it all, machine by
machine: vCPUs, memory, GPUs, zones, what the subscription may not have, and the family that a quota counts
(https://learn.microsoft.com/rest/api/compute/resource-skus/list).
"""

import shlex
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from infra.account.records import Finding, fail, ok, warn
from infra.clouds.azure import names
from infra.clouds.azure.catalog import AzureInstance
from infra.clouds.azure.look import Look
from workloads.cluster import SPOT, NodeGroup

SKUS_VERSION, USAGES_VERSION, VERSIONS_VERSION = "2021-07-01", "2024-07-01", "2024-09-01"
SPOT_QUOTA, ALL_QUOTA = (
    "lowPriorityCores",
    "cores",
)  # of the region: spot machines of all families; on-demand ones of all families


def skus(look: Look) -> dict[str, dict[str, Any]]:
    """The region's facts of the stack's machines, by name."""
    wanted = {group.instance.name for group in look.groups}
    listed = look.arm.all(
        "/providers/Microsoft.Compute/skus", SKUS_VERSION, **{"$filter": f"location eq '{look.settings.location}'"}
    )
    return {one["name"]: one for one in listed if one["resourceType"] == "virtualMachines" and one["name"] in wanted}


def _zones_of(sku: dict[str, Any]) -> set[str]:
    """Those in which the subscription may have it."""
    there = {zone for info in sku.get("locationInfo", []) for zone in info.get("zones", [])}
    for one in sku.get("restrictions", []):
        if one["type"] == "Location":
            return set()
        there -= set(one.get("restrictionInfo", {}).get("zones", []))
    return there


def zones(look: Look) -> Iterator[Finding]:
    """The region exists and has zones; one without has no place for a zonal pool."""
    regions = {one["name"]: one for one in look.arm.all("/locations", "2022-12-01")}
    region = regions.get(look.settings.location)
    if region is None:
        yield fail(f"Azure has no region {look.settings.location!r} for this subscription", "change azure.location")
        return
    there = {one["logicalZone"] for one in region.get("availabilityZoneMappings", [])}
    missing = [zone for zone in look.stack.zones if names.number(zone) not in there]
    if missing:
        has = ", ".join(f"{look.settings.location}-{one}" for one in sorted(there)) or "none"
        yield fail(f"{', '.join(missing)}: not a zone of this subscription; it has {has}", "change ebb:zones, or azure.location")
    else:
        yield ok(f"zones {', '.join(look.stack.zones)} are there")


def machines(look: Look) -> Iterator[Finding]:
    """Each group's machine in the group's zone."""
    known = skus(look)
    for group in look.groups:
        sku = known.get(group.instance.name)
        there = _zones_of(sku) if sku else set()
        if names.number(group.zone) in there:
            yield ok(f"{group.name}: {group.zone} has {group.instance.name}")
        elif sku is None:
            yield fail(f"{group.name}: {look.settings.location} has no {group.instance.name}", "take another machine or region")
        elif there:
            has = ", ".join(f"{look.settings.location}-{one}" for one in sorted(there))
            yield fail(f"{group.name}: {group.zone} has no {group.instance.name}; {has} has", "change the group's zones")
        else:
            text = f"{group.name}: this subscription may not have {group.instance.name} in {look.settings.location}"
            yield fail(text, "ask Azure's support for the size, or take another region")


def facts(look: Look) -> Iterator[Finding]:
    """vCPUs, memory, GPUs and spot, as the catalog has them."""
    wrong = 0
    for name, sku in skus(look).items():
        said = {one["name"]: one["value"] for one in sku["capabilities"]}
        machine = next(group.instance for group in look.groups if group.instance.name == name)
        pairs = [
            ("vCPUs", machine.cpu, int(said["vCPUs"])),
            ("GiB of memory", machine.memory_gib, int(float(said["MemoryGB"]))),
            ("GPUs", machine.gpus, int(said.get("GPUs", "0"))),
        ]
        for what, ours, theirs in pairs:
            if ours != theirs:
                wrong += 1
                yield fail(
                    f"{name}: the catalog says {what} {ours}, Azure says {theirs}", "correct infra/clouds/azure/machines.yaml"
                )
        on_spot = any(group.capacity_type == SPOT and group.instance.name == name for group in look.groups)
        if on_spot and said.get("LowPriorityCapable") != "True":
            wrong += 1
            yield fail(f"{name} cannot be had as spot", "set capacity: on-demand")
        if isinstance(machine, AzureInstance) and machine.temp_disk_gib and said.get("EphemeralOSDiskSupported") != "True":
            wrong += 1
            yield warn(f"{name}: Azure says that its own disk cannot hold the system", "set diskGiB above the size of that disk")
    if not wrong:
        yield ok(f"the catalog is right about {', '.join(sorted({group.instance.name for group in look.groups}))}")


def quotas(look: Look) -> Iterator[Finding]:
    """vCPUs of what the groups want at full scale, by quota. A new subscription has 0 for most machines with GPUs."""
    known = skus(look)
    usages = {
        one["name"]["value"]: one
        for one in look.arm.all(f"/providers/Microsoft.Compute/locations/{look.settings.location}/usages", USAGES_VERSION)
    }
    by_quota: dict[str, list[NodeGroup]] = defaultdict(list)
    for group in look.groups:
        family = known.get(group.instance.name, {}).get("family", "")
        for quota in [SPOT_QUOTA] if group.capacity_type == SPOT else [family, ALL_QUOTA]:
            by_quota[quota].append(group)
    for quota, groups in by_quota.items():
        if quota in usages:
            yield _judged(look, usages[quota], groups)
        else:
            yield warn(
                f"no quota {quota!r} is known here ({', '.join(group.name for group in groups)})", "see the portal, Quotas"
            )


def _judged(look: Look, usage: dict[str, Any], groups: list[NodeGroup]) -> Finding:
    name, limit, used = usage["name"]["localizedValue"], int(usage["limit"]), int(usage["currentValue"])
    wanted, least = sum(group.instance.cpu * group.max for group in groups), min(group.instance.cpu for group in groups)
    said = f"{name}: {limit} vCPUs, {used} in use; the stack wants up to {wanted} ({', '.join(group.name for group in groups)})"
    scope = f"/subscriptions/{look.settings.subscription_id}/providers/Microsoft.Compute/locations/{look.settings.location}"
    raise_it = (
        f"az quota update --resource-name {shlex.quote(usage['name']['value'])} --scope {scope} "
        f"--limit-object value={wanted + used} limit-object-type=LimitValue"
    )
    if limit < least:
        return fail(f"{said}: no machine can start", raise_it)
    return ok(said) if limit >= wanted else warn(f"{said}: groups do not reach their max", raise_it)


def kubernetes(look: Look) -> Iterator[Finding]:
    """The version is one that AKS has here, and no preview."""
    wanted = look.settings.cluster.kubernetes_version
    path = f"/providers/Microsoft.ContainerService/locations/{look.settings.location}/kubernetesVersions"
    known = {one["version"]: one for one in look.arm.get(path, VERSIONS_VERSION)["values"]}
    if wanted not in known:
        yield fail(f"AKS has no Kubernetes {wanted} here; it has {', '.join(sorted(known))}", "change kubernetesVersion")
    elif known[wanted].get("isPreview"):
        yield fail(f"Kubernetes {wanted} is a preview here", "change kubernetesVersion")
    else:
        patches = sorted(known[wanted].get("patchVersions", {}))
        yield ok(f"Kubernetes {wanted} is supported; its releases: {', '.join(patches)}")
