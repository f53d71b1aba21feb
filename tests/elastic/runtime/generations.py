"""Ranks that live through changes of the membership; the launcher's part is played here: who is gone, who comes, who is who.

    answers = play(programs.train, Program(...), world_size=3, newcomers=1)     # of each process that has ended by itself

A process that ends without an answer is lost, and the others get new places as soon as one of them asks. Newcomers come at a
step boundary, once `come_after` steps are done.
"""

import multiprocessing
import os
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from torch._C._distributed_c10d import TCPStore

from ebb.elastic.notices.relay import FOLDER_VARIABLE
from ebb.elastic.rendezvous.places import SOCKET_NAME, PlaceServer, WorkerPlace

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
    ranks: list[Rank] = field(default_factory=list)
    generations: int = 0
    left: bool = False

    def __post_init__(self) -> None:
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["tests.elastic.runtime.programs"])
        self.server = PlaceServer(self.folder / SOCKET_NAME)
        self._stores: list[TCPStore] = []

    @property
    def living(self) -> list[Rank]:
        return [each for each in self.ranks if not each.ended and each.process.is_alive()]

    def done(self) -> int:
        """Steps, as rank 0 has written them down."""
        try:
            return int((self.output / "last-step").read_text().split()[0])
        except (OSError, ValueError, IndexError):
            return 0

    def regroup(self, function: Callable[..., Any], argument: Any, newcomers: int = 0) -> None:
        """A new generation of those that live and of newcomers."""
        self.generations += 1
        self._stores.append(TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=60)))
        living = self.living
        size = len(living) + newcomers
        places = [
            WorkerPlace(rank=rank, world_size=size, machine=rank, machines=size, address="127.0.0.1", port=self._stores[-1].port)
            for rank in range(size)
        ]
        self.server.give({each.process.pid: place for each, place in zip(living, places, strict=False)})
        for place in places[len(living) :]:
            reader, writer = self._context.Pipe(duplex=False)
            process = self._context.Process(target=_one, args=(place, self.folder, writer, function, argument))
            process.start()
            writer.close()
            self.ranks.append(Rank(process, reader))

    def close(self) -> None:
        for each in self.ranks:
            each.process.kill()
            each.process.join()
            each.process.close()
            each.reader.close()


def play(
    function: Callable[..., Any], argument: Any, *, output: Path, world_size: int, newcomers: int = 0, come_after: int = 2
) -> list[Any]:
    """The answers, in the order in which the processes were started; None for one that was lost."""
    with tempfile.TemporaryDirectory(prefix="ebb-") as folder:
        launcher = Launcher(Path(folder), output)
        try:
            launcher.regroup(function, argument, world_size)
            _follow(launcher, function, argument, newcomers, come_after)
            return [each.answer for each in launcher.ranks]
        finally:
            launcher.close()


def _follow(launcher: Launcher, function: Callable[..., Any], argument: Any, newcomers: int, come_after: int) -> None:
    deadline = time.monotonic() + LIMIT_SECONDS
    while any(not each.ended for each in launcher.ranks):
        assert time.monotonic() < deadline, f"not through in {LIMIT_SECONDS:.0f} s"
        for each in launcher.ranks:
            if not each.ended and each.reader.poll(0.002):
                launcher.left |= _take(each)
        processes = [each.process.pid for each in launcher.living]
        if newcomers and launcher.done() >= come_after:
            launcher.server.tell_change()
        if launcher.server.asks(processes) or launcher.left:
            launcher.left = False
            coming = newcomers if launcher.done() >= come_after else 0
            newcomers -= coming
            launcher.regroup(function, argument, coming)


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


def _one(place: WorkerPlace, folder: Path, answer: Connection, function: Callable[..., Any], argument: Any) -> None:
    os.environ.update(
        MASTER_ADDR=place.address,
        MASTER_PORT=str(place.port),
        RANK=str(place.rank),
        WORLD_SIZE=str(place.world_size),
        GROUP_RANK=str(place.machine),
        GROUP_WORLD_SIZE=str(place.machines),
        TORCHELASTIC_RUN_ID="test",
        OMP_NUM_THREADS="1",
    )
    os.environ[FOLDER_VARIABLE] = str(folder)
    try:
        answer.send(("answered", function(argument)))
    except BaseException:
        answer.send(("failed", traceback.format_exc()))
