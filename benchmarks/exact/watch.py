"""A job's progress, from what its ranks write down (--ledger), and the process of each rank.

sight = look(output)          # None before the first generation
sight.generation, sight.world_size, sight.steps
LastStep(output).look()       # the last one begun; goes up as long as the job goes on
ranks(output, machines)       # rank -> (machine, process) of the newest generation, of those that live
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from benchmarks.exact import processes
from benchmarks.exact.machines import Machine

_RESUMED = " ranks, resumed after step "
_LEFT_BEHIND = "the others went on without this machine"
_NAME = re.compile(r"g(\d+)-r(\d+)\.jsonl")


@dataclass(frozen=True, kw_only=True)
class Sight:
    """The newest generation; `steps` is how many rank 0 has begun in it."""

    generation: int
    world_size: int
    steps: int


class Rank(NamedTuple):
    machine: Machine
    pid: int
    generation: int = 0  # where its system has such numbers


def look(output: Path) -> Sight | None:
    numbers = [int(match[1]) for path in (output / "ledger").glob("g*-r0.jsonl") if (match := _NAME.fullmatch(path.name))]
    if not numbers:
        return None
    newest = max(numbers)
    header, *lines = (output / "ledger" / f"g{newest}-r0.jsonl").read_bytes().split(b"\n")
    if not lines:
        return None  # the header is just being written
    return Sight(generation=newest, world_size=int(json.loads(header)["world_size"]), steps=len(lines) - 1)


class LastStep:
    """The highest step that a rank 0 has begun. A look reads what is new: there are thirty a second, and hundreds of ledgers."""

    def __init__(self, output: Path) -> None:
        self._folder = output / "ledger"
        self._read: dict[str, int] = {}  # bytes of whole lines, by file
        self._step = -1

    def look(self) -> int:
        """-1 before the first."""
        for path in self._folder.glob("g*-r0.jsonl"):
            if path.stat().st_size > (start := self._read.get(path.name, 0)):
                self._step = max(self._step, self._read_on(path, start))
        return self._step

    def _read_on(self, path: Path, start: int) -> int:
        with path.open("rb") as file:
            file.seek(start)
            whole, newline, _ = file.read().rpartition(b"\n")
        self._read[path.name] = start + len(whole) + len(newline)
        lines = whole.split(b"\n") if whole else []
        steps = lines if start else lines[1:]  # without the header
        return int(json.loads(steps[-1])["step"]) if steps else -1


def ranks(output: Path, machines: Sequence[Machine]) -> dict[int, Rank]:
    """By the file that each worker process has open; empty while the machines meet."""
    folder, found = output / "ledger", dict[tuple[int, int], Rank]()
    for machine in machines:
        for pid in processes.family(machine.pid):
            for name in processes.has_open(pid, folder):
                if match := _NAME.fullmatch(name):
                    found.setdefault((int(match[1]), int(match[2])), Rank(machine, pid, int(match[1])))
    newest = max((generation for generation, _ in found), default=0)
    return {rank: place for (generation, rank), place in found.items() if generation == newest}


def is_finished(output: Path) -> bool:
    return (output / "result.json").exists()


def checkpoints_read(folder: Path) -> int:
    """So often a generation has gone on from a checkpoint, by what the ranks 0 have said in their machines' logs."""
    return _count(_RESUMED, folder)


def left_behind(folder: Path) -> int:
    """So often a machine that lived was taken for dead, as a machine that gets no processor time for a lease's length is."""
    return _count(_LEFT_BEHIND, folder)


def _count(words: str, folder: Path) -> int:
    return sum(path.read_text(errors="replace").count(words) for path in folder.glob("machine*.log"))


def losses(output: Path) -> dict[str, float]:
    """Of each step, as it was done the last time. A step that was saved by what was left of a generation has none."""
    lines = (output / "metrics.jsonl").read_text().splitlines()
    return {str(line["step"]): float(line["loss"]) for line in map(json.loads, lines)}
