# mypy: disallow-untyped-calls=False
# (this part of torch has no types)
"""torch's elastic agent, and the parts that torch 2.1 to 2.3 lacks, in the shape that torch 2.4 and newer have.

    from ebb.elastic.launch.older_agent import LocalElasticAgent, LogsDest, LogsSpecs, give_master, logs_specs_of, master_of

Of a newer torch all this is torch's own. An older agent opens a store of its own for its workers, on a port that it finds; here
it hands out that of the rendezvous, as a newer one does. Before 2.3 there are no LogsSpecs either: the worker's streams are put
in their place when its process is about to be made.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from torch._C._distributed_c10d import TCPStore
from torch.distributed.elastic import multiprocessing, rendezvous
from torch.distributed.elastic.agent.server import local_elastic_agent
from torch.distributed.elastic.agent.server.api import Worker, WorkerGroup, WorkerSpec
from torch.distributed.elastic.multiprocessing import api
from torch.distributed.launcher.api import LaunchConfig

from ebb.elastic.launch.torch_version import accepted

__all__ = ["LocalElasticAgent", "LogsDest", "LogsSpecs", "give_master", "logs_specs_of", "master_of"]

_KNOWS_LOGS_SPECS = hasattr(api, "LogsSpecs")  # since torch 2.3
_HANDS_OVER = hasattr(rendezvous, "RendezvousInfo")  # since torch 2.4

if TYPE_CHECKING or _KNOWS_LOGS_SPECS:
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs
    from torch.distributed.elastic.multiprocessing.api import LogsDest, LogsSpecs

    def logs_specs_of(config: LaunchConfig) -> LogsSpecs:
        return config.logs_specs or DefaultLogsSpecs()

else:

    @dataclass
    class LogsDest:
        """Files by local rank, as torch 2.3 has them; "" leaves a stream as it is."""

        stdouts: dict[int, str] = field(default_factory=dict)
        stderrs: dict[int, str] = field(default_factory=dict)

    class LogsSpecs:
        """The folder alone: where the streams go, torch's own start of processes has decided by the time that it is asked."""

        def __init__(self, log_dir: str | None = None) -> None:
            self.root_log_dir = log_dir or ""

    def logs_specs_of(config: LaunchConfig) -> LogsSpecs:
        return LogsSpecs(config.log_dir)


if TYPE_CHECKING or _HANDS_OVER:
    from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent

    def give_master(group: WorkerGroup, host: str, port: int) -> None:
        """Name the store that the workers of this group will use."""
        untyped: Any = group  # by torch's types these are None
        untyped.master_addr, untyped.master_port = host, port

    def master_of(group: WorkerGroup) -> tuple[str, int]:
        return str(group.master_addr), int(group.master_port or 0)

else:
    _Torchs = local_elastic_agent.LocalElasticAgent

    class LocalElasticAgent(_Torchs):
        """torch's, which gives its workers the store of their rendezvous, and their streams to `logs_specs`."""

        def __init__(self, spec: WorkerSpec, logs_specs: Any, **options: Any) -> None:
            self._logs_specs = logs_specs
            if _KNOWS_LOGS_SPECS:
                super().__init__(spec, logs_specs, **options)
            else:
                options["log_dir"] = logs_specs.root_log_dir or None
                super().__init__(spec, **accepted(_Torchs.__init__, **options))

        @staticmethod
        def _set_master_addr_port(store: Any, master_addr: Any, master_port: Any, local_addr: Any) -> None:
            if isinstance(store, TCPStore):  # of our rendezvous; torch's own ones give a part of a store
                master_addr, master_port = store.host, store.port
            _Torchs._set_master_addr_port(store, master_addr, master_port, local_addr)

        def _assign_worker_ranks(self, store: Any, group_rank: int, group_world_size: int, spec: WorkerSpec) -> list[Worker]:
            """Without asking the others through the store, who may be gone, where all machines have as many workers."""
            if os.environ.get("TORCH_ELASTIC_WORKER_IDENTICAL") != "1":
                found: list[Worker] = super()._assign_worker_ranks(store, group_rank, group_world_size, spec)
                return found
            count = spec.local_world_size
            size, first = group_world_size * count, group_rank * count
            return [Worker(number, first + number, first + number, size, size) for number in range(count)]

        def _start_workers(self, worker_group: WorkerGroup) -> dict[int, Any]:
            torchs, handler = local_elastic_agent.start_processes, worker_group.spec.rdzv_handler

            def start(*, envs: dict[int, dict[str, str]], **options: Any) -> Any:
                for each in envs.values():
                    if getattr(handler, "use_agent_store", False):
                        each["TORCHELASTIC_USE_AGENT_STORE"] = "True"
                with contextlib.nullcontext() if _KNOWS_LOGS_SPECS else _streams_to(self._logs_specs):
                    return torchs(envs=envs, **options)

            with _replaced(local_elastic_agent, start_processes=start):
                started: dict[int, Any] = super()._start_workers(worker_group)
            return started

    def give_master(group: WorkerGroup, host: str, port: int) -> None:  # it is in the store
        """Nothing: the agent of that store has written it there."""

    def master_of(group: WorkerGroup) -> tuple[str, int]:
        found: tuple[str, int] = _Torchs._get_master_addr_port(group.store)
        return found

    @contextlib.contextmanager
    def _streams_to(logs_specs: Any) -> Iterator[None]:
        """Let processes that torch makes meanwhile begin with these streams."""

        def piped(kind: Any) -> Any:
            def make(*, envs: Any, stdouts: Any, stderrs: Any, **options: Any) -> Any:
                found = logs_specs.redirect(envs, LogsDest(stdouts, stderrs))
                return kind(envs=envs, stdouts=found.stdouts, stderrs=found.stderrs, **options)

            return make

        kinds = {name: piped(getattr(multiprocessing, name)) for name in ("SubprocessContext", "MultiprocessContext")}
        with _replaced(multiprocessing, **kinds):
            yield

    @contextlib.contextmanager
    def _replaced(module: Any, **values: Any) -> Iterator[None]:
        before = {name: getattr(module, name) for name in values}
        vars(module).update(values)
        try:
            yield
        finally:
            vars(module).update(before)
