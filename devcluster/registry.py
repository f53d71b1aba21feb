"""The devclusters of this machine: makes a record with addresses that nothing else uses, and forgets it.

The record proper is `<box folder>/box.json`. A copy in /run/ebb makes it known to the other checkouts, and `down` finds one there
whose folder somebody has deleted. It knows nothing of what runs.
"""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from fcntl import LOCK_EX, flock
from ipaddress import IPv4Network
from pathlib import Path

from devcluster.commands import run
from devcluster.settings import EBB_HOME, REGISTRY, SLOTS, Box, BoxError, check_name, slot_network

# The kubelet sets these for the whole host; the last devcluster that goes puts the old values back.
KERNEL_SETTINGS = (
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
)
SYSCTL = Path("/proc/sys")
RESOLVER = Path("/etc/resolv.conf")


@dataclass(frozen=True)
class RegistryEntry:
    """One devcluster of any checkout."""

    name: str
    slot: int
    home: Path


def entries() -> list[RegistryEntry]:
    found = []
    for file in sorted(REGISTRY.glob("*.json")):
        record = json.loads(file.read_text())
        found.append(RegistryEntry(record["name"], int(record["slot"]), Path(record["home"])))
    return found


async def register(name: str, home: Path = EBB_HOME) -> Box:
    """The box of that name, made if there is none. Raises BoxError when another checkout has one, or its addresses are taken."""
    check_name(name)
    taken = taken_networks(await run("ip", "-4", "-o", "route", "show", "table", "all"))
    taken += nameservers(RESOLVER.read_text() if RESOLVER.exists() else "")
    with _locked():
        check_owner(name, home)
        others = [entry for entry in entries() if entry.name != name]
        box = Box.find(name, home) or Box(name=name, slot=free_slot(others, taken), home=home)
        check_slot(box, others)
        record = json.dumps({"name": box.name, "slot": box.slot, "home": str(box.home)})
        box.folder.mkdir(parents=True, exist_ok=True)
        _write(box.folder / "box.json", record)
        _save_kernel_settings()
        _write(REGISTRY / f"{name}.json", record)
    return box


def find(name: str, home: Path = EBB_HOME) -> Box | None:
    """The box for `down`: by its folder, or when that is lost by its entry. Raises BoxError when it is another checkout's."""
    check_name(name)
    check_owner(name, home)
    entry = next((entry for entry in entries() if entry.name == name), None)
    return Box.find(name, home) or (Box(name=name, slot=entry.slot, home=home) if entry else None)


def forget(name: str) -> None:
    """Removes the entry; the last one puts the kernel's settings back."""
    if not REGISTRY.exists():
        return
    with _locked():
        (REGISTRY / f"{name}.json").unlink(missing_ok=True)
        if not entries():
            _restore_kernel_settings()
            (REGISTRY / "lock").unlink()
            REGISTRY.rmdir()


def check_owner(name: str, home: Path) -> None:
    for entry in entries():
        if entry.name == name and entry.home != home:
            raise BoxError(
                f"a devcluster named {name!r} of another checkout ({entry.home}) is on this machine; choose another name with "
                f"--box, or take that one down: EBB_HOME={entry.home} python -m devcluster down --box {name}"
            )


def check_slot(box: Box, others: list[RegistryEntry]) -> None:
    for entry in others:
        if entry.slot == box.slot:
            raise BoxError(
                f"the addresses {box.network} of devcluster {box.name!r} are now used by devcluster {entry.name!r} "
                f"of {entry.home}; take one of them down: EBB_HOME={entry.home} python -m devcluster down --box {entry.name}"
            )


def free_slot(others: list[RegistryEntry], taken: list[IPv4Network]) -> int:
    """The first slot that no devcluster has and no network that is taken touches."""
    used = {entry.slot for entry in others}
    for slot in range(SLOTS):
        if slot not in used and not any(network.overlaps(slot_network(slot)) for network in taken):
            return slot
    raise BoxError(
        f"no free addresses for a devcluster: all of {slot_network(0)} to {slot_network(SLOTS - 1)} are in use on this machine "
        "by other devclusters (`ls /run/ebb`) or by routes (`ip route`); take a devcluster down or remove a route"
    )


def taken_networks(routes: str) -> list[IPv4Network]:
    """Destinations in `ip -o route` output; not the default, nor one so wide (a VPN's 10.0.0.0/8) that we may take a piece."""
    networks = []
    for line in routes.splitlines():
        words = [
            word for word in line.split() if word not in ("local", "broadcast", "unreachable", "blackhole", "throw", "prohibit")
        ]
        with suppress(ValueError, IndexError):
            network = IPv4Network(words[0])
            if network.prefixlen > 8:
                networks.append(network)
    return networks


def nameservers(resolver: str) -> list[IPv4Network]:
    """Those of a resolv.conf: behind the default route no route names them, and taking their addresses would cut them off."""
    found = []
    for line in resolver.splitlines():
        with suppress(ValueError):
            key, address, *_ = [*line.split(), "", ""]
            if key == "nameserver":
                found.append(IPv4Network(address))
    return found


@contextmanager
def _locked() -> Iterator[None]:
    while True:
        REGISTRY.mkdir(exist_ok=True)
        with (REGISTRY / "lock").open("w") as file:
            flock(file, LOCK_EX)
            # The last box of the machine removes the lock with the folder; who waited for it then holds a lock that is no more.
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(file.fileno()), (REGISTRY / "lock").stat()):
                    yield
                    return


def _write(path: Path, text: str) -> None:
    part = path.with_suffix(".part")
    part.write_text(text + "\n")
    part.replace(path)


def _save_kernel_settings() -> None:
    file = REGISTRY / "kernel-settings"
    if not file.exists():
        _write(file, json.dumps({key: (SYSCTL / key).read_text().strip() for key in KERNEL_SETTINGS}))


def _restore_kernel_settings() -> None:
    file = REGISTRY / "kernel-settings"
    if file.exists():
        for key, value in json.loads(file.read_text()).items():
            if (SYSCTL / key).read_text().strip() != value:
                (SYSCTL / key).write_text(value)
        file.unlink()
