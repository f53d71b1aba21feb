"""The network: an own one, or the ids of subnets that exist.

    made = network.declare(base)
    made.machines                                  # the subnet of all machines: in Azure a subnet is in every zone of its region

Machines have no public addresses; they reach the internet through a NAT gateway. Pods have addresses of an overlay, so a machine
takes one address here. A second subnet holds the private address of the file share; its security group says who may mount it. In
an existing network nothing is made but that address.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network

import pulumi
from pulumi_azure_native.network import (
    NatGateway,
    NetworkSecurityGroup,
    PublicIPAddress,
    Subnet,
    VirtualNetwork,
)
from pulumi_azure_native.network._inputs import SecurityRuleArgsDict

from infra.clouds.azure.base import Base, only_new
from infra.part import Part

ENDPOINTS_LENGTH = 27  # 27 addresses: the file share takes one, a blob container's another
FIRST_RULE, REFUSE_RULE = 100, 4000
# Which Azure does not change once something is in the subnet (InUseSubnetCannotBeUpdated:
# https://github.com/hashicorp/terraform-provider-azurerm/issues/7687): a preview shall say what it takes.
PREFIX = "addressPrefix"


@dataclass(frozen=True, kw_only=True)
class Network:
    """`machines`, `endpoints`: subnets. `id`: the virtual network. `address`: that of all machines on the internet, where it is
    ours. `part`: all that machines need to reach out."""

    id: pulumi.Output[str]
    machines: pulumi.Output[str]
    endpoints: pulumi.Output[str]
    outbound: str
    address: pulumi.Output[str] | None = None
    part: Part


def declare(base: Base) -> Network:
    """The network of a stack."""
    part = base.part("network")
    return _existing(base, part) if base.settings.network.subnet_id else _own(base, part)


def places(cidr: str) -> tuple[str, str]:
    """The subnets of machines and of private addresses: the first half, and the last bit of the second."""
    whole = IPv4Network(cidr)
    return str(next(whole.subnets())), str(list(whole.subnets(new_prefix=ENDPOINTS_LENGTH))[-1])


def _existing(base: Base, part: Part) -> Network:
    given = base.settings.network
    assert given.subnet_id is not None
    return Network(
        id=pulumi.Output.from_input(given.subnet_id.rpartition("/subnets/")[0]),
        machines=pulumi.Output.from_input(given.subnet_id),
        endpoints=pulumi.Output.from_input(given.endpoint_subnet_id or ""),
        outbound={"nat-gateway": "userAssignedNATGateway", "routes": "userDefinedRouting"}[given.outbound],
        part=part,
    )


def _own(base: Base, part: Part) -> Network:
    group, cidr = base.group.name, base.settings.network.cidr
    network = VirtualNetwork(
        base.name,
        virtual_network_name=base.name,
        resource_group_name=group,
        location=base.settings.location,
        address_space={"address_prefixes": [cidr]},
        tags=base.tags,
        opts=part.child(**only_new("addressSpace")),
    )
    inside, addresses = places(cidr)
    way_out, address = _way_out(base, part)
    machines = Subnet(
        f"{base.name}-machines",
        subnet_name="machines",
        resource_group_name=group,
        virtual_network_name=network.name,
        address_prefix=inside,
        nat_gateway={"id": way_out.id},
        default_outbound_access=False,
        opts=part.child(**only_new(PREFIX)),
    )
    endpoints = Subnet(
        f"{base.name}-endpoints",
        subnet_name="endpoints",
        resource_group_name=group,
        virtual_network_name=network.name,
        address_prefix=addresses,
        network_security_group={"id": _clients(base, part, inside).id},
        private_endpoint_network_policies="NetworkSecurityGroupEnabled",  # or the group would not count for such addresses
        default_outbound_access=False,
        # Azure changes one subnet of a network at a time.
        opts=part.child(depends_on=[machines], **only_new(PREFIX)),
    )
    return Network(
        id=network.id, machines=machines.id, endpoints=endpoints.id, outbound="userAssignedNATGateway", address=address, part=part
    )


def _way_out(base: Base, part: Part) -> tuple[NatGateway, pulumi.Output[str]]:
    """One for all zones, of none in particular: Azure puts it into one
    (https://learn.microsoft.com/azure/nat-gateway/nat-availability-zones), and its loss takes the way out."""
    address = PublicIPAddress(
        f"{base.name}-nat",
        public_ip_address_name=f"{base.name}-nat",
        resource_group_name=base.group.name,
        location=base.settings.location,
        sku={"name": "Standard"},
        public_ip_allocation_method="Static",
        tags=base.tags,
        opts=part.child(),
    )
    gateway = NatGateway(
        f"{base.name}-nat",
        nat_gateway_name=f"{base.name}-nat",
        resource_group_name=base.group.name,
        location=base.settings.location,
        sku={"name": "Standard"},
        public_ip_addresses=[{"id": address.id}],
        tags=base.tags,
        opts=part.child(),
    )
    return gateway, address.ip_address.apply(lambda found: found or "")


def _clients(base: Base, part: Part, machines: str) -> NetworkSecurityGroup:
    """Machines and storage.clients may mount the share; the rest of what can reach the network may not."""
    return NetworkSecurityGroup(
        f"{base.name}-endpoints",
        network_security_group_name=f"{base.name}-endpoints",
        resource_group_name=base.group.name,
        location=base.settings.location,
        security_rules=rules([machines, *base.settings.storage.clients]),
        tags=base.tags,
        opts=part.child(),
    )


def rules(allowed: Sequence[str]) -> list[SecurityRuleArgsDict]:
    """NFS (2049) and HTTPS (443, of blobs) from `allowed`, and nothing else."""
    one: SecurityRuleArgsDict = {
        "name": "clients",
        "priority": FIRST_RULE,
        "direction": "Inbound",
        "access": "Allow",
        "protocol": "Tcp",
        "source_address_prefixes": list(allowed),
        "source_port_range": "*",
        "destination_address_prefix": "*",
        "destination_port_ranges": ["443", "2049"],
    }
    rest: SecurityRuleArgsDict = {
        "name": "nobody-else",
        "priority": REFUSE_RULE,
        "direction": "Inbound",
        "access": "Deny",
        "protocol": "*",
        "source_address_prefix": "*",
        "source_port_range": "*",
        "destination_address_prefix": "*",
        "destination_port_range": "*",
    }
    return [one, rest]
