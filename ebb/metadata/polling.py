"""Patience with a metadata service: whatever it answers, or does not, costs a pause and now and then a line, never more.

poller = Poller(source, tell)
look = poller.look()        # look.learnt, look.announcement, look.pause_seconds until the next
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from ebb.metadata.announcement import Announcement, Source
from ebb.metadata.service import MetadataError, MetadataRefused

_SAID_AGAIN = 3  # consecutive failures before a line says so: one is nothing
_DEAF_SECONDS = 60.0  # between looks at a service that has never answered


class Look(NamedTuple):
    """The result of one look. Not `learnt`: the service gave no answer, and what it said before still holds."""

    learnt: bool
    announcement: Announcement | None
    pause_seconds: float


class Poller:
    """Looks at one source, at its pace; after errors at a pace that lets it recover."""

    def __init__(self, source: Source, tell: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._source, self._tell, self._clock = source, tell, clock
        self._failures = 0
        self._answered = False

    def look(self) -> Look:
        """Look once; blocks as long as the source does."""
        started = self._clock()
        try:
            announcement = self._source.look()
        except MetadataError as error:
            return Look(False, None, self._pause(error))
        self._answered = True
        if self._failures >= _SAID_AGAIN:
            self._tell(f"{self._source.name} answers again")
        self._failures = 0
        return Look(True, announcement, max(0.0, self._source.poll_seconds - (self._clock() - started)))

    def _pause(self, error: MetadataError) -> float:
        """Nothing was learnt. The pause doubles, or is what the service asks for, up to the source's limit."""
        self._failures += 1
        if self._failures == _SAID_AGAIN:
            self._tell(f"cannot hear notices of {self._source.name}: {error}; asking goes on")
        if not self._answered and self._failures > 4 * _SAID_AGAIN:
            return _DEAF_SECONDS
        pause = self._source.poll_seconds * 2.0 ** min(self._failures - 1, 6)
        if isinstance(error, MetadataRefused) and error.retry_seconds is not None:
            pause = max(pause, error.retry_seconds)
        return min(pause, self._source.retry_seconds)
