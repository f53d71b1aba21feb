"""Places in the next generation, from a launcher to its worker processes that live through a change of the membership.

    server = PlaceServer(folder / "places")             # the launcher's agent
    server.tell_change(); server.asks(pids); server.give({pid: WorkerPlace(...), ...})
    client = PlaceClient(folder / "places", on_place)   # a worker
    client.change_wanted                                # newcomers wait: come to a step boundary
    client.next(broken=True, leaving=notice_seen)       # leave the present generation, wait for the next one's place

Newcomers to a generation that trains get ready beside it, and ask for their place when they could make a step. Until then they
need some facts about it: rank 0 gives them to its launcher (tell), which puts them where the newcomers' launcher finds them
(agent.py), and that one hands them on (prepare_beside, client.beside).

Lines of JSON over a Unix socket. A worker's line ends with its process, and a launcher's with its own, so neither waits for a
dead one. Workers that never connect are restarted by their launcher, as torchrun does.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ebb.compat import dataclass

SOCKET_NAME = "places"
_LONGEST_PATH = 103
_LOOK_SECONDS = 0.1  # between two questions whether to leave, while a place is waited for


class LauncherGone(Exception):  # not an error of this process: it cannot go on without
    """The launcher has ended; nobody knows of a next generation."""


@dataclass(frozen=True, kw_only=True)
class WorkerPlace:
    """One worker in one generation. `machine` is torch's group rank; address and port are the generation's store's."""

    rank: int
    world_size: int
    machine: int
    machines: int
    address: str
    port: int


