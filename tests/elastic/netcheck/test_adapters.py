"""Adapters of a machine, and NCCL's word about which network it uses: lines as its documentation and its users have them."""

from pathlib import Path

import pytest

from ebb.elastic.netcheck.adapters import Adapter, Selected, choose, find_adapters, selected

ARTICLE = "NCCL INFO NET/OFI Selected Provider is efa\n"
# EC2's user guide, "Get started with EFA and NCCL"
EC2 = """\
ip-192-168-2-54:14:14 [0] NCCL INFO NET/OFI Selected Provider is efa*
ip-192-168-2-54:14:14 [0] NCCL INFO NET/OFI Running on P4d platform, Setting NCCL_TOPO_FILE environment variable to /a/b.xml
"""
# aws-ofi-nccl 1.19 with NCCL 2.27, of two p5.48xlarge
NEW_PLUGIN = """\
w0:172:172 [0] NCCL INFO NET/Plugin: Loaded net plugin Libfabric (v11)
w0:172:172 [0] NCCL INFO NET/OFI Selected provider is efa, fabric is efa-direct (found 16 nics)
w0:172:172 [0] NCCL INFO Using network Libfabric
w0:172:190 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/Libfabric/0(8)/GDRDMA
"""
OLD_PLUGIN = """\
w0:21:21 [0] NCCL INFO NET/OFI Selected Provider is efa (found 1 nics)
w0:21:21 [0] NCCL INFO Using network AWS Libfabric
"""
LIBFABRIC_TCP = """\
w0:21:21 [0] NCCL INFO NET/OFI Selected Provider is tcp;ofi_rxm (found 1 nics)
w0:21:21 [0] NCCL INFO Using network AWS Libfabric
"""
ROCE = """\
e2e-head:7:19 [0] NCCL INFO NET/IB : Using [0]rocep1s0f0:1/RoCE [RO]; OOB eth0:10.0.4.19<0>
e2e-head:7:19 [0] NCCL INFO Using network IB
e2e-head:7:19 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/0
"""
INFINIBAND = """\
h:31842:31905 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [2]mlx5_an0:1/RoCE [RO]; OOB eth0:10.0.4.19<0>
h:31842:31905 [0] NCCL INFO Using network IBext_v8
h:31842:31905 [0] NCCL INFO Channel 00/04 : 0[0] -> 4[0] via NET/IB/0/GDRDMA
"""
SOCKET = """\
w0:3:3 [0] NCCL INFO NET/Plugin: Could not find: libnccl-net.so. Using internal net plugin.
w0:3:3 [0] NCCL INFO NET/IB : No device found.
w0:3:3 [0] NCCL INFO NET/IB : Using [RO]; OOB eth0:10.0.123.96<0>
w0:3:3 [0] NCCL INFO NET/Socket : Using [0]eth0:10.0.123.96<0>
w0:3:3 [0] NCCL INFO Using network Socket
"""
# A device was there, and NCCL could not use it
FELL_BACK = """\
w0:3:3 [0] NCCL INFO NET/OFI Selected Provider is efa (found 4 nics)
w0:3:3 [0] NCCL INFO NET/OFI Failed to initialize
w0:3:3 [0] NCCL INFO NET/Socket : Using [0]eth0:10.0.123.96<0>
w0:3:3 [0] NCCL INFO Using network Socket
"""
GIB = "w0:3:3 [0] NCCL INFO NET/gIB : Using [0]mlx5_0:1/RoCE\nw0:3:3 [0] NCCL INFO Using network gIB\n"


