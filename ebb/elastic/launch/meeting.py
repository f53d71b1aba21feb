# mypy: disallow-untyped-calls=False
# (this part of torch has no types)
"""How the machines of a job meet: our rendezvous for `etcd3`, torch's own for every other backend that torchrun knows."""

from collections.abc import Callable
from typing import Protocol, runtime_checkable

from torch.distributed.elastic.rendezvous import RendezvousHandler, RendezvousParameters, registry
from torch.distributed.launcher.api import LaunchConfig

from ebb.elastic.rendezvous import handler as etcd3


@runtime_checkable
class Membership(Protocol):
    """What our rendezvous has beyond torch's (ebb/elastic/rendezvous/handler.py)."""

    lost: bool
    failed: bool

    @property
    def detection_seconds(self) -> float: ...
    def leave(self) -> None: ...
    def num_nodes_waiting(self) -> int: ...
    def is_closed(self) -> bool: ...


def parameters(config: LaunchConfig) -> RendezvousParameters:
    return RendezvousParameters(
        backend=config.rdzv_backend,
        endpoint=config.rdzv_endpoint,
        run_id=config.run_id,
        min_nodes=config.min_nodes,
        max_nodes=config.max_nodes,
        local_addr=config.local_addr,
        **config.rdzv_configs,
    )


def open_handler(config: LaunchConfig, *, say: Callable[[str], None]) -> RendezvousHandler:
    """Raises ValueError and ModuleNotFoundError for what a user has to mend, RendezvousConnectionError of torch's own."""
    wanted = parameters(config)
    if config.rdzv_backend != etcd3.BACKEND:
        return registry.get_rendezvous_handler(wanted)
    wanted.config.setdefault("processes", config.nproc_per_node)
    return etcd3.create_handler(wanted, say=say)
