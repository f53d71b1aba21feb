"""The network: an own VPC, or the ids of one that exists.

    made = network.declare("ebb-dev", stack, settings, provider)
    made.private["us-west-2a"]                     # where machines of a zone are

Machines are in private subnets and reach the internet through NAT; public subnets hold nothing but the NAT gateways, and give out
no addresses. A zone's subnets have a fixed place in the VPC, by the zone's letter: adding a zone moves no other. In an existing
VPC nothing is made: its routes, NAT and endpoints are its owner's.

On the way down the network outlives the machines: who makes machines depends on `part`, so that they can still pull, drain and
report while they go.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Network

import pulumi
from pulumi_aws import ec2
from pulumi_aws import vpc as aws_vpc
from pulumi_aws.provider import Provider as AwsProvider

from infra.clouds.aws.settings import Settings
from infra.config import ConfigError, Stack
from infra.part import Part

LETTERS = "abcdef"  # no region has more zones than us-east-1's six
PRIVATE_BITS, PUBLIC_BITS = 3, 5  # of a /16: private /19 (8187 addresses a zone), public /21
ANYWHERE = "0.0.0.0/0"


@dataclass(frozen=True, kw_only=True)
class Network:
    """`private` and `public`: zone -> subnet, in the order of the stack's zones. `part`: all that machines need to reach out."""

    vpc_id: pulumi.Output[str]
    private: Mapping[str, pulumi.Output[str]]
    public: Mapping[str, pulumi.Output[str]]
    part: Part


def declare(name: str, stack: Stack, settings: Settings, provider: AwsProvider) -> Network:
    """The network of a stack. `name`: what its parts are called after."""
    part = Part("aws", "network", providers=[provider])
    return _existing(part, stack, settings) if settings.network.vpc_id else _own(part, name, stack, settings)


def places(cidr: str, zone: str) -> tuple[str, str]:
    """The private and the public subnet of a zone. Six eighths of the VPC are private subnets, the rest has the public ones."""
    letter = zone[-1]
    if letter not in LETTERS:
        raise ConfigError(
            f"zones: {zone!r} has no place in the own VPC, which has one for each of the letters {LETTERS[0]} to {LETTERS[-1]}: "
            "leave the zone out, or name an existing VPC (aws_network.vpcId)"
        )
    network, place = IPv4Network(cidr), LETTERS.index(letter)
    private = list(network.subnets(PRIVATE_BITS))
    public = list(network.subnets(PUBLIC_BITS))[len(LETTERS) << (PUBLIC_BITS - PRIVATE_BITS) :]
    return str(private[place]), str(public[place])


def _existing(part: Part, stack: Stack, settings: Settings) -> Network:
    given = settings.network
    return Network(
        vpc_id=pulumi.Output.from_input(given.vpc_id or ""),
        private={zone: pulumi.Output.from_input(given.private_subnets[zone]) for zone in stack.zones},
        public={zone: pulumi.Output.from_input(subnet) for zone, subnet in given.public_subnets.items()},
        part=part,
    )


def _own(part: Part, name: str, stack: Stack, settings: Settings) -> Network:
    vpc = _vpc(part, name, settings.network.cidr)
    private, public = {}, {}
    for zone in stack.zones:
        inside, outside = places(settings.network.cidr, zone)
        private[zone] = _subnet(part, f"{name}-private-{zone}", vpc, zone=zone, cidr=inside, load_balancers="internal-elb")
        public[zone] = _subnet(part, f"{name}-public-{zone}", vpc, zone=zone, cidr=outside, load_balancers="elb")
    gateway = ec2.InternetGateway(name, vpc_id=vpc.id, tags={"Name": name}, opts=part.child())
    _public_routes(part, name, vpc, gateway, public)
    with_nat = stack.zones if settings.network.nat == "per-zone" else (stack.manager.zone,)
    nats = {zone: _nat(part, f"{name}-{zone}", public[zone], gateway) for zone in with_nat}
    # Where there is one gateway, the manager's zone has it: the platform works as long as its own zone does.
    ways_out = {zone: nats.get(zone, nats[with_nat[0]]) for zone in private}
    tables = {zone: _private_routes(part, f"{name}-private-{zone}", vpc, private[zone], ways_out[zone]) for zone in private}
    _s3(part, name, settings.region, vpc, tables.values())
    _interfaces(part, name, settings, vpc, private.values())
    return Network(
        vpc_id=vpc.id,
        private={zone: subnet.id for zone, subnet in private.items()},
        public={zone: subnet.id for zone, subnet in public.items()},
        part=part,
    )


