# mypy: disallow-untyped-calls=False
# (this part of torch has no types)
"""torch's elastic agent with our exit policy and rendezvous. Used by node_agent.py only.

torch's agent starts, watches and stops the workers of this machine and restarts them when newcomers wait. Overridden are the
hooks that it leaves to its subclasses, and nothing of it is changed. Workers that live through changes (rendezvous/places.py)
get new places instead of a restart. It sets no limit to a step, the first one or any other.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from torch._C._distributed_c10d import TCPStore
from torch.distributed.elastic.agent.server.api import RunResult, Worker, WorkerGroup, WorkerSpec, WorkerState
from torch.distributed.elastic.multiprocessing import api as multiprocessing_api
from torch.distributed.elastic.multiprocessing.api import MultiprocessContext
from torch.distributed.elastic.multiprocessing.errors import ProcessFailure
from torch.distributed.elastic.rendezvous import RendezvousClosedError, RendezvousHandler, RendezvousParameters, registry
from torch.distributed.elastic.rendezvous.utils import parse_rendezvous_endpoint
from torch.distributed.launcher.api import LaunchConfig

from ebb.compat import zip
from ebb.elastic.contract import EXIT_RECLAIMED
from ebb.elastic.launch import program
from ebb.elastic.launch.exit_policy import ExitPolicy, Failure, may_be_peer_loss
from ebb.elastic.launch.hardware_check import GpuTest
from ebb.elastic.launch.logs.reader import LogPipes
from ebb.elastic.launch.logs.specs import Piped
from ebb.elastic.launch.older_agent import LocalElasticAgent, LogsSpecs, give_master, logs_specs_of, master_of
from ebb.elastic.launch.restart_rules import RestartRules
from ebb.elastic.launch.settings import is_ours, launch_config
from ebb.elastic.launch.torch_version import accepted, keep_signal_handlers
from ebb.elastic.launch.worker import run_module
from ebb.elastic.notices.relay import Relay, is_running
from ebb.elastic.rendezvous import handler as etcd3
from ebb.elastic.rendezvous.places import SOCKET_NAME, PlaceServer, WorkerPlace
from ebb.elastic.rendezvous.store import address_of, serve, tell_facts
from ebb.elastic.torch_compat import STORE_ERRORS, has_keys


@runtime_checkable
class Membership(Protocol):
    """The additions of our rendezvous to torch's (ebb/elastic/rendezvous/handler.py)."""

    lost: bool
    cause: bool
    failed: bool
    by_itself: bool
    members_only: bool

    @property
    def detection_seconds(self) -> float: ...
    def leave(self) -> None: ...
    def find_others(self, *, wait_seconds: float) -> etcd3.Others | None: ...
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


# Options of torchrun for the workers alone, as far as this torch has them.
_PASSED_ON = (
    *("event_log_handler", "numa_options", "duplicate_stdout_filters", "duplicate_stderr_filters", "virtual_local_rank"),
    *("redirects", "tee"),  # before torch 2.3
)
_WITHOUT_LIMIT = 10**9  # restarts as torch counts them; we count failures ourselves
# Two times the trainer's own --leave-seconds: its default lets a worker end by itself first.
_GRACE_SECONDS = 40
_LOST_GRACE_SECONDS = 5  # for workers whose peer is gone: to notice it, at the end of a pass
# For those that save by then: a large state takes longer. Below Rules.straggler_seconds: then the others go on without them.
_SAVING_SECONDS = 100
_FINISH_SECONDS = 300.0  # between the ends of two machines' workers, as torch has it
_OTHERS_SECONDS = 10.0  # for the others to go on without this machine, whose workers have ended
# For workers that have just been started to import and say that they live through changes, before newcomers end them. Scripts
# that never say so take newcomers that much later, and no more.
_IMPORT_SECONDS = 10.0
_REPEAT_SECONDS = 1.0
_LOOK_SECONDS = 0.1
_STORE_KEY = "ebb/store"  # in torch's store of a meeting: the address of ours
_FRAMES = "\nException raised from "


class WorkersLeft(Exception):  # not an error
    """The workers left because of a notice. `saved`: at a step boundary, with a checkpoint of all they had done."""

    def __init__(self, codes: set[int]) -> None:
        super().__init__(codes)
        self.saved = codes <= {EXIT_RECLAIMED}


