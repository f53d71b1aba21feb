"""How the end of a process is noticed, and what is no end."""

import concurrent.futures.thread
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from ebb.elastic.rendezvous.member import Member
from ebb.elastic.rendezvous.peer_liveness import NotAsked, PeerLiveness, answers, is_unreachable, refuses, unanswered
from testing.ports import free_port
from tests.elastic.machines import until

OTHER = """
import time
from ebb.elastic.rendezvous.peer_liveness import PeerLiveness
liveness = PeerLiveness("127.0.0.1")
print(liveness.address, flush=True)
while True:
    liveness.wait(1)
"""


@pytest.fixture
def liveness() -> Iterator[PeerLiveness]:
    liveness = PeerLiveness("127.0.0.1")
    yield liveness
    liveness.close()


def test_a_killed_process_is_found_at_once(liveness: PeerLiveness) -> None:
    other = subprocess.Popen([sys.executable, "-c", OTHER], stdout=subprocess.PIPE, text=True)
    assert other.stdout is not None
    with other.stdout as lines:
        address = lines.readline().strip()
    liveness.attend(address)
    assert not liveness.wait(0.2)
    other.kill()
    before = time.monotonic()
    until("found", lambda: liveness.wait(0.5), 5)  # a port that is just being closed may not refuse yet
    assert time.monotonic() - before < 1
    other.wait()
    assert refuses(address)
    assert liveness.wait(5), "still so, without a connection"


def test_a_connection_that_ends_while_the_process_lives_is_no_end(liveness: PeerLiveness) -> None:
    other = PeerLiveness("127.0.0.1")
    liveness.attend(other.address)
    assert not liveness.wait(0)
    assert not other.wait(0)  # it accepts
    for key in list(other._selector.get_map().values()):
        if key.fileobj is not other._listener:
            other._drop(key.fileobj)  # type: ignore[arg-type]
    assert not liveness.wait(1)
    assert not liveness.wait(0.1)
    other.close()
    assert until("the end", lambda: liveness.wait(0.1), 5)


def test_attending_to_nobody_or_to_another(liveness: PeerLiveness) -> None:
    other = PeerLiveness("127.0.0.1")
    liveness.attend(other.address)
    assert not liveness.wait(0)
    liveness.attend("")
    other.close()
    assert not liveness.wait(0.1)
    liveness.attend(f"127.0.0.1:{free_port()}")
    assert liveness.wait(0.1)


@pytest.mark.parametrize("address", ["", "nonsense", "127.0.0.1:none", "no-such-host.invalid:1"])
def test_what_cannot_be_told_is_no_end(liveness: PeerLiveness, address: str) -> None:
    assert not refuses(address)
    assert not is_unreachable(address)
    assert answers(address) or "invalid" in address
    liveness.attend(address)
    assert not liveness.wait(0.01)


def test_what_does_not_answer_is_unreachable(liveness: PeerLiveness) -> None:
    """A socket whose queue is full does not answer, as a machine that is off."""
    assert not is_unreachable(liveness.address)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        with socket.create_connection(listener.getsockname()):
            assert is_unreachable(address)
            assert not refuses(address)
            assert unanswered([address, liveness.address]) == {address}
    assert not is_unreachable(address), "it refuses"
    assert not answers(address), "which is no answer"


def test_a_process_at_its_end_asks_nobody_and_prints_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its thread is still there when Python starts no others any more."""
    monkeypatch.setattr(concurrent.futures.thread, "_shutdown", True)
    with pytest.raises(NotAsked, match="cannot schedule new futures"):
        unanswered(["127.0.0.1:1"])
    stop, asked = threading.Event(), []

    def ask(_view: object, _now: float) -> None:
        asked.append(1)
        if len(asked) == 2:
            stop.set()
        unanswered(["127.0.0.1:1"])

    news = SimpleNamespace(wait=lambda _seconds: None, clear=lambda: None)
    member: Any = SimpleNamespace(_stop=stop, _news=news, _view=object(), _participant=SimpleNamespace(ask=ask))
    Member._ask(member)
    assert len(asked) == 2, "it goes on as long as it may"
