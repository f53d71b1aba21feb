# mypy: disallow-untyped-calls=False
# (torch's parser of its flags has no types)
"""The process that a pod starts: meets the other machines, runs this machine's workers, meets again when the others change.

    python -m trainer.launch --nnodes=1:4 --rdzv_backend=etcd --rdzv_endpoint=etcd:2379 --rdzv_id=JOB -m trainer --data DIR ...
    python -m trainer.launch --standalone --nproc-per-node=2 -m trainer --data DIR --output DIR

It takes torchrun's flags and the PET_* variables, and runs any torchrun script. What it does differently:
- A change of the membership is no failure: a worker that leaves at a step boundary (138) or because a peer vanished (75) makes
  this process meet the others again, without a limit. A worker that fails otherwise ends it with 1 at once (--max-restarts N
  allows N restarts; a worker that a signal killed is started again up to three times).
- SIGTERM at any moment, as PID 1 too: the workers are told, save at the next step boundary and leave; the exit code is 138.
- The exit code says what happened (trainer/contract.py); torchrun turns every failure into 1.
"""

import contextlib
import logging
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from multiprocessing import forkserver, get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainer.contract import ENV_OUTPUT_DIR, EXIT_FINISHED, EXIT_PROGRAM_FAILED, EXIT_RECLAIMED
from trainer.notice import Interrupted

if TYPE_CHECKING:  # torch takes seconds to import; a SIGTERM must be heard before
    import argparse

    from torch.distributed.elastic.rendezvous import RendezvousHandler

# Two times the trainer's own --leave-seconds: its default lets a worker end by itself first.
GRACE_SECONDS = 40


class Reclaim:
    """SIGTERM or SIGINT of this process. Raises Interrupted where waiting is all that goes on, else only sets `seen`."""

    def __init__(self) -> None:
        self.seen = False
        self._waiting = True
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._hear)

    def _hear(self, _number: int, _frame: Any) -> None:
        self.seen = True
        if self._waiting:
            raise Interrupted

    def workers_run(self) -> None:
        self._waiting = False

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """In here a notice raises Interrupted, one that came before too."""
        self._waiting = True
        try:
            if self.seen:
                raise Interrupted
            yield
        finally:
            self._waiting = False


def main(arguments: list[str]) -> int:
    reclaim = Reclaim()
    try:
        if not arguments or arguments[0] in ("-h", "--help"):
            print(__doc__)
        return launch(arguments or ["--help"], reclaim)
    except Interrupted:
        say("left before the training started again: SIGTERM")
        return EXIT_RECLAIMED


def launch(arguments: list[str], reclaim: Reclaim) -> int:
    """Run the workers to the end; returns the exit code."""
    _prepare_environment()
    context = get_context("forkserver")
    context.set_forkserver_preload(["trainer.warm"])
    forkserver.ensure_running()  # it imports torch while this process does

    from torch.distributed import run  # noqa: PLC0415
    from torch.distributed.elastic.rendezvous import RendezvousClosedError  # noqa: PLC0415

    from trainer.agent import Left, ProgramFailedError, build  # noqa: PLC0415

    settings = run.parse_args(arguments)
    warm = context.Process(target=os.getpid)
    warm.start()
    warm.join()  # only a machine whose workers start at once asks the others to stop for it
    handler = _handler(settings, reclaim)
    agent = build(settings, handler, reclaim, grace_seconds=GRACE_SECONDS, say=say)
    try:
        agent.run()
        code = EXIT_FINISHED
    except Left:
        _leave(handler)
        say("left: SIGTERM")
        return EXIT_RECLAIMED
    except ProgramFailedError as error:
        say(str(error))
        code = EXIT_PROGRAM_FAILED
    except RendezvousClosedError:
        return _job_is_over()
    handler.shutdown()
    return code


def say(text: str) -> None:
    print(f"[launcher {time.strftime('%H:%M:%S')}] {text}", file=sys.stderr, flush=True)


def _prepare_environment() -> None:
    environment = os.environ
    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)  # it has a traceback for every worker that leaves
    environment.setdefault("LOGLEVEL", "CRITICAL")  # the same, for the loggers that it sets itself
    environment.setdefault("TORCH_ELASTIC_WORKER_IDENTICAL", "1")  # same number of workers everywhere: no talk about ranks
    environment["TORCHELASTIC_SIGNALS_TO_HANDLE"] = "SIGHUP"  # SIGTERM and SIGINT are ours
    environment.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # a stack of C++ frames whenever a peer is gone
    environment.setdefault("PYTHONUNBUFFERED", "1")
    # Threads that spin while they wait for each other: 20 samples/s instead of 226 where another process wants a core too
    # (ResNet-18, 2 threads, 2 cores, one busy; 2026-11-21). Read when torch is loaded.
    environment.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    with contextlib.suppress(FileNotFoundError):
        tempfile.gettempdir()
        return
    environment["TMPDIR"] = "/dev/shm"  # noqa: S108  # a read-only root without a /tmp: this one is always writable
    tempfile.tempdir = None


def _handler(settings: "argparse.Namespace", reclaim: Reclaim) -> "RendezvousHandler":
    """Ours for etcd; torch's for the rest, --standalone among them."""
    import uuid  # noqa: PLC0415

    from torch.distributed import run  # noqa: PLC0415
    from torch.distributed.elastic.rendezvous import RendezvousParameters, registry  # noqa: PLC0415

    from trainer import etcd_rendezvous  # noqa: PLC0415

    if settings.standalone or (
        settings.rdzv_backend == "static" and settings.nnodes in ("1", "1:1") and not settings.rdzv_endpoint
    ):
        settings.rdzv_backend, settings.rdzv_endpoint, settings.rdzv_id = "c10d", "localhost:0", uuid.uuid4().hex
    settings.master_port = settings.master_port or 29500
    config, _, _ = run.config_from_args(settings)
    parameters = RendezvousParameters(
        backend=config.rdzv_backend,
        endpoint=config.rdzv_endpoint,
        run_id=config.run_id,
        min_nodes=config.min_nodes,
        max_nodes=config.max_nodes,
        local_addr=config.local_addr or (_own_address(config.rdzv_endpoint) if config.rdzv_backend == "etcd" else None),
        **config.rdzv_configs,
    )
    if config.rdzv_backend == "etcd":
        return etcd_rendezvous.connect(parameters, say=say)
    return registry.get_rendezvous_handler(parameters)


def _own_address(endpoint: str) -> str | None:
    """The address of this machine on the way to etcd: the other ranks need no DNS name of this pod, which may not exist yet."""
    import socket  # noqa: PLC0415

    host, _, port = endpoint.rpartition(":")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, contextlib.suppress(OSError):
        probe.connect((host or "localhost", int(port) if port.isdigit() else 2379))
        return str(probe.getsockname()[0])
    return None


def _leave(handler: "RendezvousHandler") -> None:
    from trainer.etcd_rendezvous import EtcdMembership  # noqa: PLC0415

    if isinstance(handler, EtcdMembership):
        handler.leave()


def _job_is_over() -> int:
    """The others closed the job before this machine came (back): it is trained, or one of them failed."""
    result = Path(os.environ.get(ENV_OUTPUT_DIR, ".")) / "result.json"
    if result.exists():
        say("the job has finished; nothing to do")
        return EXIT_FINISHED
    say("the job was ended by another machine, whose program failed; its log says why")
    return EXIT_PROGRAM_FAILED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
