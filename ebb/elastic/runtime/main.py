"""The entry point of a training process: read settings, turn errors into sentences, end with the right exit code.

    def main(arguments: list[str]) -> int:
        return run_program(arguments, parse, learn)          # learn(config, run) trains to the end

    if __name__ == "__main__":
        end_process(main(sys.argv[1:]))

Exit codes (ebb/elastic/contract.py): 0 trained to the end; 1 the program failed; 138 left at a step boundary after a notice, with
a checkpoint of that step on the disk; 79 this machine's GPU is at fault; 75, for the launcher only: another rank
vanished, meet the others again.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import traceback
from collections.abc import Callable, Mapping
from typing import TypeVar

from torch.distributed.elastic.multiprocessing.errors import get_error_handler

from ebb.compat import Never
from ebb.elastic.checkpoint import CheckpointError
from ebb.elastic.contract import EXIT_FINISHED, EXIT_HARDWARE, EXIT_PEER_LOST, EXIT_PROGRAM_FAILED, EXIT_RECLAIMED
from ebb.elastic.data import DataError
from ebb.elastic.faults import Fault, fault_of
from ebb.elastic.notices.notice import Notice, install
from ebb.elastic.runtime.config import ConfigError, RunConfig
from ebb.elastic.runtime.loop import GracefulExit
from ebb.elastic.runtime.micro_batch import NoRoomError
from ebb.elastic.runtime.run import Run, start

C = TypeVar("C", bound=RunConfig)


def run_program(arguments: list[str], parse: Callable[[list[str], Mapping[str, str]], C], work: Callable[[C, Run], None]) -> int:
    """The exit code. `--help` raises SystemExit(0)."""
    notice = install()
    try:
        config = parse(arguments, os.environ)
        notice.leave_within(config.leave_seconds, EXIT_PEER_LOST)
        return run_rank(config, notice, work)
    except (ConfigError, DataError, CheckpointError, NoRoomError) as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        return EXIT_PROGRAM_FAILED
    except Exception as error:  # whatever the program raised: its code must be a known one under any launcher
        traceback.print_exc()
        if fault_of(str(error)) is not Fault.HARDWARE:
            return EXIT_PROGRAM_FAILED
        if "TORCHELASTIC_ERROR_FILE" in os.environ:
            get_error_handler().record_exception(error)  # the launcher, and who replaces this worker, want to know how
        return EXIT_HARDWARE


def run_rank(config: C, notice: Notice, work: Callable[[C, Run], None]) -> int:
    """This rank's part, to the end or to a notice. Raises the errors of settings, data, checkpoints and the program."""
    try:
        with start(config, notice=notice) as run:
            work(config, run)
    except GracefulExit:
        return EXIT_RECLAIMED
    return EXIT_FINISHED


def end_process(code: int) -> Never:
    """End this process with the code, without tearing the interpreter down.

    Alone, or as a script: at once, since taking a process group apart can wait for ever (process_group.py). In a process that the
    launcher's fork server made: in order, since torch waits for ever for the return value of a process that ended with 0.
    """
    if multiprocessing.parent_process() is not None:
        sys.exit(code)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
