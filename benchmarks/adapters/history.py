"""The history of one job that a library's loop trains: killed, joined, told to leave, and beside it one that nothing disturbs.

    found = play(Library("trainer", ["clm.py"]), folder, endpoint, packages)

Two machines begin. That of rank 0 loses its power, another one comes and loses its own, a third one comes, the first one gets a
notice, a last one comes, and both train to the end. What is judged: the ledger, the exit codes, the final weights beside those of
a process that trained alone and undisturbed.
"""

from __future__ import annotations

import ast
import contextlib
import json
import os
import signal
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from benchmarks.adapters.programs.data import GLOBAL_BATCH, LINES
from benchmarks.controller.processes import BenchmarkError
from benchmarks.exact.machines import Fresh, Machine, until
from devcluster.commands import last_lines
from devcluster.settings import CHECKOUT
from testing import exactness

PROGRAMS = Path(__file__).with_name("programs")
EPOCH_STEPS = -(-LINES // GLOBAL_BATCH)
_RECLAIMED = 138
_EXPECTED = (None, 0, _RECLAIMED, -signal.SIGKILL)
_LIMIT_SECONDS = 300.0
_OBJECTS = {"elastic"}  # by convention, of Ebb's classes
_STEPS = 3  # that a generation makes before the next change


@dataclass(frozen=True, kw_only=True)
class Library:
    """`program` with its arguments after the output folder."""

    name: str
    program: str
    arguments: list[str] = field(default_factory=list)


def play(library: Library, folder: Path, endpoint: str, packages: Path, say: Callable[[str], None]) -> dict[str, Any]:
    """The figures of one library. Raises BenchmarkError where the history cannot be played."""
    environment = {
        **os.environ,
        "PYTHONPATH": f"{packages}:{CHECKOUT}",
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": "1",
        "RES_OPTIONS": "attempts:0",
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "EBB_LEDGER": "1",
        "EBB_CHECKPOINT_MIN_SECONDS": "1",
        "REPORT_TO": "wandb",
        "WANDB_MODE": "offline",
        "WANDB_SILENT": "true",
    }
    alone, output = folder / f"{library.name}-alone", folder / library.name
    say(f"{library.name}: alone and undisturbed")
    with _machines(library, alone, environment, ["--standalone"]) as start:
        machine = start()
        _await(lambda: machine.code is not None, "the end", [machine])
    environment["BATCH_SECONDS"] = "0.25"
    flags = ["--rdzv_backend=etcd3", f"--rdzv_endpoint={endpoint}", f"--rdzv_id={library.name}", "--nnodes=1:4"]
    with _machines(library, output, environment, [*flags, "--rdzv_conf=last_call_timeout=1,join_batch_seconds=0.3"]) as start:
        codes = _history(output, start, lambda text: say(f"{library.name}: {text}"))
    verdict = exactness.check(output)
    return {
        "samples_lost": verdict.samples_lost,
        "samples_repeated": verdict.samples_repeated,
        "steps_of_other_size": verdict.steps_of_other_size,
        "steps": verdict.steps,
        "steps_redone": verdict.steps_redone,
        "kills_at_epoch_ends": kills_at_epoch_ends(output / "ledger", verdict.discarded),
        "generations": verdict.generations,
        "problems": verdict.problems,
        "exit_codes": codes,
        "weights_difference": _difference(alone / "final.pt", output / "final.pt"),
        "checkpoint": sorted(path.name for path in _newest(output).iterdir()),
        "tracker_runs": len(_tracker_runs(output)),
        "changed_lines": changed_lines(PROGRAMS / library.program),
    }


def changed_lines(program: Path) -> int:
    """Lines of a program with a name that comes from Ebb, the imports included."""
    tree = ast.parse(program.read_text())
    imports = [each for each in ast.walk(tree) if isinstance(each, ast.ImportFrom) and (each.module or "").startswith("ebb")]
    names = {alias.name for each in imports for alias in each.names}
    for each in ast.walk(tree):
        if isinstance(each, ast.Assign) and any(isinstance(one, ast.Name) and one.id in names for one in ast.walk(each.value)):
            names |= {target.id for target in each.targets if isinstance(target, ast.Name) and target.id in _OBJECTS}
    used = {each.lineno for each in ast.walk(tree) if isinstance(each, ast.Name) and each.id in names}
    return len(used | {each.lineno for each in imports})


def kills_at_epoch_ends(ledger: Path, generations: Iterable[int]) -> int:
    """Of generations of which steps were done again, those that had just ended an epoch: what rank 0 wrote last is its last step,
    or the first of the next one, under way."""
    found = 0
    for number in generations:
        last = json.loads((ledger / f"g{number}-r0.jsonl").read_text().splitlines()[-1])
        step = last.get("step", last.get("resumed_step"))  # a header alone: nothing was begun
        found += step % EPOCH_STEPS in (EPOCH_STEPS - 1, 0)
    return found


def _history(output: Path, start: Callable[[], Machine], say: Callable[[str], None]) -> list[int | None]:
    machines = [start(), start()]

    def together(world_size: int) -> None:
        _await(lambda: _reached(output, world_size), f"{_STEPS} steps by {world_size} machines", machines)

    def one_comes() -> Machine:
        say("a machine comes")
        machines.append(start())
        together(2)
        return machines[-1]

    together(2)
    say("rank 0's machine loses its power")
    lost, first = sorted(machines, key=_is_first, reverse=True)
    lost.kill()
    together(1)
    second = one_comes()
    say("the other machine loses its power")
    second.kill()
    together(1)
    rest = [one_comes()]
    say("a machine is told to leave")
    first.tell()
    _await(lambda: first.code is not None, "the end of the machine that was told to leave", machines)
    together(1)
    rest.append(one_comes())
    say("to the end")
    _await(lambda: all(machine.code is not None for machine in rest), "the end", rest)
    return [first.code, *(machine.code for machine in rest)]


def _is_first(machine: Machine) -> bool:
    """True if it has rank 0, as its launcher says."""
    return "] machine 0 of " in machine.log.read_text()


@contextlib.contextmanager
def _machines(library: Library, output: Path, environment: dict[str, str], flags: list[str]) -> Iterator[Callable[[], Machine]]:
    machines: list[Machine] = []
    arguments = [*flags, str(PROGRAMS / library.program), str(output), *library.arguments]
    output.mkdir()

    def start() -> Machine:
        log = output / f"machine{len(machines)}.log"
        machines.append(Fresh().start(arguments, {**environment, "EBB_OUTPUT_DIR": str(output)}, log))
        return machines[-1]

    try:
        yield start
    finally:
        for machine in machines:
            machine.kill()


def _await(condition: Callable[[], bool], what: str, machines: list[Machine]) -> None:
    def failed() -> bool:
        return any(machine.code not in _EXPECTED for machine in machines)

    if not until(lambda: condition() or failed(), _LIMIT_SECONDS) or not condition():
        tails = "\n".join(f"--- {machine.log}: code {machine.code}\n{last_lines(machine.log, 12)}" for machine in machines)
        raise BenchmarkError(f"waited in vain for {what}\n{tails}")


def _reached(output: Path, world_size: int) -> bool:
    """True if the newest generation is of this size and has made some steps."""
    paths = sorted((output / "ledger").glob("g*-r0.jsonl"), key=lambda path: int(path.name[1:].partition("-")[0]))
    if not paths:
        return False
    header, *steps = paths[-1].read_text().splitlines() or ["{}"]
    return json.loads(header).get("world_size") == world_size and len(steps) > _STEPS


def _difference(one: Path, other: Path) -> float:
    """The largest of any weight."""
    first, second = torch.load(one), torch.load(other)
    return max(float((first[name] - second[name]).abs().max()) for name in first)


def _newest(output: Path) -> Path:
    return max(output.glob("checkpoint-*"), key=lambda path: int(path.name.partition("-")[2].split(".")[0]))


def _tracker_runs(output: Path) -> set[str]:
    """W&B's ids: each process that starts has a folder of its own, offline-run-TIME-ID."""
    return {path.name.split("-", 3)[-1] for path in output.glob("wandb/offline-run-*")}
