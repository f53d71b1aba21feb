"""The facts about a checkpoint that need no look at its data: a small JSON file beside its data, and the order of names.

    manifest = Manifest(generation=3, step=120, ...); manifest.name        ->  g00003-s00000120-r0
    read(manifest.to_json()) == manifest                                   ->  or ValueError: not one of ours, or damaged

Newest means the highest (generation, step), not the highest step: a generation that was replaced may have gone further, but the
newer one did not see that. The file carries its own checksum, so a flipped bit in it is damage and never another model's name.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict, field
from pathlib import Path
from typing import Any, NamedTuple

from ebb.compat import dataclass

SCHEMA = 2
FOLDER = "checkpoints"  # inside a job's own folder
_NAME = re.compile(r"g(\d{5,})-s(\d{8,})-r(\d+)")


def name_of(generation: int, step: int, writer: int) -> str:
    return f"g{generation:05}-s{step:08}-r{writer}"


class Order(NamedTuple):
    """The place of a checkpoint among all. Of one step, written by several survivors of a loss, the lowest rank's counts."""

    generation: int
    step: int
    minus_writer: int


def order_of(name: str) -> Order | None:
    """None for what is not the name of a checkpoint."""
    match = _NAME.fullmatch(name)
    return Order(int(match[1]), int(match[2]), -int(match[3])) if match else None


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """Steps 0 .. step-1 are done in it."""

    generation: int
    step: int
    writer: int  # the rank that wrote it
    sha256: str
    size_bytes: int
    identity: dict[str, Any]  # what must be the same to go on from it: the model, and what gives a step its samples
    folder: str  # the id in the owner.json of the folder that it was written to
    written_at: float
    metrics: dict[str, float] = field(default_factory=dict)  # of the last validation
    score: float | None = None  # the validation metric by which the best is kept; higher is better
    parts: list[dict[str, Any]] = field(default_factory=list)  # sha256 and size_bytes of NAME.part0, NAME.part1, ...
    schema: int = SCHEMA

    @property
    def name(self) -> str:
        return name_of(self.generation, self.step, self.writer)

    @property
    def order(self) -> Order:
        return Order(self.generation, self.step, -self.writer)

    @property
    def configuration(self) -> str:
        """The identity in 16 hex digits."""
        return hashlib.sha256(_canonical(self.identity)).hexdigest()[:16]

    def to_json(self) -> bytes:
        content = asdict(self)
        if not self.parts:  # as before there were any
            del content["parts"]
        return json.dumps({**content, "checksum": _checksum(content)}, indent=1).encode() + b"\n"


def read(text: bytes) -> Manifest:
    """The manifest in a file's content. Raises ValueError, with the reason, for anything else."""
    try:
        content = json.loads(text)
    except ValueError as error:
        raise ValueError(f"its manifest is not JSON: {error}") from error
    if not isinstance(content, dict):
        raise ValueError(f"its manifest is a {type(content).__name__}, not an object")
    if content.get("schema") != SCHEMA:
        raise ValueError(f"its manifest has the schema {content.get('schema')!r}; this version reads {SCHEMA}")
    if content.pop("checksum", None) != _checksum(content):
        raise ValueError("its manifest does not have the checksum written in it")
    try:
        return Manifest(**content)
    except TypeError as error:
        raise ValueError(f"its manifest does not have the fields of schema {SCHEMA}: {error}") from error


def newest_manifest(output: Path) -> Manifest | None:
    """The newest readable manifest in a job's folder, without a look at the data; None before the first checkpoint."""
    newest: Manifest | None = None
    for path in (output / FOLDER).glob("*.json"):
        try:
            found = read(path.read_bytes())
        except (OSError, ValueError):
            continue  # removed meanwhile, or damaged: CheckpointFolder decides what is resumed from
        if newest is None or found.order > newest.order:
            newest = found
    return newest


def plain(identity: dict[str, Any]) -> dict[str, Any]:
    """As it comes back from a file: tuples are lists there."""
    content: dict[str, Any] = json.loads(_canonical(identity))
    return content


def _canonical(content: dict[str, Any]) -> bytes:
    return json.dumps(content, sort_keys=True, separators=(",", ":")).encode()


def _checksum(content: dict[str, Any]) -> str:
    return hashlib.sha256(_canonical(content)).hexdigest()
