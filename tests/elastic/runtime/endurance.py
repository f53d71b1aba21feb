"""Many changes of one job in the same processes (recovery in memory), on a real etcd: does anything grow?

    python -m tests.elastic.runtime.endurance --version 3.6 --changes 1000

Two machines of one worker meet again and again through the real rendezvous; their launchers' part is played in this process. The
first worker lives through all changes. Each 20th time the second machine is lost, and another one comes in its place. Compared
is what there is after a fifth of the changes with what there is at the end: of the first worker, of this process, and in etcd.
What a lost machine has left goes when its time comes: at the end it is waited for, and what has grown stays.
Progress goes to standard error; the last line of standard output is JSON, and the exit code 1 when something has grown.
"""

import argparse
import contextlib
import gc
import json
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from ebb.elastic.rendezvous.places import SOCKET_NAME, PlaceServer, WorkerPlace
from tests.elastic.machines import NO_DNS, until
from tests.elastic.rendezvous.endurance import COMPACTION, KEYS, resident, settled
from tests.elastic.rendezvous.machine import handler
from tests.elastic.rendezvous.servers import VERSIONS, Server, built
from tests.elastic.runtime import programs
from tests.elastic.runtime.generations import set_environment
from tests.elastic.runtime.programs import Program

LOST_EACH = 20
_TELL_EACH = 100
_LATEST_SECONDS = 90.0  # what waits for a lost peer in gloo gives up after MEETING_SECONDS
# Steps without an end, and no checkpoint but the one that nobody waits for
_TRAINING = {
    **{"recovery": "memory", "checkpoint_seconds": 1e6, "checkpoint_min_seconds": 1e6},
    **{"epochs": 10**6, "log_every": 10**6, "ledger": False, "threads": 1},
}


@dataclass(frozen=True, kw_only=True)
class Held:
    """By one process at one moment."""

    threads: int
    descriptors: int
    megabytes: float

    @classmethod
    def by(cls, process: int) -> "Held":
        settled(lambda: _count(process, "task") + _count(process, "fd"))
        return cls(threads=_count(process, "task"), descriptors=_count(process, "fd"), megabytes=resident(process))


@dataclass(frozen=True, kw_only=True)
class Sizes:
    worker: Held
    launchers: Held
    keys: int


@dataclass(frozen=True, kw_only=True)
class Endured:
    version: str
    changes: int
    lost: int  # machines
    same_process: bool
    seconds: float
    before: Sizes
    after: Sizes

    def grown(self) -> list[str]:
        """Say what is larger at the end than it may be; the allowances are for caches that fill, not for each change."""
        found = [] if self.same_process else ["the first worker's process has ended"]
        for name in ("worker", "launchers"):
            before, after = asdict(getattr(self.before, name)), asdict(getattr(self.after, name))
            limits = {
                "threads": before["threads"] + 2,
                "descriptors": before["descriptors"] + 5,
                "megabytes": before["megabytes"] * 1.1 + 10,
            }
            found += [
                f"{name}: {after[size]} {size} at the end, {most} allowed" for size, most in limits.items() if after[size] > most
            ]
        if self.after.keys > KEYS:
            found.append(f"keys: {self.after.keys} at the end, {KEYS} allowed")
        return found


class Machine:
    """Its launcher's part is played in this process: it meets the others and gives its worker its places."""

    def __init__(self, endpoint: str, folder: Path, output: Path) -> None:
        folder.mkdir()
        self.folder, self.output = folder, output
        self.handler = handler(endpoint, size="2:2")
        self.places = PlaceServer(folder / SOCKET_NAME)
        self.worker: Any = None

    def meet(self) -> None:
        self.handler.failed = self.worker is not None and self.places.broken([self.worker.pid])
        info = self.handler.next_rendezvous()
        where = info.bootstrap_store_info
        assert where is not None
        place = WorkerPlace(
            rank=info.rank,
            world_size=info.world_size,
            machine=info.rank,
            machines=info.world_size,
            address=where.master_addr,
            port=where.master_port,
        )
        if self.worker is not None:
            return self.places.give({self.worker.pid: place})
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["tests.elastic.runtime.programs"])
        self.worker = context.Process(target=work, args=(place, self.folder, self.output), daemon=True)
        self.worker.start()

    def lives(self) -> bool:
        """True if its worker has begun, and will live through changes."""
        return self.places.all_live([self.worker.pid])

    def asks(self) -> bool:
        assert self.worker.is_alive(), "a worker has ended by itself"
        return self.places.asks([self.worker.pid])

    def has_lost(self) -> bool:
        """True if its worker has lost the other machine's, or its launcher that machine: then a worker need not ask."""
        return self.asks() or (self.handler.num_nodes_waiting() > 0 and self.handler.lost)

    def end(self) -> None:
        if self.worker is not None:
            self.worker.kill()
            self.worker.join()
            self.worker.close()
        self.handler.failed = True  # as a launcher says of a killed worker: otherwise the others wait for what it may be saving
        self.handler.stop()
        self.places.close()


