"""A proof: a writer is killed at a thousand points; each time the newest checkpoint is whole, and no older than the last saved.

    python -m tests.elastic.checkpoint.kill_points [--points 1000] [--seed 0]

Each round forks a process that starts a generation, resumes and saves checkpoints, and that dies by SIGKILL: before or after one
of its operations on the disk or on etcd, in the middle of a write, or at any moment. Then this process looks for the newest one,
reads it and compares its tensors with what that step must hold. One history goes through all rounds, so what killed writers
leave piles up as it would in a job's life. In every second history three processes, the ranks of a pod, write a part each; one
to three of them die, each at a point of its own. Every fourth one has its commits in etcd (a stand-in that is one file and keeps
transactions whole), and now and then that loses all its data. The last line is JSON; the exit code is 1 if anything was wrong.

SIGKILL takes nothing from the page cache: the loss of power is test_power_loss.py's.
"""

import argparse
import contextlib
import fcntl
import functools
import json
import os
import random
import signal
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from ebb.elastic.checkpoint import (
    CheckpointFolder,
    EtcdFence,
    Fence,
    FenceUnreachable,
    FileFence,
    RefusedError,
    highest_generation,
)
from ebb.elastic.checkpoint.cadence import Cadence
from ebb.elastic.checkpoint.files import Disk
from ebb.elastic.checkpoint.folder import Found, Patience
from ebb.elastic.checkpoint.part_saver import PartSaver
from ebb.elastic.checkpoint.parts import read
from ebb.elastic.checkpoint.state import dump, load
from tests.elastic.checkpoint.making import MEMBERSHIP

MEMORY = Path("/dev/shm")  # a kill loses nothing that a disk would keep, and flushing costs nothing here
_SAVES = 2  # of each process: the second one removes what the first one has made superfluous
_RANK_OPERATIONS = (110, 25)  # of the first rank of a pod in such a life, and of another one
_MODES = ("before", "after", "half", "anytime")


