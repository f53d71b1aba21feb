"""A limit on the time of a step, after which the ranks count as stuck. torch fixes the limit of a collective when the group is
made, for all of them: so that is the long one, of a generation's first step, and this thread keeps the short one of steady steps.

    watchdog = Watchdog(first_seconds=1800, steady_seconds=240, act=give_up)
    watchdog.start(); watchdog.beat()             # after each step
    with watchdog.unhurried(): evaluate()         # what is no step has the long limit

`act` is called once, in the thread, with a sentence. What it does must not need the main thread: that one hangs.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator


class Watchdog:
    def __init__(
        self,
        *,
        first_seconds: float,
        steady_seconds: float,
        act: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._first, self._steady, self._act, self._clock = first_seconds, steady_seconds, act, clock
        self._changed = threading.Condition()
        self._limit = first_seconds
        self._since = clock()
        self._stopped = False
        self._steps = 0

    def start(self) -> None:
        self._since = self._clock()
        threading.Thread(target=self._watch, name="watchdog", daemon=True).start()

    def beat(self) -> None:
        """A step is done: the next one has the steady limit, from now on."""
        self._steps += 1
        self._set(self._steady)

    @contextlib.contextmanager
    def unhurried(self) -> Iterator[None]:
        """Something that is no step, with the long limit; what follows has its own limit from its end on."""
        self._set(self._first)
        yield
        self._set(self._steady if self._steps else self._first)

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Without any limit: machines may take days to come. What follows has its own limit from its end on."""
        self._set(threading.TIMEOUT_MAX / 2)
        yield
        self._set(self._first)

    def rest(self) -> None:
        """The last step is done: what follows has the long limit."""
        self._set(self._first)

    def poke(self) -> None:
        """Look at the clock again: for a clock that does not run by itself."""
        with self._changed:
            self._changed.notify()

    def stop(self) -> None:
        with self._changed:
            self._stopped = True
            self._changed.notify()

    def _set(self, limit: float) -> None:
        with self._changed:
            self._limit, self._since = limit, self._clock()
            self._changed.notify()

    def _watch(self) -> None:
        with self._changed:
            while not self._stopped:
                left = self._since + self._limit - self._clock()
                if left <= 0:
                    break
                self._changed.wait(left)
            if self._stopped:
                return
            limit, steps = self._limit, self._steps
        what = f"step {steps + 1} of this generation" if limit == self._steady else "the first step of this generation"
        self._act(f"{what} has not ended within {limit:g} s: a machine hangs, or the limit is too short")
