"""Retention in a checkpoint folder: the newest K that are whole and the best one stay.

Used by folder.py only. It never removes what could be newer than the checkpoint that was just committed; a manifest goes before
its data, so that a kill in between leaves data that nobody reads and that the next call removes.
"""

from __future__ import annotations

import contextlib
import math
from pathlib import Path

from ebb.elastic.checkpoint import manifest as manifests
from ebb.elastic.checkpoint.files import TEMPORARY, Disk, is_probe
from ebb.elastic.checkpoint.manifest import Manifest, Order, order_of

_SUFFIXES = (".json", ".candidate", ".pt")  # in the order of removal


def usable(score: float | None) -> float | None:
    """A score that is not a number (a loss that has diverged) is none: nothing would ever be better."""
    return score if score is not None and math.isfinite(score) else None


def prune(disk: Disk, place: Path, *, keep: int, newest: Manifest, useless: set[str]) -> None:
    """After a commit of `newest`. An error of the disk leaves more than need be; the next call tries again."""
    with contextlib.suppress(OSError):
        files = disk.names(place)
        committed = _committed(disk, place, files, useless)
        counted = [name for name in _sorted(committed) if committed[name] is not None]
        kept = {newest.name, *counted[:keep], *_best(committed)}
        oldest_kept = min((order_of(name) or newest.order for name in counted[:keep]), default=newest.order)
        for name in committed.keys() - kept:
            if committed[name] is not None or (order_of(name) or newest.order) < oldest_kept:
                remove(disk, place, name)
        for name in _names(files) - committed.keys():
            if _superseded(order_of(name), newest.order):
                remove(disk, place, name)


def best(disk: Disk, place: Path) -> str | None:
    """The committed checkpoint with the highest score."""
    return next(iter(_best(_committed(disk, place, disk.names(place), set()))), None)


def remove(disk: Disk, place: Path, name: str) -> None:
    """All files of a checkpoint; never raises."""
    for suffix in _SUFFIXES:
        with contextlib.suppress(OSError):
            disk.remove(place / (name + suffix))
    with contextlib.suppress(OSError):
        for file in disk.names(place):
            if file.startswith(f"{name}.part"):
                disk.remove(place / file)


def clear_temporary(disk: Disk, place: Path, generation: int) -> None:
    """Half-written files of older generations. A stale writer of one fails at its rename; it could not commit anyway."""
    with contextlib.suppress(OSError):
        for file in disk.names(place):
            order = order_of(Path(file.removeprefix(TEMPORARY).partition("-")[2]).stem) if file.startswith(TEMPORARY) else None
            if is_probe(file) or (order is not None and order.generation < generation):
                disk.remove(place / file)


def _committed(disk: Disk, place: Path, files: list[str], useless: set[str]) -> dict[str, Manifest | None]:
    """By name; None for what cannot be resumed from."""
    found: dict[str, Manifest | None] = {}
    for file in files:
        name = file.removesuffix(".json")
        if name != file and order_of(name):
            found[name] = None if name in useless else _manifest(disk, place / file)
    return found


def _manifest(disk: Disk, path: Path) -> Manifest | None:
    try:
        return manifests.read(disk.read(path))
    except (OSError, ValueError):
        return None


def _best(committed: dict[str, Manifest | None]) -> list[str]:
    scored = [found for found in committed.values() if found is not None and found.score is not None]
    best = max(scored, key=lambda found: (found.score, found.order), default=None)
    return [best.name] if best else []


def _names(files: list[str]) -> set[str]:
    return {Path(file).stem for file in files if order_of(Path(file).stem)}


def _sorted(names: dict[str, Manifest | None]) -> list[str]:
    return sorted(names, key=lambda name: order_of(name) or Order(0, 0, 0), reverse=True)


def _superseded(order: Order | None, newest: Order) -> bool:
    return order is not None and (order.generation, order.step) < (newest.generation, newest.step)
