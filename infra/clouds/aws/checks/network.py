"""The VPC: an own one or an existing one, never half of each."""

from collections import Counter
from collections.abc import Iterator

from infra.clouds.aws.settings import Settings
from infra.config import Problem, Stack, choice
from infra.config.cidrs import PRIVATE, is_private, malformed, network_of

WIDEST, NARROWEST = 16, 20  # AWS has no VPC wider than /16; below /20 a zone has no addresses for a handful of machines
LETTERS, PRIVATE_BITS = "abcdef", 3  # the places of zones in an own VPC, as network.py has them (a test holds them together)
RESERVED = 5  # of each subnet, by AWS (VPC user guide, subnet sizing, read 2026-11-21)
# The network plugin takes a spare interface's worth of addresses ahead: 2 x 30 on a medium machine (10 to 50 an interface in
# https://github.com/aws/karpenter-provider-aws, zz_generated.vpclimits.go, 2026-08).
ADDRESSES_PER_MACHINE = 60
OWN_ONLY = {"cidr": "cidr", "nat": "nat", "interface_endpoints": "interfaceEndpoints"}


def problems(stack: Stack, settings: Settings) -> Iterator[Problem]:
    """What disagrees."""
    yield from _existing(stack, settings) if settings.network.vpc_id else _own(stack, settings)


def _own(stack: Stack, settings: Settings) -> Iterator[Problem]:
    uses = ("aws.network.vpcId",)
    for key, value in {
        "privateSubnets": settings.network.private_subnets,
        "publicSubnets": settings.network.public_subnets,
    }.items():
        if value:
            yield Problem(f"aws.network.{key}", "subnets belong to an existing VPC: set vpcId too, or remove them", uses)
    if not 2 <= len(set(stack.zones)) <= 4:
        text = f"found {', '.join(stack.zones)}; allowed are 2 to 4 zones, as EKS wants two"
        yield Problem("zones", f"{text}; machines may be in fewer (nodeGroups.zones)", uses)
    for zone in stack.zones:
        if zone[-1:] not in LETTERS:
            text = f"found {zone!r}; allowed are zones a to f, as each letter has its place in the own VPC: leave it out"
            yield Problem("zones", f"{text}, or name an existing VPC (aws.network.vpcId)", uses)
    yield from _cidr(stack, settings.network.cidr)


def _cidr(stack: Stack, cidr: str) -> Iterator[Problem]:
    key, network = "aws.network.cidr", network_of(cidr)
    if network is None:
        yield Problem(key, malformed(cidr))
    elif not is_private(network):
        yield Problem(key, f"found {cidr!r}; allowed are private ranges: within {', '.join(map(str, PRIVATE))}")
    elif not WIDEST <= network.prefixlen <= NARROWEST:
        yield Problem(key, f"found {cidr!r}; allowed are /{WIDEST} to /{NARROWEST}: change its length")
    else:
        yield from _room(stack, cidr, (network.num_addresses >> PRIVATE_BITS) - RESERVED)


def _room(stack: Stack, cidr: str, addresses: int) -> Iterator[Problem]:
    """Every machine that a zone may have gets its addresses."""
    machines = Counter({stack.manager.zone: 1})
    for line in stack.node_groups:
        machines.update(dict.fromkeys(line.names(stack.zones), line.max))
    zone, most = machines.most_common(1)[0]
    if most * ADDRESSES_PER_MACHINE > addresses:
        yield Problem(
            "aws.network.cidr",
            f"found {cidr!r}, which gives each zone {addresses} addresses for machines; {zone} has up to {most}, which need "
            f"{most * ADDRESSES_PER_MACHINE}: take a larger range, or lower max",
            ("nodeGroups", "zones", "manager"),
        )


def _existing(stack: Stack, settings: Settings) -> Iterator[Problem]:
    network = settings.network
    for name, key in OWN_ONLY.items():
        if name in network.model_fields_set:
            yield Problem(f"aws.network.{key}", "for an own VPC, and vpcId names an existing one: remove one of the two")
    if len(set(stack.zones)) < 2:
        text = f"found {', '.join(stack.zones)}; allowed are 2 zones or more, as EKS wants two"
        yield Problem("zones", f"{text}; machines may be in fewer (nodeGroups.zones)")
    missing = [zone for zone in stack.zones if zone not in network.private_subnets]
    if missing:
        text = f"there is none for {', '.join(missing)}: name one for each of ebb:zones"
        yield Problem("aws.network.privateSubnets", text, ("zones",))
    yield from _subnets(stack, settings)


def _subnets(stack: Stack, settings: Settings) -> Iterator[Problem]:
    taken: dict[str, str] = {}
    network = settings.network
    for key, subnets in {"privateSubnets": network.private_subnets, "publicSubnets": network.public_subnets}.items():
        for zone, subnet in subnets.items():
            where = f"aws.network.{key}.{zone}"
            if zone not in stack.zones:
                yield Problem(where, f"{choice(zone, stack.zones)}: add the zone to ebb:zones, or remove it", ("zones",))
            if subnet in taken:
                yield Problem(where, f"{subnet!r} is also {taken[subnet]}: a subnet is in one zone, and private or public")
            taken.setdefault(subnet, where)