@pytest.mark.parametrize(
    ("log", "found"),
    [
        (ARTICLE, Selected("EFA", "efa")),
        (EC2, Selected("EFA", "efa")),
        (NEW_PLUGIN, Selected("EFA", "efa", 16, gpu_direct=True)),
        (OLD_PLUGIN, Selected("EFA", "efa", 1)),
        (LIBFABRIC_TCP, Selected("sockets", "tcp;ofi_rxm", 1)),
        (ROCE, Selected("RoCE", "", 1)),
        (INFINIBAND, Selected("InfiniBand", "", 3, gpu_direct=True)),
        (SOCKET, Selected("sockets")),
        (FELL_BACK, Selected("sockets")),
        (GIB, Selected("gIB")),
        ("w0:3:3 [0] NCCL INFO NET/Socket : Using [0]eth0:10.0.0.1<0>\n", Selected("sockets")),  # NCCL before 2.4 said no more
        ("w0:3:3 [0] NCCL INFO Bootstrap : Using eth0:10.0.0.1<0>\n", Selected("")),
        ("", Selected("")),
    ],
)
def test_the_network_is_the_one_that_nccl_names(log: str, found: Selected) -> None:
    assert selected(log) == found


def machine(root: Path, name: str, *, driver: str, layer: str, given: bool) -> None:
    """An adapter as the kernel shows it."""
    device = root / "class" / "infiniband" / name
    (device / "ports" / "1").mkdir(parents=True)
    (device / "ports" / "1" / "link_layer").write_text(f"{layer}\n")
    (device / "device").mkdir()
    (root / "drivers" / driver).mkdir(parents=True, exist_ok=True)
    (device / "device" / "driver").symlink_to(root / "drivers" / driver)
    verbs = root / "class" / "infiniband_verbs"
    number = len(list(verbs.iterdir())) if verbs.exists() else 0
    (verbs / f"uverbs{number}").mkdir(parents=True)
    (verbs / f"uverbs{number}" / "ibdev").write_text(f"{name}\n")
    (root / "dev").mkdir(exist_ok=True)
    if given:
        (root / "dev" / f"uverbs{number}").touch()


def test_adapters_are_known_by_driver_and_link_and_by_whether_the_container_has_them(tmp_path: Path) -> None:
    machine(tmp_path, "rdmap16s27", driver="efa", layer="Unspecified", given=True)
    machine(tmp_path, "rdmap32s27", driver="efa", layer="Unspecified", given=False)
    machine(tmp_path, "mlx5_0", driver="mlx5_core", layer="InfiniBand", given=True)
    machine(tmp_path, "mlx5_an0", driver="mlx5_core", layer="Ethernet", given=False)
    assert find_adapters(tmp_path / "class", tmp_path / "dev") == [
        Adapter("mlx5_0", "InfiniBand", given=True),
        Adapter("mlx5_an0", "RoCE", given=False),
        Adapter("rdmap16s27", "EFA", given=True),
        Adapter("rdmap32s27", "EFA", given=False),
    ]
    assert find_adapters(tmp_path / "none", tmp_path / "dev") == []


def test_the_choice_of_adapters_is_told_to_nccl() -> None:
    efa = [Adapter("rdmap8s0", "EFA", given=False), *(Adapter(f"rdmap{n}s0", "EFA", given=True) for n in (16, 32))]
    mellanox = [Adapter(f"mlx5_{n}", "InfiniBand", given=True) for n in (0, 1)]

    def told(choice: str, adapters: list[Adapter]) -> dict[str, str]:
        environment = {"NCCL_NET": "gIB"}
        choose(choice, adapters, environment)
        return environment

    assert told("all", efa) == {"NCCL_NET": "gIB"}
    assert told("1", efa) == {"NCCL_NET": "gIB", "FI_EFA_IFACE": "rdmap16s0"}
    assert told("1", mellanox) == {"NCCL_NET": "gIB", "NCCL_IB_HCA": "=mlx5_0"}
    assert told("1", []) == {"NCCL_NET": "gIB"}
    assert told("0", efa) == {"NCCL_NET": "Socket", "NCCL_NET_PLUGIN": "none", "NCCL_IB_DISABLE": "1"}
    with pytest.raises(ValueError, match="--adapters is '2'; allowed: 0, 1, all"):
        choose("2", efa, {})
