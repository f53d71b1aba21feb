"""Addresses of hosts by name, kept: a machine finds etcd again while nobody answers DNS.

    addresses = Addresses({"etcd": "10.0.0.7"})
    pool = addresses.pool(retries=False)        # urllib3's; certificates are held to the name as ever
    addresses.known                             # for another process of the machine

A connection goes where the last one to that name went, without a look-up: with the cluster's only DNS pod on a machine that is
lost, each look-up takes ten seconds and longer, as long as a lease, until it fails. Only when nothing is found there, the next
one asks for the name again.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from typing import Any, Final

from urllib3 import HTTPConnectionPool, HTTPSConnectionPool, PoolManager
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import ConnectTimeoutError, NameResolutionError


class Addresses:
    """May be used by several threads, and after a fork."""

    def __init__(self, known: Mapping[str, str] | None = None) -> None:
        self.known: Final = dict(known or {})
        self._doubted: set[str] = set()

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
        name = connection._dns_host
        known = self.known.get(name)
        try:
            if known and name not in self._doubted:
                connection._dns_host = known
            try:
                made = connect()
            except NameResolutionError:
                if not known:
                    raise
                connection._dns_host = known
                made = connect()
        except ConnectTimeoutError:  # urllib3's root of all failures to connect
            self._doubted.add(name)
            raise
        finally:
            connection._dns_host = name
        self.known[name] = made.getpeername()[0]
        self._doubted.discard(name)
        return made
