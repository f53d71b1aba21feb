# mypy: disallow-untyped-calls=False
# (torch's parser of its flags has no types)
"""The launcher's settings: torchrun's flags and PET_* variables, and one flag of ours. Read here and nowhere else.

    prepare(os.environ)                 # before torch is imported: what it reads then
    settings = parse(sys.argv[1:])      # may end the process: --help, a flag that does not exist
    config = launch_config(settings)    # torch's own record of them; ValueError says what is wrong

It opens no files and no connections.
"""

import argparse
import contextlib
import logging
import tempfile
import uuid
from collections.abc import Callable, MutableMapping
from typing import TYPE_CHECKING

from ebb.compat import pairwise
from ebb.metadata.firmware import CHOICES

if TYPE_CHECKING:
    from torch.distributed.launcher.api import LaunchConfig

_OURS = ("ebb", "trainer")


def prepare(environment: MutableMapping[str, str]) -> None:
    """For this process and its workers; what a user has set stays."""
    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)  # it has a traceback for every worker that leaves
    environment.setdefault("LOGLEVEL", "CRITICAL")  # the same, for the loggers that it sets itself
    environment.setdefault("TORCH_ELASTIC_WORKER_IDENTICAL", "1")  # same number of workers everywhere: no talk about ranks
    environment["TORCHELASTIC_SIGNALS_TO_HANDLE"] = "SIGQUIT"  # SIGTERM, SIGINT and SIGHUP are ours
    environment.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # a stack of C++ frames whenever a peer is gone
    environment.setdefault("PYTHONUNBUFFERED", "1")
    # Threads that spin while they wait for each other: 20 samples/s instead of 226 where another process wants a core too
    # (ResNet-18, 2 threads, 2 cores, one busy; 2026-11-21). Read when torch is loaded.
    environment.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    # torch looks up the name of every peer of a TCPStore, on both ends. One lost DNS packet held up a new generation for the
    # resolver's 5 s (2026-11-21). Read at a process's first look-up.
    environment.setdefault("RES_OPTIONS", "timeout:1 attempts:3")
    with contextlib.suppress(FileNotFoundError):
        tempfile.gettempdir()
        return
    environment["TMPDIR"] = "/dev/shm"  # noqa: S108  # a read-only root without a /tmp: this one is always writable
    tempfile.tempdir = None


def parse(arguments: list[str]) -> argparse.Namespace:
    from torch.distributed import run  # noqa: PLC0415  # torch takes seconds to import
    from torch.distributed.argparse_util import env  # noqa: PLC0415

    parser = run.get_args_parser()
    parser.prog = "python -m ebb.elastic.launch"
    parser.add_argument(
        "--notices",
        action=env,
        default="auto",
        metavar="|".join(CHOICES),
        help="whose metadata service says that this machine is taken back; auto: by the machine's firmware. Never in Kubernetes",
    )
    settings: argparse.Namespace = parser.parse_args(arguments)
    if settings.notices not in CHOICES:
        parser.error(f"--notices is {settings.notices!r}; allowed: {', '.join(CHOICES)}")
    if settings.standalone or _is_alone(settings):
        settings.rdzv_backend, settings.rdzv_endpoint, settings.rdzv_id = "c10d", "localhost:0", uuid.uuid4().hex
        # else torch asks for this machine's own name, which a container need not have: it then tries for minutes
        settings.local_addr = settings.local_addr or "localhost"
    settings.master_port = settings.master_port or 29500
    return settings


def launch_config(settings: argparse.Namespace) -> "tuple[LaunchConfig, Callable[..., object] | str, list[str]]":
    """With the command that torch would start, and its arguments. Raises ValueError."""
    from torch.distributed import run  # noqa: PLC0415

    try:
        config, command, arguments = run.config_from_args(settings)
    except AssertionError as error:  # torch's way to say that a number of machines or restarts makes no sense
        raise ValueError(str(error)) from error
    return config, command, arguments


def module_of(arguments: list[str]) -> str:
    """The program, if it is a module and the arguments are as usual: a look at them before torch can parse them."""
    return next((name for flag, name in pairwise(arguments) if flag in ("-m", "--module")), "")


def is_ours(module: str) -> bool:
    """True if it speaks by the exit codes of ebb/elastic/contract.py."""
    return module.partition(".")[0] in _OURS


def _is_alone(settings: argparse.Namespace) -> bool:
    """True for what torchrun starts without any flag: one machine, told nothing of others."""
    return settings.rdzv_backend == "static" and settings.nnodes in ("1", "1:1") and not settings.rdzv_endpoint
