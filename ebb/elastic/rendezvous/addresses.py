"""Addresses of hosts by name, kept: a machine finds etcd again while nobody answers DNS.

    addresses = Addresses({"etcd": ["10.0.0.7"]})
    pool = addresses.pool(retries=False)        # urllib3's; certificates are held to the name as ever
    addresses.known                             # for another process of the machine

A connection goes where the last one to that name went, without a look-up: with the cluster's only DNS pod on a machine that is
lost, each look-up takes ten seconds and longer, as long as a lease, until it fails. Only when nothing is found there, the next
one asks for the name again. An answer that takes longer than a second is not waited for, and counts from when it comes; until
then all addresses that the name had last are tried, the next one after a second.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from urllib3 import HTTPConnectionPool, HTTPSConnectionPool, PoolManager
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import ConnectTimeoutError, NameResolutionError
from urllib3.util import Timeout
from urllib3.util.connection import allowed_gai_family

# For DNS, and for an address while there is another: both answer within milliseconds. etcd's client waits 5 s for an answer, and
# finds another address 2 s later at most, before a lease of 10 s ends.
_PATIENCE_SECONDS = 1.0


class Addresses:
    """May be used by several threads, and after a fork."""

    def __init__(self, known: Mapping[str, Sequence[str]] | None = None) -> None:
        """`known`: the one that answered last is the first of a name."""
        self.known: Final = {name: list(addresses) for name, addresses in (known or {}).items()}
        self._doubted: set[str] = set()
        self._look_ups: dict[str, _LookUp] = {}

    def pool(self, **settings: Any) -> PoolManager:
        addresses = self

        class Plain(HTTPConnection):
            def _new_conn(self) -> socket.socket:
                return addresses._connect(self, super()._new_conn)

        class Secure(HTTPSConnection):
            def _new_conn(self) -> socket.socket:
                return addresses._connect(self, super()._new_conn)

        class PlainPool(HTTPConnectionPool):
            ConnectionCls = Plain

        class SecurePool(HTTPSConnectionPool):
            ConnectionCls = Secure

        made = PoolManager(**settings)
        made.pool_classes_by_scheme = {"http": PlainPool, "https": SecurePool}
        return made

    def _connect(self, connection: HTTPConnection, connect: Callable[[], socket.socket]) -> socket.socket:
        """`connect` goes to the connection's host. Its name is back before certificates are looked at."""
        name, timeout = connection._dns_host, connection.timeout
        if name in self._doubted or name not in self.known:
            self._look_up(name, connection)
        *others, last = self.known[name]
        try:
            connection.timeout = _PATIENCE_SECONDS
            for address in others:
                connection._dns_host = address
                with contextlib.suppress(ConnectTimeoutError):  # urllib3's root of all failures to connect
                    made = connect()
                    made.settimeout(Timeout.resolve_default_timeout(timeout))  # TLS comes next
                    return self._keep(name, made)
            connection._dns_host, connection.timeout = last, timeout
            return self._keep(name, connect())
        except ConnectTimeoutError:
            self._doubted.add(name)
            raise
        finally:
            connection._dns_host, connection.timeout = name, timeout

    def _keep(self, name: str, made: socket.socket) -> socket.socket:
        known, address = self.known[name], made.getpeername()[0]
        if address in known:  # or a look-up has just said that the name has moved
            self.known[name] = [address, *(other for other in known if other != address)]
        self._doubted.discard(name)
        return made

    def _look_up(self, name: str, connection: HTTPConnection) -> None:
        running = self._look_ups.get(name)
        if running is None or not running.is_alive():  # nor is one that a parent process had begun
            running = self._look_ups[name] = _LookUp(name, self.known)
            running.start()
        running.join(_PATIENCE_SECONDS if name in self.known else None)
        if name not in self.known:
            raise NameResolutionError(name, connection, running.error) from running.error


class _LookUp(threading.Thread):
    """A thread, since nothing else ends the wait for a resolver that is away."""

    def __init__(self, name: str, known: dict[str, list[str]]) -> None:
        super().__init__(name="look-up", daemon=True)
        self.error = socket.gaierror(socket.EAI_NONAME, "no address")
        self._host, self._known = name, known

    def run(self) -> None:
        try:
            found = socket.getaddrinfo(self._host, None, allowed_gai_family(), socket.SOCK_STREAM)
        except (socket.gaierror, UnicodeError) as error:  # UnicodeError: part of a name is longer than 63 characters
            self.error = error if isinstance(error, socket.gaierror) else socket.gaierror(socket.EAI_NONAME, str(error))
            return
        self._known[self._host] = list(dict.fromkeys(str(place[4][0]) for place in found))
