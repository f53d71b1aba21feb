"""A bearer token that somebody else keeps fresh in a file: the kubelet for a pod's service account, an agent for a kubeconfig.

    token = TokenFile(Path(".../token"));  token.value();  token.renew()      # after a 401

It measures on the monotonic clock: a wall clock that jumps must not make a token look fresh. A file that cannot be read for once
leaves the last token in use; it may be in the middle of being replaced.
"""

import logging
import time
from collections.abc import Callable
from pathlib import Path

READ_SECONDS = 60.0  # as client-go. The kubelet writes a new token when 80 % of the old one's life (10 minutes or more) are over
log = logging.getLogger(__name__)


class TokenFile:
    """See the module's docstring. Raises OSError or ValueError if there is no token to begin with."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._path, self._clock = path, clock
        self._token, self._read_at = _read(path), clock()

    def value(self) -> str:
        """The token, never read longer than READ_SECONDS ago if the file can be read at all."""
        if self._clock() - self._read_at >= READ_SECONDS:
            self.renew()
        return self._token

    def renew(self) -> bool:
        """Read it now; whether it is another one."""
        self._read_at, old = self._clock(), self._token
        try:
            self._token = _read(self._path)
        except (OSError, ValueError) as error:
            log.warning("the token in %s cannot be read, the last one stays in use: %s", self._path, error)
        return self._token != old


def _read(path: Path) -> str:
    token = path.read_text().strip()
    if not token:
        raise ValueError(f"{path} is empty: it must hold a bearer token")
    return token
