"""The newest checkpoint of a job, and its way to another platform: two files, through both gateways.

    found = await newest(files, "/mnt/output/elastic-job/digits-5f3c2a1b")
    folder = await carry(found, files, others, "/mnt/output")       # for EBB_RESUME_FROM of the new job

The layout is the trainer's (ebb/elastic/checkpoint/manifest.py, its twin in words): in <job folder>/checkpoints a checkpoint is
gGGGGG-sSSSSSSSS-rR.json, its manifest with size and sha256, and the same name with .pt, its data. Newest is the highest
generation, then step, then the lowest rank. On the other side it lies by its content, so that later clones find it there.
"""

import json
import re
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ebb.client.errors import ClientError, Missing
from ebb.client.jobs.watch import ignore
from ebb.client.staging.code import Tally, amount

FOLDER = ".ebb/resume"  # on the output volume
_CHECKPOINTS = "checkpoints"
_NAME = re.compile(r"g(\d{5,})-s(\d{8,})-r(\d+)\.json")


class File(Protocol):
    """The needed part of an entry of a folder."""

    @property
    def name(self) -> str: ...

    @property
    def size(self) -> int: ...


class CheckpointFiles(Protocol):
    """The part of `CheckpointFiles` that reading checkpoints needs."""

    async def list(self, path: str) -> Sequence[File]: ...

    def read(self, path: str) -> AsyncIterator[bytes]: ...

    async def get(self, path: str, file: Path, *, moved: Callable[[int], None]) -> object: ...

    async def put(self, path: str, file: Path, *, moved: Callable[[int], None]) -> object: ...


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """Steps 0 .. step-1 are done in it."""

    folder: str  # the job's, with the folder checkpoints in it
    name: str
    step: int
    sha256: str
    size_bytes: int

    @property
    def words(self) -> str:
        return f"step {self.step}, {amount(self.size_bytes)}"


async def newest(files: CheckpointFiles, folder: str) -> Checkpoint | None:
    """Of the job with this folder; one whose manifest or data is damaged is passed over. None: there is none."""
    try:
        sizes = {entry.name: entry.size for entry in await files.list(f"{folder}/{_CHECKPOINTS}")}
    except Missing:
        return None
    for name in sorted(filter(_NAME.fullmatch, sizes), key=_order, reverse=True):
        found = _checkpoint(folder, name.removesuffix(".json"), await _content(files, f"{folder}/{_CHECKPOINTS}/{name}"))
        if found is not None and sizes.get(f"{found.name}.pt") == found.size_bytes:
            return found
    return None


def place_of(checkpoint: Checkpoint, output_root: str) -> str:
    """Return where it lies on another platform."""
    return f"{output_root}/{FOLDER}/{checkpoint.sha256[:16]}"


async def carry(
    checkpoint: Checkpoint,
    source: CheckpointFiles,
    target: CheckpointFiles,
    output_root: str,
    note: Callable[[str], None] = ignore,
) -> str:
    """Bring it there; the manifest comes last, so that what is half there is no checkpoint. Raises ClientError, Unreachable."""
    place = place_of(checkpoint, output_root)
    if await _is_there(checkpoint, target, place):
        note(f"the checkpoint of step {checkpoint.step} is there already")
        return place
    size = checkpoint.size_bytes
    note(f"fetching the checkpoint of step {checkpoint.step}, {amount(size)}")
    with tempfile.TemporaryDirectory(prefix="ebb-checkpoint-") as folder:
        names = [f"{_CHECKPOINTS}/{checkpoint.name}{suffix}" for suffix in (".pt", ".json")]
        here = [Path(folder) / suffix for suffix in ("data", "manifest")]
        try:
            for name, file in zip(names, here, strict=True):
                await source.get(f"{checkpoint.folder}/{name}", file, moved=Tally("fetched", size, note))
        except Missing as error:
            raise ClientError(
                f"the checkpoint of step {checkpoint.step} was replaced by a newer one while it was fetched: try again, or stop "
                "the job first."
            ) from error
        note("sending it")
        for name, file in zip(names, here, strict=True):
            await target.put(f"{place}/{name}", file, moved=Tally("sent", size, note))
    return place


async def _is_there(checkpoint: Checkpoint, files: CheckpointFiles, place: str) -> bool:
    found = await newest(files, place)
    return found is not None and (found.name, found.sha256) == (checkpoint.name, checkpoint.sha256)


async def _content(files: CheckpointFiles, path: str) -> bytes:
    try:
        return b"".join([piece async for piece in files.read(path)])
    except Missing:
        return b""  # removed meanwhile: a newer one is there


def _checkpoint(folder: str, name: str, text: bytes) -> Checkpoint | None:
    try:
        told = json.loads(text)
        return Checkpoint(
            folder=folder, name=name, step=int(told["step"]), sha256=str(told["sha256"]), size_bytes=int(told["size_bytes"])
        )
    except (ValueError, KeyError, TypeError):
        return None


def _order(name: str) -> tuple[int, int, int]:
    match = _NAME.fullmatch(name)
    assert match, name
    return int(match[1]), int(match[2]), -int(match[3])
