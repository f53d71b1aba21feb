"""Checks that AWS has what the stack's file names: machines in their zones, AMI releases, versions of Kubernetes and of add-ons.

Prices aside, the catalog's facts of each machine are held to what the region says of it: the autoscaler and the launch templates
believe the catalog.
"""

import re
from collections.abc import Iterator
from typing import Any

from infra.account.records import Finding, fail, ok, warn
from infra.clouds.aws.account.look import Look
from infra.clouds.aws.catalog import AwsInstance
from workloads.cluster import InstanceType

# AMI type -> the folder of its releases below /aws/service/eks/optimized-ami/<version>/
# (https://docs.aws.amazon.com/eks/latest/userguide/retrieve-ami-id.html, read 2026-11-21).
AMI_FOLDERS = {
    "AL2023_x86_64_STANDARD": "amazon-linux-2023/x86_64/standard",
    "AL2023_x86_64_NVIDIA": "amazon-linux-2023/x86_64/nvidia",
    "AL2023_ARM_64_STANDARD": "amazon-linux-2023/arm64/standard",
    "AL2023_ARM_64_NVIDIA": "amazon-linux-2023/arm64/nvidia",
}


def zones(look: Look) -> Iterator[Finding]:
    """The stack's zones are in the region, and this account has them."""
    there = look.calls.all("ec2", "describe_availability_zones", "AvailabilityZones", AllAvailabilityZones=True)
    usable = {one["ZoneName"] for one in there if one.get("OptInStatus") != "not-opted-in" and one.get("State") == "available"}
    if missing := [zone for zone in look.stack.zones if zone not in usable]:
        yield fail(f"{', '.join(missing)}: not a zone of this account; it has {', '.join(sorted(usable))}", "change ebb:zones")
    else:
        yield ok(f"zones {', '.join(look.stack.zones)} are available")


def offerings(look: Look) -> Iterator[Finding]:
    """Each group's instance types in the group's zone."""
    names = sorted({one.name for group in look.groups for one in (group.instance, *group.others)})
    filters = [{"Name": "instance-type", "Values": names}]
    offered = look.calls.all(
        "ec2", "describe_instance_type_offerings", "InstanceTypeOfferings", LocationType="availability-zone", Filters=filters
    )
    where: dict[str, set[str]] = {name: set() for name in names}
    for one in offered:
        where[one["InstanceType"]].add(one["Location"])
    for group in look.groups:
        wanted = [group.instance.name, *(other.name for other in group.others)]
        missing = [name for name in wanted if group.zone not in where[name]]
        if not missing:
            yield ok(f"{group.name}: {group.zone} has {', '.join(wanted)}")
            continue
        elsewhere = ", ".join(sorted(set.intersection(*(where[name] for name in missing)))) or "no zone of this region"
        said = f"{group.name}: {group.zone} has no {', '.join(missing)}; {elsewhere} has"
        yield fail(said, "leave the zone out of the group's zones") if missing == wanted else warn(said)


def facts(look: Look) -> Iterator[Finding]:
    """vCPUs, memory, GPUs and EFA interfaces, as the catalog has them."""
    known = {one.name: one for group in look.groups for one in (group.instance, *group.others)}
    described = look.calls.all("ec2", "describe_instance_types", "InstanceTypes", InstanceTypes=sorted(known))
    wrong = 0
    for one in described:
        for what, ours, theirs in _differences(known[one["InstanceType"]], one):
            wrong += 1
            said = f"{one['InstanceType']}: the catalog says {what} {ours}, AWS says {theirs}"
            yield fail(said, "correct infra/clouds/aws/machines.yaml")
    if not wrong:
        yield ok(f"the catalog is right about {', '.join(sorted(known))}")


def _differences(known: InstanceType, said: dict[str, Any]) -> Iterator[tuple[str, object, object]]:
    gpus = said.get("GpuInfo", {}).get("Gpus", [])
    efa = said.get("NetworkInfo", {}).get("EfaInfo", {}).get("MaximumEfaInterfaces", 0)
    pairs = [
        ("vCPUs", known.cpu, said["VCpuInfo"]["DefaultVCpus"]),
        ("GiB of memory", known.memory_gib, said["MemoryInfo"]["SizeInMiB"] // 1024),
        ("GPUs", known.gpus, sum(gpu["Count"] for gpu in gpus)),
    ]
    if isinstance(known, AwsInstance):
        pairs.append(("EFA interfaces", known.efa, efa))
    yield from ((what, ours, theirs) for what, ours, theirs in pairs if ours != theirs)


def kubernetes(look: Look) -> Iterator[Finding]:
    """The version is one that EKS still supports at the usual price."""
    wanted = look.settings.cluster.kubernetes_version
    versions = look.calls.all("eks", "describe_cluster_versions", "clusterVersions", includeAll=True)
    known = {one["clusterVersion"]: one for one in versions}
    if wanted not in known:
        yield fail(f"EKS has no Kubernetes {wanted}; it has {', '.join(sorted(known, key=_numbers))}", "change kubernetesVersion")
        return
    status, ends = known[wanted].get("versionStatus", ""), known[wanted].get("endOfStandardSupportDate")
    until = f", until {ends:%Y-%m-%d}" if ends else ""
    if status == "STANDARD_SUPPORT":
        yield ok(f"Kubernetes {wanted} is in standard support{until}")
    else:
        yield fail(f"Kubernetes {wanted} is in {status.lower().replace('_', ' ')}", "docs/aws.md says how to upgrade")


def add_ons(look: Look) -> Iterator[Finding]:
    """Every pinned version exists for this version of Kubernetes; newer ones are named."""
    version = look.settings.cluster.kubernetes_version
    for name, pinned in look.settings.cluster.add_ons.items():
        found = look.calls.all("eks", "describe_addon_versions", "addons", addonName=name, kubernetesVersion=version)
        versions = sorted((one["addonVersion"] for addon in found for one in addon["addonVersions"]), key=_numbers, reverse=True)
        if pinned not in versions:
            newest = ", ".join(versions[:3]) or "none"
            yield fail(f"add-on {name} {pinned} is not there for Kubernetes {version}; newest: {newest}", f"change addOns.{name}")
        elif versions[0] == pinned:
            yield ok(f"add-on {name} {pinned} is the newest")
        else:
            yield ok(f"add-on {name} {pinned}; newer: {', '.join(versions[: min(3, versions.index(pinned))])}")


def releases(look: Look) -> Iterator[Finding]:
    """Every pinned release of an AMI is published in this region."""
    version = look.settings.cluster.kubernetes_version
    for ami, pinned in look.settings.nodes.releases.items():
        if ami not in AMI_FOLDERS:
            yield warn(f"{ami} {pinned}: not checked, its releases are not in SSM as those of Amazon Linux 2023 are")
            continue
        path = f"/aws/service/eks/optimized-ami/{version}/{AMI_FOLDERS[ami]}"
        names = [one["Name"] for one in look.calls.all("ssm", "get_parameters_by_path", "Parameters", Path=path, Recursive=True)]
        dates = sorted({match[1] for name in names if (match := re.search(r"-v(\d{8})(?:/|$)", name))}, reverse=True)
        date = pinned.rpartition("-")[2]
        if date in dates:
            newer = f"; newest {dates[0]}" if dates[0] != date else ", the newest"
            yield ok(f"{ami} {pinned} is published{newer}")
        else:
            newest = ", ".join(dates[:3]) or f"nothing below {path}"
            yield fail(
                f"{ami} {pinned} is not published for Kubernetes {version}; newest: {newest}", f"change nodes.releases.{ami}"
            )


def _numbers(version: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", version)]
