"""Addresses and paths of a devcluster."""

from ipaddress import IPv4Network
from pathlib import Path

import pytest

from devcluster.settings import MAX_MACHINES, SLOTS, Box, BoxError, check_name, slot_network

BOX = Box(name="test", slot=3, home=Path("/home/ebb"))


def test_addresses_derive_from_the_slot() -> None:
    assert str(BOX.network) == "10.213.0.0/16"
    assert str(BOX.address) == "10.213.0.1"
    assert str(BOX.host_address) == "10.213.0.254"
    assert BOX.api_url == "https://10.213.0.1:6443"
    assert str(BOX.pod_network) == "10.213.0.0/17"
    assert str(BOX.service_network) == "10.213.240.0/20"
    assert str(BOX.dns_address) == "10.213.240.10"
    assert str(BOX.machine_address(1)) == "10.213.0.2"
    assert str(BOX.machine_pods(1)) == "10.213.1.0/24"


def test_no_two_machines_share_an_address() -> None:
    indexes = range(1, MAX_MACHINES + 1)
    addresses = [BOX.machine_address(index) for index in indexes]
    pods = [BOX.machine_pods(index) for index in indexes]
    own = IPv4Network("10.213.0.0/24")
    assert len(set(addresses)) == MAX_MACHINES
    assert all(address in own for address in addresses)
    assert not {BOX.address, BOX.host_address} & set(addresses)
    assert len(set(pods)) == MAX_MACHINES
    assert all(network.subnet_of(BOX.pod_network) and not network.overlaps(own) for network in pods)
    assert not BOX.pod_network.overlaps(BOX.service_network)


def test_boxes_share_no_address() -> None:
    networks = [slot_network(slot) for slot in range(SLOTS)]
    assert len(set(networks)) == SLOTS
    assert all(network.is_private for network in networks)


@pytest.mark.parametrize("index", [0, MAX_MACHINES + 1])
def test_an_index_beyond_the_network_is_our_mistake(index: int) -> None:
    with pytest.raises(AssertionError):
        BOX.machine_address(index)


@pytest.mark.parametrize(
    ("one", "other"),
    [("a", "a-b"), ("ebb", "ebb2")],
    ids=["prefix with a dash", "prefix"],
)
def test_namespaces_of_boxes_are_told_apart(one: str, other: str) -> None:
    first, second = (Box(name=name, slot=0, home=Path("/h")) for name in (one, other))
    assert not second.netns.startswith(f"{first.netns}.")
    assert second.netns != first.netns
    assert first.machine_netns("b").startswith(f"{first.netns}.")


@pytest.mark.parametrize("name", ["", "Box", "1box", "a.b", "a/b", "x" * 21], ids=repr)
def test_bad_names_are_refused(name: str) -> None:
    with pytest.raises(BoxError, match="must be 1 to 20"):
        check_name(name)


def test_a_missing_box_says_how_to_make_it(tmp_path: Path) -> None:
    assert Box.find("none", tmp_path) is None
    with pytest.raises(BoxError, match="python -m devcluster up --box none"):
        Box.load("none", tmp_path)


def test_a_box_is_read_back(tmp_path: Path) -> None:
    box = Box(name="test", slot=7, home=tmp_path)
    box.folder.mkdir(parents=True)
    (box.folder / "box.json").write_text('{"name": "test", "slot": 7, "home": "/elsewhere"}')
    assert Box.load("test", tmp_path) == box
