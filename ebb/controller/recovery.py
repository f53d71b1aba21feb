"""Measures how long losses cost, those by plan too: from noticing one to the replacement's creation, and to enough workers
that run again.

    recovery.noticed(key, decided, now); recovery.replaced(key, index, now); recovery.written(key, before, after, now)

In memory: what was lost before this controller began to lead is measured by the times in the job's conditions, or not at all.
"""

from ebb.api import contract as names
from ebb.api.clock import unix
from ebb.api.status import LEFT, RECLAIMED, Status
from ebb.controller.metrics import RECOVERY_SECONDS, REPLACEMENT_SECONDS, Metrics
from ebb.controller.reconciler.types import Plan

Key = tuple[str, str]


class Recovery:
    """See the module's docstring. Times are unix seconds."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._lost: dict[Key, dict[int, float]] = {}  # job -> worker's index -> when its loss was noticed
        self._short: dict[Key, float] = {}  # job -> since when fewer than minReplicas run

    def noticed(self, key: Key, decided: Plan, now: float) -> None:
        """A look found what it found."""
        for entry in decided.happened:
            if entry.what in (RECLAIMED, LEFT) and entry.worker is not None:
                self._lost.setdefault(key, {}).setdefault(entry.worker, now)

    def replaced(self, key: Key, index: int, now: float) -> None:
        """A worker was created."""
        noticed = self._lost.get(key, {}).pop(index, None)
        if noticed is not None:
            self._metrics.observe(REPLACEMENT_SECONDS, now - noticed)

    def written(self, key: Key, before: Status, after: Status, now: float) -> None:
        """A status was written."""
        if after.is_true(names.RESTARTING):
            condition = before.condition(names.RESTARTING)
            since = unix(condition.last_transition_time) if condition and condition.status == "True" else None
            self._short.setdefault(key, since or now)
        elif key in self._short:
            since = self._short.pop(key)
            if after.is_true(names.RUNNING):
                self._metrics.observe(RECOVERY_SECONDS, now - since)

    def forget(self, key: Key) -> None:
        """The job is gone."""
        self._lost.pop(key, None)
        self._short.pop(key, None)
