"""The address of this process's run in an experiment tracker, for `ebb status`: of W&B, or of an MLflow server.

    find_url()          # "" without a run that has an address: none has begun, or it is offline

Only a library that the program has imported is asked, and nothing is sent.
"""

from __future__ import annotations

import sys
from typing import Any

_LONGEST = 500  # it is kept in the job's status


def find_url() -> str:
    """In the thread that trains: MLflow's run is one of a thread. A library of an unknown version costs the address."""
    for name, find in (("wandb", _wandb), ("mlflow", _mlflow)):
        module = sys.modules.get(name)
        try:
            url = find(module) if module is not None else ""
        except Exception:  # noqa: S112  # whatever a library raises must not stop the training
            continue
        if url.startswith(("https://", "http://")) and len(url) <= _LONGEST and url.isprintable():
            return url
    return ""


def _wandb(module: Any) -> str:
    run = getattr(module, "run", None)
    return str(run.url or "") if run is not None and not run.offline else ""  # an offline one warns when it is asked


def _mlflow(module: Any) -> str:
    run = module.active_run()
    server = str(module.get_tracking_uri()).rstrip("/")
    return f"{server}/#/experiments/{run.info.experiment_id}/runs/{run.info.run_id}" if run is not None else ""
