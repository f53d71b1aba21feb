"""The process that a pod starts: meets the other machines, runs this machine's workers, meets again when the others change.

    python -m ebb.elastic.launch --nnodes=1:4 --rdzv_backend=etcd3 --rdzv_endpoint=etcd:2379 --rdzv_id=JOB -m trainer --data DIR
    ... python -m ebb.elastic.launch --standalone --nproc-per-node=2 -m trainer --data DIR --output DIR

It takes torchrun's flags and the PET_* variables, and runs any torchrun script. What it does differently:
- A change of the membership is no failure, and has no limit: a worker that leaves at a step boundary (138), that misses a peer
  (75), or that fails while another machine is gone makes this process meet the others again.
- A program that fails by itself ends the job at once, with its exit code and its exception in a line of this process
  (--max-restarts N allows N restarts; a worker that a signal killed is started again up to three times).
- With $EBB_RESTART_RULES (rules of a job's failurePolicy with RestartInPlace) such failures make it start the program again here.
- A program that is not there ends the job at once, with 78 and a sentence: no other try would find it.
- With $EBB_HOLD_ON_FAILURE_SECONDS (`ebb submit --hold-on-failure`) it stays for so long after its program has failed, so that
  people can look into the machine.
- A machine that fails a short check does not join, with 79 and a sentence; EBB_HARDWARE_CHECK=off switches the check off.
- With $EBB_BURN_IN_SECONDS (`ebb submit --burn-in`) it tests its machine for so long before it joins (burn_in.py), once.
- A worker that says that the GPU failed (ECC, Xid, a lost device) makes this machine test its GPUs, and leave the job with 79 if
  one fails; the others go on.
- SIGTERM at any moment, as PID 1 too: the workers are told, save at the next step boundary and leave; the exit code is 138.
  Ctrl-C is the same with 130; a second one ends everything at once.
- Outside Kubernetes it listens for the cloud's notices (ebb/elastic/notices/), which act as SIGTERM; --notices says whose.
"""

from __future__ import annotations

import atexit
import os
import sys

from ebb.elastic.launch.logs import LogPipes
from ebb.elastic.launch.reclaim import Interrupted, Reclaim, say


def main(arguments: list[str]) -> int:
    """The process's edge: what comes at any moment becomes an exit code (ebb/elastic/contract.py)."""
    opened: list[LogPipes] = []
    reclaim = Reclaim(end=lambda code: _end(code, opened))
    pipes = LogPipes.of(os.environ)
    opened.append(pipes)
    atexit.register(pipes.close)
    try:
        reclaim.listen()
        if not arguments or arguments[0] in ("-h", "--help"):
            print(__doc__)
        from ebb.elastic.launch import node_agent  # noqa: PLC0415  # a signal is heard while it is imported

        return node_agent.launch(arguments or ["--help"], reclaim, pipes)
    except (Interrupted, ImportError):  # numpy says ImportError when its import was interrupted and somebody tries it again
        if not reclaim.seen:
            raise
        say(f"left before the training started again: {reclaim.name}")
        return reclaim.exit_code


def _end(code: int, opened: list[LogPipes]) -> None:
    """At once, but with what was said."""
    for pipes in opened:
        pipes.close()
    os._exit(code)


class Ending:
    """The end of the launcher's process, without tearing the interpreter down; one for the life of a process.

    The libraries that torch has loaded are not torn down either: CUDA's alone take 1.4 s of a notice, and on a busy machine more
    than twelve were seen (torch 2.13, in the exit handlers of libcublasLt). Made first, since what is registered first runs last.
    Without a code the process ends as any other, so that SystemExit keeps its own.
    """

    def __init__(self) -> None:
        self.code: int | None = None
        atexit.register(self._end)

    def _end(self) -> None:
        if self.code is not None:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(self.code)


if __name__ == "__main__":
    ending = Ending()
    ending.code = main(sys.argv[1:])
