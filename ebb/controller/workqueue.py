"""A queue of keys to look at: each key at most once, by one worker at a time, with delays and with back-off after failures.

    key = await queue.take()
    try: ...; queue.done(key, again_after=30.0)
    except ...: queue.failed(key)

A key added while a worker has it is looked at once more when that worker is done. A key that was taken a moment ago rests: what
is added meanwhile waits for the end of REST_SECONDS, so that a storm of changes is a few looks, while the first is at once. What
is not urgent is added with a delay, which any look before its end makes needless. One delay per key is asked for by `done`: a
newer one replaces it, as every look decides anew when the next one is due.
"""

import asyncio
from collections import deque
from typing import Generic, TypeVar

Key = TypeVar("Key")

FIRST_RETRY_SECONDS, LAST_RETRY_SECONDS = 0.05, 30.0
REST_SECONDS = 0.05  # 64 pods that start within a second are 20 looks instead of some hundred; nobody notices the delay


class WorkQueue(Generic[Key]):
    """See the module's docstring. Not thread-safe: it lives in one event loop."""

    def __init__(self, rest_seconds: float = REST_SECONDS) -> None:
        self._rest_seconds = rest_seconds
        self._waiting: deque[Key] = deque()
        self._queued: set[Key] = set()
        self._taken: set[Key] = set()
        self._resting: set[Key] = set()
        self._again: set[Key] = set()
        self._failures: dict[Key, int] = {}
        self._timers: dict[Key, asyncio.TimerHandle] = {}
        self._soon: dict[Key, asyncio.TimerHandle] = {}
        self._filled = asyncio.Event()

    def __len__(self) -> int:
        return len(self._waiting)

    def add_within(self, seconds: float, key: Key) -> None:
        """Look at this key within that time."""
        if key not in self._soon and key not in self._queued:
            self._soon[key] = asyncio.get_running_loop().call_later(seconds, self._add_soon, key)

    def add(self, key: Key) -> None:
        """Look at this key at once."""
        if key in self._taken or key in self._resting:
            self._again.add(key)
        elif key not in self._queued:
            self._queued.add(key)
            self._waiting.append(key)
            self._filled.set()

    async def take(self) -> Key:
        """The next key; the caller must call done or failed."""
        while not self._waiting:
            self._filled.clear()
            await self._filled.wait()
        key = self._waiting.popleft()
        self._queued.discard(key)
        self._taken.add(key)
        soon = self._soon.pop(key, None)
        if soon:
            soon.cancel()
        self._resting.add(key)
        asyncio.get_running_loop().call_later(self._rest_seconds, self._rested, key)
        return key

    def done(self, key: Key, *, again_after: float | None = None) -> None:
        """The key was dealt with; look again after that many seconds, or when it is added."""
        self._failures.pop(key, None)
        self._release(key, again_after)

    def failed(self, key: Key, at_least: float = 0.0) -> float:
        """The key was not dealt with; returns the seconds after which it comes again, doubling from 0.05 to 30, and no less than
        a busy server asked for."""
        count = self._failures.get(key, 0)
        self._failures[key] = count + 1
        wait = max(at_least, float(min(LAST_RETRY_SECONDS, FIRST_RETRY_SECONDS * 2.0 ** min(count, 20))))
        # What was added meanwhile waits as well: a key that fails is not to be tried faster because the world changes.
        self._again.discard(key)
        self._release(key, wait)
        return wait

    def _release(self, key: Key, again_after: float | None) -> None:
        self._taken.discard(key)
        timer = self._timers.pop(key, None)
        if timer:
            timer.cancel()
        if again_after is not None:
            self._timers[key] = asyncio.get_running_loop().call_later(max(0.0, again_after), self._due, key)
        self._look_again(key)

    def _rested(self, key: Key) -> None:
        self._resting.discard(key)
        self._look_again(key)

    def _look_again(self, key: Key) -> None:
        if key in self._again and key not in self._taken and key not in self._resting:
            self._again.discard(key)
            self.add(key)

    def _add_soon(self, key: Key) -> None:
        self._soon.pop(key, None)
        self.add(key)

    def _due(self, key: Key) -> None:
        self._timers.pop(key, None)
        self.add(key)
