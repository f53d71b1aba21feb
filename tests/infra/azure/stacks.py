"""Azure stacks for tests: the one in the repository, and changes of it, of the form that a file has."""

from typing import Any

from infra import config
from infra.config import ROOT
from tests.infra.stacks import settings

SUBSCRIPTION = "01234567-89ab-cdef-0123-456789abcdef"
ADMINISTRATORS, RESEARCHERS = "11111111-2222-3333-4444-555555555555", "66666666-7777-8888-9999-aaaaaaaaaaaa"
GROUP = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/net/providers/Microsoft.Network/virtualNetworks/ours/subnets"
EXISTING = {"subnetId": f"{GROUP}/machines", "endpointSubnetId": f"{GROUP}/endpoints"}
ACCOUNT = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/ebb-old-data/providers/Microsoft.Storage/storageAccounts/ebbold1a2b3c4d"
SHARE = f"{ACCOUNT}/fileServices/default/shares/ebb"
CONTAINER = f"{ACCOUNT}/blobServices/default/containers/imagenet"
BUCKET = {"name": "imagenet", "containerId": CONTAINER}


def values() -> dict[str, Any]:
    """Section ebb of Pulumi.azure.yaml, without its jobs and data sets."""
    return settings("azure") | {"jobs": [], "datasets": []}


def small(**azure: Any) -> dict[str, Any]:
    """Two zones and two lines of machines with one T4 each; `azure` replaces keys of that section."""
    return {
        "cloud": "azure",
        "zones": ["westus2-1", "westus2-2"],
        "manager": {"zone": "westus2-1", "instanceType": "Standard_D4s_v5"},
        "nodeGroups": [
            {"gpu": "T4", "max": 8},
            {"gpu": "T4", "capacity": "on-demand", "zones": ["westus2-1"], "min": 1, "max": 2},
        ],
        "storage": {"dataGiB": 100, "outputGiB": 50},
        "azure": {**values()["azure"], **azure},
    }


def cluster(**changes: Any) -> dict[str, Any]:
    return {**values()["azure"]["cluster"], **changes}


def stack(own: dict[str, Any] | None = None, **azure: Any) -> config.Stack:
    return config.parse(own or small(**azure), ROOT)
