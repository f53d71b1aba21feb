"""Is the judge blind? A finished job's ledger is copied, one sample is dropped or doubled in it, and the checker must say so.

missed = missed_faults(output, scratch)      # [] is as it should be
"""

import json
import shutil
from pathlib import Path
from typing import Any, Literal

from testing import exactness as ledger

Fault = Literal["dropped", "doubled", "replaced", "step dropped"]
FAULTS: tuple[Fault, ...] = ("dropped", "doubled", "replaced", "step dropped")


def missed_faults(output: Path, scratch: Path) -> list[Fault]:
    """The faults that the checker did not find in a ledger that it calls exact."""
    missed: list[Fault] = []
    for fault in FAULTS:
        copy = scratch / fault.replace(" ", "-")
        shutil.rmtree(copy, ignore_errors=True)
        copy.mkdir(parents=True)
        shutil.copytree(output / "ledger", copy / "ledger")
        shutil.copy(output / "result.json", copy)
        plant(copy, fault)
        if not _is_found(fault, copy):
            missed.append(fault)
        shutil.rmtree(copy)
    return missed


def plant(output: Path, fault: Fault) -> None:
    """Into a step that the final weights hold: the first of a generation of which a step counts."""
    path, lines, at = _place(output)
    if fault == "step dropped":
        del lines[at]
    else:
        ids: list[int] = lines[at]["ids"]
        lines[at]["ids"] = {"dropped": ids[1:], "doubled": [*ids, ids[0]], "replaced": [*ids[1:], ids[1]]}[fault]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def _place(output: Path) -> tuple[Path, list[dict[str, Any]], int]:
    discarded = ledger.check(output).discarded
    for path in sorted((output / "ledger").glob("g*-r0.jsonl"), reverse=True):
        lines = [json.loads(line) for line in path.read_text().split("\n")[:-1]]
        steps = lines[1:]
        if len(steps) > discarded.get(lines[0]["generation"], 0) and len(steps[0]["ids"]) > 1:
            return path, lines, 1
    raise AssertionError(f"{output} has no step to plant a fault in")


def _is_found(fault: Fault, output: Path) -> bool:
    verdict = ledger.check(output)
    lost, repeated = verdict.samples_lost > 0, verdict.samples_repeated > 0
    wanted = {"dropped": lost, "doubled": repeated, "replaced": lost and repeated, "step dropped": lost}
    return wanted[fault] and not verdict.exact
