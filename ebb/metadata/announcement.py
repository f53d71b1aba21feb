"""A cloud's announcement about this machine, and the interface of a cloud to the watcher. Data only."""

from __future__ import annotations

from typing import Protocol

from ebb.compat import dataclass

# How long before a reclaim to leave: what AWS gives, and all that a checkpoint and a goodbye need.
AHEAD_SECONDS = 120.0


@dataclass(frozen=True, kw_only=True)
class Announcement:
    """One thing that was said. The same thing said again has the same `key`."""

    key: str
    text: str  # a sentence's beginning: who does what
    reclaim: bool  # the machine goes; False: it is only at risk, a checkpoint is wise and nobody leaves
    seconds_left: float | None = None  # until it goes; None: not said, it may be any moment
    promised: bool = False  # `seconds_left` is what the cloud's documents promise; the announcement itself names no time

    @property
    def imminent(self) -> bool:
        """True if it is time to leave. A reclaim that lies minutes or days ahead is a risk until then."""
        return self.reclaim and (self.seconds_left is None or self.seconds_left <= AHEAD_SECONDS)


class Source(Protocol):
    """The metadata service of one cloud, seen from one machine."""

    name: str
    poll_seconds: float  # between the starts of two looks, as the cloud recommends
    retry_seconds: float  # the longest pause after errors: short against the cloud's own warning time

    def look(self) -> Announcement | None:
        """Ask once; blocks for some seconds at most, or as its cloud's long poll is meant to.

        Raises MetadataError: nothing was learnt, ask again later.
        """
        ...

    def left(self) -> str | None:
        """The workers have left, with their checkpoint on the disk: tell the cloud, if it wants to know, and say what was told.

        Raises MetadataError: it was not told, and takes the machine at the announced time.
        """
        ...