class DeadlyDisk(Disk):
    """It kills its process at one operation."""

    def __init__(self, mode: str = "", at: int = -1) -> None:
        self._mode = mode
        self._at = at
        self.operations = 0

    def point(self, when: str) -> None:
        if when == self._mode and self.operations == self._at:
            os.kill(os.getpid(), signal.SIGKILL)
        if when == "after":
            self.operations += 1

    def write(self, descriptor: int, content: memoryview) -> None:
        self.point("before")
        if self._mode == "half" and self.operations == self._at:
            os.write(descriptor, content[: len(content) // 2])
            self.point("half")
        super().write(descriptor, content)
        self.point("after")


def _deadly(name: str) -> None:
    plain = getattr(Disk, name)

    def operation(self: DeadlyDisk, *arguments: object) -> object:
        self.point("before")
        answer = plain(self, *arguments)
        self.point("after")
        return answer

    setattr(DeadlyDisk, name, operation)


for _name in ("make_folder", "create", "sync", "close", "rename", "sync_folder", "remove", "names", "read", "digest"):
    _deadly(_name)


class RegisterFile:
    """etcd's keys in one file that is replaced as a whole."""

    def __init__(self, path: Path, disk: DeadlyDisk) -> None:
        self._path = path
        self._disk = disk

    def read(self, key: str) -> tuple[bytes, int] | None:
        found = self._load().get(key)
        return (found[0].encode(), found[1]) if found else None

    def put_if(self, key: str, value: bytes, *, revision: int, guard: str, guard_value: bytes) -> bool:
        self._disk.point("before")
        with self._path.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            keys = self._load()
            if keys.get(guard, ["", 0])[0] != guard_value.decode() or keys.get(key, ["", 0])[1] != revision:
                return False
            self._store({**keys, key: [value.decode(), time.monotonic_ns()]})
        self._disk.point("after")
        return True

    def form(self, output: Path) -> int:
        """The machines meet: one more than etcd's number and the newest manifest's."""
        keys = self._load()
        number = json.loads(keys[MEMBERSHIP][0])["number"] if MEMBERSHIP in keys else 0
        number = 1 + max(number, highest_generation(output))
        self._store({**keys, MEMBERSHIP: [json.dumps({"number": number}), time.monotonic_ns()]})
        return number

    def forget(self) -> None:
        self._path.unlink(missing_ok=True)

    def _load(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self._path.read_text()) if self._path.exists() else {}
        return found

    def _store(self, keys: dict[str, Any]) -> None:
        temporary = self._path.with_suffix(f".{os.getpid()}")
        temporary.write_text(json.dumps(keys))
        temporary.rename(self._path)


def state(step: int) -> dict[str, object]:
    """About 250 kB in a dozen writes."""
    generator = torch.Generator().manual_seed(step)
    tensors = {f"module.{number}": torch.rand(10_000, generator=generator) for number in range(6)}
    return {"state_dict": tensors, "step": step}


def rows_at(tensor: torch.Tensor, number: int, count: int) -> slice:
    size = -(-len(tensor) // count)
    return slice(number * size, min((number + 1) * size, len(tensor)))


class Pipes:
    """Between the ranks of a pod: the first one says where they begin, the others that their parts are written. A rank that
    waits for one that is gone reads the end."""

    def __init__(self, size: int) -> None:
        self._words = os.pipe()
        self._begins = [os.pipe() for _ in range(1, size)]
        self._told: dict[str, object] = {}

    def enter(self, rank: int) -> None:
        """In a rank's process. The other ranks' ends are closed there, so that they end with their owners."""
        self._rank = rank
        self._close(
            {self._words[0], *(end for _, end in self._begins)} if rank == 0 else {self._words[1], self._begins[rank - 1][0]}
        )
        if rank == 0:
            self._heard = open(self._words[0], encoding="ascii")  # noqa: PTH123, SIM115  # a pipe's end, as long as the process

    def leave(self) -> None:
        """In the process that plays the launcher."""
        self._close(set())

    def _close(self, but: set[int]) -> None:
        for each in {end for pair in (self._words, *self._begins) for end in pair} - but:
            os.close(each)

    def begin(self, generation: int, step: int) -> None:
        for _, end in self._begins:
            with contextlib.suppress(BrokenPipeError):
                os.write(end, f"{generation} {step}\n".encode())

    def begun(self) -> tuple[int, int] | None:
        """None where the first rank is gone before."""
        line = os.read(self._begins[self._rank - 1][0], 100).split()
        return (int(line[0]), int(line[1])) if line else None

    def tell(self, name: str, word: object) -> None:
        with contextlib.suppress(BrokenPipeError):
            os.write(self._words[1], json.dumps([name, word]).encode() + b"\n")

    def hear(self, name: str, *, seconds: float) -> object:
        while name not in self._told:
            if not (line := self._heard.readline()):
                raise TimeoutError(f"no word of {name}: its rank is gone")
            told, self._told[told] = json.loads(line)
        return self._told[name]


class OnePod:
    def __init__(self, rank: int, size: int, pipes: Pipes) -> None:
        self.rank, self.size, self._pipes = rank, size, pipes

    def any(self, flag: bool) -> bool:
        return flag

    def exchange(self, _: str) -> Pipes:
        return self._pipes


class RankSaver(PartSaver):
    """It cuts plain tensors: there is no torch.distributed here."""

    def _form(self, state: dict[str, Any]) -> dict[str, Any]:
        tensors, rank, size = state["state_dict"], self._pod.rank, self._pod.size
        rows = {key: [rows_at(each, rank, size).start, each[rows_at(each, rank, size)]] for key, each in tensors.items()}
        notes = {key: {"ebb.elastic.rows": key, "shape": [len(each)], "dtype": "float32"} for key, each in tensors.items()}
        return {"head": {**state, "state_dict": notes}, "rows": rows}


def right(checkpoint: Found, step: int) -> bool:
    found, wanted = read(load(checkpoint.content), checkpoint.parts, lambda _: None), state(step)
    tensors: dict[str, torch.Tensor] = wanted["state_dict"]  # type: ignore[assignment]
    return found["step"] == step and all(torch.equal(found["state_dict"][name], tensors[name]) for name in tensors)


@dataclass
class History:
    """One job's life: how far it has come for certain, and what was wrong."""

    output: Path
    with_etcd: bool
    parts_of_each: int = 0  # 0: a checkpoint is one file
    done: tuple[int, int] = (0, 0)  # (generation, step) of the last save that returned
    tried: tuple[int, int] = (0, 0)
    points: dict[str, int] = field(default_factory=dict)
    several: int = 0  # of those in which more than one rank was killed
    wrong: list[str] = field(default_factory=list)

    def parts(self, disk: DeadlyDisk) -> tuple[CheckpointFolder, RegisterFile]:
        place = CheckpointFolder(self.output, keep=2, identity={"arch": "x"}, disk=disk, patience=Patience(seconds=0))
        return place, RegisterFile(self.output / "etcd", disk)

    def begin(self, disk: DeadlyDisk) -> tuple[CheckpointFolder, Fence]:
        place, register = self.parts(disk)
        fence: Fence = FileFence.claim(self.output, disk=disk)
        if self.with_etcd:
            fence = EtcdFence(register, generation=register.form(self.output), membership=MEMBERSHIP, folder="x")
        place.prepare(fence.generation)
        return place, fence

    def live(self, disk: DeadlyDisk, report: int) -> None:
        """In the forked process."""
        place, fence = self.begin(disk)
        found = place.newest(fence.newest())
        step = found.manifest.step if found else 0
        for number in range(step + 1, step + 1 + _SAVES):
            os.write(report, f"try {fence.generation} {number}\n".encode())
            place.save(dump(state(number)), fence, step=number)
            os.write(report, f"done {fence.generation} {number}\n".encode())

    def live_as_rank(self, rank: int, disk: DeadlyDisk, report: int, pipes: Pipes) -> None:
        """In one of several forked processes. It goes on where another one is gone, as far as that is possible."""
        pipes.enter(rank)
        if rank == 0:
            place, fence = self.begin(disk)
            found = place.newest(fence.newest())
            step = found.manifest.step if found else 0
            pipes.begin(fence.generation, step)
        else:
            if (begun := pipes.begun()) is None:
                return
            place, fence, step = self.parts(disk)[0], FileFence(self.output, begun[0]), begun[1]
        cadence = Cadence(shortest_seconds=0, longest_seconds=1, overhead=1)
        saver = RankSaver(place, fence, cadence=cadence, writer=rank, pod=OnePod(rank, self.parts_of_each, pipes))
        for number in range(step + 1, step + 1 + _SAVES):
            if rank == 0:
                os.write(report, f"try {fence.generation} {number}\n".encode())
            saver.save_now(number, functools.partial(state, number))
            if rank == 0 and saver.saved_step == number:
                os.write(report, f"done {fence.generation} {number}\n".encode())

    def round(self, chance: random.Random, operations: int) -> bool:
        """One life and death; True if any of its processes was killed."""
        mode, count = chance.choice(_MODES), max(1, self.parts_of_each)
        doomed = sorted(chance.sample(range(count), chance.randint(1, count)))
        points = [operations] if count == 1 else [_RANK_OPERATIONS[min(rank, 1)] for rank in range(count)]
        disks = [DeadlyDisk(mode if rank in doomed else "", chance.randrange(number)) for rank, number in enumerate(points)]
        reader, writer = os.pipe()
        pipes = Pipes(count)
        children: list[int] = []
        for rank, disk in enumerate(disks):
            children.append(os.fork())
            if children[-1] == 0:
                code = 1
                try:
                    os.write(writer, b"born 0 0\n")
                    if count == 1:
                        self.live(disk, writer)
                    else:
                        self.live_as_rank(rank, disk, writer, pipes)
                    code = 0
                finally:
                    os._exit(code)
        os.close(writer)
        pipes.leave()
        with open(reader, encoding="ascii") as lines:  # noqa: PTH123  # a pipe's end
            lines.readline()
            if mode == "anytime":
                time.sleep(chance.random() * 0.02)  # a point in their lives that no operation marks
                for rank in doomed:
                    os.kill(children[rank], signal.SIGKILL)
            told = [line.split() for line in lines if line.endswith("\n") and not line.startswith("born")]
        ends = [os.waitpid(child, 0)[1] for child in children]
        for word, generation, step in told:
            self.tried = (int(generation), int(step))
            self.done = self.tried if word == "done" else self.done
        self.wrong += [f"a writer failed with {os.WEXITSTATUS(end)}" for end in ends if os.WIFEXITED(end) and os.WEXITSTATUS(end)]
        killed = sum(map(os.WIFSIGNALED, ends))
        if killed:
            self.points[mode] = self.points.get(mode, 0) + 1
            self.several += killed > 1
        self.judge(f"{mode} {[disk._at for disk in disks]}")
        return bool(killed)

    def judge(self, where: str) -> None:
        place, register = self.parts(DeadlyDisk())
        named = None
        if self.with_etcd:
            fence = EtcdFence(register, generation=_number(register), membership=MEMBERSHIP, folder="x")
            try:
                named = fence.newest()
            except FenceUnreachable:
                named = None  # it has just lost its data
        try:
            found = place.newest(named)
        except RefusedError as error:  # there are checkpoints, and not one is whole
            self.wrong.append(f"{where}: {error}")
            return
        if found is None:
            if self.done != (0, 0):
                self.wrong.append(f"{where}: nothing found after {self.done}")
            return
        at = (found.manifest.generation, found.manifest.step)
        if not self.done <= at <= max(self.tried, self.done):
            self.wrong.append(f"{where}: found {at}, saved {self.done}, tried {self.tried}")
        if len(found.parts) != self.parts_of_each or not right(found, found.manifest.step):
            self.wrong.append(f"{where}: {found.manifest.name} does not hold what it should")
        self.done = max(self.done, at)  # what a reader has seen stays


def _number(register: RegisterFile) -> int:
    found = register.read(MEMBERSHIP)
    return int(json.loads(found[0])["number"]) if found else 0


def prove(output: Path, points: int, seed: int) -> dict[str, object]:
    chance = random.Random(seed)
    histories = [History(output / str(number), with_etcd=number == 0, parts_of_each=3 * (number % 2 == 0)) for number in range(4)]
    for history in histories:
        history.output.mkdir(parents=True)
    counted = DeadlyDisk()
    devnull = os.open(os.devnull, os.O_WRONLY)
    (output / "count").mkdir()
    History(output / "count", with_etcd=False).live(counted, devnull)
    started, killed, lives, losses = time.monotonic(), 0, 0, 0
    while killed < points:
        history = histories[lives % len(histories)]
        lives += 1
        killed += history.round(chance, counted.operations)
        if history.with_etcd and chance.random() < 0.05:
            history.parts(DeadlyDisk())[1].forget()
            history.judge("after etcd lost its data")
            losses += 1
    wrong = [text for history in histories for text in history.wrong]
    by_mode = {mode: sum(history.points.get(mode, 0) for history in histories) for mode in _MODES}
    return {
        "kill_points": killed,
        "valid_newest": killed - len(wrong),
        "by_mode": by_mode,
        "several_ranks": sum(history.several for history in histories),
        "operations_of_a_life": counted.operations,
        "etcd_lost": losses,
        "newest": [history.done for history in histories],
        "wrong": wrong[:5],
        "seconds": round(time.monotonic() - started, 1),
    }


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    settings = parser.parse_args(arguments)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as folder:
        verdict = prove(Path(folder), settings.points, settings.seed)
    print(json.dumps(verdict))
    return 1 if verdict["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