class Notices(Protocol):
    """The part of reclaim.Reclaim that the agent needs."""

    seen: bool
    hurried: bool

    def waiting(self) -> contextlib.AbstractContextManager[None]: ...


class Agent(LocalElasticAgent):
    """The agent of one machine. `knows_codes`: its program speaks by the exit codes of ebb/elastic/contract.py; `gpus`: None
    where they are not to be tested."""

    def __init__(
        self,
        spec: WorkerSpec,
        config: LaunchConfig,
        notices: Notices,
        *,
        logs_specs: LogsSpecs,
        knows_codes: bool,
        gpus: GpuTest | None,
        say: Callable[[str], None],
    ) -> None:
        super().__init__(
            spec,
            logs_specs,
            start_method="forkserver" if callable(spec.entrypoint) else config.start_method,
            exit_barrier_timeout=_FINISH_SECONDS,
            log_line_prefix_template=getattr(config, "log_line_prefix_template", None),  # since torch 2.2
        )
        self._shutdown_timeout = _GRACE_SECONDS
        keep_signal_handlers(multiprocessing_api)
        self._notices, self._knows_codes, self._gpus, self._say = notices, knows_codes, gpus, say
        self._handler = spec.rdzv_handler
        self._exit_policy = ExitPolicy(max_restarts=config.max_restarts, say=say, rules=RestartRules.of(os.environ))
        self._told_at = self._met_at = 0.0
        self._relay = Relay.find(os.environ)
        self._places = _serve_places(self._relay)
        self._server: TCPStore | None = None
        self._beside = False  # its workers get ready beside a generation, and are in none

    def _rendezvous(self, worker_group: WorkerGroup) -> None:
        """Before workers are started: beside the others, where those train and live through changes."""
        with self._notices.waiting():
            others = self._find_others(worker_group)
        self._beside = others is not None
        if self._places is not None:
            self._places.prepare_beside(others.facts if others else None)
        if others is None:
            self._meet(worker_group)
        else:
            self._get_ready_beside(worker_group, others)
        self._met_at = time.monotonic()

    def _find_others(self, worker_group: WorkerGroup) -> etcd3.Others | None:
        if self._places is None or not isinstance(self._handler, Membership):
            return None
        if worker_group.group_world_size is None:  # it has just come
            return self._handler.find_others(wait_seconds=0.0)
        if not self._left_others(worker_group):
            return None
        return self._handler.find_others(wait_seconds=_OTHERS_SECONDS)

    def _left_others(self, worker_group: WorkerGroup) -> bool:
        """True if its workers, which live through changes, have ended, and there were others."""
        return self._places is not None and self._places.used and (worker_group.group_world_size or 1) > 1

    def _get_ready_beside(self, worker_group: WorkerGroup, others: etcd3.Others) -> None:
        """In the place of a meeting: as if this machine came after the others in their generation. Nothing is sent under that."""
        machines, processes = len(others.record.members), worker_group.spec.local_world_size
        ranks = range(machines * processes, (machines + 1) * processes)
        host, _, port = others.record.store.rpartition(":")
        worker_group.workers = [Worker(number, rank, rank, ranks.stop, ranks.stop) for number, rank in enumerate(ranks)]
        group: Any = worker_group  # by torch's types these are None
        group.store = others.store
        give_master(group, host, int(port))
        group.group_rank, group.group_world_size = machines, machines + 1
        self._say(f"getting ready while {machines} of the job's machines train: they stop for a moment when this one is")

    def _meet(self, worker_group: WorkerGroup) -> None:
        self._say("meeting the other machines of the job")
        with self._notices.waiting():
            super()._rendezvous(worker_group)
            self._serve_store(worker_group)
        self._say(f"machine {worker_group.group_rank} of {worker_group.group_world_size}")

    def _serve_store(self, worker_group: WorkerGroup) -> None:
        """A store of this meeting's own, for its workers. With our rendezvous it has one; torch's c10d has the same for all
        meetings: workers that recover in memory would find there those of an older one, and try to reach them."""
        if isinstance(self._handler, Membership) or not getattr(self._handler, "use_agent_store", False):
            return
        group: Any = worker_group  # by torch's types these are None
        if group.group_rank == 0:
            self._server = serve(group.master_addr)  # in the place of the last one, which goes
            group.store.set(_STORE_KEY, address_of(self._server))
        host, _, port = group.store.get(_STORE_KEY).decode().rpartition(":")
        group.master_addr, group.master_port = host, int(port)

    def _monitor_workers(self, worker_group: WorkerGroup) -> RunResult:
        if self._notices.seen and time.monotonic() - self._told_at > _REPEAT_SECONDS:
            self._told_at = time.monotonic()
            self._tell(worker_group)
        if self._relay is not None and not all(map(is_running, _processes(worker_group))):
            wait_for_saves(self._relay, _processes(worker_group), stop=lambda: self._notices.hurried)
        ended = self._ended_well()  # before torch looks: what these had to say is then there
        result: RunResult = super()._monitor_workers(worker_group)
        if result.state == WorkerState.FAILED:
            self._handle_failures([_failure(each) for each in self._failed(result)], worker_group)
        if result.state == WorkerState.HEALTHY and not ended and self._places:
            self._serve(worker_group, self._places)
        if result.state == WorkerState.HEALTHY and ended and self._finished_without_a_word(ended):
            return RunResult(state=WorkerState.SUCCEEDED, return_values={each.global_rank: None for each in worker_group.workers})
        return result

    def _serve(self, worker_group: WorkerGroup, places: PlaceServer) -> None:
        """Living workers: a place for those that ask, and their facts for newcomers."""
        processes = _processes(worker_group)
        if places.all_ask(processes) if self._beside else places.asks(processes):
            self._move(worker_group, places)
        elif self._beside and isinstance(self._handler, Membership) and self._handler.is_closed():
            raise RendezvousClosedError
        elif (told := places.take_told()) is not None and self._store is not None:
            tell_facts(self._store, told)

    def _ended_well(self) -> set[int]:
        """Forked workers, by local rank, that have ended with 0: torch lets none end before all have returned."""
        context = self._pcontext
        if not isinstance(context, MultiprocessContext) or context._pc is None:
            return set()
        return {rank for rank, process in enumerate(context._pc.processes) if process.exitcode == 0}

    def _finished_without_a_word(self, ended: set[int]) -> bool:
        """torch waits for the value that each forked function returns: for ever, for one that ended by os._exit(0)."""
        context = self._pcontext
        assert isinstance(context, MultiprocessContext)
        if len(ended) == context.nprocs:
            return True
        if not context._return_values.keys() & ended and len(context._return_values) + len(ended) == context.nprocs:
            context._worker_finished_event.set()  # those that have returned wait for it, to end in order
        return False

    def _failed(self, result: RunResult) -> list[ProcessFailure]:
        """All that have failed by themselves. Of forked workers torch names one, the first by rank, and ends the others."""
        named = list(result.failures.values())
        context = self._pcontext
        if not isinstance(context, MultiprocessContext) or context._pc is None:
            return named
        others = [
            ProcessFailure(rank, process.pid or 0, process.exitcode, context.error_files[rank])
            for rank, process in enumerate(context._pc.processes)
            if (process.exitcode or 0) > 0 and rank not in [each.local_rank for each in named]
        ]
        return named + others

    def _handle_failures(self, failures: list[Failure], worker_group: WorkerGroup) -> None:
        """Return to meet the others again. Raises WorkersLeft, ProgramFailedError, HardwareFailedError,
        RendezvousClosedError."""
        codes = {failure.code for failure in failures}
        if isinstance(self._handler, Membership):
            self._handler.failed = not codes <= {EXIT_RECLAIMED}
            self._handler.by_itself = any(failure.is_own for failure in failures)
        if self._notices.seen:
            raise WorkersLeft(codes)
        in_company = (worker_group.group_world_size or 1) > 1 and not self._beside
        asked = in_company and may_be_peer_loss(failures, knows_codes=self._knows_codes)
        peer_lost = asked and self._peer_is_gone(failures)
        self._exit_policy.apply(failures, peer_lost=peer_lost, gpu_fault=self._test_gpus(failures))

    def _test_gpus(self, failures: list[Failure]) -> str | None:
        """None where there is nothing to test, or no need."""
        if self._gpus is None or not any(failure.is_hardware for failure in failures):
            return None
        if isinstance(self._handler, Membership):
            self._handler.leave()  # the others need not wait for the test; if it passes, this machine comes back
        self._say("a worker says that a GPU failed: testing this machine's GPUs")
        with self._notices.waiting():
            return self._gpus.finish()

    def _peer_is_gone(self, failures: list[Failure]) -> bool:
        """True if the membership changes within the time in which the loss of a machine shows. An abort may itself be what the
        others have lost: it is explained by one that is gone, or has failed by itself."""
        if not isinstance(self._handler, Membership):
            return False
        aborted = any(failure.is_abort for failure in failures)
        deadline = time.monotonic() + self._handler.detection_seconds
        while time.monotonic() < deadline:
            if self._handler.num_nodes_waiting() > 0 and (self._handler.cause or not aborted):
                return True
            if self._handler.is_closed():
                raise RendezvousClosedError
            if self._notices.seen:
                raise WorkersLeft({failure.code for failure in failures})
            time.sleep(_LOOK_SECONDS)
        return False

    def _restart_workers(self, worker_group: WorkerGroup) -> None:
        """Only where they do not live through the change."""
        if self._may_import(worker_group):
            return
        living = worker_group.state == WorkerState.HEALTHY and self._places and self._places.all_live(_processes(worker_group))
        if not living or self._places is None:
            if self._left_others(worker_group) and isinstance(self._handler, Membership) and not self._notices.seen:
                self._handler.failed = True  # the others' step has no end with these workers; nor need they wait for theirs
                self._handler.leave()
            super()._restart_workers(worker_group)
        elif isinstance(self._handler, Membership) and self._handler.lost:
            self._move(worker_group, self._places)
        else:
            self._places.tell_change()

    def _may_import(self, worker_group: WorkerGroup) -> bool:
        """True if its workers have only just been started, and only newcomers wait, who can wait for their first step too."""
        lost = not isinstance(self._handler, Membership) or self._handler.lost
        if worker_group.state != WorkerState.HEALTHY or lost or time.monotonic() - self._met_at > _IMPORT_SECONDS:
            return False
        return self._places is not None and not self._places.all_live(_processes(worker_group))

    def _move(self, worker_group: WorkerGroup, places: PlaceServer) -> None:
        """Meet the others again, with the same processes."""
        processes = _processes(worker_group)
        if isinstance(self._handler, Membership):
            self._handler.failed = places.broken(processes)
            self._handler.members_only = places.members_only(processes)
        self._meet(worker_group)
        self._beside = False
        (address, port), found = master_of(worker_group), {}
        for worker, process in zip(worker_group.workers, processes, strict=True):
            worker.id = process
            found[process] = WorkerPlace(
                rank=worker.global_rank,
                world_size=worker.world_size,
                machine=worker_group.group_rank or 0,
                machines=worker_group.group_world_size or 1,
                address=address,
                port=port,
            )
        places.give(found)

    def _stop_workers(self, worker_group: WorkerGroup, is_restart: bool = False) -> None:
        lost = isinstance(self._handler, Membership) and self._handler.lost
        grace = _LOST_GRACE_SECONDS if lost else self._shutdown_timeout
        if self._relay is not None:
            end_workers(self._relay, _processes(worker_group), grace_seconds=grace, stop=lambda: self._notices.hurried)
            grace = _LOST_GRACE_SECONDS  # for the kernel: they are killed
        self._shutdown(timeout=grace)

    def _shutdown(self, death_sig: signal.Signals = signal.SIGTERM, timeout: int = 30) -> None:
        """As torch's own since 2.9; older ones take no time, and close the rendezvous of a job that goes on elsewhere."""
        for name in ("_worker_watchdog", "_health_check_server"):
            if (found := getattr(self, name, None)) is not None:
                found.stop()
                setattr(self, name, None)
        if self._pcontext:
            self._pcontext.close(death_sig, 0 if self._notices.hurried else timeout)

    def _exit_barrier(self) -> None:
        """torch's own hears neither a signal nor that a machine is gone."""
        self._in_exit_barrier = True
        group, store = self._worker_group, self._worker_group.store
        assert store is not None
        keys = [f"ebb/finished/{number}" for number in range(group.group_world_size or 1)]
        deadline = time.monotonic() + self._exit_barrier_timeout
        with contextlib.suppress(*STORE_ERRORS):  # rank 0's agent has the store, and has seen that all have finished
            store.set(keys[group.group_rank or 0], "")
            while not has_keys(store, keys) and time.monotonic() < deadline:
                if self._notices.seen or self._others_are_gone():
                    return
                time.sleep(_LOOK_SECONDS)

    def _others_are_gone(self) -> bool:
        """Or one of them: it will not finish."""
        handler = self._handler
        if not isinstance(handler, Membership):
            return False
        return handler.is_closed() or (handler.num_nodes_waiting() > 0 and handler.lost)

    def _tell(self, worker_group: WorkerGroup) -> None:
        for worker in worker_group.workers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(worker.id), signal.SIGTERM)


