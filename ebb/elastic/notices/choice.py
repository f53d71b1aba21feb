"""Which cloud's notices this machine can hear: what the user chose, or what the machine's firmware says it is.

    source = choose("auto", os.environ, say=say)      # a Source, or None

Inside Kubernetes the answer is always None: there the notice is SIGTERM, and pods do not reach the metadata address.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from ebb.metadata.announcement import Source
from ebb.metadata.firmware import CHOICES, FIRMWARE, SOURCES, make_source

_KUBERNETES = "KUBERNETES_SERVICE_HOST"  # set in every pod


def choose(
    choice: str, environment: Mapping[str, str], *, say: Callable[[str], None], firmware: Path = FIRMWARE
) -> Source | None:
    """The source to watch. None: there is nothing to watch, or nobody wants it."""
    if choice not in CHOICES:
        raise ValueError(f"--notices is {choice!r}; allowed: {', '.join(CHOICES)}")
    if _KUBERNETES in environment:
        if choice in SOURCES:
            say(f"--notices {choice} is ignored: in Kubernetes the notice is SIGTERM, and no metadata address is asked")
        return None
    return make_source(choice, environment, firmware)
