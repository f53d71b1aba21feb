"""Which cloud's notices this machine can hear: what the user chose, or what the machine's firmware says it is.

    source = choose("auto", os.environ, say=say)      # a Source, or None

Only files of the kernel are read. A link-local address is never tried to find out: elsewhere it may belong to something else, or
swallow every packet. Inside Kubernetes the answer is always None: there the notice is SIGTERM, and pods do not reach the address.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

from ebb.elastic.notices.announcement import Source
from ebb.elastic.notices.aws import Aws
from ebb.elastic.notices.azure import Azure
from ebb.elastic.notices.gcp import Gcp

CHOICES = ("auto", "none", "aws", "gcp", "azure")
SOURCES: Mapping[str, Callable[[Mapping[str, str]], Source]] = {"aws": Aws, "gcp": Gcp, "azure": Azure}

# The asset tag by which Azure differs from any other Hyper-V; cloud-init goes by it too.
_AZURE_TAG = "7783-7084-3265-9085-8269-3286-77"
_KUBERNETES = "KUBERNETES_SERVICE_HOST"  # set in every pod


def choose(
    choice: str, environment: Mapping[str, str], *, say: Callable[[str], None], firmware: Path = Path("/sys/class/dmi/id")
) -> Source | None:
    """The source to watch. None: there is nothing to watch, or nobody wants it."""
    if choice not in CHOICES:
        raise ValueError(f"--notices is {choice!r}; allowed: {', '.join(CHOICES)}")
    if _KUBERNETES in environment:
        if choice in SOURCES:
            say(f"--notices {choice} is ignored: in Kubernetes the notice is SIGTERM, and no metadata address is asked")
        return None
    name = detect(firmware) if choice == "auto" else choice
    return SOURCES[name](environment) if name in SOURCES else None


def detect(firmware: Path) -> str:
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
