"""The network: one for all zones, a way out, and who may reach the share's address."""

from ipaddress import IPv4Network

import pytest

from infra.clouds.azure.network import places
from tests.infra.azure import stacks
from tests.infra.azure.world import inputs, world


@pytest.mark.parametrize("cidr", ["10.80.0.0/16", "172.20.0.0/20", "192.168.16.0/22"])
def test_the_places_are_in_the_network_and_apart(cidr: str) -> None:
    machines, endpoints = map(IPv4Network, places(cidr))
    assert machines.subnet_of(IPv4Network(cidr))
    assert endpoints.subnet_of(IPv4Network(cidr))
    assert not machines.overlaps(endpoints)
    assert machines.num_addresses == IPv4Network(cidr).num_addresses // 2


def test_an_own_network() -> None:
    found = world()
    assert inputs(found, "VirtualNetwork")["addressSpace"] == {"addressPrefixes": ["10.80.0.0/16"]}
    subnets = found.named("Subnet")
    machines = subnets["ebb-dev-machines"].inputs
    assert (machines["addressPrefix"], machines["natGateway"]) == ("10.80.0.0/17", {"id": "NatGateway-ebb-dev-nat"})
    assert machines["defaultOutboundAccess"] is False, "Azure's own way out has no address that anybody knows"
    endpoints = subnets["ebb-dev-endpoints"].inputs
    assert endpoints["networkSecurityGroup"] == {"id": "NetworkSecurityGroup-ebb-dev-endpoints"}
    assert endpoints["privateEndpointNetworkPolicies"] == "NetworkSecurityGroupEnabled"
    assert inputs(found, "NatGateway")["publicIpAddresses"] == [{"id": "PublicIPAddress-ebb-dev-nat"}]
    assert inputs(found, "ManagedCluster")["networkProfile"]["outboundType"] == "userAssignedNATGateway"


def test_machines_and_clients_may_mount_and_nobody_else() -> None:
    found = world(stacks.stack(storage={"files": {}, "clients": ["10.20.0.0/16"]}))
    allow, deny = inputs(found, "NetworkSecurityGroup")["securityRules"]
    assert (allow["access"], allow["sourceAddressPrefixes"]) == ("Allow", ["10.80.0.0/17", "10.20.0.0/16"])
    assert allow["destinationPortRanges"] == ["443", "2049"]
    assert (deny["access"], deny["sourceAddressPrefix"], deny["protocol"]) == ("Deny", "*", "*")
    assert allow["priority"] < deny["priority"]


def test_existing_subnets_are_used_and_nothing_is_made() -> None:
    found = world(stacks.stack(network={**stacks.EXISTING, "outbound": "routes"}))
    for kind in ("VirtualNetwork", "Subnet", "NatGateway", "PublicIPAddress", "NetworkSecurityGroup"):
        assert found.all(kind) == []
    cluster = inputs(found, "ManagedCluster")
    assert cluster["networkProfile"]["outboundType"] == "userDefinedRouting"
    assert cluster["agentPoolProfiles"][0]["vnetSubnetID"] == stacks.EXISTING["subnetId"]
    assert inputs(found, "PrivateEndpoint")["subnet"] == {"id": stacks.EXISTING["endpointSubnetId"]}
    assert found.one("RoleAssignment", "ebb-dev-network").inputs["scope"] == stacks.EXISTING["subnetId"], "and no more than that"
    link = inputs(found, "VirtualNetworkLink")
    assert link["virtualNetwork"] == {"id": stacks.EXISTING["subnetId"].rpartition("/subnets/")[0]}


def test_the_way_out_outlives_machines() -> None:
    found = world()
    before = found.before(found.one("AgentPool", "spot-t4-westus2-1"))
    for kind in ("NatGateway", "PublicIPAddress", "Subnet", "VirtualNetwork", "ManagedCluster"):
        assert {one.key for one in found.all(kind)} <= before, kind
