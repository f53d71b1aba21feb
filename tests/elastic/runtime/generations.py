"""Ranks that live through changes of the membership; the launcher's part is played here: who is gone, who comes, who is who.

    answers = play(programs.train, Program(...), world_size=3, newcomers=1)     # of each process that has ended by itself

A process that ends without an answer is lost, and the others get new places as soon as one of them asks. Newcomers come at a
step boundary, once `come_after` steps are done: as processes that start then, for which the others wait, or, with `beside`, as
those that have got ready beside them.

    launcher.machine("a"); launcher.regroup(programs.train, Program(...), on=["a", "b"])    # with memory that outlives them
"""

import multiprocessing
import os
import signal
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from torch._C._distributed_c10d import TCPStore

from ebb.elastic.notices.relay import FOLDER_VARIABLE, Relay
from ebb.elastic.rendezvous.places import SOCKET_NAME, PlaceServer, WorkerPlace
from tests.elastic.runtime import programs

LIMIT_SECONDS = 120.0


@dataclass
class Rank:
    process: Any
    reader: Connection
    answer: Any = None
    ended: bool = False


@dataclass
class Launcher:
    folder: Path
    output: Path
    size: int = 1  # ranks of a machine
    ranks: list[Rank] = field(default_factory=list)
    beside: list[Rank] = field(default_factory=list)
    generations: int = 0
    left: bool = False
    machines: dict[str, Relay] = field(default_factory=dict)  # those that lend memory

    def __post_init__(self) -> None:
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["tests.elastic.runtime.programs"])
        self.server = PlaceServer(self.folder / SOCKET_NAME)
        self._stores: list[TCPStore] = []

    @property
    def living(self) -> list[Rank]:
        return [each for each in self.ranks if not each.ended and each.process.is_alive()]

    def done(self) -> int:
        return programs.steps_done(self.output)

    def machine(self, name: str) -> Relay:
        """One that lends memory, from now on until it is lost."""
        if name not in self.machines:
            relay = self.machines[name] = Relay(self.folder / name)
            relay.folder.mkdir()
            (relay.folder / SOCKET_NAME).symlink_to(self.folder / SOCKET_NAME)
            relay.lend_memory(self.size)
        return self.machines[name]

    def lose_all_processes(self) -> None:
        """At the same moment: nobody notices that another one is gone."""
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for each in self.living:
                os.kill(each.process.pid, number)
        for each in self.ranks:
            each.process.join()
            each.ended = True

    def start_beside(self, function: Callable[..., Any], argument: Any, newcomers: int) -> bool:
        """Newcomers that get ready while the others train; once these have told their facts: False before that."""
        if (facts := self.server.take_told()) is None:
            return False
        self.server.prepare_beside(facts)
        size = len(self.living)
        for rank in range(size, size + newcomers):
            place = WorkerPlace(
                rank=rank, world_size=size + newcomers, machine=rank, machines=size + newcomers, address="127.0.0.1", port=1
            )
            self._start(place, function, argument)
            self.beside.append(self.ranks[-1])
        return True

    def regroup(self, function: Callable[..., Any], argument: Any, newcomers: int = 0, *, on: Sequence[str] = ()) -> None:
        """A new generation of those that live and of newcomers; instead of their number the names of their machines."""
        newcomers = len(on) or newcomers
        self.generations += 1
        self._stores.append(TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=60)))
        living = [each for each in self.living if each not in self.beside]
        size = len(living) + newcomers
        places = [
            WorkerPlace(rank=rank, world_size=size, machine=rank, machines=size, address="127.0.0.1", port=self._stores[-1].port)
            for rank in range(size)
        ]
        self.server.give({each.process.pid: place for each, place in zip(living, places, strict=False)})
        for number, place in enumerate(places[len(living) :]):
            self._start(place, function, argument, self.machine(on[number]).folder if on else self.folder)

    def _start(self, place: WorkerPlace, function: Callable[..., Any], argument: Any, folder: Path | None = None) -> None:
        reader, writer = self._context.Pipe(duplex=False)
        process = self._context.Process(target=_one, args=(place, folder or self.folder, writer, function, argument))
        process.start()
        writer.close()
        self.ranks.append(Rank(process, reader))

    def close(self) -> None:
        for each in self.ranks:
            each.process.kill()
            each.process.join()
            each.process.close()
            each.reader.close()
        for relay in self.machines.values():
            relay.remove()


def play(
    function: Callable[..., Any],
    argument: Any,
    *,
    output: Path,
    world_size: int,
    newcomers: int = 0,
    come_after: int = 2,
    beside: bool = False,
) -> list[Any]:
    """The answers, in the order in which the processes were started; None for one that was lost."""
    with tempfile.TemporaryDirectory(prefix="ebb-") as folder:
        launcher = Launcher(Path(folder), output)
        try:
            launcher.regroup(function, argument, world_size)
            _follow(launcher, function, argument, newcomers=newcomers, come_after=come_after, beside=beside)
            return [each.answer for each in launcher.ranks]
        finally:
            launcher.close()


def _follow(
    launcher: Launcher, function: Callable[..., Any], argument: Any, *, newcomers: int, come_after: int, beside: bool
) -> None:
    deadline = time.monotonic() + LIMIT_SECONDS
    while any(not each.ended for each in launcher.ranks):
        assert time.monotonic() < deadline, f"not through in {LIMIT_SECONDS:.0f} s"
        for each in launcher.ranks:
            if not each.ended and each.reader.poll(0.002):
                launcher.left |= _take(each)
        due = bool(newcomers) and launcher.done() >= come_after
        if due and beside and not launcher.beside:
            launcher.start_beside(function, argument, newcomers)
        ready = not beside or (launcher.beside and launcher.server.all_ask([each.process.pid for each in launcher.beside]))
        if due and ready:
            launcher.server.tell_change()
        trainers = [each.process.pid for each in launcher.living if each not in launcher.beside]
        if launcher.server.asks(trainers) or (launcher.left and launcher.server.all_live(trainers)):
            launcher.left = False
            coming = newcomers if due and ready else 0
            newcomers -= coming
            if coming:
                launcher.beside = []
            launcher.regroup(function, argument, 0 if beside else coming)


def _take(rank: Rank) -> bool:
    """Its answer; True if it was not there for the end of the training."""
    try:
        kind, rank.answer = rank.reader.recv()
        assert kind == "answered", rank.answer
    except EOFError:
        pass  # lost
    rank.process.join()
    rank.ended = True
    return rank.answer is None or rank.answer["left"]


def set_environment(place: WorkerPlace, folder: Path, **more: str) -> None:
    """In a process of its own: what a launcher sets for a worker."""
    os.environ.update(
        MASTER_ADDR=place.address,
        MASTER_PORT=str(place.port),
        RANK=str(place.rank),
        WORLD_SIZE=str(place.world_size),
        GROUP_RANK=str(place.machine),
        GROUP_WORLD_SIZE=str(place.machines),
        TORCHELASTIC_RUN_ID="test",
        OMP_NUM_THREADS="1",
        **more,
    )
    os.environ[FOLDER_VARIABLE] = str(folder)


def _one(place: WorkerPlace, folder: Path, answer: Connection, function: Callable[..., Any], argument: Any) -> None:
    set_environment(place, folder)
    try:
        answer.send(("answered", function(argument)))
    except BaseException:
        answer.send(("failed", traceback.format_exc()))
