"""Quotas of the account against what the stack asks for at full scale. They are per region; EC2's count vCPUs.

A new account has 0 for most GPU machines. Codes:
https://docs.aws.amazon.com/ec2/latest/instancetypes/ec2-instance-quotas.html (read 2026-11-21),
https://docs.aws.amazon.com/vpc/latest/userguide/amazon-vpc-limits.html (as of 2026).
"""

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from infra.account.records import Finding, fail, ok, warn
from infra.clouds.aws.account.calls import Refused
from infra.clouds.aws.account.look import Look, tag
from infra.clouds.aws.builds import codebuild
from workloads.cluster import CAPACITY_BLOCK, DEFAULT_IMAGE, SPOT, NodeGroup

# Family -> (code of the spot quota, code of the on-demand quota). P6 has no spot quota that AWS documents.
STANDARD = ("L-34B43A08", "L-1216C47A")
FAMILIES: tuple[tuple[str, tuple[str, str]], ...] = (
    (r"(g|vt)\d.*", ("L-3819A6DF", "L-DB2E81BA")),
    (r"p[234].*", ("L-7212CCBC", "L-417A185B")),
    (r"p5.*", ("L-C4BD4855", "L-417A185B")),
    (r"p\d.*", ("", "L-417A185B")),
    (r"[acdhimrtz]\d.*", STANDARD),
)
ADDRESSES, VPCS, NATS = ("ec2", "L-0263D0A3"), ("vpc", "L-F678F1CE"), ("vpc", "L-FE5A380F")


@dataclass(frozen=True, kw_only=True)
class Wish:
    """The stack's demand of one quota: the most it may ask, and its smallest machine."""

    vcpus: int
    least: int
    groups: tuple[str, ...]


def code(instance_type: str, capacity_type: str) -> str:
    """The quota that a machine counts against; empty if there is none that we know."""
    family = next((codes for pattern, codes in FAMILIES if re.fullmatch(pattern, instance_type.partition(".")[0])), ("", ""))
    return family[0] if capacity_type == SPOT else family[1]


def wishes(groups: list[NodeGroup]) -> dict[str, Wish]:
    """Quota code -> what the groups ask of it, all at their max. Capacity blocks are paid for already and do not count."""
    counting = [group for group in groups if group.capacity_type != CAPACITY_BLOCK and group.max]
    by_code: dict[str, list[NodeGroup]] = defaultdict(list)
    for group in counting:
        by_code[code(group.instance.name, group.capacity_type)].append(group)
    return {
        one: Wish(
            vcpus=sum(group.instance.cpu * group.max for group in these),
            least=min(group.instance.cpu for group in these),
            groups=tuple(group.name for group in these),
        )
        for one, these in by_code.items()
    }


def machines(look: Look) -> Iterator[Finding]:
    """vCPU quotas against the groups at max, with what runs in the region already."""
    asked = wishes(list(look.groups))
    if unknown := asked.pop("", None):
        yield warn(
            f"groups {', '.join(unknown.groups)}: no quota is known for their machines", "look in the Service Quotas console"
        )
    running = _running(look)
    for one, wish in asked.items():
        yield _judged(look, one, wish, running.get(one, 0))


def _judged(look: Look, number: str, wish: Wish, running: int) -> Finding:
    name, quota = _quota(look, "ec2", number)
    value = int(quota)
    said = f"{name} ({number}): {value} vCPUs"
    wanted = f"the stack wants up to {wish.vcpus} ({', '.join(wish.groups)})"
    if running:
        wanted += f", {running} are in use by others"
    raise_it = raising(look, "ec2", number, wish.vcpus + running)
    if value < wish.least:
        why = "0 is what a new account has" if value == 0 else f"its smallest machine has {wish.least}"
        return fail(f"{said}: no machine can start: {why}; {wanted}", raise_it)
    if value < wish.vcpus + running:
        return warn(f"{said}, {wanted}: groups do not reach their max", raise_it)
    return ok(f"{said}, {wanted}")


