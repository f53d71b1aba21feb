"""torch's elastic agent with our judgement: what a worker's exit means, and what a notice does. Used by launch.py only.

torch's agent starts, watches and stops the workers of this machine and restarts them when newcomers wait. Overridden are the
hooks that it leaves to its subclasses, and nothing of it is changed.
"""

import argparse
import contextlib
import os
import signal
import time
from collections.abc import Callable
from typing import Protocol

from torch.distributed import run
from torch.distributed.elastic.agent.server.api import RunResult, WorkerGroup, WorkerSpec, WorkerState
from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs
from torch.distributed.elastic.rendezvous import RendezvousHandler
from torch.distributed.launcher.api import LaunchConfig

from trainer.contract import EXIT_PEER_LOST, EXIT_RECLAIMED
from trainer.etcd_rendezvous import EtcdMembership
from trainer.worker import run_module

_WITHOUT_LIMIT = 10**9  # restarts as torch counts them; we count failures ourselves
_KILLED_LIMIT = 3  # workers that a signal killed (out of memory, a crash in C): chance, or a bug
_LOST_GRACE_SECONDS = 5  # for workers whose peer is gone: time to save what they hold, if they have noticed it themselves
_FINISH_SECONDS = 20  # all ranks pass a barrier before they end; longer means that the other machine is gone
_REPEAT_SECONDS = 1.0


class Left(Exception):  # not an error
    """The workers left because of a notice."""


class ProgramFailedError(Exception):
    """A worker failed by itself."""


class Notices(Protocol):
    """What the agent needs of launch.Reclaim."""

    seen: bool

    def waiting(self) -> contextlib.AbstractContextManager[None]: ...


class Judge:
    """What the exit codes of workers mean. It counts failures, so it is one for the life of a launcher."""

    def __init__(self, *, max_restarts: int, say: Callable[[str], None]) -> None:
        self._failures_left = max_restarts
        self._kills_left = _KILLED_LIMIT
        self._say = say

    def judge(self, codes: set[int]) -> None:
        """Return to meet the others again; raise ProgramFailedError to end the job."""
        if codes <= {EXIT_RECLAIMED, EXIT_PEER_LOST}:
            return
        if all(code < 0 for code in codes) and self._kills_left > 0:
            self._kills_left -= 1
            self._say(f"a worker was killed by a signal ({codes}); starting it again, {self._kills_left} more times at most")
            return
        if self._failures_left > 0:
            self._failures_left -= 1
            self._say(f"a worker failed (exit codes {codes}); restarting, {self._failures_left} more times at most")
            return
        raise ProgramFailedError(f"a worker failed (exit codes {codes}): the job ends; its last lines say why")


class Agent(LocalElasticAgent):
    """The agent of one machine."""

    def __init__(self, spec: WorkerSpec, config: LaunchConfig, notices: Notices, say: Callable[[str], None], grace: int) -> None:
        super().__init__(
            spec,
            config.logs_specs or DefaultLogsSpecs(),
            start_method="forkserver" if callable(spec.entrypoint) else config.start_method,
            exit_barrier_timeout=_FINISH_SECONDS,
            shutdown_timeout=grace,
        )
        self._notices = notices
        self._say = say
        self._judge = Judge(max_restarts=config.max_restarts, say=say)
        self._told_at = 0.0

    def _rendezvous(self, worker_group: WorkerGroup) -> None:
        self._say("meeting the other machines of the job")
        with self._notices.waiting():
            super()._rendezvous(worker_group)
        self._say(f"{worker_group.group_world_size} machines, this one is number {worker_group.group_rank}")

    def _monitor_workers(self, worker_group: WorkerGroup) -> RunResult:
        if self._notices.seen and time.monotonic() - self._told_at > _REPEAT_SECONDS:
            self._told_at = time.monotonic()
            self._tell(worker_group)
        result: RunResult = super()._monitor_workers(worker_group)
        if result.state == WorkerState.FAILED:
            if self._notices.seen:
                raise Left
            self._judge.judge({failure.exitcode for failure in result.failures.values()})
        return result

    def _stop_workers(self, worker_group: WorkerGroup) -> None:
        handler = worker_group.spec.rdzv_handler
        lost = isinstance(handler, EtcdMembership) and handler.lost
        self._shutdown(timeout=_LOST_GRACE_SECONDS if lost else self._shutdown_timeout)

    def _tell(self, worker_group: WorkerGroup) -> None:
        for worker in worker_group.workers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(worker.id), signal.SIGTERM)


def build(
    settings: argparse.Namespace,
    handler: RendezvousHandler,
    notices: Notices,
    *,
    grace_seconds: int,
    say: Callable[[str], None],
) -> Agent:
    """The agent for torchrun's settings: a module is forked from a process that has torch loaded, a script is started anew."""
    config, command, arguments = run.config_from_args(settings)
    entrypoint, args = command, tuple(arguments)
    if settings.module and not settings.no_python and not settings.run_path:
        entrypoint, args = run_module, (settings.training_script, *settings.training_script_args)
    spec = WorkerSpec(
        role=config.role,
        local_world_size=config.nproc_per_node,
        entrypoint=entrypoint,
        args=args,
        rdzv_handler=handler,
        max_restarts=_WITHOUT_LIMIT,
        monitor_interval=config.monitor_interval,
        local_addr=config.local_addr,
    )
    return Agent(spec, config, notices, say, grace_seconds)
