"""One run in each tracker of experiments, however often a job's processes start anew.

    place(os.environ)             # the launcher, before it starts anything; what a user has set stays

W&B takes the id of a run from outside: each process goes on with the same one (online at once, offline when it is synchronised).
TensorBoard's run is its folder. MLflow's server makes the id: ebb/elastic/adapters/huggingface.py keeps it. An id is for one
process: ranks other than 0 lose it again (program.py, worker.py), in case they begin a run of their own.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import MutableMapping

from ebb.elastic.contract import ENV_JOB, ENV_JOB_UID, ENV_OUTPUT_DIR

OURS = "EBB_TRACKER_RUN"  # the id that we have given; a user's own is on all ranks, as it was set
_WANDB_RUN = "WANDB_RUN_ID"


def place(environment: MutableMapping[str, str]) -> None:
    """Nothing without an output folder: the processes of such a program do not belong together."""
    output = environment.get(ENV_OUTPUT_DIR)
    if not output:
        return
    uid, job = environment.get(ENV_JOB_UID, ""), environment.get(ENV_JOB, "")
    if _WANDB_RUN not in environment:
        run = hashlib.sha256((uid or output).encode()).hexdigest()[:16]
        environment[OURS] = environment[_WANDB_RUN] = run
        environment.setdefault("WANDB_RESUME", "allow")
        if job:
            environment.setdefault("WANDB_NAME", job)
    environment.setdefault("WANDB_DIR", output)
    environment.setdefault("TENSORBOARD_LOGGING_DIR", f"{output}/tensorboard")  # of Hugging Face's Trainer


def leave_to_rank_zero(environment: MutableMapping[str, str]) -> None:
    """In a worker, before the program begins."""
    if environment.get("RANK", "0") != "0" and environment.get(_WANDB_RUN) == environment.get(OURS, ""):
        for name in (_WANDB_RUN, "WANDB_RESUME"):
            with contextlib.suppress(KeyError):
                del environment[name]
