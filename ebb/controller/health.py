"""Whether the controller should be started again, and whether it serves: what /healthz and /readyz answer.

    health = Health(metrics, election, monotonic)
    health.sick()         # a sentence, or "": for the liveness probe
    health.not_ready()    # the same for the readiness probe

It judges by the figures that people see on /metrics. Only the controller that leads has watches and jobs to look at: a follower
is well as long as it answers, and ready as long as it can read the Lease. An event loop that is stuck answers no probe at all.
"""

from collections.abc import Callable
from typing import Protocol

from ebb.controller.metrics import QUEUE_DEPTH, RECONCILE_SECONDS, WATCH_AGE, Metrics

SILENT_SECONDS = 180.0  # every watch ends within 72 s and is begun anew: this long is one that nothing noticed to be broken
STUCK_SECONDS = 300.0  # one look makes a few calls, each of at most 60 s
UNHEARD_SECONDS = 30.0  # a follower reads the Lease every 2 s


class Candidate(Protocol):
    """Of an election, what is asked here."""

    @property
    def leads(self) -> bool: ...
    @property
    def unheard_seconds(self) -> float: ...


class Health:
    """`clock` is monotonic. To be asked at least every minute, as probes do: it compares with what it saw then."""

    def __init__(self, metrics: Metrics, election: Candidate, clock: Callable[[], float]) -> None:
        self._metrics, self._election, self._clock = metrics, election, clock
        self._looks, self._moved_at = -1, clock()

    def sick(self) -> str:
        """What only a new start may cure; empty for nothing."""
        waiting = self._metrics.value(QUEUE_DEPTH).get("", 0.0)
        stuck = self._stands_still(waiting)
        if not self._election.leads:
            return ""
        silent = {kind: round(age) for kind, age in self._metrics.value(WATCH_AGE).items() if age > SILENT_SECONDS}
        if silent:
            return f"nothing heard from the API server for seconds: {silent}"
        return f"{waiting:g} jobs wait, and none was looked at for {stuck:.0f} s" if stuck > STUCK_SECONDS else ""

    def not_ready(self) -> str:
        """Why it could not act, or take over; empty if it could."""
        unheard = self._election.unheard_seconds
        if not self._election.leads and unheard > UNHEARD_SECONDS:
            return f"the Lease could not be read for {unheard:.0f} s"
        return self.sick()

    def _stands_still(self, waiting: float) -> float:
        """For how many seconds jobs have waited while none was looked at."""
        looks, now = self._metrics.observations(RECONCILE_SECONDS), self._clock()
        if not waiting or looks != self._looks or not self._election.leads:
            self._looks, self._moved_at = looks, now
        return now - self._moved_at
