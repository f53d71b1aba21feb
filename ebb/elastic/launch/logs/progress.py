"""Progress read from the log lines of rank 0, for programs that print it and report it in no other way.

    progress = LineProgress.of(os.environ, say)      # None without $EBB_PROGRESS_REGEX, which `ebb submit --progress-regex` sets
    progress.renew(world_size)                       # the workers start anew, perhaps with rank 0 on another machine
    progress.read(batch)                             # whole lines of one stream

The group `step` of the expression is the number of steps done, the other groups are numbers by their names, as in ebb.log(). A
machine without rank 0 matches nothing, serves nothing and writes nothing.
"""

from __future__ import annotations

import contextlib
import queue
import re
import threading
from collections.abc import Callable, Mapping

from ebb.compat import Self
from ebb.elastic.contract import ENV_PROGRESS_REGEX
from ebb.elastic.launch.logs.lines import Batch
from ebb.elastic.progress_log import ProgressLog, check

_FIRST_RANK = "0."  # how the tags of its streams begin (specs.py)
_LONGEST = 2000  # characters of a line that are looked at: an expression may take long for more
_WAITING = 1000  # batches that wait for a volume which does not answer; later ones are not looked at
_CLOSE_SECONDS = 2.0


class LineProgress:
    """Of one machine. It has a thread of its own: nobody who reads the log waits for the expression, or for the volume."""

    def __init__(self, pattern: re.Pattern[str], log: ProgressLog, say: Callable[[str], None]) -> None:
        self._pattern, self._log, self._say = pattern, log, say
        self._told = False
        self._waiting: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="progress of log lines", daemon=True)
        self._thread.start()

    @classmethod
    def of(cls, environment: Mapping[str, str], say: Callable[[str], None]) -> Self | None:
        """One that cannot be compiled is said, and costs the progress alone: `ebb submit` has refused it."""
        text = environment.get(ENV_PROGRESS_REGEX, "")
        if not text:
            return None
        try:
            pattern = re.compile(text)
        except re.error as error:
            say(f"{ENV_PROGRESS_REGEX} is no regular expression ({error}): no progress is read from the log")
            return None
        return cls(pattern, ProgressLog(environment, world_size=None, shows=False, say=say), say)

    def renew(self, world_size: int | None) -> None:
        self._log.board.progress = None  # at once: whoever asks this machine must not hear of a run that is over
        self._waiting.put(lambda: self._log.begin_again(world_size))

    def read(self, batch: Batch) -> None:
        if batch.tag.startswith(_FIRST_RANK) and self._waiting.qsize() < _WAITING:
            self._waiting.put(lambda: self._look_at(batch.text.decode(errors="replace")))

    def close(self) -> None:
        """Write what has had no line yet."""
        self._waiting.put(self._log.close)
        self._waiting.put(None)
        self._thread.join(_CLOSE_SECONDS)

    # --- The thread ---

    def _work(self) -> None:
        while (work := self._waiting.get()) is not None:
            with contextlib.suppress(OSError):  # a full disk costs the line
                work()

    def _look_at(self, text: str) -> None:
        for line in re.split(r"[\r\n]", text):
            if found := self._pattern.search(line[:_LONGEST]):
                self._report(found)

    def _report(self, found: re.Match[str]) -> None:
        texts = {name: text for name, text in found.groupdict().items() if text is not None}
        try:
            values = {name: float(text.replace(",", "")) for name, text in texts.items()}
            step, numbers = check(int(values.pop("step", -1)), values)
        except (ValueError, OverflowError):
            if not self._told:
                self._told = True
                self._say(f"a line matches {ENV_PROGRESS_REGEX}, but its groups are no numbers: {texts}; such lines are left out")
            return
        self._log.report(step, numbers)
