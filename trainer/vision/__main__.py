"""`python -m trainer.vision -a resnet50 -b 32 /mnt/data/imagenet`: one worker; alone, or started by trainer.launch.

Exit codes (trainer/contract.py): 0 trained to the end; 1 the program failed; 138 left at a step boundary after a notice, with a
checkpoint of that step; 75, for the launcher only: another rank vanished, meet the others again.
"""

import multiprocessing
import os
import sys
import traceback

from trainer import elastic
from trainer.checkpoint import RefusedError
from trainer.contract import EXIT_FINISHED, EXIT_PEER_LOST, EXIT_PROGRAM_FAILED, EXIT_RECLAIMED
from trainer.data import DataError
from trainer.notices.notice import install
from trainer.vision.learning import learn
from trainer.vision.models import UnknownModelError
from trainer.vision.options import parse


def main(arguments: list[str]) -> int:
    """The process's edge: errors become sentences and exit codes."""
    notice = install()
    try:
        config = parse(arguments, os.environ)
        notice.leave_within(config.leave_seconds, EXIT_PEER_LOST)
        with elastic.start(config, notice=notice) as run:
            learn(config, run)
    except elastic.Left:
        return EXIT_RECLAIMED
    except (elastic.ConfigError, UnknownModelError, DataError, RefusedError) as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        return EXIT_PROGRAM_FAILED
    except Exception:  # whatever the program raised: its code must be 1 under any launcher
        traceback.print_exc()
        return EXIT_PROGRAM_FAILED
    return EXIT_FINISHED


if __name__ == "__main__":
    code = main(sys.argv[1:])
    if multiprocessing.parent_process() is not None:
        sys.exit(code)  # in a process of the launcher's fork server, which ends it without tearing the interpreter down
    sys.stdout.flush()
    os._exit(code)  # taking a process group apart can wait for ever, see run/group.py
