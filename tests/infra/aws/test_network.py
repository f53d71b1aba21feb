"""The network: where subnets are, how machines reach out, and what goes when."""

from ipaddress import IPv4Network
from itertools import combinations
from typing import Any

import pytest

from infra.clouds.aws.network import LETTERS, places
from infra.config import ConfigError
from tests.infra.aws.control import EXISTING, ZONES, stack, usual, world
from tests.infra.declared import Declared, Registered


def network(world: Declared) -> dict[str, dict[str, Any]]:
    return {one.key: one.inputs for one in world.resources if one.parent == "ebb:aws:Network::network"}


@pytest.mark.parametrize("cidr", ["10.64.0.0/16", "172.20.0.0/17", "192.168.16.0/20"])
def test_all_places_are_in_the_vpc_and_apart(cidr: str) -> None:
    found = [IPv4Network(one) for letter in LETTERS for one in places(cidr, f"us-east-1{letter}")]
    assert all(one.subnet_of(IPv4Network(cidr)) for one in found)
    assert not any(one.overlaps(other) for one, other in combinations(found, 2))
    assert min(one.num_addresses for one in found) >= 128  # EKS and NAT need a handful; a subnet is /28 at least


def test_the_places_of_a_usual_vpc() -> None:
    assert places("10.64.0.0/16", "us-west-2a") == ("10.64.0.0/19", "10.64.192.0/21")
    assert places("10.64.0.0/16", "us-west-2c") == ("10.64.64.0/19", "10.64.208.0/21")


def test_a_zone_without_a_place_is_said() -> None:
    with pytest.raises(ConfigError, match=r"'us-east-1g' has no place in the own VPC.*vpcId"):
        places("10.64.0.0/16", "us-east-1g")


def test_a_further_zone_changes_no_subnet_route_or_gateway() -> None:
    before, after = network(usual()), network(world(stack(zones=(*ZONES, "us-west-2d"))))
    changed = {key for key in before if before[key] != after.get(key)}
    assert changed == {"aws:ec2/vpcEndpoint:VpcEndpoint::ebb-dev-s3"}  # it has one route table more
    assert {key.split("::")[1] for key in after.keys() - before.keys()} == {
        "ebb-dev-private-us-west-2d",
        "ebb-dev-public-us-west-2d",
    }


def test_a_zone_in_front_moves_no_subnet() -> None:
    subnets = [
        {one.name: one.inputs["cidrBlock"] for one in world(stack(zones=zones)).all("Subnet")}
        for zones in (("us-west-2b", "us-west-2a"), ("us-west-2a", "us-west-2b"))
    ]
    assert subnets[0] == subnets[1]


def test_subnets() -> None:
    subnets = usual().named("Subnet")
    assert subnets["ebb-dev-private-us-west-2b"].inputs == {
        "vpcId": "Vpc-ebb-dev",
        "availabilityZone": "us-west-2b",
        "cidrBlock": "10.64.32.0/19",
        "mapPublicIpOnLaunch": False,
        "tags": {"Name": "ebb-dev-private-us-west-2b", "kubernetes.io/role/internal-elb": "1"},
    }
    public = subnets["ebb-dev-public-us-west-2b"].inputs
    assert (public["tags"]["kubernetes.io/role/elb"], public["mapPublicIpOnLaunch"]) == ("1", False)


def test_the_vpc_has_names_and_its_default_group_lets_nothing_through() -> None:
    found = usual()
    vpc = found.one("aws:ec2/vpc:Vpc").inputs
    assert (vpc["cidrBlock"], vpc["enableDnsHostnames"], vpc["enableDnsSupport"]) == ("10.64.0.0/16", True, True)
    group = found.one("DefaultSecurityGroup").inputs
    assert (group["vpcId"], group["ingress"], group["egress"]) == ("Vpc-ebb-dev", [], [])


