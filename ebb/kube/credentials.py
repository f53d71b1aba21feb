"""How one gets into an API server: in a pod by its service account, elsewhere by a kubeconfig (kubeconfig.py).

    entry = await load(kubeconfig, context);  await entry.token();  entry.tls()

Whoever speaks asks for the token before every request, so that one which is replaced while a program runs is never used past its
life, however long connections last. Certificates are read once: programs that run for long use tokens.
"""

import os
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from ebb.kube.errors import ConfigError
from ebb.kube.tokens import TokenFile

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class Credentials(Protocol):
    """The way into one API server."""

    host: str  # https://address:port
    tls_server_name: str | None  # the name that its certificate must have, where that is not the address
    proxy: str | None

    def tls(self) -> ssl.SSLContext:
        """What to trust, and the client certificate if there is one. Raises OSError."""

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
            raise ConfigError(f"{error.args[0]} is not set: in a pod the kubelet sets it; elsewhere set KUBECONFIG") from error
        except (OSError, ValueError) as error:
            fix = "Mount the service account's token into the pod (automountServiceAccountToken)."
            raise ConfigError(f"no usable service account in {folder}: {error}. {fix}") from error
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


async def load(kubeconfig: str | None, context: str | None) -> Credentials:
    """The named kubeconfig, else a pod's service account, else $KUBECONFIG or ~/.kube/config. Raises ConfigError."""
    if kubeconfig is None and "KUBERNETES_SERVICE_HOST" in os.environ and (SERVICE_ACCOUNT / "token").exists():
        return ServiceAccount()
    from ebb.kube import kubeconfig as files  # noqa: PLC0415 - a pod needs none of it

    return await files.load(kubeconfig or os.environ.get("KUBECONFIG") or "~/.kube/config", context)