def _running(look: Look) -> dict[str, int]:
    """Quota code -> vCPUs of machines in the region that are not this stack's."""
    states = [{"Name": "instance-state-name", "Values": ["pending", "running"]}]
    used: dict[str, int] = defaultdict(int)
    for reservation in look.calls.all("ec2", "describe_instances", "Reservations", Filters=states):
        for one in reservation["Instances"]:
            tags = one.get("Tags", [])
            if look.is_ours(tags) or tag(tags, "eks:cluster-name") == look.name:
                continue
            cores = one.get("CpuOptions", {})
            capacity = SPOT if one.get("InstanceLifecycle") == "spot" else "on-demand"
            used[code(one["InstanceType"], capacity)] += cores.get("CoreCount", 0) * cores.get("ThreadsPerCore", 1)
    return used


def network(look: Look) -> Iterator[Finding]:
    """VPCs, addresses and NAT gateways, if the stack is to make them."""
    if look.settings.network.vpc_id is not None:
        yield ok("the VPC exists: none of its quotas is touched")
        return
    vpcs = look.calls.all("ec2", "describe_vpcs", "Vpcs")
    if any(look.is_ours(one.get("Tags")) for one in vpcs):
        yield ok("the stack has its VPC already")
        return
    gateways = len(look.stack.zones) if look.settings.network.nat == "per-zone" else 1
    addresses = look.calls.all("ec2", "describe_addresses", "Addresses")
    for (service, number), used, more in ((VPCS, len(vpcs), 1), (ADDRESSES, len(addresses), gateways)):
        name, value = _quota(look, service, number)
        said = f"{name} ({number}): {used} of {value:.0f} used, the stack needs {more} more"
        yield ok(said) if used + more <= value else fail(said, raising(look, service, number, used + more))
    name, value = _quota(look, *NATS)
    yield ok(f"{name}: {value:.0f}, and 1 is needed") if value >= 1 else fail(f"{name}: 0", raising(look, *NATS, 1))


def builds(look: Look) -> Iterator[Finding]:
    """The number of images that CodeBuild builds at once. By its name: each machine type has a quota of its own."""
    if look.settings.images.build != "codebuild":
        yield ok("images are not built by CodeBuild")
        return
    found = look.calls.all("service-quotas", "list_service_quotas", "Quotas", ServiceCode="codebuild")
    quota = next((one for one in found if one["QuotaName"] == codebuild.QUOTA), None)
    if quota is None:
        yield warn(f"no quota of CodeBuild is called {codebuild.QUOTA!r}", "look in the Service Quotas console")
        return
    value, number = int(quota["Value"]), quota["QuotaCode"]
    said = f"{codebuild.QUOTA} ({number}): {value}"
    wanted = len({"controller", DEFAULT_IMAGE, *look.stack.trainers})
    if value < 1:
        fix = raising(look, "codebuild", number, wanted)
        yield fail(f"{said}: no image can be built", f"{fix}; or build here: aws.images.build: docker")
    elif value < wanted:
        yield ok(f"{said}, the stack has {wanted} images: they are built in turns")
    else:
        yield ok(f"{said}, the stack has {wanted} images")


def _quota(look: Look, service: str, number: str) -> tuple[str, float]:
    """Name and value; a value that nobody has changed is in a second list of AWS."""
    try:
        quota = look.calls("service-quotas", "get_service_quota", ServiceCode=service, QuotaCode=number)["Quota"]
    except Refused as error:
        if error.code != "NoSuchResourceException":
            raise
        quota = look.calls("service-quotas", "get_aws_default_service_quota", ServiceCode=service, QuotaCode=number)["Quota"]
    return quota["QuotaName"], quota["Value"]


def raising(look: Look, service: str, number: str, value: int) -> str:
    """The command that asks for more: AWS answers within hours, for large GPU machines within days."""
    return (
        f"aws service-quotas request-service-quota-increase --region {look.settings.region} --service-code {service} "
        f"--quota-code {number} --desired-value {value}"
    )