def ways_out(found: Declared) -> dict[str, str]:
    """Zone -> the zone of its NAT gateway."""
    tables = {one.inputs["subnetId"]: one.inputs["routeTableId"] for one in found.all("RouteTableAssociation")}
    gateways = {one.inputs["routeTableId"]: str(one.inputs.get("natGatewayId")) for one in found.all("Route")}
    at = {f"NatGateway-{one.name}": one.inputs["subnetId"].rpartition("public-")[2] for one in found.all("NatGateway")}
    return {zone: at[gateways[tables[subnet]]] for zone, subnet in found.returned["private"].items()}


@pytest.mark.parametrize(
    ("nat", "expected"),
    [
        pytest.param("one", {"us-west-2a": "us-west-2a", "us-west-2b": "us-west-2a"}, id="the manager's zone has it"),
        pytest.param("per-zone", {"us-west-2a": "us-west-2a", "us-west-2b": "us-west-2b"}, id="each zone its own"),
    ],
)
def test_nat(nat: str, expected: dict[str, str]) -> None:
    found = world(stack(network={"nat": nat}))
    assert ways_out(found) == expected
    assert len(found.all("Eip")) == len(set(expected.values()))


def test_public_subnets_go_straight_out() -> None:
    found = usual()
    table = found.one("RouteTable", "ebb-dev-public")
    assert found.one("Route", "ebb-dev-public").inputs == {
        "routeTableId": f"RouteTable-{table.name}",
        "destinationCidrBlock": "0.0.0.0/0",
        "gatewayId": "InternetGateway-ebb-dev",
    }


def test_s3_is_reached_from_every_private_subnet_without_nat() -> None:
    found = usual()
    s3 = found.one("VpcEndpoint").inputs
    assert (s3["serviceName"], s3["vpcEndpointType"]) == ("com.amazonaws.us-west-2.s3", "Gateway")
    tables = {one.inputs["subnetId"]: one.inputs["routeTableId"] for one in found.all("RouteTableAssociation")}
    assert set(s3["routeTableIds"]) == {tables[subnet] for subnet in found.returned["private"].values()}


def test_interface_endpoints() -> None:
    found = world(stack(network={"interfaceEndpoints": ["ecr.api", "sts"]}))
    interfaces = {one.name: one.inputs for one in found.all("VpcEndpoint") if one.inputs["vpcEndpointType"] == "Interface"}
    assert set(interfaces) == {"ebb-dev-ecr.api", "ebb-dev-sts"}
    one = interfaces["ebb-dev-ecr.api"]
    assert one["serviceName"] == "com.amazonaws.us-west-2.ecr.api"
    assert one["privateDnsEnabled"] is True
    assert one["subnetIds"] == list(found.returned["private"].values())
    assert one["securityGroupIds"] == ["SecurityGroup-ebb-dev-endpoints"]
    rule = found.one("SecurityGroupIngressRule").inputs
    assert (rule["cidrIpv4"], rule["ipProtocol"], rule["fromPort"], rule["toPort"]) == ("10.64.0.0/16", "tcp", 443, 443)


def test_in_an_existing_vpc_nothing_is_made() -> None:
    found = world(stack(network=EXISTING))
    assert network(found) == {}
    assert found.returned["vpc"] == EXISTING["vpcId"]
    assert found.returned["private"] == EXISTING["privateSubnets"]
    assert found.returned["public"] == {}


def test_machines_come_after_their_way_out_and_go_before_it() -> None:
    found = usual()
    before = found.before(found.one("LaunchTemplate", "manager"))
    for kind in ("NatGateway", "Route", "RouteTableAssociation", "InternetGateway", "VpcEndpoint", "Subnet"):
        assert {one.key for one in found.all(kind)} <= before, kind


def test_an_address_goes_before_the_gateway() -> None:
    found = usual()
    gateway = found.one("InternetGateway").key
    holders: list[Registered] = [*found.all("Eip"), *found.all("NatGateway")]
    assert all(gateway in found.before(one) for one in holders)
