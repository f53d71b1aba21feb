"""AWS stacks for tests: the one in the repository, and changes of it, of the form that a file has."""

from typing import Any

from infra import config
from infra.config import ROOT
from tests.infra.stacks import settings


def values(name: str = "dev") -> dict[str, Any]:
    """Section ebb of Pulumi.<name>.yaml, without its jobs and data sets."""
    return settings(name) | {"jobs": [], "datasets": []}


def small(**aws: Any) -> dict[str, Any]:
    """Two zones and two groups of machines with one T4 each; `aws` replaces keys of that section."""
    base = values()["aws"]
    base.pop("drill", None)
    return {
        "cloud": "aws",
        "zones": ["us-west-2a", "us-west-2b"],
        "manager": {"zone": "us-west-2a", "instanceType": "m7i.large"},
        "nodeGroups": [
            {"gpu": "T4", "max": 8},
            {"gpu": "T4", "capacity": "on-demand", "zones": ["us-west-2a"], "min": 1, "max": 2},
        ],
        "storage": {"dataGiB": 50, "outputGiB": 50},
        "aws": {**base, "network": {}, "storage": {"efs": {}, "etcdGiB": 10}, "nodes": {**base["nodes"]}, **aws},
    }


def stack(own: dict[str, Any] | None = None, **aws: Any) -> config.Stack:
    return config.parse(own or small(**aws), ROOT)
