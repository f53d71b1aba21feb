"""Which cloud this machine belongs to, by its firmware.

Only files of the kernel are read. A link-local address is never tried to find out: elsewhere it may belong to something else, or
swallow every packet.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from ebb.metadata.announcement import Source
from ebb.metadata.aws import Aws
from ebb.metadata.azure import Azure
from ebb.metadata.gcp import Gcp

FIRMWARE = Path("/sys/class/dmi/id")  # containers see it too
SOURCES: Mapping[str, Callable[[Mapping[str, str]], Source]] = {"aws": Aws, "gcp": Gcp, "azure": Azure}
CHOICES = ("auto", "none", *SOURCES)  # of the flags by which somebody says whose machine it is

# The asset tag by which Azure differs from any other Hyper-V; cloud-init goes by it too.
_AZURE_TAG = "7783-7084-3265-9085-8269-3286-77"


def make_source(choice: str, environment: Mapping[str, str], firmware: Path = FIRMWARE) -> Source | None:
    """The source for one of CHOICES; "auto" asks the firmware. None: there is nothing to watch, or nobody wants it."""
    name = detect(firmware) if choice == "auto" else choice
    return SOURCES[name](environment) if name in SOURCES else None


def detect(firmware: Path = FIRMWARE) -> str:
    """A name of SOURCES, or "none"."""
    vendor, product = _read(firmware / "sys_vendor"), _read(firmware / "product_name")
    if vendor == "Amazon EC2" or "amazon" in _read(firmware / "bios_version").lower():  # Nitro; the older Xen machines
        return "aws"
    if product == "Google Compute Engine":
        return "gcp"
    if vendor == "Microsoft Corporation" and _read(firmware / "chassis_asset_tag") == _AZURE_TAG:
        return "azure"
    return "none"


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""  # no firmware tables: a container that hides them, or another kind of machine
