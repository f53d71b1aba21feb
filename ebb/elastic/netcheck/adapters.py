"""Fast adapters of this machine, and the network that NCCL says it selected.

    [each.kind for each in find_adapters()]             # ["EFA", "EFA", "EFA", "EFA"]
    choose("1", find_adapters(), os.environ)            # before NCCL is started: it reads its environment once
    selected(text_of_nccl)                              # Selected(network="EFA", provider="efa", adapters=4, ...)

NCCL takes sockets where it cannot use an adapter, without an error and at a tenth of the speed. Its log (NCCL_DEBUG=INFO) is the
only one that says so. The lines that this was made from are in tests/elastic/netcheck/test_adapters.py.
"""

from __future__ import annotations

import re
from collections.abc import MutableMapping, Sequence
from pathlib import Path
from typing import NamedTuple

SYSTEM, DEVICES = Path("/sys/class"), Path("/dev/infiniband")
CHOICES = ("0", "1", "all")
EFA, INFINIBAND, ROCE, SOCKETS, UNKNOWN = "EFA", "InfiniBand", "RoCE", "sockets", ""


class Adapter(NamedTuple):
    """`given`: this container has its device file; all containers see the names of the machine's."""

    name: str
    kind: str
    given: bool


class Selected(NamedTuple):
    """`network`: EFA, InfiniBand, RoCE, sockets, or NCCL's own name of another one; "" where its log does not say. `provider`:
    libfabric's. `adapters`: how many NCCL found, 0 where it does not say. `gpu_direct`: from a GPU without the host's memory."""

    network: str = UNKNOWN
    provider: str = ""
    adapters: int = 0
    gpu_direct: bool = False


def find_adapters(system: Path = SYSTEM, devices: Path = DEVICES) -> list[Adapter]:
    """Of this machine; none where its kernel has no RDMA."""
    verbs = {_text(entry / "ibdev"): entry.name for entry in _entries(system / "infiniband_verbs") if _text(entry / "ibdev")}
    return [
        Adapter(entry.name, _kind(entry), entry.name in verbs and (devices / verbs[entry.name]).exists())
        for entry in _entries(system / "infiniband")
    ]


def choose(choice: str, adapters: Sequence[Adapter], environment: MutableMapping[str, str]) -> None:
    """Let NCCL use none, one or all of the adapters that this container was given.

    NCCL_NET names NCCL's own sockets, and without a plugin nothing overrules it; NCCL_IB_HCA and FI_EFA_IFACE are the lists of
    devices that NCCL's own InfiniBand and libfabric's EFA provider use (`=`: that very name).
    """
    if choice not in CHOICES:
        raise ValueError(f"--adapters is {choice!r}; allowed: {', '.join(CHOICES)}")
    if choice == "0":
        environment.update(NCCL_NET="Socket", NCCL_NET_PLUGIN="none", NCCL_IB_DISABLE="1")
    given = [each for each in adapters if each.given]
    if choice == "1" and given:
        variable = "FI_EFA_IFACE" if given[0].kind == EFA else "NCCL_IB_HCA"
        environment[variable] = given[0].name if given[0].kind == EFA else f"={given[0].name}"


_OFI = re.compile(r"NET/OFI Selected provider is ([^\s,*]+)(?:.*\(found (\d+) nics?\))?", re.IGNORECASE)
_USING = re.compile(r"NCCL INFO Using network (.+?)\s*$", re.MULTILINE)
_IB = re.compile(r"NET/IB : Using ((?:\[\d+\]\S+\s*)+)")
_IB_DEVICE = re.compile(r"\[\d+\][^\s/]+/(\w+)")
_VIA = re.compile(r"\bvia NET/(\w[\w ]*?)/\d+(\(\d+\))?(/GDRDMA)?")


def selected(log: str) -> Selected:
    """The network that one rank's lines name. `Using network` is NCCL's last word; plugins and older versions have their own."""
    using, ofi = _USING.findall(log), _OFI.findall(log)
    devices = [kind for line in _IB.findall(log) for kind in _IB_DEVICE.findall(line)]
    ways = _VIA.findall(log)
    direct = any(way[2] for way in ways)
    name = using[-1] if using else ways[-1][0] if ways else _first_word(log)
    if name.lower() == "socket":
        return Selected(SOCKETS)
    if "libfabric" in name.lower() or name == "OFI":
        provider, count = ofi[-1] if ofi else ("", "")
        tcp = provider.lower().partition(";")[0] in ("tcp", "sockets", "socket", "udp")
        network = EFA if provider.lower().startswith("efa") else SOCKETS if tcp else provider or name
        return Selected(network, provider, int(count or 0), direct)
    if name.startswith("IB"):  # IBext_v8 is that of HPC-X's plugin
        roce = bool(devices) and all(kind == ROCE for kind in devices)
        return Selected(ROCE if roce else INFINIBAND, "", len(devices), direct)
    return Selected(name, "", len(devices), direct)


def _first_word(log: str) -> str:
    """A guess where no line says which one is used, in the order in which NCCL looks for them."""
    if _OFI.search(log):
        return "OFI"
    if _IB.search(log):
        return "IB"
    return "Socket" if "NET/Socket : Using" in log else UNKNOWN


def _kind(entry: Path) -> str:
    if (entry / "device" / "driver").resolve().name == "efa":
        return EFA
    layers = {_text(port / "link_layer") for port in _entries(entry / "ports")}
    return INFINIBAND if "InfiniBand" in layers else ROCE


def _entries(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() else []


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
