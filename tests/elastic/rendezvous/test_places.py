"""Places for living workers: who gets one, when, and what a line that ends means."""

import contextlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from ebb.elastic.rendezvous.places import SOCKET_NAME, LauncherGone, PlaceClient, PlaceServer, WorkerPlace
from tests.elastic.machines import until


def place(rank: int) -> WorkerPlace:
    return WorkerPlace(rank=rank, world_size=2, machine=rank, machines=2, address="127.0.0.1", port=1)


@pytest.fixture(params=["short", "temporary" * 12])
def path(request: pytest.FixtureRequest) -> Iterator[Path]:
    """A folder's name may be longer than a Unix socket's path."""
    with TemporaryDirectory(prefix="ebb-", dir="/tmp") as folder:
        (Path(folder) / request.param).mkdir()
        yield Path(folder) / request.param / SOCKET_NAME


@pytest.fixture
def server(path: Path) -> Iterator[PlaceServer]:
    with contextlib.closing(PlaceServer(path)) as made:
        yield made


@pytest.fixture
def client(path: Path, server: PlaceServer) -> Iterator[PlaceClient]:
    with contextlib.closing(PlaceClient(path, lambda: None)) as made:
        yield made


def never() -> bool:
    return False


def test_a_worker_that_asks_gets_its_place(path: Path, server: PlaceServer) -> None:
    own = os.getpid()
    assert not server.all_live([own])
    with contextlib.closing(PlaceClient(path, lambda: None)) as client:
        assert server.all_live([own])
        found: list[WorkerPlace | None] = []
        asking = threading.Thread(target=lambda: found.append(client.next(broken=True, leaving=never)))
        asking.start()
        until("the question", lambda: server.asks([own]))
        assert server.broken([own])
        assert not server.members_only([own])
        server.give({own: place(1)})
        asking.join()
        assert found == [place(1)]
        assert not server.asks([own])
    until("its end", lambda: not server.all_live([own]))


def test_a_worker_may_want_no_newcomers(server: PlaceServer, client: PlaceClient) -> None:
    assert client.next(broken=False, members_only=True, leaving=lambda: True) is None
    until("the question", lambda: server.asks([os.getpid()]))
    assert server.members_only([os.getpid()])
    assert not server.broken([os.getpid()])


def test_a_place_that_comes_unasked_ends_the_generation(path: Path, server: PlaceServer) -> None:
    ended = threading.Event()
    with contextlib.closing(PlaceClient(path, ended.set)) as client:
        server.give({os.getpid(): place(0)})
        assert ended.wait(10)
        assert client.place_waits
        assert client.next(broken=False, leaving=never) == place(0)
        assert not client.place_waits
        assert not server.asks([os.getpid()]), "what is answered before it is asked is not asked"


def test_a_wish_for_a_change_lasts_until_the_next_place(server: PlaceServer, client: PlaceClient) -> None:
    server.tell_change()
    until("the wish", lambda: client.change_wanted)
    server.give({os.getpid(): place(0)})
    until("the place", lambda: client.place_waits)
    assert not client.change_wanted
    server.tell_change()
    until("the next wish", lambda: client.change_wanted)
    assert client.next(broken=False, leaving=never) == place(0)
    assert client.change_wanted, "it is of newcomers that came after that place"


def test_a_worker_beside_a_generation_knows_its_facts_until_it_has_a_place(path: Path, server: PlaceServer) -> None:
    own = os.getpid()
    server.prepare_beside({"answers": [1]})
    with contextlib.closing(PlaceClient(path, lambda: None)) as client:
        assert client.beside == {"answers": [1]}
        assert server.used
        asking = threading.Thread(target=lambda: client.next(broken=False, leaving=never))
        asking.start()
        until("the question", lambda: server.all_ask([own]))
        assert not server.all_ask([own, 1])
        server.give({own: place(1)})
        asking.join()
        assert client.beside is None
    with contextlib.closing(PlaceClient(path, lambda: None)) as client:
        assert client.beside is None, "it has started for the generation that there is now"


def test_facts_are_taken_once_and_only_those_of_the_present_generation(server: PlaceServer, client: PlaceClient) -> None:
    client.tell({"step": 1})
    assert until("the facts", server.take_told) == {"step": 1}
    assert server.take_told() is None
    server.give({os.getpid(): place(0)})
    until("the place", lambda: client.place_waits)
    client.tell({"step": 2})  # of the generation that is over
    assert client.next(broken=False, leaving=never) == place(0)
    client.tell({"step": 3})
    assert until("the facts", server.take_told) == {"step": 3}


def test_a_worker_that_is_told_to_leave_waits_for_no_place(server: PlaceServer, client: PlaceClient) -> None:
    assert client.next(broken=True, leaving=lambda: True) is None
    until("the question", lambda: server.asks([os.getpid()]))


def test_without_a_launcher_there_is_no_place(path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        PlaceClient(path, lambda: None)


def test_a_launcher_that_ends_is_noticed(server: PlaceServer, client: PlaceClient) -> None:
    server.close()
    with pytest.raises(LauncherGone):
        client.next(broken=True, leaving=never)
