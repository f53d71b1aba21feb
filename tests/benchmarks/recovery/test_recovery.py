"""Changes of ours, of stock torchrun and of torchft, timed for real; and a network that falls silent."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.controller.processes import BenchmarkError
from benchmarks.exact import processes
from benchmarks.recovery.__main__ import KEPT, main
from benchmarks.recovery.namespaces import Network

CONNECT = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=2)"
LISTEN = (
    "import socket, sys; s = socket.create_server((sys.argv[1], 0)); print(s.getsockname()[1], flush=True); s.accept()[0].recv(1)"
)


@pytest.mark.e2e
def test_changes_of_ours_and_of_others(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    asked = ["--only", "ours,c10d_best,torchft_best", "--events", "kill_process,silent", "--states", "5", "--repeat", "1"]
    status = main([*asked, "--results", str(tmp_path)])
    told = capsys.readouterr().out
    figures = json.loads(told.splitlines()[-1])
    assert status == KEPT, told  # which of both is quicker is for the benchmark, on a machine that does nothing else
    assert figures["reasons"] == {}
    ours, stock, torchft = (figures[name]["kill_process"]["5"] for name in ("ours", "c10d_best", "torchft_best"))
    assert ours["median_seconds"] > 0
    assert stock["median_seconds"] > 0
    assert torchft["median_seconds"] > 0
    assert (ours["samples_lost"], stock["samples_lost"]) == (0, 0)
    assert ours["pids_kept"]
    assert not stock["pids_kept"]
    assert ours["bytes_read"] < 1e6 < stock["bytes_read"]  # which imports torch again
    if figures["silent_loss"].startswith("played"):
        # its connections are given up after 4 s; the lease of the machine that is lost lasts ten
        assert 3 < figures["ours"]["silent"]["5"]["gap_seconds"] < 8
    assert list(tmp_path.iterdir()) == [], "a run that is through is not gone on with"


@pytest.fixture
def network() -> Iterator[Network]:
    try:
        with Network() as network:
            yield network
    except BenchmarkError as error:
        pytest.skip(str(error))


def listening(network: Network, machine: int) -> "tuple[subprocess.Popen[str], str]":
    command = [*network.within(machine), sys.executable, "-c", LISTEN, network.address(machine)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, process.stdout.readline().strip()


def connects(network: Network, machine: int, address: str, port: str) -> bool:
    command = [*network.within(machine), sys.executable, "-c", CONNECT, address, port]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def test_a_machine_falls_silent_and_closes_nothing(network: Network) -> None:
    here, there = network.attach(), network.attach()
    other, port = listening(network, there)
    with other:
        assert connects(network, here, network.address(there), port)
        other.wait()  # it was through with its one connection
    other, port = listening(network, there)
    with other:
        network.silence(there)
        assert not connects(network, here, network.address(there), port)
        assert other.poll() is None
        other.kill()


def test_nothing_is_left_of_a_network(network: Network) -> None:
    number = network.attach()
    command = [*network.within(number), "cat"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as machine:
        assert machine.stdin is not None
        assert machine.stdout is not None
        machine.stdin.write(b"there\n")
        machine.stdin.flush()
        assert machine.stdout.readline() == b"there\n"
        holders = [held.pid for held in network._holders.values()]
        network.__exit__()
        assert not any(Path(f"/proc/{pid}").exists() for pid in holders)
        assert machine.poll() is None, "a machine is its starter's to end"
        processes.kill(machine.pid)
