"""Ebb: elastic PyTorch training on spot machines.

    from ebb import elastic        # inside a training program: pip install ebb-train[train]
    import ebb; ebb.log(step=120, loss=0.31)        # from any training program: progress for `ebb status` and reports
    from ebb import client         # from a notebook or a script: what the command `ebb` does, as typed functions

elastic/      the training runtime          api/     what the others share: the ElasticJob, platform facts, names
controller/   the ElasticJob controller     kube/    the way to an API server
gateway/      files and logs of a platform  client/, cli/   the typed Python API, and the command over it

`elastic`, `controller` and `client` never import each other: they are joined by texts (api/contract.py has the names).
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ebb.elastic.progress_log import log

__all__ = ["log"]


def __getattr__(name: str) -> Any:
    """Import the one public name when it is first used: every import of this package comes through this file."""
    if name == "log":
        return import_module("ebb.elastic.progress_log").log
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
