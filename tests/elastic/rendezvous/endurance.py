"""Many generations of one job on a real etcd: does anything grow, in etcd or in a machine?

    python -m tests.elastic.rendezvous.endurance --version 3.6 --generations 10000

Two machines meet again and again in this process, through the real handler; every tenth time the second one leaves and a new one
comes. Compared is what there is after a fifth of the generations with what there is at the end. Progress goes to standard error;
the last line of standard output is JSON, and the exit code 1 when something has grown. 10,000 take about four minutes.
"""

import argparse
import gc
import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

from ebb.elastic.rendezvous.handler import Etcd3Handler
from tests.elastic.rendezvous.machine import exchange, handler
from tests.elastic.rendezvous.servers import VERSIONS, Server, built

# Without it etcd keeps every old value, as every job's etcd would. It looks once every five minutes, or at a tenth of the time.
COMPACTION = ["--auto-compaction-mode=revision", "--auto-compaction-retention=100"]
KEYS = 3  # two machines and the generation
_TELL_EACH = 500


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """At one moment: of this process, of etcd's, and of what etcd holds."""

    keys: int
    threads: int
    descriptors: int
    megabytes: float
    etcd_megabytes: float


@dataclass(frozen=True, kw_only=True)
class Endured:
    version: str
    generations: int
    seconds: float
    before: Sizes
    after: Sizes

    def grown(self) -> list[str]:
        """Say what is larger at the end than it may be; the allowances are for caches that fill, not for each generation."""
        before, after = self.before, self.after
        limits = {
            "keys": KEYS,
            "threads": before.threads + 2,
            "descriptors": before.descriptors + 5,
            "megabytes": before.megabytes * 1.1 + 10,
            "etcd_megabytes": before.etcd_megabytes * 1.5 + 30,
        }
        found = asdict(after)
        return [f"{name}: {found[name]} at the end, {limit} allowed" for name, limit in limits.items() if found[name] > limit]


def endure(version: str, folder: Path, generations: int, tell: Callable[[str], None] = lambda text: None) -> Endured:
    """Raises AssertionError when the two machines do not meet."""
    server = Server(built(version), folder, flags=COMPACTION).start()
    machines = [handler(server.endpoint, size="2:2"), handler(server.endpoint, size="2:2")]
    began, before = time.monotonic(), None
    try:
        with ThreadPoolExecutor(2) as pool:
            for count in range(generations):
                if count % 10 == 9:
                    machines[1].stop()
                    machines[1] = handler(server.endpoint, size="2:2")
                meetings = [pool.submit(meet, machine, str(rank)) for rank, machine in enumerate(machines)]
                names = [each.result() for each in meetings]
                assert all(sorted(each) == ["0", "1"] for each in names), names
                if count == generations // 5:
                    before = sizes(server)
                if count % _TELL_EACH == _TELL_EACH - 1:
                    tell(f"etcd {version}: {count + 1} of {generations} generations, {time.monotonic() - began:.0f} s")
        assert before is not None
        seconds = round(time.monotonic() - began, 1)
        return Endured(version=version, generations=generations, seconds=seconds, before=before, after=sizes(server))
    finally:
        for machine in machines:
            machine.stop()
        server.kill()


def meet(machine: Etcd3Handler, name: str) -> list[str]:
    return exchange(machine.next_rendezvous(), name)


def sizes(server: Server) -> Sizes:
    gc.collect()
    settled(threading.active_count)
    return Sizes(
        keys=len([item for item in server.client().list("/")[0] if "/left/" not in item.key]),  # those go with time
        threads=threading.active_count(),
        descriptors=len(list(Path("/proc/self/fd").iterdir())),
        megabytes=resident(os.getpid()),
        etcd_megabytes=resident(server.pid),
    )


def settled(look: Callable[[], int]) -> None:
    """Threads of a machine that has left end within moments."""
    last, since = look(), time.monotonic()
    while time.monotonic() - since < 0.5:
        time.sleep(0.05)
        if look() != last:
            last, since = look(), time.monotonic()


def resident(process: int) -> float:
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return round(pages * os.sysconf("SC_PAGE_SIZE") / 1e6, 1)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--version", choices=sorted(VERSIONS), default="3.6")
    parser.add_argument("--generations", type=int, default=10_000)
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="ebb-endurance-", ignore_cleanup_errors=True) as folder:
        found = endure(given.version, Path(folder), given.generations, tell=lambda text: print(text, file=sys.stderr, flush=True))
    print(json.dumps({**asdict(found), "grown": found.grown()}), flush=True)
    return 1 if found.grown() else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
