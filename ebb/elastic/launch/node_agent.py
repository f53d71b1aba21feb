"""One machine's part in a job, from the settings to the exit code.

    code = launch(sys.argv[1:], reclaim, pipes)

In this order: torch's version is looked at (torch_version.py), code that came with the job is unpacked, the workers' fork server
and a test of the GPUs start, torch is imported, the program is looked for (locate.py), the cloud's notices are listened for, the
machine is found to be fit (hardware_check.py, and burn_in.py for a job that asks for it), the machines meet, and the agent runs
the workers to the end. Errors that a user can mend become a sentence and exit code 1; without a torch that will do it is 78.
"""

from __future__ import annotations

import atexit
import os
import tempfile
from multiprocessing import forkserver, get_context
from multiprocessing.util import get_temp_dir
from pathlib import Path
from typing import TYPE_CHECKING

from ebb.elastic.contract import ENV_OUTPUT_DIR, EXIT_FINISHED, EXIT_HARDWARE, EXIT_NO_PROGRAM, EXIT_PROGRAM_FAILED
from ebb.elastic.launch import gpu_use, last_figures, sweep_point, trackers
from ebb.elastic.launch.burn_in import BurnIn
from ebb.elastic.launch.code import CodeError, bring
from ebb.elastic.launch.crash_hold import CrashHold
from ebb.elastic.launch.hardware_check import GpuTest, find_fault, is_wanted, warn_of_little_space
from ebb.elastic.launch.locate import find_missing
from ebb.elastic.launch.logs import LogPipes
from ebb.elastic.launch.page import LauncherPage
from ebb.elastic.launch.reclaim import Reclaim, say
from ebb.elastic.launch.settings import is_ours, launch_config, module_of, parse, prepare
from ebb.elastic.launch.torch_version import find_version
from ebb.elastic.notices.choice import choose
from ebb.elastic.notices.relay import Relay
from ebb.elastic.notices.watcher import Watcher, interrupt_main_thread
from ebb.elastic.runtime import flight_recorder
from ebb.torch_limits import find_limits, find_problem

if TYPE_CHECKING:  # torch takes seconds to import; a signal must be heard before
    from ebb.elastic.launch.agent import Agent

# A Unix socket's path may have 107 bytes on Linux and 103 on macOS; multiprocessing adds two names, each with 8 random letters.
_LONGEST_FOLDER = 103 - len("/pymp-12345678/listener-12345678")


def launch(arguments: list[str], reclaim: Reclaim, pipes: LogPipes) -> int:
    """Run the workers to the end; returns the exit code. Raises Interrupted where a signal finds nothing to save."""
    prepare(os.environ)
    version = find_version()
    if problem := find_problem(version):
        say(problem)
        return EXIT_NO_PROGRAM
    if limits := find_limits(version or ""):
        say(limits)
    try:
        return _take_part(arguments, reclaim, pipes)
    except sweep_point.PointError as error:
        say(str(error))
        return EXIT_NO_PROGRAM


def _take_part(arguments: list[str], reclaim: Reclaim, pipes: LogPipes) -> int:
    try:
        checks = is_wanted(os.environ)
        burn_in = BurnIn.of(os.environ, say=say)
        bring(os.environ, say)  # before any other process is started: they begin where the code is
        arguments = sweep_point.place(arguments, os.environ, say)
    except (ValueError, CodeError) as error:
        say(str(error))
        return EXIT_PROGRAM_FAILED
    trackers.place(os.environ)
    flight_recorder.place(os.environ)
    page = LauncherPage.of(os.environ, say)
    hold = CrashHold.of(os.environ, page, say)
    relay = Relay.create(os.environ)  # before the first process is started, so that all of them know it
    atexit.register(relay.remove)
    module = module_of(arguments)
    ours = [f"{module}.__main__"] if is_ours(module) else []
    get_context("forkserver").set_forkserver_preload(["ebb.elastic.launch.preload", *ours])
    if module:
        _shorten_socket_paths()
        forkserver.ensure_running()  # it imports torch while this process does
    gpus = GpuTest.find(say=say) if checks else None
    if gpus:
        atexit.register(gpus.stop)
        gpus.begin()
    settings = parse(arguments)
    if missing := find_missing(settings, os.environ, say):
        say(missing)
        return EXIT_NO_PROGRAM
    watcher = _watch(settings.notices, relay)
    if settings.module:
        warm_up()
    if fault := (gpus.finish() if gpus else "") or burn_in.run():  # before torch asks a driver that may hang how many there are
        return _unfit(fault)

    from torch.distributed.elastic.rendezvous import RendezvousConnectionError  # noqa: PLC0415

    from ebb.elastic.launch.agent import build, open_handler  # noqa: PLC0415
    from ebb.elastic.rendezvous.handler import Etcd3Handler  # noqa: PLC0415

    try:
        config = launch_config(settings)[0]
        relay.lend_memory(config.nproc_per_node)
        handler = open_handler(config, say=say)
        if isinstance(handler, Etcd3Handler):  # others find their addresses by themselves
            fault = _check(handler.address, gpus=gpus is not None) if checks else ""
            if fault := fault or burn_in.try_network(handler.address):
                return _unfit(fault)
        burn_in.keep()
        agent = build(settings, handler, reclaim, pipes, gpus=gpus, say=say)
    except (ValueError, ModuleNotFoundError, RendezvousConnectionError) as error:
        say(str(error))
        return EXIT_PROGRAM_FAILED
    gpu_use.watch(page, lambda: [worker.global_rank for worker in agent.get_worker_group().workers])
    return run(agent, reclaim, watcher, hold)


