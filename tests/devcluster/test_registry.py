"""Boxes of several checkouts side by side on one machine."""

import json
from ipaddress import IPv4Network
from pathlib import Path

import pytest

from devcluster import registry
from devcluster.registry import RegistryEntry
from devcluster.settings import SLOTS, Box, BoxError

ROUTES = """
default via 192.0.2.1 dev eth0
10.210.0.0/24 dev ebb0 proto kernel scope link src 10.210.0.254
10.0.0.0/8 via 192.0.2.9 dev tun0
local 10.211.0.1 dev docker0 table local proto kernel scope host src 10.211.0.1
broadcast 192.0.2.255 dev eth0 table local proto kernel scope link src 192.0.2.2
unreachable 10.213.0.0/16
""".strip()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty /run/ebb and kernel settings of our own."""
    monkeypatch.setattr(registry, "REGISTRY", tmp_path / "run")
    monkeypatch.setattr(registry, "SYSCTL", tmp_path / "sys")
    monkeypatch.setattr(registry, "KERNEL_SETTINGS", ("vm/overcommit_memory",))
    (tmp_path / "sys" / "vm").mkdir(parents=True)
    (tmp_path / "sys" / "vm" / "overcommit_memory").write_text("0\n")

    async def routes(*args: str) -> str:
        return ROUTES

    monkeypatch.setattr(registry, "run", routes)
    return tmp_path


def test_routes_of_the_host_that_a_box_must_not_touch() -> None:
    assert [str(network) for network in registry.taken_networks(ROUTES)] == [
        "10.210.0.0/24",
        "10.211.0.1/32",
        "192.0.2.255/32",
        "10.213.0.0/16",
    ]


def test_a_nameserver_behind_the_default_route_is_not_cut_off() -> None:
    found = registry.nameservers(
        "# ours\nsearch lab\nnameserver 10.210.0.53\nnameserver fd00::53\noptions ndots:2\n\nnameserver\n"
    )
    assert found == [IPv4Network("10.210.0.53")]
    assert registry.free_slot([], found) == 1


def test_the_first_slot_that_is_free() -> None:
    others = [RegistryEntry("a", 0, Path("/x")), RegistryEntry("b", 2, Path("/x"))]
    assert registry.free_slot([], []) == 0
    assert registry.free_slot(others, []) == 1
    assert registry.free_slot(others, [IPv4Network("10.211.4.0/24")]) == 3


def test_no_slot_is_free() -> None:
    others = [RegistryEntry(f"b{slot}", slot, Path("/x")) for slot in range(SLOTS)]
    with pytest.raises(BoxError, match="take a devcluster down"):
        registry.free_slot(others, [])


async def test_a_box_keeps_its_slot(folder: Path) -> None:
    box = await registry.register("one", folder / "home")
    assert box.slot == 2  # 0, 1 and 3 are touched by routes
    assert await registry.register("one", folder / "home") == box
    assert registry.find("one", folder / "home") == box
    assert (await registry.register("two", folder / "home")).slot == 4


async def test_another_checkouts_box_of_the_same_name_is_not_touched(folder: Path) -> None:
    await registry.register("one", folder / "home")
    message = f"EBB_HOME={folder / 'home'} python -m devcluster down --box one"
    with pytest.raises(BoxError, match=message):
        await registry.register("one", folder / "elsewhere")
    with pytest.raises(BoxError, match=message):
        registry.find("one", folder / "elsewhere")
    assert not (folder / "elsewhere").exists()


async def test_a_slot_that_was_given_away_meanwhile(folder: Path) -> None:
    box = Box(name="old", slot=2, home=folder / "home")
    box.folder.mkdir(parents=True)
    (box.folder / "box.json").write_text(json.dumps({"name": "old", "slot": 2, "home": str(folder / "home")}))
    await registry.register("new", folder / "elsewhere")  # after a reboot: nobody had announced `old`
    with pytest.raises(BoxError, match=r"10\.212\.0\.0/16 of devcluster 'old' are now used by devcluster 'new'"):
        await registry.register("old", folder / "home")


async def test_a_box_without_its_folder_is_still_found(folder: Path) -> None:
    box = await registry.register("one", folder / "home")
    (box.folder / "box.json").unlink()
    assert registry.find("one", folder / "home") == box


async def test_the_last_box_puts_the_kernels_settings_back(folder: Path) -> None:
    setting = folder / "sys" / "vm" / "overcommit_memory"
    await registry.register("one", folder / "home")
    await registry.register("two", folder / "home")
    setting.write_text("1\n")  # as the kubelet does
    registry.forget("one")
    assert setting.read_text().strip() == "1"
    registry.forget("two")
    assert setting.read_text().strip() == "0"
    assert not (folder / "run").exists()
    registry.forget("two")
