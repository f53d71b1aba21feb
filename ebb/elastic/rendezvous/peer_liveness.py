"""Noticing a dead process at once, without waiting for its lease: when it ends, its system closes its connections.

    liveness = PeerLiveness("10.1.2.3")         # liveness.address goes into this machine's key
    liveness.attend("10.1.2.4:39911")           # keep a connection to that machine's
    if liveness.wait(0.5): ...                  # True: its connection has ended, or its port refuses

Nothing is ever sent. A machine that is off, cut off or standing still does not end its connections: only its lease shows that,
the sooner where its system does not answer at all (is_unreachable).
The ports of TCPStores are not used for this: each connection to one makes torch look up names.
"""

from __future__ import annotations

import contextlib
import errno
import selectors
import socket
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

from ebb.compat import zip

_CONNECT_SECONDS = 0.3
_BACKLOG = 128
_TRIES = 3  # a packet may be lost on its way
_MOST_AT_ONCE = 64


class NotAsked(Exception):
    """No thread could begin to ask: the process is at its end, or there is no room for one."""


class PeerLiveness:
    """attend and wait are for one thread."""

    def __init__(self, host: str) -> None:
        self._listener = _listen()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._peer = ""
        self._connection: socket.socket | None = None
        self.address = f"{host}:{self._listener.getsockname()[1]}"

    def attend(self, peer: str) -> None:
        """To this address from now on; to none if it is empty."""
        if peer != self._peer:
            self._drop(self._connection)
            self._peer, self._connection = peer, None

    def wait(self, seconds: float) -> bool:
        """True if the watched process is gone; answers at once then, else after so long. Not, when that cannot be told."""
        if self._peer and self._connection is None:
            try:
                self._connection = _connect(self._peer)
                self._selector.register(self._connection, selectors.EVENT_READ)
            except ConnectionRefusedError:
                return True
            except (OSError, ValueError):
                self._connection = None
        for key, _ in self._selector.select(seconds):
            found = key.fileobj
            assert isinstance(found, socket.socket)
            if found is self._listener:
                self._accept()
                continue
            self._drop(found)  # the other end has closed it: nothing is ever sent
            if found is self._connection:
                self._connection = None
                return refuses(self._peer)
        return False

    def wake(self) -> None:
        """The thread in wait() returns from it; this is for any thread."""
        refuses(f"127.0.0.1:{self._listener.getsockname()[1]}")

    def close(self) -> None:
        for key in list(self._selector.get_map().values()):
            assert isinstance(key.fileobj, socket.socket)
            self._drop(key.fileobj)
        self._selector.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            self._selector.register(self._listener.accept()[0], selectors.EVENT_READ)

    def _drop(self, connection: socket.socket | None) -> None:
        if connection is not None:
            with contextlib.suppress(KeyError, ValueError):
                self._selector.unregister(connection)
            connection.close()


def refuses(address: str) -> bool:
    """True if no process listens at host:port any more. False also when the machine does not answer at all."""
    try:
        _connect(address).close()
    except ConnectionRefusedError:
        return True
    except (OSError, ValueError):
        return False
    return False


def is_unreachable(address: str) -> bool:
    """True if nothing answers at host:port. The system of a process that is stopped, or busy, does."""
    try:
        _connect(address).close()
    except (TimeoutError, socket.timeout):  # two before Python 3.10
        return True
    except OSError as error:
        return error.errno == errno.EHOSTUNREACH
    except ValueError:
        return False
    return False


def answers(address: str) -> bool:
    """True if a connection to host:port can be made, by one of several tries. True also for what is no address."""
    for _ in range(_TRIES):
        began = time.monotonic()
        try:
            _connect(address).close()
        except ValueError:
            return True
        except OSError:  # a wall may refuse at once
            time.sleep(max(0.0, began + _CONNECT_SECONDS - time.monotonic()))
        else:
            return True
    return False


def unanswered(addresses: Iterable[str]) -> set[str]:
    """Those that do not answer, all asked at once. Raises NotAsked."""
    asked = list(addresses)
    if not asked:
        return set()
    with ThreadPoolExecutor(min(len(asked), _MOST_AT_ONCE), thread_name_prefix="rendezvous_ask") as pool:
        try:
            heard = pool.map(answers, asked)
        except RuntimeError as error:
            raise NotAsked(str(error)) from error
        return {address for address, answered in zip(asked, heard, strict=True) if not answered}


def _connect(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=_CONNECT_SECONDS)


def _listen() -> socket.socket:
    both = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both else socket.AF_INET
    listener = socket.create_server(("", 0), family=family, dualstack_ipv6=both, backlog=_BACKLOG)
    listener.setblocking(False)
    return listener
