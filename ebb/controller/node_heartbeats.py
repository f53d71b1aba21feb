"""Machines that have gone silent, by the renewals of their Leases, and any doubt about it. Pure: times are arguments.

    silence = NodeHeartbeats()
    silence.heard("n0", renewed="2026-11-21T07:00:00.0Z", duration_seconds=40, now=loop.time())
    look = silence.look(known={"n0", "n1"}, unknown=set(), stale="", now=loop.time())     # .silent, .doubt, .again_at

A kubelet renews its Lease every quarter of the Lease's duration (kubelet 1.35, nodeLeaseRenewIntervalFraction: 10 s of 40 s).
One that misses a turn is not silent yet. Trainings do not wait for this: their launchers notice a lost peer in about 5 s.
What counts is when this process saw the time in a Lease change, on its own monotonic clock, so that no two clocks are compared.
After a gap of the watch every clock begins anew, since what was not seen proves nothing.

A controller that is itself out of touch must not take the whole cluster for dead. Silence is in doubt while more than a third of
the machines look silent, while no machine is heard of, and after a gap; and each time for so long afterwards that every machine
had its turn. And a silent machine is in doubt as long as more than a third of those whose turn came after its own were late too.
"""

from bisect import bisect_left
from collections.abc import Collection, Mapping
from dataclasses import dataclass

SHARE = 4  # renewals in the duration of a Lease
RENEWAL_SECONDS = 10.0  # between two of a Lease of 40 s, the default
SPARE_SECONDS = 3.0  # a renewal that is this late was not merely slow
# A kubelet that cannot renew tries five times within a second and then waits for its next turn: one that misses a single turn is
# well, and heard of 20 s after the last time. The spare comes on top.
LEAST_SECONDS = 23.0
LATE_SECONDS = 1.0  # a renewal that is this late counts as missed among its neighbours
SETTLE_SECONDS = 13.0  # every machine renewed once by then, or is silent itself
BURST_SECONDS = 2.0  # Kubernetes marks the machines that it takes for lost one after the other: all, before the first is believed
RECHECK_SECONDS = 1.0

TOO_MANY = "more than a third of the machines look silent, which says more about this controller's view than about them"
NOBODY = "no machine was heard of"
LATE = "too many of the machines whose turn it was since are late, too"
BURST = "machines are being marked as lost just now"
GAP = "the watch of the machines was interrupted, and not all of them had their turn since"


@dataclass(slots=True)
class _Clock:
    renewed: str
    at: float  # when `renewed` was first seen
    period: float
    prompt: bool = True  # it was seen when it was due

    @property
    def due(self) -> float:
        return self.at + self.period

    def silent_at(self, least_seconds: float) -> float:
        return self.at + max(least_seconds, self.period + SPARE_SECONDS)


@dataclass(frozen=True, kw_only=True)
class HeartbeatReport:
    """`doubt`: why the silence of `silent`, or a Ready condition that says Unknown, proves nothing now; "": it does."""

    silent: frozenset[str] = frozenset()
    doubt: str = ""
    again_at: float | None = None  # when the answer may be another one without anything being heard


class NodeHeartbeats:
    """See the module's docstring. A machine without a Lease is never silent, and none is before `least_seconds` (None:
    LEAST_SECONDS)."""

    def __init__(self, least_seconds: float | None = None) -> None:
        self._least_seconds = LEAST_SECONDS if least_seconds is None else least_seconds
        self._clocks: dict[str, _Clock] = {}
        self._cause, self._until = "", 0.0
        self._unknown: frozenset[str] = frozenset()
        self._marked_at = float("-inf")

    def heard(self, node: str, *, renewed: str, duration_seconds: float, now: float) -> None:
        """A Lease was seen; its machine's clock begins anew if the machine has renewed it since."""
        clock, period = self._clocks.get(node), duration_seconds / SHARE
        if clock is None:
            self._clocks[node] = _Clock(renewed, now, period)
        elif clock.renewed != renewed:
            self._clocks[node] = _Clock(renewed, now, period, prompt=now - clock.due < LATE_SECONDS)

    def forget(self, node: str) -> None:
        """The Lease is gone."""
        self._clocks.pop(node, None)

    def restart(self, now: float) -> None:
        """Renewals may have been missed: begin every clock anew."""
        for clock in self._clocks.values():
            clock.at = now
        self.mistrust(now)

    def mistrust(self, now: float) -> None:
        """News of the machines may have been missed."""
        self._cause, self._until = GAP, now + SETTLE_SECONDS

    def look(self, *, known: Collection[str], unknown: Collection[str], stale: str, now: float) -> HeartbeatReport:
        """`known`: all Nodes; `unknown`: those whose Ready condition says so; `stale`: why the copy of them is old, if it is."""
        clocks = {node: clock for node, clock in self._clocks.items() if node in known}
        silent = frozenset(node for node, clock in clocks.items() if now >= clock.silent_at(self._least_seconds))
        if not self._unknown.issuperset(unknown):
            self._marked_at = now
        self._unknown = frozenset(unknown)
        trouble = len(silent | self._unknown)
        cause = stale
        if trouble > 1 and 3 * trouble > len(known):
            cause = TOO_MANY
        elif silent and len(silent) == len(clocks):
            cause = NOBODY
        doubt = self._settled(cause, now) or (LATE if _many_are_late(silent, clocks, now) else "")
        if not trouble and not stale:
            doubt = ""  # nobody is taken for dead
        due = [clock.silent_at(self._least_seconds) for node, clock in clocks.items() if node not in silent]
        if doubt:
            due.append(now + RECHECK_SECONDS)
        return HeartbeatReport(silent=silent, doubt=doubt, again_at=min(due, default=None))

    def _settled(self, cause: str, now: float) -> str:
        """The reason for doubt, which holds for some time after the cause has gone."""
        if cause:
            self._cause, self._until = cause, now + SETTLE_SECONDS
        if now < self._until:
            return self._cause
        return BURST if now < self._marked_at + BURST_SECONDS else ""


def _many_are_late(silent: Collection[str], clocks: Mapping[str, _Clock], now: float) -> bool:
    """Return whether more than a third of the machines due since some machine fell silent were late or missed their turn.

    It is the first sign that nobody can renew, or that the API server is slow, while only a few count as silent yet."""
    missed = {node: clock for node, clock in clocks.items() if now - clock.due >= LATE_SECONDS}
    heard = [clock for node, clock in clocks.items() if node not in missed]
    late = sorted([*(clock.due for clock in missed.values()), *(clock.at for clock in heard if not clock.prompt)])
    prompt = sorted(clock.at for clock in heard if clock.prompt)
    for node in silent:
        since = clocks[node].due
        bad, good = len(late) - bisect_left(late, since), len(prompt) - bisect_left(prompt, since)
        if bad > 1 and 3 * bad > bad + good:
            return True
    return False