def _serve_places(relay: Relay | None) -> PlaceServer | None:
    """None where there can be no socket: then every change starts the workers anew."""
    if relay is None:
        return None
    try:
        return PlaceServer(relay.folder / SOCKET_NAME)
    except OSError:
        return None


def _processes(worker_group: WorkerGroup) -> list[int]:
    """Their process ids, by local rank."""
    return [int(worker.id) for worker in worker_group.workers]


def wait_for_saves(relay: Relay, processes: list[int], *, stop: Callable[[], bool]) -> None:
    """Return when none of the workers saves, or it takes too long: torch ends them 30 s after another one has failed."""
    deadline = time.monotonic() + _SAVING_SECONDS
    while any(map(relay.is_saving, processes)) and time.monotonic() < deadline and not stop():
        time.sleep(_LOOK_SECONDS)


def end_workers(
    relay: Relay,
    processes: list[int],
    *,
    grace_seconds: float,
    stop: Callable[[], bool],
    saving_seconds: float = _SAVING_SECONDS,
) -> None:
    """Tell them to end, and kill those that have not done so in time: the grace, which begins anew while one of them saves."""
    _signal(processes, signal.SIGTERM)
    now = time.monotonic()
    deadline, latest = now + grace_seconds, now + saving_seconds
    while any(map(is_running, processes)) and now < deadline and not stop():
        if any(map(relay.is_saving, processes)):
            deadline = min(latest, now + grace_seconds)
        time.sleep(_LOOK_SECONDS)
        now = time.monotonic()
    _signal(processes, signal.SIGKILL)