def work(place: WorkerPlace, folder: Path, output: Path) -> None:
    set_environment(place, folder, TORCHELASTIC_USE_AGENT_STORE="True", **NO_DNS)
    programs.train(Program(output=output, settings=_TRAINING))


def endure(version: str, folder: Path, changes: int, tell: Callable[[str], None] = lambda text: None) -> Endured:
    """Raises AssertionError when the machines do not meet, or a worker ends."""
    server = Server(built(version), folder, flags=COMPACTION).start()
    output = folder / "output"
    machines = [Machine(server.endpoint, folder / f"machine{number}", output) for number in range(2)]
    began, before, lost = time.monotonic(), None, 0
    try:
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(Machine.meet, machines))
            first = machines[0].worker.pid
            for count in range(changes):
                until("the workers", lambda: all(machine.lives() for machine in machines))
                if count % LOST_EACH == LOST_EACH - 1:
                    machines[1].end()
                    lost += 1
                    machines[1] = Machine(server.endpoint, folder / f"machine{1 + lost}", output)
                    until("the other one has noticed", machines[0].has_lost)
                else:
                    come_to_boundary(machines)
                list(pool.map(Machine.meet, machines))
                if count == changes // 5:
                    before = sizes(server, machines)
                if count % _TELL_EACH == _TELL_EACH - 1:
                    tell(f"etcd {version}: {count + 1} of {changes} changes, {time.monotonic() - began:.0f} s")
        assert before is not None
        found = Endured(
            version=version,
            changes=changes,
            lost=lost,
            same_process=machines[0].worker.is_alive() and machines[0].worker.pid == first,
            seconds=round(time.monotonic() - began, 1),
            before=before,
            after=sizes(server, machines),
        )
        deadline = time.monotonic() + _LATEST_SECONDS
        while found.grown() and time.monotonic() < deadline:
            found = replace(found, after=sizes(server, machines))
        return found
    finally:
        for machine in machines:
            machine.end()
        server.kill()


def come_to_boundary(machines: Sequence[Machine]) -> None:
    for machine in machines:
        machine.places.tell_change()
    until("a step boundary", lambda: all(machine.asks() for machine in machines))


def sizes(server: Server, machines: Sequence[Machine]) -> Sizes:
    """At a step boundary, between two generations: before it a newcomer may still be on its way into this one."""
    until("the workers", lambda: all(machine.lives() for machine in machines))
    come_to_boundary(machines)
    gc.collect()
    return Sizes(
        worker=Held.by(machines[0].worker.pid),
        launchers=Held.by(os.getpid()),
        keys=len([item for item in server.client().list("/")[0] if "/left/" not in item.key]),  # those go with time
    )


def _count(process: int, what: str) -> int:
    with contextlib.suppress(OSError):
        return len(list(Path(f"/proc/{process}/{what}").iterdir()))
    return 0


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--version", choices=sorted(VERSIONS), default="3.6")
    parser.add_argument("--changes", type=int, default=1000)
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="ebb-endurance-", ignore_cleanup_errors=True) as folder:
        found = endure(given.version, Path(folder), given.changes, tell=lambda text: print(text, file=sys.stderr, flush=True))
    print(json.dumps({**asdict(found), "grown": found.grown()}), flush=True)
    return 1 if found.grown() else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
