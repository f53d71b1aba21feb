"""From announcements to marks: what is written on the Node, and when.

    marker = Marker(node.write, say); marker.start()
    Agent(source, marker.want, say).run()

    reclaim, now or within two minutes     condition True, with the deadline if the cloud names one; taint
    reclaim, later                         condition False, reason Planned, until it is two minutes ahead
    risk of a reclaim                      condition False, reason AtRisk: nobody leaves
    nothing any more                       condition False, reason NoNotice; no taint
    no answer, or a wrong one              what was written stays

An API server that is away costs the announcement nothing: the marker writes the newest mark as soon as it can, and the agent asks
on meanwhile, so that a notice which is withdrawn before it could be written is never written.
"""

import threading
import time
from collections.abc import Callable

from ebb.api import reclaim
from ebb.api.reclaim import Mark
from ebb.metadata.announcement import Announcement, Source
from ebb.metadata.polling import Poller

_LATER_SECONDS = 2.0  # a clock's unsteadiness: nearer by less is the same deadline
_RETRY_SECONDS = 5.0  # the longest pause between attempts to write, a sixth of the shortest notice


class Agent:
    """Looks at one source, for ever, and says which mark the Node shall have."""

    def __init__(
        self,
        source: Source,
        want: Callable[[Mark], None],
        say: Callable[[str], None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._poller = Poller(source, say)
        self._want, self._say, self._clock = want, say, clock
        self._key = ""  # of the announcement that was seen last
        self._until: float | None = None
        self._mark: Mark | None = None

    def run(self) -> None:
        """Never return."""
        while True:
            time.sleep(self.look())

    def look(self) -> float:
        """Look once; returns the seconds until the next look."""
        look = self._poller.look()
        if look.learnt:
            mark = self._judge(look.announcement)
            if mark != self._mark:
                self._say(mark.message)
                self._mark = mark
                self._want(mark)
        return look.pause_seconds

    def _judge(self, said: Announcement | None) -> Mark:
        if said is None:
            self._key, self._until = "", None
            return reclaim.NOTHING
        if not said.imminent:
            return reclaim.calm("Planned" if said.reclaim else "AtRisk", f"{said.text}.")
        return reclaim.notice("Reclaim", said.text, self._deadline(said))

    def _deadline(self, said: Announcement) -> float | None:
        """When the machine goes, in unix seconds. An announcement's deadline stays as it was first said, or comes nearer.

        None where the announcement itself names no time: the controller knows what the stack promises, which is the better
        number (GKE's kubelets hold the shutdown up for longer than the 30 s of Compute Engine).
        """
        if said.key != self._key:
            self._key, self._until = said.key, None
        if said.seconds_left is not None and not said.promised:
            until = self._clock() + said.seconds_left
            if self._until is None or until < self._until - _LATER_SECONDS:
                self._until = until
        return self._until


class Marker:
    """Writes the newest mark that somebody wants, until it is written."""

    def __init__(self, write: Callable[[Mark], None], say: Callable[[str], None], retry_seconds: float = _RETRY_SECONDS) -> None:
        self._write, self._say, self._retry_seconds = write, say, retry_seconds
        self._changed = threading.Condition()
        self._wanted: Mark | None = None
        self._written: Mark | None = None

    def start(self) -> None:
        threading.Thread(target=self._run, name="marks", daemon=True).start()

    def want(self, mark: Mark) -> None:
        """Have it written; one that waits to be is forgotten."""
        with self._changed:
            self._wanted = mark
            self._changed.notify()

    def _run(self) -> None:
        failures, complaint = 0, ""
        while True:
            with self._changed:
                if failures:
                    self._changed.wait(min(self._retry_seconds, 0.5 * 2.0 ** min(failures - 1, 6)))
                while self._wanted is None or self._wanted == self._written:
                    self._changed.wait()
                mark = self._wanted
            try:
                self._write(mark)
            except Exception as error:  # the edge of a thread, which must not end; a NodeError as a rule
                if complaint != (complaint := f"{type(error).__name__}: {error}"):
                    self._say(f"cannot write to the Node: {complaint}; trying on")
                failures += 1
                self._written = None  # half of the marks may be there
                continue
            if failures:
                self._say("the Node is written again")
            failures, complaint, self._written = 0, "", mark