def _signal(processes: list[int], number: signal.Signals) -> None:
    """As torch's agent does: a script with all that it has started, a forked module alone."""
    for process in filter(is_running, processes):
        with contextlib.suppress(ProcessLookupError):
            if os.getpgid(process) == process:
                os.killpg(process, number)
            else:
                os.kill(process, number)


def build(
    settings: argparse.Namespace,
    handler: RendezvousHandler,
    notices: Notices,
    pipes: LogPipes,
    *,
    gpus: GpuTest | None,
    say: Callable[[str], None],
) -> Agent:
    """The agent for torchrun's settings: a module is forked from a process that has torch loaded, a script is started anew."""
    config, entrypoint, arguments = launch_config(settings)
    forked = settings.module and not settings.no_python and not settings.run_path
    if forked:
        entrypoint, arguments = run_module, [settings.training_script, *settings.training_script_args]
    elif not settings.no_python and not settings.run_path and settings.training_script.endswith(".py"):
        arguments = [arguments[0], str(Path(program.__file__)), *arguments[1:]]  # after -u
    host, port = parse_rendezvous_endpoint(config.rdzv_endpoint, -1) if config.rdzv_backend == "static" else (None, None)
    spec = WorkerSpec(
        role=config.role,
        local_world_size=config.nproc_per_node,
        entrypoint=entrypoint,
        args=tuple(arguments),
        rdzv_handler=handler,
        max_restarts=_WITHOUT_LIMIT,
        monitor_interval=config.monitor_interval,
        master_addr=host,
        master_port=port,
        local_addr=config.local_addr,
        **accepted(WorkerSpec, **{name: getattr(config, name, None) for name in _PASSED_ON}),
    )
    knows_codes = forked and is_ours(settings.training_script)
    logs_specs = Piped(logs_specs_of(config), pipes, forked=forked)
    return Agent(spec, config, notices, logs_specs=logs_specs, knows_codes=knows_codes, gpus=gpus, say=say)


def _failure(found: ProcessFailure) -> Failure:
    """With what torch's error file says, if there is one; C++ frames left out."""
    if "message" not in found.error_file_data or found.error_file == "<N/A>":
        return Failure(code=found.exitcode)
    message = found.message["message"] if isinstance(found.message, dict) else found.message
    return Failure(code=found.exitcode, sentence=str(message).strip().partition(_FRAMES)[0])
