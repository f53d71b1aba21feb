"""Settings, and the `Box`: name, folders and networks of one devcluster. Everything else in devcluster/ takes a `Box`.

`Box.load(name)` reads a devcluster that `up` has made; registry.py makes and removes the record.
This file alone reads the environment (EBB_HOME, EBB_DOWNLOADS, XDG_CACHE_HOME). It starts nothing and touches no network.
"""

import json
import os
import re
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import Self


class BoxError(Exception):
    """Root of the package's errors; the text is one sentence for the user that says what to do.

    BoxError
    ├── PreflightError   this machine cannot hold a devcluster (yet)
    ├── CommandError     a program that we ran failed
    ├── ToolError        a tool could not be built
    ├── ImageError       an image could not be built or loaded
    ├── ProcessError     a daemon died or did not become healthy
    └── MachineError     a machine could not be booted
    """


CHECKOUT = Path(__file__).resolve().parent.parent
EBB_HOME = Path(os.environ.get("EBB_HOME") or CHECKOUT / ".ebb").resolve()
# Downloads that all checkouts of this user share, like pip's and Go's own; `make clean` leaves them.
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ebb"
# Mirror of the sites with official releases, for downloads.py: http://HOST/ in front of dl.k8s.io/..., or `never`.
DOWNLOADS = os.environ.get("EBB_DOWNLOADS", "")
# Devclusters of every checkout on this machine announce themselves here, so that names and addresses never clash; gone after a
# reboot, as devclusters are.
REGISTRY = Path("/run/ebb")

REGION = "local"
ZONES = ("local-a", "local-b", "local-c")
DEFAULT_BOX = "ebb"
API_PORT = 6443
# Slot n owns 10.(FIRST_NET + n).0.0/16: high numbers, because cloud and office networks mostly use low ones.
FIRST_NET = 210
SLOTS = 40
# The pods' half of a /16 is 128 networks of one machine each; the first is the machines' own.
MAX_MACHINES = 126


@dataclass(frozen=True, kw_only=True)
class Box:
    """One local cluster. `slot` is what all its addresses derive from; `home` is EBB_HOME of the checkout that owns it."""

    name: str
    slot: int
    home: Path

    @classmethod
    def load(cls, name: str = DEFAULT_BOX, home: Path = EBB_HOME) -> Self:
        """The devcluster that `up` made. Raises BoxError when there is none."""
        box = cls.find(name, home)
        if box is None:
            raise BoxError(
                f"there is no devcluster named {name!r} in {home / 'boxes'}; make it with: python -m devcluster up --box {name}"
            )
        return box

    @classmethod
    def find(cls, name: str = DEFAULT_BOX, home: Path = EBB_HOME) -> Self | None:
        """Like load, but None when there is no such devcluster."""
        check_name(name)
        try:
            record = json.loads((home / "boxes" / name / "box.json").read_text())
        except FileNotFoundError:
            return None
        return cls(name=name, slot=int(record["slot"]), home=home)

    @property
    def folder(self) -> Path:
        return self.home / "boxes" / self.name

    @property
    def kubeconfig(self) -> Path:
        """The administrator's."""
        return self.folder / "kubeconfig"

    @property
    def researcher_kubeconfig(self) -> Path:
        """One with the rights of workloads/manifests/researcher.yaml alone: what `ebb` takes."""
        return self.folder / "researcher.kubeconfig"

    @property
    def logs(self) -> Path:
        return self.folder / "logs"

    @property
    def pki(self) -> Path:
        return self.folder / "pki"

    @property
    def machines(self) -> Path:
        return self.folder / "machines"

    @property
    def volumes(self) -> Path:
        return self.folder / "volumes"

    @property
    def exhausted(self) -> Path:
        """JSON list of the zones that have no machines to give."""
        return self.folder / "dry"

    @property
    def netns(self) -> str:
        """The network namespace of the control plane and of the bridge that joins all machines."""
        return f"ebb.{self.name}"

    def machine_netns(self, machine: str) -> str:
        # A dot cannot occur in a devcluster's or a machine's name, so boxes `a` and `a-b` never take each other's namespaces for
        # their own.
        return f"ebb.{self.name}.{machine}"

    @property
    def cgroup(self) -> str:
        """Path of the control group below each hierarchy's root; every process of the devcluster is in it or below it."""
        return f"ebb/{self.name}"

    @property
    def link(self) -> str:
        """The one interface that the devcluster has on the host."""
        return f"ebb{self.slot}"

    @property
    def network(self) -> IPv4Network:
        """All addresses of the devcluster."""
        return slot_network(self.slot)

    @property
    def address(self) -> IPv4Address:
        """Of the control plane and the router: the bridge, reachable from the host, all machines and all pods."""
        return self.network[1]

    @property
    def host_address(self) -> IPv4Address:
        return self.network[254]

    @property
    def api_url(self) -> str:
        return f"https://{self.address}:{API_PORT}"

    @property
    def pod_network(self) -> IPv4Network:
        """Pods of all machines: machine n has the n-th /24. The machines' own addresses are the 0th."""
        return next(self.network.subnets(new_prefix=17))

    @property
    def service_network(self) -> IPv4Network:
        return list(self.network.subnets(new_prefix=20))[-1]

    @property
    def dns_address(self) -> IPv4Address:
        return self.service_network[10]

    def machine_address(self, index: int) -> IPv4Address:
        _check_index(index)
        return self.network[index + 1]

    def machine_pods(self, index: int) -> IPv4Network:
        _check_index(index)
        return IPv4Network((int(self.network.network_address) + (index << 8), 24))


def _check_index(index: int) -> None:
    assert 1 <= index <= MAX_MACHINES, index


def slot_network(slot: int) -> IPv4Network:
    return IPv4Network(f"10.{FIRST_NET + slot}.0.0/16")


def check_name(name: str) -> None:
    if not re.fullmatch(r"[a-z][a-z0-9-]{0,19}", name):
        raise BoxError(f"devcluster name {name!r} must be 1 to 20 of a-z, 0-9 and -, starting with a letter")
