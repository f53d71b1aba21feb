"""Doing things that may fail and are done again at the next tick anyway: an error is one line in the log, not one per tick.

attempt = Attempts()
if await attempt("node x: mark", cluster.mark(...)): ...
"""

import logging
from collections.abc import Awaitable

from devcluster.settings import BoxError
from ebb.kube import KubeError

log = logging.getLogger("box")


class Attempts:
    """Remembers the last error of each thing tried, to say it once."""

    def __init__(self) -> None:
        self._said: dict[str, str] = {}

    async def __call__(self, what: str, work: Awaitable[object]) -> bool:
        """True if it worked. Errors of the box, the cluster and the disk are logged; any other is a bug and goes up."""
        try:
            await work
        except (KubeError, BoxError, OSError) as error:
            self.say(what, f"{type(error).__name__}: {error}; trying again")
            return False
        if self._said.pop(what, None):
            log.info("%s: works again", what)
        return True

    def say(self, what: str, message: str) -> None:
        """Log, unless this was the last thing said about it."""
        if self._said.get(what) != message:
            self._said[what] = message
            log.warning("%s: %s", what, message)
