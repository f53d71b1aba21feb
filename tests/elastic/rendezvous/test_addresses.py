"""A host that is found again by an address it had, and by another one once it has moved."""

import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from urllib3 import PoolManager
from urllib3.exceptions import NameResolutionError, NewConnectionError

from ebb.elastic.rendezvous.addresses import Addresses
from ebb.elastic.rendezvous.generation import EtcdAddress, open_etcd

NAME = "etcd.test"
_resolve = socket.getaddrinfo


class Names:
    """DNS: `table` is what it answers with, `asked` what it was asked; `silent`: it answers nothing at all, and not before
    `answers` is set is that known."""

    def __init__(self) -> None:
        self.table: dict[str, str] = {}
        self.asked: list[str] = []
        self.silent = False
        self.answers = threading.Event()
        self.answers.set()

    def look_up(self, host: str, *arguments: Any, **more: Any) -> Any:
        if host[0].isdigit():
            return _resolve(host, *arguments, **more)
        self.asked.append(host)
        assert self.answers.wait(60)
        if self.silent or host not in self.table:
            raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
        return [found for address in self.table[host].split() for found in _resolve(address, *arguments, **more)]


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Iterator[Names]:
    made = Names()
    monkeypatch.setattr(socket, "getaddrinfo", made.look_up)
    yield made
    made.answers.set()


class Answers(BaseHTTPRequestHandler):
    """With the address that was called, and the name that was meant. The connection ends with the answer."""

    def do_GET(self) -> None:
        said = f"{self.connection.getsockname()[0]} {self.headers['Host']}".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""


def serve(address: str, port: int = 0) -> Iterator[int]:
    server = ThreadingHTTPServer((address, port), Answers)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def port() -> Iterator[int]:
    yield from serve("127.0.0.1")


def ask(pool: PoolManager, port: int) -> str:
    return pool.request("GET", f"http://{NAME}:{port}/").data.decode()


def test_nobody_is_asked_for_a_name_again(names: Names, port: int) -> None:
    names.table[NAME] = "127.0.0.1"
    addresses = Addresses()
    pool = addresses.pool(retries=False)
    assert ask(pool, port) == f"127.0.0.1 {NAME}:{port}"
    names.silent = True
    assert ask(pool, port) == f"127.0.0.1 {NAME}:{port}", "by a new connection: the server ends each"
    assert names.asked == [NAME], "a look-up that nobody answers takes long"
    assert addresses.known == {NAME: ["127.0.0.1"]}


def test_another_process_finds_it_by_the_same_address(names: Names, port: int) -> None:
    worker = open_etcd(EtcdAddress(endpoint=f"http://{NAME}:{port}", addresses={NAME: ["127.0.0.1"]}), {})
    assert worker.addresses == {NAME: ["127.0.0.1"]}
    assert ask(Addresses({NAME: ["127.0.0.1"]}).pool(retries=False), port) == f"127.0.0.1 {NAME}:{port}"
    assert names.asked == []


def test_a_name_that_was_never_found_is_an_error(names: Names, port: int) -> None:
    with pytest.raises(NameResolutionError, match=NAME):
        ask(Addresses().pool(retries=False), port)


def test_a_host_that_has_moved_is_looked_up(names: Names, port: int) -> None:
    addresses = Addresses({NAME: ["127.0.0.2"]})
    pool = addresses.pool(retries=False)
    names.table[NAME] = "127.0.0.1"
    with pytest.raises(NewConnectionError, match="refused"):
        ask(pool, port)
    assert ask(pool, port) == f"127.0.0.1 {NAME}:{port}"
    assert addresses.known == {NAME: ["127.0.0.1"]}


def test_one_that_was_away_is_found_where_it_was(names: Names, port: int) -> None:
    addresses = Addresses({NAME: ["127.0.0.2"]})
    pool = addresses.pool(retries=False)
    names.silent = True
    with pytest.raises(NewConnectionError, match="refused"):
        ask(pool, port)
    with pytest.raises(NewConnectionError, match="refused"):
        ask(pool, port)
    back = serve("127.0.0.2", port)
    next(back)
    assert ask(pool, port) == f"127.0.0.2 {NAME}:{port}"
    asked = len(names.asked)
    assert ask(pool, port) == f"127.0.0.2 {NAME}:{port}"
    assert len(names.asked) == asked, "it is there again"
    assert list(back) == []


def test_another_address_of_the_name_is_found_without_dns(names: Names, port: int) -> None:
    names.table[NAME] = "127.0.0.2 127.0.0.1"
    other = serve("127.0.0.2", port)
    next(other)
    addresses = Addresses()
    pool = addresses.pool(retries=False)
    assert ask(pool, port) == f"127.0.0.2 {NAME}:{port}"
    names.silent = True
    assert list(other) == []
    assert ask(pool, port) == f"127.0.0.1 {NAME}:{port}", "where it was is nobody any more"
    assert addresses.known == {NAME: ["127.0.0.1", "127.0.0.2"]}, "the next one goes there first"


def test_a_late_answer_is_not_waited_for_and_counts_when_it_comes(names: Names, port: int) -> None:
    addresses = Addresses({NAME: ["127.0.0.2"]})
    pool = addresses.pool(retries=False)
    names.answers.clear()
    names.table[NAME] = "127.0.0.1"
    for _ in range(3):  # the first one asks nobody
        with pytest.raises(NewConnectionError, match="refused"):
            ask(pool, port)
    assert names.asked == [NAME], "and the others the same question, of which the answer is still to come"
    names.answers.set()
    assert ask(pool, port) == f"127.0.0.1 {NAME}:{port}"
    assert addresses.known == {NAME: ["127.0.0.1"]}


def test_a_name_that_cannot_be_one_is_an_error() -> None:
    with pytest.raises(NameResolutionError, match="label"):
        Addresses().pool(retries=False).request("GET", f"http://{'a' * 64}.test/")
