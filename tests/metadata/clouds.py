"""Metadata services on loopback that answer as AWS, Google Cloud and Azure document theirs, and can be told to misbehave.

with serve(AwsMetadata()) as cloud:
    cloud.action = {"action": "terminate", "time": "..."}; cloud.address; cloud.asked
"""

import contextlib
import email.utils
import json
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple, TypeVar


class Reply(NamedTuple):
    status: int
    body: bytes = b""
    headers: Mapping[str, str] = {}


class Fake:
    """What all have in common. `next_replies`: given first, one each; HANG keeps the connection open without a word."""

    HANG = Reply(0)
    DRIP = Reply(-1)  # a byte every 50 ms, for ever

    def __init__(self) -> None:
        self.address = ""
        self.asked: list[str] = []  # "METHOD path"
        self.next_replies: list[Reply] = []
        self.hangs = False  # every connection from now on stays open without a word
        self.clock_ahead_seconds = 0.0  # of this machine's clock
        self.over = threading.Event()

    def of(self, _client: str) -> "Fake":
        """The service as the machine with that address sees it."""
        return self

    def end(self) -> None:
        """Nobody waits for an answer any more."""
        self.over.set()

    def reply(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> Reply:
        raise NotImplementedError

    def stamp(self, seconds: float) -> str:
        """RFC 3339, so many seconds from the service's now."""
        return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + self.clock_ahead_seconds + seconds))


class AwsMetadata(Fake):
    """Instance metadata, version 2."""

    def __init__(self) -> None:
        super().__init__()
        self.action: Any = None  # an object, or bytes sent as they are; None: 404
        self.scheduled: Any = []
        self.rebalance: Any = None
        self.hop_limit_too_small = False  # the answer to the PUT is dropped on the way
        self.tokens: list[str] = []
        self.valid = ""

    def event(self, code: str, seconds: float, **more: str) -> dict[str, str]:
        """A scheduled event, so many seconds from the service's now; its times are written in another way than an action's."""
        when = time.strftime("%d %b %Y %H:%M:%S GMT", time.gmtime(time.time() + self.clock_ahead_seconds + seconds))
        base = {"NotBefore": when, "Code": code, "Description": f"scheduled {code}", "EventId": f"instance-event-{code}"}
        return {**base, "NotAfter": when, "State": "active", **more}

    def expire_token(self) -> None:
        self.valid = ""

    def reply(self, method: str, path: str, headers: Mapping[str, str], _body: bytes) -> Reply:
        if path == "/latest/api/token":
            if method != "PUT" or not headers.get("X-aws-ec2-metadata-token-ttl-seconds", "").isdigit():
                return Reply(400)
            if self.hop_limit_too_small:
                return self.HANG
            self.valid = f"token-{len(self.tokens)}=="
            self.tokens.append(self.valid)
            return Reply(200, self.valid.encode())
        if not self.valid or headers.get("X-aws-ec2-metadata-token") != self.valid:
            return Reply(401, b"<?xml version='1.0'?><html>Unauthorized</html>")
        items = {
            "/latest/meta-data/spot/instance-action": self.action,
            "/latest/meta-data/events/maintenance/scheduled": self.scheduled,
            "/latest/meta-data/events/recommendations/rebalance": self.rebalance,
        }
        return Reply(404) if items.get(path) is None else Reply(200, as_bytes(items[path]))


class GcpMetadata(Fake):
    """The metadata server of Compute Engine."""

    def __init__(self) -> None:
        super().__init__()
        self.preempted = "FALSE"
        self.maintenance = "NONE"
        self.flavor = "Google"
        self.gives_etag = True
        self._changed = threading.Condition()

    def change(self, **values: str) -> None:
        with self._changed:
            vars(self).update(values)
            self._changed.notify_all()

    def end(self) -> None:
        super().end()
        self.change()

    def reply(self, _method: str, path: str, headers: Mapping[str, str], _body: bytes) -> Reply:
        if headers.get("Metadata-Flavor") != "Google":
            return Reply(403)
        path, _, query = path.partition("?")
        options = dict(part.split("=", 1) for part in query.split("&")) if query else {}
        if path == "/computeMetadata/v1/instance/maintenance-event":
            return Reply(200, self.maintenance.encode(), {"Metadata-Flavor": self.flavor})
        if path != "/computeMetadata/v1/instance/preempted":
            return Reply(404)
        with self._changed:
            if "wait_for_change" in options:
                seen, limit = options["last_etag"], float(options["timeout_sec"])
                self._changed.wait_for(lambda: self._etag() != seen or self.over.is_set(), limit)
            etag = {"ETag": self._etag()} if self.gives_etag else {}
            return Reply(200, self.preempted.encode(), {"Metadata-Flavor": self.flavor, **etag})

    def _etag(self) -> str:
        return f"{hash(self.preempted) & 0xFFFFFFFF:x}"


