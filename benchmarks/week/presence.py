"""When a controller acted, known from the Lease that it renews: a busy machine takes longer for that than any table says.

presence = Presence(); leases.listeners.append(presence.lease)
presence.started("ebb-controller-1"); presence.steady; presence.since; presence.left(); presence.outages()
"""

import time
from typing import Any

from ebb.api.clock import unix

Object = dict[str, Any]

LEASE = "ebb-controller"
LISTS_SECONDS = 5.0  # from its first renewal of the Lease until it has listed everything and has looked at every job
NOT_YET = float("inf")


class Presence:
    """Of the controllers that run one after the other. Times are monotonic."""

    def __init__(self) -> None:
        self.since = NOT_YET  # when the one that runs now acts
        self._left_at = self._heard_at = time.monotonic()
        self._name, self._started_at = "", NOT_YET  # wall time
        self._over: list[tuple[float, float]] = []  # outages

    def started(self, name: str) -> None:
        """A process of this name begins now. Its name may be that of the one before."""
        self._name, self._started_at = name, time.time()

    def left(self, *, long_ago: bool = False) -> None:
        """It is no more; `long_ago`: and it could not act since it renewed the Lease for the last time."""
        if self.steady:
            self._over.append((self._left_at, self.since))
            self._left_at = self._heard_at if long_ago else time.monotonic()
        self.since, self._started_at = NOT_YET, NOT_YET

    def lease(self, _: Object | None, new: Object | None) -> None:
        """A listener of Leases."""
        if new is None or new["metadata"]["name"] != LEASE:
            return
        renewed = unix(new["spec"].get("renewTime")) or 0.0
        if new["spec"].get("holderIdentity") == self._name and renewed >= self._started_at:
            self._heard_at = time.monotonic()
            self.since = min(self.since, self._heard_at + LISTS_SECONDS)

    @property
    def steady(self) -> bool:
        """It leads, and has had the time to see everything."""
        return time.monotonic() >= self.since

    @property
    def late_seconds(self) -> float:
        """For how long it runs and does not lead; 0 when it leads, or does not run."""
        return max(0.0, time.time() - self._started_at) if self.since == NOT_YET else 0.0

    def outages(self) -> list[tuple[float, float]]:
        """The times in which perhaps none acted, in order; the last of them may not be over yet."""
        return [*self._over, (self._left_at, self.since)]
