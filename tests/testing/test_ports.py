import secrets
import socket
from pathlib import Path

import pytest

from testing import ports

GIVEN_OUT = Path("/proc/sys/net/ipv4/ip_local_port_range")


def test_a_port_that_the_kernel_gives_to_nobody() -> None:
    first = int(GIVEN_OUT.read_text().split()[0])
    if first < ports._PORTS.stop:
        pytest.skip(f"this machine gives out ports from {first} on")
    assert ports.free_port() in ports._PORTS


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.2", "0.0.0.0"])
def test_a_taken_port_is_not_given(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind((address, ports.free_port()))
        port = taken.getsockname()[1]
        offered = iter([port, port + 1, port + 2])
        monkeypatch.setattr(secrets, "choice", lambda _: next(offered))
        assert ports.free_port() > port
