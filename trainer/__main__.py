"""`python -m trainer --data DIR --output DIR ...`: one worker; alone, or started by trainer.launch on every machine."""

import multiprocessing
import os
import sys

from trainer.vision.train import main

if __name__ == "__main__":
    code = main(sys.argv[1:])
    if multiprocessing.parent_process() is not None:
        sys.exit(code)  # in a process of the launcher's fork server, which ends it without tearing the interpreter down
    sys.stdout.flush()
    os._exit(code)  # taking a process group apart can wait for ever, see run/group.py