class AzureMetadata(Fake):
    """Scheduled events, version 2020-07-01."""

    def __init__(self) -> None:
        super().__init__()
        self.name: str | None = "spot_0"
        self.events: Any = []
        self.approved: list[str] = []
        self.first_delay_seconds = 0.0

    def event(self, kind: str, seconds: float, **more: Any) -> dict[str, Any]:
        when = email.utils.formatdate(time.time() + self.clock_ahead_seconds + seconds, usegmt=True)
        base = {"EventId": f"{kind}-1", "EventType": kind, "ResourceType": "VirtualMachine", "Resources": ["spot_0"]}
        base |= {"EventStatus": "Scheduled", "NotBefore": when, "Description": "", "EventSource": "Platform"}
        return {**base, "DurationInSeconds": -1, **more}

    def reply(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> Reply:
        if headers.get("Metadata") != "true":
            return Reply(400, b'{"error": "Bad request. Required metadata header not specified"}')
        if path == "/metadata/instance/compute/name?api-version=2021-02-01&format=text":
            return Reply(200, self.name.encode()) if self.name is not None else Reply(404)
        if path != "/metadata/scheduledevents?api-version=2020-07-01":
            return Reply(400)
        if method == "POST":
            self.approved += [each["EventId"] for each in json.loads(body)["StartRequests"]]
            return Reply(200)
        delay, self.first_delay_seconds = self.first_delay_seconds, 0.0
        self.over.wait(delay)
        document = self.events if isinstance(self.events, bytes) else {"DocumentIncarnation": 1, "Events": self.events}
        return Reply(200, as_bytes(document), {"Content-Type": "application/json; charset=utf-8"})


def as_bytes(content: Any) -> bytes:
    return content if isinstance(content, bytes) else json.dumps(content).encode()


class Region(Fake):
    """The metadata services of many machines, by their addresses: each is told of its own fate alone."""

    def __init__(self, kind: type[Fake]) -> None:
        super().__init__()
        self._kind = kind
        self._machines: dict[str, Fake] = {}
        self._lock = threading.Lock()

    def of(self, client: str) -> Fake:
        with self._lock:
            return self._machines.setdefault(client, self._kind())

    def end(self) -> None:
        super().end()
        for machine in self._machines.values():
            machine.end()


SomeFake = TypeVar("SomeFake", bound=Fake)


def _handler(cloud: Fake) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def date_time_string(self, _timestamp: float | None = None) -> str:
            return email.utils.formatdate(time.time() + cloud.clock_ahead_seconds, usegmt=True)

        def _answer(self) -> None:
            asked = cloud.of(self.client_address[0])
            asked.asked.append(f"{self.command} {self.path}")
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            given = Fake.HANG if asked.hangs else asked.next_replies.pop(0) if asked.next_replies else None
            reply = given or asked.reply(self.command, self.path, dict(self.headers.items()), body)
            with contextlib.suppress(ConnectionError):
                self._send(reply)

        def _send(self, reply: Reply) -> None:
            if reply is Fake.HANG:
                cloud.of(self.client_address[0]).over.wait(60)
                self.close_connection = True
                return
            if reply is Fake.DRIP:
                while not cloud.over.wait(0.05):
                    self.wfile.write(b"H")
                return
            self.send_response(reply.status)
            for name, value in {"Content-Length": str(len(reply.body)), **reply.headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(reply.body)

        do_GET = do_PUT = do_POST = _answer

        def log_message(self, *_: object) -> None:
            pass

    return Handler


@contextlib.contextmanager
def serve(cloud: SomeFake, listener: socket.socket | None = None) -> Iterator[SomeFake]:
    """`listener`: where to answer; without one, on a port of loopback."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _handler(cloud), bind_and_activate=listener is None) as server:
        server.daemon_threads = True
        if listener:
            server.socket.close()
            server.socket, server.server_address = listener, listener.getsockname()
            server.server_name, server.server_port = listener.getsockname()
        cloud.address = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield cloud
        finally:
            cloud.end()
            server.shutdown()
            thread.join()