def _check(address: str, *, gpus: bool) -> str:
    fault = find_fault(address, os.environ, gpus=gpus)
    if not fault:
        warn_of_little_space(os.environ, say)
    return fault


def _unfit(fault: str) -> int:
    """Nobody waits for this machine: the controller replaces it by another one."""
    say(f"{fault}. This machine does not join the job")
    return EXIT_HARDWARE


def _shorten_socket_paths() -> None:
    """Keep multiprocessing's folder in /tmp where TMPDIR is too long for a Unix socket's path; Python 3.14 does so itself."""
    if len(os.fsencode(tempfile.gettempdir())) <= _LONGEST_FOLDER:
        return
    given, tempfile.tempdir = tempfile.tempdir, "/tmp"  # noqa: S108 - a folder of its own in it, as by default
    try:
        get_temp_dir()  # made and remembered, and removed at exit
    finally:
        tempfile.tempdir = given


def run(agent: Agent, reclaim: Reclaim, watcher: Watcher | None = None, hold: CrashHold | None = None) -> int:
    """The agent's outcomes, as exit codes."""
    from torch.distributed.elastic.rendezvous import RendezvousClosedError, RendezvousError  # noqa: PLC0415

    from ebb.elastic.launch.agent import Membership, WorkersLeft  # noqa: PLC0415
    from ebb.elastic.launch.exit_policy import HardwareFailedError, ProgramFailedError  # noqa: PLC0415

    handler = agent.get_worker_group().spec.rdzv_handler
    try:
        agent.run()
        code = EXIT_FINISHED
        last_figures.leave(os.environ)
        sweep_point.tell(os.environ, say)
    except WorkersLeft as left:
        if isinstance(handler, Membership):
            handler.leave()
        if watcher and left.saved:
            watcher.left()
        say(f"left: {reclaim.name}")
        return reclaim.exit_code
    except HardwareFailedError as error:
        if isinstance(handler, Membership):
            handler.leave()
        say(str(error))
        return EXIT_HARDWARE
    except ProgramFailedError as error:
        say(str(error))
        code = error.code
        if hold:
            hold.begin(str(error), code)  # before the others hear of it: their ends make the controller ask
            handler.shutdown()
            return hold.wait(reclaim)
    except RendezvousClosedError:
        return _job_is_over()
    except RendezvousError as error:
        say(str(error))
        return EXIT_PROGRAM_FAILED
    handler.shutdown()
    return code


def warm_up() -> None:
    """Only a machine whose workers start at once asks the others to stop for it."""
    first = get_context("forkserver").Process(target=os.getpid)
    first.start()
    first.join()


def _watch(choice: str, relay: Relay) -> Watcher | None:
    source = choose(choice, os.environ, say=say)
    if source is None:
        return None
    watcher = Watcher(source, relay, interrupt=interrupt_main_thread, say=say)
    watcher.start()
    return watcher


def _job_is_over() -> int:
    """The others closed the job before this machine came (back): it is trained, or one of them failed."""
    result = Path(os.environ.get(ENV_OUTPUT_DIR, ".")) / "result.json"
    if result.exists():
        say("the job has finished; nothing to do")
        return EXIT_FINISHED
    say("the job was ended by another machine, whose program failed; its log says why")
    return EXIT_PROGRAM_FAILED
