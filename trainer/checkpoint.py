"""What survives: checkpoints that are whole or not there, and the number of the present membership (the generation).

    folder = CheckpointFolder(output, keep=3, identity={"arch": "resnet18", ...})
    generation = folder.claim_generation()          # one rank, once all have met
    found = folder.newest()                          # verified bytes and where they stand, or None
    folder.save(state, generation=3, step=120)       # raises CheckpointError; the older ones stay

Files in <output>/checkpoints: g00003-s00000120-r0.pt (torch.save of the state) and the manifest of the same name with .json
(sha256, size, step, generation, identity). Both are written to a unique temporary name, flushed to the disk and renamed, the
manifest last: a checkpoint exists when its manifest does. Newest means the highest (generation, step). A claim is a file in
<output>/generations made by an exclusive create; a writer whose generation is no longer the highest claim cannot commit.
(The claim becomes a transaction in etcd together with our own rendezvous; the rest stays.)

It knows nothing of models: a state is a dict of tensors and plain values, loaded on the CPU without running any code.
"""

import hashlib
import io
import json
import os
import secrets
import socket
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

_SCHEMA = 1
_PIECE = 16 * 2**20  # bytes per write: a full disk is found before the whole file is handed over


class CheckpointError(Exception):
    """A checkpoint was not written: the disk, or a newer generation. The older checkpoints are untouched."""


class ForeignCheckpointError(ValueError):
    """The folder holds the checkpoints of another model or another run; the message says what differs."""


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """What is known of a checkpoint without reading it. Steps 0 .. step-1 are done in it."""

    generation: int
    step: int
    writer: int  # the rank that wrote it; survivors of a loss may write the same step
    sha256: str
    size_bytes: int
    identity: dict[str, Any]
    written_at: float
    schema: int = _SCHEMA

    @property
    def name(self) -> str:
        return f"g{self.generation:05}-s{self.step:08}-r{self.writer}"


@dataclass(frozen=True, kw_only=True)
class Found:
    """A checkpoint that was read and verified."""

    manifest: Manifest
    content: bytes

    def state(self) -> dict[str, Any]:
        state: dict[str, Any] = torch.load(io.BytesIO(self.content), map_location="cpu", weights_only=True)
        return state


class CheckpointFolder:
    """The checkpoints and the generations of one job."""

    def __init__(self, output: Path, *, keep: int, identity: dict[str, Any]) -> None:
        self._checkpoints = output / "checkpoints"
        self._generations = output / "generations"
        self._keep = keep
        self._identity = identity

    def claim_generation(self) -> int:
        """One more than the highest claim; two callers never get the same. Clears what older generations left half-done."""
        for folder in (self._checkpoints, self._generations):
            folder.mkdir(parents=True, exist_ok=True)
        generation = self._highest_claim()
        while True:
            generation += 1
            try:
                with (self._generations / f"{generation:05}").open("x", encoding="ascii") as file:
                    file.write(f"{socket.gethostname()} {time.time()}\n")
            except FileExistsError:
                continue
            self._clear_leftovers()
            return generation

    def newest(self) -> Found | None:
        """The highest (generation, step) that is whole. A damaged one is passed over with a warning.

        Raises ForeignCheckpointError when it belongs to another model or run: going on would train the wrong thing.
        """
        for path in self._manifests():
            try:
                found = self._read(path)
            except (OSError, ValueError, TypeError, KeyError) as error:
                print(f"checkpoint {path.stem} is damaged and passed over: {error}", file=sys.stderr, flush=True)
                continue
            self._refuse_foreign(found.manifest)
            return found
        return None

    def save(self, state: dict[str, Any], *, generation: int, step: int, writer: int = 0) -> Manifest:
        """Commit a checkpoint, then remove all but the newest `keep`.

        Raises CheckpointError when the disk is full or a newer generation has been claimed; nothing half-written stays.
        """
        buffer = io.BytesIO()
        torch.save(state, buffer)
        content = buffer.getbuffer()
        manifest = Manifest(
            generation=generation,
            step=step,
            writer=writer,
            sha256=hashlib.sha256(content).hexdigest(),
            size_bytes=len(content),
            identity=self._identity,
            written_at=time.time(),
        )
        data, description = self._checkpoints / f"{manifest.name}.pt", self._checkpoints / f"{manifest.name}.json"
        try:
            _write_whole(data, content)
            if self._highest_claim() > generation:
                data.unlink()
                raise CheckpointError(
                    f"checkpoint of step {step} is not committed: generation {generation} was replaced by a newer one"
                )
            _write_whole(description, json.dumps(vars(manifest)).encode())
        except OSError as error:
            if not description.exists():
                data.unlink(missing_ok=True)
            raise CheckpointError(
                f"checkpoint of step {step} ({len(content) / 1e6:.0f} MB) could not be written to "
                f"{self._checkpoints}: {error.strerror or error}. "
                "The older checkpoint stays and training goes on; free some space, or lower --keep-checkpoints"
            ) from error
        self._prune()
        return manifest

    def _read(self, path: Path) -> Found:
        manifest = Manifest(**json.loads(path.read_bytes()))
        if manifest.schema != _SCHEMA or manifest.name != path.stem:
            raise ValueError("its manifest is not one of this version, or was renamed")
        content = path.with_suffix(".pt").read_bytes()
        if len(content) != manifest.size_bytes:
            raise ValueError(f"{len(content)} bytes instead of {manifest.size_bytes}")
        if hashlib.sha256(content).hexdigest() != manifest.sha256:
            raise ValueError("its content does not have the sha256 of its manifest")
        return Found(manifest=manifest, content=content)

    def _refuse_foreign(self, manifest: Manifest) -> None:
        keys = sorted(self._identity.keys() | manifest.identity.keys())
        found, wanted = manifest.identity, self._identity
        differences = [f"{key} {found.get(key)!r}, now {wanted.get(key)!r}" for key in keys if found.get(key) != wanted.get(key)]
        if differences:
            raise ForeignCheckpointError(
                f"{self._checkpoints} holds a checkpoint of another run (step {manifest.step}): {'; '.join(differences)}. "
                "Give this job its own --output folder, or start it with the settings of that run"
            )

    def _highest_claim(self) -> int:
        claims = [int(entry.name) for entry in os.scandir(self._generations) if entry.name.isdigit()]
        return max(claims, default=0)

    def _manifests(self) -> list[Path]:
        """Newest first. Names are padded, so that the order of names is that of (generation, step); ranks only break ties."""
        return sorted(self._checkpoints.glob("g*-s*-r*.json"), reverse=True)

    def _prune(self) -> None:
        for path in self._manifests()[self._keep :]:
            path.unlink(missing_ok=True)  # first the manifest: without it the data is nothing
            path.with_suffix(".pt").unlink(missing_ok=True)

    def _clear_leftovers(self) -> None:
        """Temporary files, and data without a manifest. A stale writer of one fails at its rename; it could not commit anyway."""
        for path in self._checkpoints.iterdir():
            if path.name.startswith(".tmp-") or (path.suffix == ".pt" and not path.with_suffix(".json").exists()):
                path.unlink(missing_ok=True)


def _write_whole(path: Path, content: bytes | memoryview) -> None:
    """The file is there with all its content after a loss of power, or it is not there."""
    temporary = path.with_name(f".tmp-{secrets.token_hex(8)}-{path.name}")
    view = memoryview(content)
    try:
        with temporary.open("xb") as file:
            for start in range(0, len(view), _PIECE):
                file.write(view[start : start + _PIECE])
            file.flush()
            os.fsync(file.fileno())
        temporary.rename(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