def _vpc(part: Part, name: str, cidr: str) -> ec2.Vpc:
    """Names of hosts are on: file systems, endpoints and the cluster's private address are found by name."""
    vpc = ec2.Vpc(
        name,
        cidr_block=cidr,
        enable_dns_support=True,
        enable_dns_hostnames=True,
        tags={"Name": name},
        opts=part.child(),
    )
    # Emptied, so that nothing works by having no group of its own. It is the VPC's: Pulumi takes it over instead of making it,
    # forgets it on the way down, and it goes with the VPC.
    ec2.DefaultSecurityGroup(name, vpc_id=vpc.id, ingress=[], egress=[], tags={"Name": f"{name}-unused"}, opts=part.child())
    return vpc


def _subnet(part: Part, name: str, vpc: ec2.Vpc, *, zone: str, cidr: str, load_balancers: str) -> ec2.Subnet:
    """`load_balancers`: which kind may be put here, should somebody add a controller that makes them. Ebb makes none."""
    return ec2.Subnet(
        name,
        vpc_id=vpc.id,
        availability_zone=zone,
        cidr_block=cidr,
        map_public_ip_on_launch=False,
        tags={"Name": name, f"kubernetes.io/role/{load_balancers}": "1"},
        opts=part.child(),
    )


def _nat(part: Part, name: str, subnet: ec2.Subnet, gateway: ec2.InternetGateway) -> ec2.NatGateway:
    """An internet gateway cannot be detached while the VPC has public addresses: so both need it."""
    opts = part.child(depends_on=[gateway])
    address = ec2.Eip(f"{name}-nat", domain="vpc", tags={"Name": f"{name}-nat"}, opts=opts)
    return ec2.NatGateway(name, subnet_id=subnet.id, allocation_id=address.id, tags={"Name": name}, opts=opts)


def _public_routes(part: Part, name: str, vpc: ec2.Vpc, gateway: ec2.InternetGateway, subnets: Mapping[str, ec2.Subnet]) -> None:
    table = ec2.RouteTable(f"{name}-public", vpc_id=vpc.id, tags={"Name": f"{name}-public"}, opts=part.child())
    ec2.Route(
        f"{name}-public",
        route_table_id=table.id,
        destination_cidr_block=ANYWHERE,
        gateway_id=gateway.id,
        opts=part.child(),
    )
    for zone, subnet in subnets.items():
        ec2.RouteTableAssociation(f"{name}-public-{zone}", route_table_id=table.id, subnet_id=subnet.id, opts=part.child())


def _private_routes(part: Part, name: str, vpc: ec2.Vpc, subnet: ec2.Subnet, nat: ec2.NatGateway) -> ec2.RouteTable:
    """One table per zone, with one gateway too: so `nat` can change, and only routes change with it."""
    table = ec2.RouteTable(name, vpc_id=vpc.id, tags={"Name": name}, opts=part.child())
    ec2.Route(name, route_table_id=table.id, destination_cidr_block=ANYWHERE, nat_gateway_id=nat.id, opts=part.child())
    ec2.RouteTableAssociation(name, route_table_id=table.id, subnet_id=subnet.id, opts=part.child())
    return table


def _s3(part: Part, name: str, region: str, vpc: ec2.Vpc, tables: Iterable[ec2.RouteTable]) -> None:
    """Free, and the layers of images come from it: so they pass no NAT gateway, which is paid by the byte."""
    ec2.VpcEndpoint(
        f"{name}-s3",
        vpc_id=vpc.id,
        service_name=f"com.amazonaws.{region}.s3",
        vpc_endpoint_type="Gateway",
        route_table_ids=[table.id for table in tables],
        tags={"Name": f"{name}-s3"},
        opts=part.child(),
    )


def _interfaces(part: Part, name: str, settings: Settings, vpc: ec2.Vpc, subnets: Iterable[ec2.Subnet]) -> None:
    """The interface endpoints that the stack names, in every zone: paid by the hour and zone."""
    services = settings.network.interface_endpoints
    firewalls = [_endpoint_firewall(part, f"{name}-endpoints", vpc)] if services else []
    for service in services:
        ec2.VpcEndpoint(
            f"{name}-{service}",
            vpc_id=vpc.id,
            service_name=f"com.amazonaws.{settings.region}.{service}",
            vpc_endpoint_type="Interface",
            private_dns_enabled=True,
            subnet_ids=[subnet.id for subnet in subnets],
            security_group_ids=[firewall.id for firewall in firewalls],
            tags={"Name": f"{name}-{service}"},
            opts=part.child(),
        )


def _endpoint_firewall(part: Part, name: str, vpc: ec2.Vpc) -> ec2.SecurityGroup:
    firewall = ec2.SecurityGroup(
        name, vpc_id=vpc.id, description=f"Endpoints of {name}: HTTPS from the VPC", tags={"Name": name}, opts=part.child()
    )
    aws_vpc.SecurityGroupIngressRule(
        name,
        security_group_id=firewall.id,
        description="HTTPS from the VPC",
        ip_protocol="tcp",
        from_port=443,
        to_port=443,
        cidr_ipv4=vpc.cidr_block,
        opts=part.child(),
    )
    return firewall
