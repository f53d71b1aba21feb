"""The function that torch finds our rendezvous by (`torchrun.handlers` in pyproject.toml).

torch asks for it while its own rendezvous is being imported, which may be because handler.py needs that: so handler.py is
imported when torchrun launches with `--rdzv_backend=etcd3`, and not before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch.distributed.elastic.rendezvous import RendezvousHandler, RendezvousParameters


def torchrun_handler() -> Callable[[RendezvousParameters], RendezvousHandler]:
    """Return the function that makes each launch's handler: the same one always, since a package may be found twice."""
    return _create


def _create(parameters: RendezvousParameters) -> RendezvousHandler:
    from ebb.elastic.rendezvous.handler import create_handler  # noqa: PLC0415

    return create_handler(parameters)
