"""The last figures of a run that has finished, as its launcher left them in the pod's termination message. Pure.

view = with_last_figures(view)      # observed.progress then says step 47 of 47, and not where it was last read
"""

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ebb.api.clock import stamp
from ebb.api.contract import LAST_FIGURES
from ebb.api.status import Progress
from ebb.controller.reconciler.types import JobView
from ebb.controller.reconciler.worker_state import Outcome


def with_last_figures(view: JobView) -> JobView:
    """With those of the worker that came furthest. What is no such message, or says less than is known, changes nothing."""
    known = view.observed.progress or view.job.status.progress
    found = [_figures(worker.exit_message) for worker, verdict in view.workers if verdict.outcome is Outcome.DONE]
    last = max(found, key=lambda figures: figures.get("step", -1), default={})
    if "step" not in last or (known and last["step"] < known.step):
        return view
    before = known or Progress()
    progress = replace(
        before,
        step=int(last["step"]),
        total_steps=int(last["total_steps"]) if "total_steps" in last else before.total_steps,
        epoch=int(last["epoch"]) if "epoch" in last else before.epoch,
        loss=float(last["loss"]) if "loss" in last else None,  # it diverged: an earlier one is not what the run came to
        samples_per_second=float(last.get("samples_per_second", before.samples_per_second or 0.0)) or None,
    )
    if progress == known:
        return view
    return replace(view, observed=replace(view.observed, progress=replace(progress, at=stamp(view.now))))


def _figures(message: str) -> Mapping[str, float]:
    """{} for what is no such message: what a program writes there must not stop a controller."""
    try:
        found: Any = json.loads(message)[LAST_FIGURES] if message.startswith("{") else {}
    except (ValueError, KeyError, TypeError, RecursionError):
        return {}
    items = found.items() if isinstance(found, dict) else ()
    return {str(key): value for key, value in items if isinstance(value, int | float) and _fits(value)}


def _fits(value: float) -> bool:
    return not isinstance(value, bool) and math.isfinite(value) and 0 <= abs(value) < 2**63
