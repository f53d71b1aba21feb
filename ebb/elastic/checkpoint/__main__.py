"""Look at a job's checkpoints.

    python -m ebb.elastic.checkpoint inspect FOLDER            what is there, from the manifests alone
    python -m ebb.elastic.checkpoint verify FOLDER             the same, with every file read and compared with its sha256
    ... -o json                                            for programs
    python -m ebb.elastic.checkpoint export FOLDER FILE        the newest one's weights as one safetensors file (needs torch)

FOLDER is a job's output folder, or the folder checkpoints in it. Nothing in it is changed. Exit codes: 0 all is well; 1 something
is damaged, and there is a whole checkpoint to go on from; 2 wrong usage, or no such folder; 3 there is nothing to go on from.
A candidate was not committed as far as the folder shows; without etcd's word for it, it does not count.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ebb.compat import dataclass, zip
from ebb.elastic.checkpoint import CheckpointError
from ebb.elastic.checkpoint import manifest as manifests
from ebb.elastic.checkpoint.files import Disk
from ebb.elastic.checkpoint.folder import CANDIDATE, COMMITTED, DATA, read_whole
from ebb.elastic.checkpoint.manifest import FOLDER, order_of

EXIT_WELL, EXIT_DAMAGED, EXIT_USAGE, EXIT_NOTHING = 0, 1, 2, 3


@dataclass(frozen=True, kw_only=True)
class CheckpointRow:
    """One line of the table. `state`: committed, candidate, damaged, or leftover (data without a manifest)."""

    name: str
    state: str
    generation: int
    step: int
    size_bytes: int
    written_at: float | None = None
    score: float | None = None
    configuration: str | None = None
    newest: bool = False
    best: bool = False
    problem: str | None = None


def entries(place: Path, *, verify: bool) -> list[CheckpointRow]:
    """Newest first."""
    disk = Disk()
    names = {Path(file).stem for file in disk.names(place) if order_of(Path(file).stem)}
    found = sorted((_entry(disk, place, name, verify) for name in names), key=_order, reverse=True)
    good = [entry for entry in found if entry.state == "committed"]
    scored = [entry for entry in good if entry.score is not None]
    best = max(scored, key=lambda entry: (entry.score, _order(entry)), default=None)
    newest = good[0] if good else None
    return [CheckpointRow(**{**asdict(entry), "newest": entry is newest, "best": entry is best}) for entry in found]


def _entry(disk: Disk, place: Path, name: str, verify: bool) -> CheckpointRow:
    order = order_of(name)
    assert order is not None, name
    data = place / (name + DATA)
    facts: dict[str, Any] = {"name": name, "generation": order.generation, "step": order.step}
    size = data.stat().st_size if data.exists() else 0
    kind = next((suffix for suffix in (COMMITTED, CANDIDATE) if (place / (name + suffix)).exists()), None)
    if kind is None:
        return CheckpointRow(**facts, state="leftover", size_bytes=size)
    try:
        manifest = manifests.read(disk.read(place / (name + kind)))
        if size != manifest.size_bytes:
            raise ValueError(f"{size} bytes instead of {manifest.size_bytes}")
        size += sum(part["size_bytes"] for part in manifest.parts)
        if verify:
            read_whole(disk, place, name)
    except (OSError, ValueError) as error:
        return CheckpointRow(**facts, state="damaged", size_bytes=size, problem=str(error))
    return CheckpointRow(
        **facts,
        state="committed" if kind == COMMITTED else "candidate",
        size_bytes=size,
        written_at=manifest.written_at,
        score=manifest.score,
        configuration=manifest.configuration,
    )


def _order(entry: CheckpointRow) -> tuple[int, int, str]:
    return entry.generation, entry.step, entry.name


def table(found: list[CheckpointRow]) -> str:
    rows = [("NAME", "STATE", "MB", "WRITTEN", "SCORE", "CONFIGURATION", "")]
    for entry in found:
        written = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(entry.written_at)) if entry.written_at else "-"
        score = "-" if entry.score is None else f"{entry.score:g}"
        marks = [word for word, true in (("newest", entry.newest), ("best", entry.best)) if true]
        notes = entry.problem or ", ".join(marks)
        size = f"{entry.size_bytes / 1e6:.1f}"
        rows.append((entry.name, entry.state, size, written, score, entry.configuration or "-", notes))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join(lines)


def exit_code(found: list[CheckpointRow]) -> int:
    if not any(entry.state == "committed" for entry in found):
        return EXIT_NOTHING
    return EXIT_DAMAGED if any(entry.state == "damaged" for entry in found) else EXIT_WELL


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m ebb.elastic.checkpoint", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("verb", choices=("inspect", "verify", "export"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("file", type=Path, nargs="?", help="of export: what is written")
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    settings = parser.parse_args(arguments)
    place = settings.folder / FOLDER if (settings.folder / FOLDER).is_dir() else settings.folder
    if not place.is_dir():
        print(f"error: there is no folder {settings.folder}; name a job's output folder", file=sys.stderr)
        return EXIT_USAGE
    if (settings.verb == "export") != (settings.file is not None):
        print("error: export takes a folder and a file, the other verbs a folder alone", file=sys.stderr)
        return EXIT_USAGE
    if settings.verb == "export":
        from ebb.elastic.checkpoint.export import export  # noqa: PLC0415 - it loads torch

        try:
            print(export(place, settings.file))
        except (CheckpointError, OSError, ValueError) as error:
            print(f"error: {error}", file=sys.stderr)
            return EXIT_NOTHING
        return EXIT_WELL
    found = entries(place, verify=settings.verb == "verify")
    if settings.output == "json":
        print(json.dumps({"folder": str(place), "checkpoints": [asdict(entry) for entry in found]}, indent=1))
    else:
        print(table(found) if found else f"no checkpoints in {place}")
    return exit_code(found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
