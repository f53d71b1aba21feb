"""A thin client of etcd's v3 API (3.4 and newer) through its JSON gateway.

    etcd = Etcd(["https://a:2379", "https://b:2379"], tls=Tls(cacert="/tls/ca.crt"), user="ebb", password="...")
    lease = etcd.grant(10); etcd.put("/ebb/x", b"1", lease); etcd.keep_alive(lease)
    etcd.transact([Compare("/ebb/x", "version", 1)], [Put("/ebb/x", b"2")])
    items, revision = etcd.list("/ebb/")
    for events in etcd.watch("/ebb/", revision + 1, stop): ...

All calls block, for about `timeout_seconds` and endpoint at most; a client may be used by several threads and after a fork.
Why not a package: etcd3gw 2.7 (the gateway too) knows no user and password, one endpoint only, and reads its watch by pieces of
the network rather than lines; etcd3 needs grpc, which does not survive a fork, and had its last release in 2020.
It repeats nothing by itself but what cannot hurt (another endpoint when no connection came about, a new token).
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import ssl
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import urllib3
from urllib3.exceptions import ConnectTimeoutError, HTTPError, ReadTimeoutError, SSLError

from ebb.compat import dataclass
from ebb.elastic.rendezvous import wire
from ebb.elastic.rendezvous.addresses import Addresses
from ebb.elastic.rendezvous.errors import (
    Compacted,
    EtcdError,
    LeaseGone,
    Refused,
    StaleToken,
    Unreachable,
    explain,
    reason,
)
from ebb.elastic.rendezvous.wire import Compare, Delete, Item, KeyEvent, Op, Put

__all__ = ["Compacted", "EtcdError", "LeaseGone", "Refused", "Unreachable"]
__all__ += ["Compare", "Delete", "Etcd", "Item", "KeyEvent", "Op", "Put", "Tls"]

# A watch without news is asked for again: a connection whose other end vanished says nothing for ever.
_SILENCE_SECONDS = 10.0
_log = logging.getLogger(__name__)
_Items = list[Item]  # in the class `list` is a method
_Events = list[KeyEvent]


@dataclass(frozen=True, kw_only=True)
class Tls:
    """Paths of PEM files, which are read again when they have been renewed. Without `cacert` the system's authorities count;
    `cert` and `key` where etcd asks for them."""

    cacert: str = ""
    cert: str = ""
    key: str = ""

    def context(self) -> ssl.SSLContext:
        try:
            context = ssl.create_default_context(cafile=self.cacert or None)
            if self.cert:
                context.load_cert_chain(self.cert, self.key or None)
        except (OSError, ssl.SSLError) as error:
            raise Refused(
                f"the certificates for etcd cannot be used (cacert={self.cacert!r}, cert={self.cert!r}, key={self.key!r}): "
                f"{error}; each must be the path of a readable PEM file"
            ) from error
        return context

    def written(self) -> tuple[int, ...]:
        """When the files were written, in nanoseconds; 0 for one that cannot be seen now. Kubernetes renews them in place."""
        return tuple(_written(path) for path in (self.cacert, self.cert, self.key) if path)


class Etcd:
    """`endpoints` are tried in turn; one without http:// or https:// is https when `tls` is given. `addresses`: those of another
    client."""

    def __init__(
        self,
        endpoints: Sequence[str],
        *,
        tls: Tls | None = None,
        user: str = "",
        password: str = "",
        timeout_seconds: float = 5.0,
        addresses: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        if not endpoints:
            raise ValueError("etcd has no endpoint: give at least one, such as http://etcd:2379")
        self.endpoints = tuple(_url(endpoint, tls is not None) for endpoint in endpoints)
        self._tls = tls
        self._user, self._password = user, password
        self._timeout_seconds = timeout_seconds
        self._addresses = Addresses(addresses)
        self._current = 0
        self._token = ""
        self._pool: urllib3.PoolManager | None = None
        self._pool_of: tuple[int, tuple[int, ...]] = (0, ())
        self._watches: set[urllib3.BaseHTTPResponse] = set()

    @property
    def addresses(self) -> Mapping[str, Sequence[str]]:
        """By name, where hosts of endpoints were found."""
        return dict(self._addresses.known)

    def get(self, key: str) -> Item | None:
        answer = self._call("/v3/kv/range", {"key": wire.text(key)})
        return next((wire.item(found) for found in answer.get("kvs", [])), None)

    def list(self, prefix: str) -> tuple[_Items, int]:
        """All keys that begin so, and the revision at which they were."""
        answer = self._call("/v3/kv/range", wire.below(prefix))
        return [wire.item(found) for found in answer.get("kvs", [])], wire.revision(answer)

    def put(self, key: str, value: bytes, lease: int = 0) -> int:
        """Returns the revision of this write. Raises LeaseGone."""
        return wire.revision(self._call("/v3/kv/put", wire.put(Put(key, value, lease))))

    def delete(self, key: str) -> bool:
        """True if there was such a key."""
        return int(self._call("/v3/kv/deleterange", {"key": wire.text(key)}).get("deleted", 0)) > 0

    def delete_prefix(self, prefix: str) -> int:
        return int(self._call("/v3/kv/deleterange", wire.below(prefix)).get("deleted", 0))

    def transact(self, compares: Sequence[Compare], operations: Sequence[Op]) -> bool:
        """True if the compares held. After Unreachable it may or may not have happened: read before trying again."""
        answer = self._call("/v3/kv/txn", wire.transaction(compares, operations), again=False)
        return bool(answer.get("succeeded", False))

    def grant(self, ttl_seconds: int) -> int:
        """A new lease: keys put with it are gone when it is not kept alive, on etcd's clock alone."""
        return int(self._call("/v3/lease/grant", {"TTL": str(ttl_seconds)})["ID"])

    def keep_alive(self, lease: int) -> int:
        """The seconds that it now lives; 0: it is gone, and its keys with it."""
        answer = self._call("/v3/lease/keepalive", {"ID": str(lease)})
        return int(answer.get("result", answer).get("TTL", 0))

    def time_to_live(self, lease: int) -> tuple[int, int]:
        """The seconds that it lives if nobody renews it, rounded down, of how many; (0, 0) when it is gone. Renews nothing."""
        answer = self._call("/v3/lease/timetolive", {"ID": str(lease)})
        return max(int(answer.get("TTL", 0)), 0), int(answer.get("grantedTTL", 0))

    def revoke(self, lease: int) -> None:
        """Its keys are gone at once. One that is gone already is fine."""
        with contextlib.suppress(LeaseGone):
            self._call("/v3/lease/revoke", {"ID": str(lease)})

    def watch(self, prefix: str, from_revision: int, stop: threading.Event) -> Iterator[_Events]:
        """Changes of these keys, from that revision on, until `stop` is set (close() makes it look at once).

        Ends otherwise only by raising: Compacted (the history from there on is no more, or etcd lost its data: list again),
        Unreachable, Refused.
        """
        revision, renewed = from_revision, False
        while not stop.is_set():
            try:
                for answer in self._stream(prefix, revision):
                    if stop.is_set():
                        return
                    self._check_watch(answer, revision)
                    renewed = False
                    events = [wire.event(found) for found in answer.get("events", [])]
                    if events:
                        # not the header's: while a watch catches up that is ahead of what was sent
                        revision = events[-1].item.mod_revision + 1
                        yield events
            except StaleToken:
                if renewed:
                    raise
                renewed = True
                self._authenticate()
            except Unreachable:
                if not stop.is_set():
                    raise

    def close(self) -> None:
        """Wake the watches, so that they see their `stop`. The client can still be used."""
        for response in tuple(self._watches):
            with contextlib.suppress(ValueError, RuntimeError, OSError):  # it ended just now
                response.shutdown()

    def _check_watch(self, answer: Mapping[str, Any], revision: int) -> None:
        endpoint = self.endpoints[self._current]
        if int(answer.get("compact_revision", 0)):
            raise Compacted(f"etcd at {endpoint} has no history from revision {revision} on any more")
        if answer.get("canceled"):
            raise explain(endpoint, 200, {"message": answer.get("cancel_reason", "the watch was cancelled")}, user=self._user)
        if answer.get("created") and wire.revision(answer) + 1 < revision:
            raise Compacted(f"etcd at {endpoint} is at revision {wire.revision(answer)}, before {revision}: it has lost its data")

    def _stream(self, prefix: str, revision: int) -> Iterator[dict[str, Any]]:
        """The answers of one request to watch, until etcd is silent."""
        body = {"create_request": {**wire.below(prefix), "start_revision": str(revision)}}
        timeout = urllib3.Timeout(connect=self._timeout_seconds, read=_SILENCE_SECONDS)
        response = self._send("/v3/watch", body, timeout=timeout, again=True, preload_content=False)
        self._watches.add(response)
        try:
            for line in _lines(response):
                answer = json.loads(line)
                if "error" in answer:
                    raise explain(self.endpoints[self._current], 500, answer["error"], user=self._user)
                yield answer["result"]
        except ReadTimeoutError:
            return
        except (HTTPError, OSError, ValueError) as error:
            raise Unreachable(f"the watch on etcd at {self.endpoints[self._current]} broke: {error}") from error
        finally:
            self._watches.discard(response)
            response.close()
        raise Unreachable(f"etcd at {self.endpoints[self._current]} ended the watch: it stops, or is being restarted")

    def _call(self, path: str, body: Mapping[str, Any], *, again: bool = True) -> dict[str, Any]:
        timeout = urllib3.Timeout(self._timeout_seconds)
        try:
            response = self._send(path, body, timeout=timeout, again=again)
        except StaleToken:
            self._authenticate()
            response = self._send(path, body, timeout=timeout, again=again)
        try:
            answer: dict[str, Any] = json.loads(response.data)
        except ValueError as error:
            raise Refused(
                f"{self.endpoints[self._current]} answered {path} with no JSON: is it etcd (3.4 or newer)? Check the endpoint"
            ) from error
        if "error" in answer:  # a stream's way to say it, with status 200
            raise explain(self.endpoints[self._current], 500, answer["error"], user=self._user)
        return answer

    def _send(
        self,
        path: str,
        body: Mapping[str, Any],
        *,
        timeout: urllib3.Timeout,
        again: bool,
        preload_content: bool = True,
    ) -> urllib3.BaseHTTPResponse:
        """From the first endpoint that answers. With `again` false one that took the request is the last that is asked."""
        if self._user and not self._token and path != "/v3/auth/authenticate":
            self._authenticate()
        failures = []
        for _ in self.endpoints:
            endpoint = self.endpoints[self._current]
            try:
                response = self._connections().request(
                    "POST",
                    endpoint + path,
                    body=json.dumps(body),
                    headers={"Authorization": self._token} if self._token else {},
                    timeout=timeout,
                    preload_content=preload_content,
                )
            except (HTTPError, OSError) as error:
                if isinstance(error, SSLError):
                    self._pool = None  # certificates are read again next time: they may have been renewed
                    refused = explain(endpoint, 0, {"message": f"TLS: {error}"}, user=self._user)
                    if isinstance(refused, Refused):
                        raise refused from error
                failures.append(f"{endpoint}: {reason(error, secure=endpoint.startswith('https'))}")
                self._current = (self._current + 1) % len(self.endpoints)
                if not again and not isinstance(error, ConnectTimeoutError):
                    break
                continue
            if response.status == 200:
                return response
            raise self._failure(endpoint, response)
        raise Unreachable(f"etcd does not answer ({'; '.join(failures)})")

    def _failure(self, endpoint: str, response: urllib3.BaseHTTPResponse) -> EtcdError:
        raw = response.data
        try:
            found = json.loads(raw)
        except ValueError:
            found = {"message": raw[:200].decode(errors="replace").strip()}
        if isinstance(found, dict) and isinstance(found.get("error"), dict):
            found = found["error"]  # a stream's, as 3.6 and newer say it
        error = explain(endpoint, response.status, found if isinstance(found, dict) else {}, user=self._user)
        if isinstance(error, Unreachable):
            self._current = (self._current + 1) % len(self.endpoints)
        return error

    def _authenticate(self) -> None:
        """A token, which etcd forgets after five minutes without use and at a restart."""
        self._token = ""
        if not self._user:
            raise explain(self.endpoints[self._current], 401, {"message": "etcdserver: user name is empty"}, user="")
        try:
            answer = self._call("/v3/auth/authenticate", {"name": self._user, "password": self._password})
        except Refused as error:
            if "authentication is not enabled" not in str(error):
                raise
            _log.warning("etcd at %s asks nobody for a password: user %r is not used", self.endpoints[self._current], self._user)
            self._user = ""
            return
        self._token = answer["token"]

    def _connections(self) -> urllib3.PoolManager:
        """Of this process: a fork's child must not share its parent's connections. And of the certificates that are there now."""
        pool, state = self._pool, (os.getpid(), self._tls.written() if self._tls else ())
        if pool is None or self._pool_of != state:
            context = (self._tls or Tls()).context() if any(url.startswith("https") for url in self.endpoints) else None
            pool = self._pool = self._addresses.pool(retries=False, maxsize=4, ssl_context=context)
            self._pool_of = state
        return pool


def _written(path: str) -> int:
    try:
        return Path(path).stat().st_mtime_ns
    except OSError:
        return 0


def _url(endpoint: str, secure: bool) -> str:
    endpoint = endpoint.strip().rstrip("/")
    return endpoint if "://" in endpoint else f"{'https' if secure else 'http'}://{endpoint}"


def _lines(response: urllib3.BaseHTTPResponse) -> Iterator[bytes]:
    rest = b""
    for piece in response.stream():
        *lines, rest = (rest + piece).split(b"\n")
        yield from (line for line in lines if line.strip())
