"""Ways into an API server that a kubeconfig describes.

    entry = await load("~/.kube/config", context=None)

One file whose user has certificates or a token is read here: kubernetes_asyncio takes 0.3 s and 36 MB to import (measured with
36.1.0). It reads all others: several files at once, the clouds' exec plugins, the older auth providers. Those give tokens that
live for minutes; they are asked for the next one 5 minutes before the end, or when half of a shorter life is over.
"""

import asyncio
import base64
import logging
import ssl
import tempfile
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from ebb.kube.credentials import Credentials, TokenFile
from ebb.kube.errors import KubeconfigError

Object = dict[str, Any]
PLAIN = {"client-certificate", "client-certificate-data", "client-key", "client-key-data", "token", "tokenFile"}
AHEAD_SECONDS = 300.0  # of its end, a token is replaced: a request may take a minute, and a plugin may fail for some
AGAIN_SECONDS = 10.0  # a plugin that fails is not asked again before: each request would wait for it
log = logging.getLogger(__name__)


async def load(paths: str, context: str | None) -> Credentials:
    """Read it. Raises ConfigError."""
    path = Path(paths).expanduser()
    try:
        return Plain(path, context)
    except (OSError, ValueError, LookupError, TypeError, yaml.YAMLError):
        return await _by_library(paths, context)  # it says best what is wrong


class Plain:
    """One file, without plugins. Raises a LookupError, TypeError, ValueError or OSError for any other."""

    def __init__(self, path: Path, context: str | None) -> None:
        read = yaml.safe_load(path.read_text())
        chosen = _named(read["contexts"], context or read["current-context"])["context"]
        cluster = _named(read["clusters"], chosen["cluster"])["cluster"]
        user = (_named(read["users"], chosen["user"]).get("user") or {}) if chosen.get("user") else {}
        if set(user) - PLAIN:
            raise ValueError(f"the user has {sorted(set(user) - PLAIN)}")
        self.host = str(cluster["server"]).rstrip("/")
        self.tls_server_name: str | None = cluster.get("tls-server-name")
        self.proxy: str | None = cluster.get("proxy-url")
        self._verify = not cluster.get("insecure-skip-tls-verify")
        self._trust = _content(cluster, "certificate-authority", path.parent)
        self._certificate = _content(user, "client-certificate", path.parent)
        self._key = _content(user, "client-key", path.parent)
        self._token = user.get("token", "")
        self._file = TokenFile(path.parent / user["tokenFile"]) if user.get("tokenFile") else None

    def tls(self) -> ssl.SSLContext:
        """See Credentials."""
        found = ssl.create_default_context(cadata=self._trust.decode() if self._trust else None)
        if self._certificate and self._key:
            with tempfile.NamedTemporaryFile() as pair:  # ssl takes files only
                pair.write(self._certificate + b"\n" + self._key)
                pair.flush()
                found.load_cert_chain(pair.name)
        if not self._verify:
            found.check_hostname, found.verify_mode = False, ssl.CERT_NONE
        return found

    async def token(self) -> str:
        """See Credentials."""
        token = self._file.value() if self._file else self._token
        return f"Bearer {token}" if token else ""

    async def renew(self, refused: str) -> bool:
        """See Credentials."""
        return self._file is not None and (self._file.renew() or await self.token() != refused)


class ByLibrary:
    """A kubeconfig as kubernetes_asyncio loads it, and loads it again."""

    def __init__(self, read: Callable[[], Any], found: Any, clock: Callable[[], float] = time.monotonic) -> None:
        """`read` gives an awaitable of (configuration, loader), as `found` is."""
        self._read, self._clock = read, clock
        self._configuration, self._loader = found
        self._lock = asyncio.Lock()
        self._failed_at = -AGAIN_SECONDS
        self._due_at = self._due()
        self.host: str = self._configuration.host
        self.tls_server_name: str | None = self._configuration.tls_server_name
        self.proxy: str | None = self._configuration.proxy

    def tls(self) -> ssl.SSLContext:
        """See Credentials."""
        known = self._configuration
        found = ssl.create_default_context(cafile=known.ssl_ca_cert)
        if known.cert_file:
            found.load_cert_chain(known.cert_file, keyfile=known.key_file)
        if not known.verify_ssl:
            found.check_hostname, found.verify_mode = False, ssl.CERT_NONE
        return found

    async def token(self) -> str:
        """See Credentials. The library by itself would ask a plugin whose tokens live for less than 5 minutes at each request."""
        if self._clock() >= self._due_at and self._clock() - self._failed_at >= AGAIN_SECONDS:
            async with self._lock:
                await self._ask()
        return self._token()

    async def renew(self, refused: str) -> bool:
        """See Credentials. Everything is read again, once for all requests that fail together."""
        async with self._lock:
            if self._token() != refused:
                return True
            if self._clock() - self._failed_at < AGAIN_SECONDS:
                return False
            try:
                self._configuration, self._loader = await self._read()
                self._due_at = self._due()
            except _errors() as error:
                self._complain(error)
            if self._token() != refused:
                return True
            self._failed_at = self._clock()
            return False

    def _token(self) -> str:
        return str(self._configuration.api_key.get("BearerToken", ""))

    async def _ask(self) -> None:
        """One of several requests that wait for the next token asks for it."""
        if self._clock() < self._due_at or self._clock() - self._failed_at < AGAIN_SECONDS:
            return
        vars(self._loader).pop("exec_plugin_expiry", None)  # or it asks only when that is near by the wall clock, which may jump
        try:
            await self._loader.load_from_exec_plugin()
            self._configuration.api_key["BearerToken"] = self._loader.token
            self._due_at = self._due()
        except _errors() as error:
            self._complain(error)

    def _due(self) -> float:
        """The time to ask for the next token, on our clock; never, where the plugin says no end or there is none."""
        ends = getattr(self._loader, "exec_plugin_expiry", None)
        if ends is None:
            return float("inf")
        life: float = (ends - datetime.now(UTC)).total_seconds()
        return self._clock() + life - min(AHEAD_SECONDS, life / 2)

    def _complain(self, error: Exception) -> None:
        self._failed_at = self._clock()
        log.warning("no new token from the kubeconfig, the last one stays in use: %s", error)


async def _by_library(paths: str, context: str | None) -> ByLibrary:
    from kubernetes_asyncio import client, config  # noqa: PLC0415 - see the module's docstring

    async def read() -> tuple[Any, Any]:
        loaded = client.Configuration()
        return loaded, await config.load_kube_config(config_file=paths, context=context, client_configuration=loaded)

    try:
        return ByLibrary(read, await read())
    except _errors() as error:
        fix = "Set KUBECONFIG or EBB_KUBECONFIG to a file that works with kubectl."
        raise KubeconfigError(f"no usable kubeconfig at {paths}: {' '.join(str(error).split())}. {fix}") from error


def _errors() -> tuple[type[Exception], ...]:
    """Errors that the library raises for a file or a plugin that is no good; a plugin that is not installed is an OSError."""
    from kubernetes_asyncio.config import ConfigException  # noqa: PLC0415

    return ConfigException, OSError, TypeError, ValueError, AssertionError, yaml.YAMLError


def _named(items: list[Object], name: str) -> Mapping[str, Any]:
    (found,) = [item for item in items if item["name"] == name]
    return found


def _content(section: Mapping[str, Any], key: str, folder: Path) -> bytes:
    """The value of a field, in place or in a file whose path is relative to the kubeconfig; empty for none."""
    if section.get(f"{key}-data"):
        return base64.b64decode(section[f"{key}-data"], validate=True)
    return (folder / section[key]).read_bytes() if section.get(key) else b""
