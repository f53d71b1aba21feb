"""Many generations of one job: nothing grows, neither in etcd nor in a machine. 500 in the suite, 10,000 as a proof.

pytest -m proof tests/trainer/rendezvous/test_endurance.py
"""

import gc
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.trainer.rendezvous.machine import exchange, handler
from tests.trainer.rendezvous.servers import Server, built
from trainer.rendezvous.handler import Etcd3Handler

# Without it etcd keeps every old value, as every job's etcd would. It looks once every five minutes, or at a tenth of the time.
COMPACTION = ["--auto-compaction-mode=revision", "--auto-compaction-retention=100"]


@pytest.mark.e2e
def test_500_generations(version: str, tmp_path: Path) -> None:
    endure(version, tmp_path, 500)


@pytest.mark.proof
def test_10_000_generations(version: str, tmp_path: Path) -> None:
    endure(version, tmp_path, 10_000)


def endure(version: str, folder: Path, generations: int) -> None:
    """Two machines meet again and again; every tenth time the second leaves and a new one comes."""
    server = Server(built(version), folder, flags=COMPACTION).start()
    machines = [handler(server.endpoint, size="2:2"), handler(server.endpoint, size="2:2")]
    try:
        with ThreadPoolExecutor(2) as pool:
            before = {}
            for count in range(generations):
                if count % 10 == 9:
                    machines[1].stop()
                    machines[1] = handler(server.endpoint, size="2:2")
                names = [
                    each.result() for each in [pool.submit(meet, machine, str(rank)) for rank, machine in enumerate(machines)]
                ]
                assert all(sorted(each) == ["0", "1"] for each in names)
                if count == generations // 5:
                    before = sizes(server)
        after = sizes(server)
        print(f"etcd {version}: {before} -> {after}")
        assert after["keys"] == before["keys"] == 3
        assert after["threads"] <= before["threads"] + 2
        assert after["descriptors"] <= before["descriptors"] + 5
        assert after["megabytes"] <= before["megabytes"] * 1.1 + 10
        assert after["etcd_megabytes"] <= before["etcd_megabytes"] * 1.5 + 30
    finally:
        for machine in machines:
            machine.stop()
        server.kill()


def meet(machine: Etcd3Handler, name: str) -> list[str]:
    return exchange(machine.next_rendezvous(), name)


def sizes(server: Server) -> dict[str, float]:
    gc.collect()
    settled(threading.active_count)
    return {
        "keys": len([item for item in server.client().list("/")[0] if "/left/" not in item.key]),  # those go with time
        "threads": threading.active_count(),
        "descriptors": len(list(Path("/proc/self/fd").iterdir())),
        "megabytes": resident(os.getpid()),
        "etcd_megabytes": resident(server.pid),
    }


def settled(look: Callable[[], int]) -> None:
    """Threads of a machine that has left end within moments."""
    last, since = look(), time.monotonic()
    while time.monotonic() - since < 0.5:
        time.sleep(0.05)
        if look() != last:
            last, since = look(), time.monotonic()


def resident(process: int) -> float:
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6
