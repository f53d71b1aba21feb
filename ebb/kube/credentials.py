"""Credentials for an API server: a pod's service account, elsewhere a kubeconfig (kubeconfig.py).

    entry = await load(kubeconfig, context);  await entry.token();  entry.tls()

Whoever speaks asks for the token before every request, so that one which is replaced while a program runs is never used past its
life, however long connections last. Certificates are read once: programs that run for long use tokens.
"""

import logging
import os
import ssl
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from ebb.kube.errors import KubeconfigError

READ_SECONDS = 60.0  # as client-go. The kubelet writes a new token when 80 % of the old one's life (10 minutes or more) are over
SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
log = logging.getLogger(__name__)


class Credentials(Protocol):
    """The way into one API server."""

    host: str  # https://address:port
    tls_server_name: str | None  # the name that its certificate must have, where that is not the address
    proxy: str | None

    def tls(self) -> ssl.SSLContext:
        """The authorities to trust, and the client certificate if there is one. Raises OSError."""

    async def token(self) -> str:
        """The value of the header Authorization; "" for none. Never raises: a token that cannot be renewed stays in use."""

    async def renew(self, refused: str) -> bool:
        """The server did not know this one (401): look for another now; whether there is one. Of several requests that were
        refused together, the first may have found it already."""


class ServiceAccount:
    """A pod's own account. Raises ConfigError."""

    tls_server_name: str | None = None
    proxy: str | None = None

    def __init__(self, folder: Path = SERVICE_ACCOUNT, environment: Mapping[str, str] = os.environ) -> None:
        try:
            host, port = environment["KUBERNETES_SERVICE_HOST"], environment["KUBERNETES_SERVICE_PORT"]
            self._file = TokenFile(folder / "token")
        except KeyError as error:
            raise KubeconfigError(
                f"{error.args[0]} is not set: in a pod the kubelet sets it; elsewhere set KUBECONFIG"
            ) from error
        except (OSError, ValueError) as error:
            fix = "Mount the service account's token into the pod (automountServiceAccountToken)."
            raise KubeconfigError(f"no usable service account in {folder}: {error}. {fix}") from error
        self.host = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
        self._authority = folder / "ca.crt"

    def tls(self) -> ssl.SSLContext:
        """See Credentials."""
        return ssl.create_default_context(cafile=self._authority)

    async def token(self) -> str:
        """See Credentials."""
        return f"Bearer {self._file.value()}"

    async def renew(self, refused: str) -> bool:
        """See Credentials."""
        return self._file.renew() or await self.token() != refused


class TokenFile:
    """A bearer token that another program keeps fresh in a file: the kubelet for a service account, an agent for a kubeconfig.

    It measures on the monotonic clock: a wall clock that jumps must not make a token look fresh. A file that cannot be read once
    leaves the last token in use; it may be in the middle of being replaced. Raises OSError or ValueError if there is no token to
    begin with."""

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