class PlaceServer:
    """The launcher's end. Every method may be called from its one thread; connections have a thread each."""

    def __init__(self, path: Path) -> None:
        """Raises OSError where there can be no such socket."""
        self._lock = threading.Lock()
        self._lines: dict[int, socket.socket] = {}  # by process id
        self._asking: dict[int, dict[str, bool]] = {}  # those that have left their generation, with what they say of it
        self._given = 0  # places so far; a question from before the last one is answered already
        self._beside: object = None
        self._told: object = None
        self.used = False  # some worker of this machine lives, or has lived, through changes
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        with _short(path) as place:
            self._listener.bind(place)
        self._listener.listen(64)
        threading.Thread(target=self._accept, name="places", daemon=True).start()

    def all_live(self, processes: Iterable[int]) -> bool:
        """True if each of these processes wants to live through changes."""
        with self._lock:
            return all(process in self._lines for process in processes)

    def asks(self, processes: Iterable[int]) -> bool:
        """True if one of them has left its generation."""
        with self._lock:
            return any(process in self._asking for process in processes)

    def all_ask(self, processes: Iterable[int]) -> bool:
        """True if each of them waits for a place."""
        with self._lock:
            return all(process in self._asking for process in processes)

    def prepare_beside(self, facts: object) -> None:
        """The processes that connect from now on, until there are places again, are beside a generation with these facts."""
        with self._lock:
            self._beside = facts

    def take_told(self) -> object:
        """The facts of the present generation, once after they have been told; otherwise None."""
        with self._lock:
            told, self._told = self._told, None
            return told

    def broken(self, processes: Iterable[int]) -> bool:
        """True if one of them has left it because a peer is gone."""
        with self._lock:
            return any(self._asking.get(process, {}).get("broken") for process in processes)

    def members_only(self, processes: Iterable[int]) -> bool:
        """True if one of them is in the middle of what newcomers could not take part in."""
        with self._lock:
            return any(self._asking.get(process, {}).get("members_only") for process in processes)

    def tell_change(self) -> None:
        """Newcomers wait: all are to come to a step boundary, and then ask. Saying it twice is the same as once."""
        with self._lock:
            for line in self._lines.values():
                _send(line, {"change": True})

    def give(self, places: Mapping[int, WorkerPlace]) -> None:
        """By process id; one that is busy hears it too, and its present generation is over."""
        with self._lock:
            self._given += 1
            self._beside = self._told = None
            for process, place in places.items():
                self._asking.pop(process, None)
                if process in self._lines:
                    _send(self._lines[process], {"place": asdict(place), "number": self._given})

    def close(self) -> None:
        """No worker gets a place any more."""
        for each in (self._listener, *self._lines.values()):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:  # closed
                return
            threading.Thread(target=self._serve, args=(connection,), name="places", daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        process = 0
        with connection, contextlib.suppress(OSError), connection.makefile("rb") as lines:
            for line in lines:
                said = json.loads(line)
                with self._lock:
                    if "process" in said:
                        process, self.used = said["process"], True
                        self._lines[process] = connection
                        _send(connection, {"number": self._given, "beside": self._beside})
                    if "broken" in said and said["after"] == self._given:
                        self._asking[process] = said
                    if "facts" in said and said["after"] == self._given:
                        self._told = said["facts"]
        with self._lock:
            self._lines.pop(process, None)
            self._asking.pop(process, None)


class PlaceClient:
    """A worker's end. `on_place` is called in a thread of its own when a place has come that next() does not wait for."""

    def __init__(self, path: Path, on_place: Callable[[], None]) -> None:
        """Raises OSError where no launcher listens."""
        self._on_place = on_place
        self._changed = threading.Condition()
        self._place: WorkerPlace | None = None
        self._number = self._taken = -1  # the launcher says how many places it has given before
        self._gone = self._awaited = False
        self.change_wanted = False
        self.beside: Any = None  # the facts of a generation that trains, where this process is no part of one yet
        self._line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with _short(path) as place:
                self._line.connect(place)
        except OSError:
            self._line.close()
            raise
        _send(self._line, {"process": os.getpid()})
        threading.Thread(target=self._listen, name="places", daemon=True).start()
        with self._changed:
            self._changed.wait_for(lambda: self._number >= 0 or self._gone)

    @property
    def place_waits(self) -> bool:
        """True if the present generation is over already."""
        return self._place is not None or self._gone

    def next(self, *, broken: bool, leaving: Callable[[], bool], members_only: bool = False) -> WorkerPlace | None:
        """The place in the next generation, whenever it comes; None when `leaving`, which is asked meanwhile, is true. With
        `members_only` without newcomers, if that can be. Raises LauncherGone."""
        with self._changed:
            if self._place is None:
                _send(self._line, {"broken": broken, "members_only": members_only, "after": self._taken})
            self._awaited = True
            try:
                while self._place is None:
                    if self._gone:
                        raise LauncherGone
                    if leaving():
                        return None
                    self._changed.wait(_LOOK_SECONDS)
            finally:
                self._awaited = False
            place, self._place, self.beside = self._place, None, None
            self._taken = self._number
            return place

    def tell(self, facts: object) -> None:
        """Of the present generation, as JSON can hold them: for newcomers that get ready beside it."""
        with self._changed:
            _send(self._line, {"facts": facts, "after": self._taken})

    def close(self) -> None:
        """This process wants no place any more."""
        with contextlib.suppress(OSError):
            self._line.shutdown(socket.SHUT_RDWR)

    def _listen(self) -> None:
        with contextlib.suppress(OSError), self._line.makefile("rb") as lines:
            for line in lines:
                said = json.loads(line)
                with self._changed:
                    self.change_wanted |= "change" in said
                    self._number = said.get("number", self._number)
                    if "place" in said:
                        self._place, self.change_wanted = WorkerPlace(**said["place"]), False
                        if not self._awaited:
                            self._on_place()  # before next() can give it: the generation that ends is the old one
                    elif "number" in said:
                        self._taken, self.beside = self._number, said["beside"]  # it was started for this one
                    self._changed.notify_all()
        self._line.close()
        with self._changed:
            self._gone = True
            self._changed.notify_all()


@contextlib.contextmanager
def _short(path: Path) -> Iterator[str]:
    """The path of a socket; a Unix socket's may have 103 bytes on macOS and 107 on Linux, where a descriptor of the folder can
    stand for a longer one."""
    if len(os.fsencode(path)) <= _LONGEST_PATH:
        yield str(path)
        return
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


def _send(line: socket.socket, said: Mapping[str, object]) -> None:
    with contextlib.suppress(OSError):  # its end is noticed where it is read
        line.sendall(json.dumps(said).encode() + b"\n")
