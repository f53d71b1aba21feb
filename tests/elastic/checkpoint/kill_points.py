"""A proof: a writer is killed at a thousand points; each time the newest checkpoint is whole, and no older than the last saved.

    python -m tests.elastic.checkpoint.kill_points [--points 1000] [--seed 0]

Each round forks a process that starts a generation, resumes and saves checkpoints, and that dies by SIGKILL: before or after one
of its operations on the disk or on etcd, in the middle of a write, or at any moment. Then this process looks for the newest one,
reads it and compares its tensors with what that step must hold. One history goes through all rounds, so what killed writers
leave piles up as it would in a job's life. Every second history has checkpoints in three parts. Every fourth one has its commits
in etcd (a stand-in that is one file and keeps transactions whole), and now and then that loses all its data. The last line is
JSON; the exit code is 1 if anything was wrong.

SIGKILL takes nothing from the page cache: the loss of power is test_power_loss.py's.
"""

import argparse
import fcntl
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
from ebb.elastic.checkpoint.files import Disk
from ebb.elastic.checkpoint.folder import Found, Patience
from ebb.elastic.checkpoint.manifest import name_of
from ebb.elastic.checkpoint.parts import dump_rows, read
from ebb.elastic.checkpoint.state import dump, load
from tests.elastic.checkpoint.making import MEMBERSHIP

MEMORY = Path("/dev/shm")  # a kill loses nothing that a disk would keep, and flushing costs nothing here
_SAVES = 2  # of each process: the second one removes what the first one has made superfluous
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


def rows_at(tensor: torch.Tensor, number: int, count: int) -> tuple[int, int]:
    size = -(-len(tensor) // count)
    return number * size, min((number + 1) * size, len(tensor))


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
            self.save(place, fence, number)
            os.write(report, f"done {fence.generation} {number}\n".encode())

    def save(self, place: CheckpointFolder, fence: Fence, step: int) -> None:
        content, name = state(step), name_of(fence.generation, step, 0)
        if not self.parts_of_each:
            place.save(dump(content), fence, step=step)
            return
        tensors: dict[str, torch.Tensor] = content["state_dict"]  # type: ignore[assignment]
        found = []
        for number in range(self.parts_of_each):
            rows = {key: [rows_at(each, number, self.parts_of_each)[0], each[slice(*rows_at(each, number, self.parts_of_each))]]
                    for key, each in tensors.items()}  # fmt: skip
            found.append(place.write_part(dump_rows(rows), name=name, number=number))
        notes = {key: {"ebb.elastic.rows": key, "shape": [len(each)], "dtype": "float32"} for key, each in tensors.items()}
        place.save(dump({**content, "state_dict": notes}), fence, step=step, parts=lambda: found)

    def round(self, chance: random.Random, operations: int) -> bool:
        """One life and death; whether it was killed."""
        mode = chance.choice(_MODES)
        disk = DeadlyDisk(mode, chance.randrange(operations))
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            code = 1
            try:
                os.write(writer, b"born 0 0\n")
                self.live(disk, writer)
                code = 0
            finally:
                os._exit(code)
        os.close(writer)
        with open(reader, encoding="ascii") as lines:  # noqa: PTH123  # a pipe's end
            lines.readline()
            if mode == "anytime":
                time.sleep(chance.random() * 0.02)  # a point in the child's life that no operation marks
                os.kill(child, signal.SIGKILL)
            told = [line.split() for line in lines if line.endswith("\n")]
        _, status = os.waitpid(child, 0)
        for word, generation, step in told:
            self.tried = (int(generation), int(step))
            self.done = self.tried if word == "done" else self.done
        if os.WIFEXITED(status) and os.WEXITSTATUS(status) != 0:
            self.wrong.append(f"the writer failed with {os.WEXITSTATUS(status)}")
        killed = os.WIFSIGNALED(status)
        if killed:
            self.points[mode] = self.points.get(mode, 0) + 1
        self.judge(f"{mode} {disk._at}")
        return killed

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
