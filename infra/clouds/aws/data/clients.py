"""Clients of the file systems: the cluster's machines, and the researchers' machines that `storage.clients` lists.

    allowed = clients(settings.storage.clients, control.security_group_id)
    admit(part, firewall, "ebb-dev-efs", allowed, [(2049, 2049)])

One rule for each source and range of ports, so that a client more changes no other rule. checks/storage.py checks the lists.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
from pulumi_aws import ec2, vpc

from infra.part import Part

MACHINES = "machines"
Ports = tuple[int, int]


@dataclass(frozen=True, kw_only=True)
class Client:
    """A source of traffic: machines of a security group, or a block of addresses. `name` is for people."""

    name: str
    group: pulumi.Input[str] | None = None
    ipv4: str | None = None
    ipv6: str | None = None


def clients(listed: Sequence[str], machines: pulumi.Input[str]) -> list[Client]:
    """The machines of the cluster (their security group), then the listed blocks of addresses and security groups."""
    return [Client(name=MACHINES, group=machines), *map(_client, listed)]


def _client(written: str) -> Client:
    if written.startswith("sg-"):
        return Client(name=written, group=written)
    name = written.replace("/", "-")
    return Client(name=name, ipv6=written) if ":" in written else Client(name=name, ipv4=written)


def admit(
    part: Part, firewall: ec2.SecurityGroup, name: str, allowed: Sequence[Client], ports: Sequence[Ports]
) -> list[pulumi.Resource]:
    """Let clients in at some TCP ports of what carries the security group."""
    return _rules(vpc.SecurityGroupIngressRule, "from", part, firewall, name, allowed, ports)


def let_out(
    part: Part, firewall: ec2.SecurityGroup, name: str, allowed: Sequence[Client], ports: Sequence[Ports]
) -> list[pulumi.Resource]:
    """Let what carries the security group begin connections to clients: Pulumi makes groups that let nothing out."""
    return _rules(vpc.SecurityGroupEgressRule, "to", part, firewall, name, allowed, ports)


def _rules(  # noqa: PLR0917 - what its two callers say of a rule
    make: type[vpc.SecurityGroupIngressRule] | type[vpc.SecurityGroupEgressRule],
    way: str,
    part: Part,
    firewall: ec2.SecurityGroup,
    name: str,
    allowed: Sequence[Client],
    ports: Sequence[Ports],
) -> list[pulumi.Resource]:
    return [
        make(
            f"{name}-{way}-{client.name}-{first}",
            security_group_id=firewall.id,
            description=f"{name} {way} {client.name}",
            ip_protocol="tcp",
            from_port=first,
            to_port=last,
            referenced_security_group_id=client.group,
            cidr_ipv4=client.ipv4,
            cidr_ipv6=client.ipv6,
            opts=part.child(),
        )
        for client in allowed
        for first, last in ports
    ]
