"""Whose folder or file is this? A small file beside it, made by an exclusive create, says it for good.

    identity = claim_folder(output, Owner(uid="5f3c...", job="digits", namespace="elastic-job"))    # id of the folder
    claim_file(path, owner)                                                                         # the same for one file

The UID of the job decides ($EBB_JOB_UID), not its name: a job that was deleted and created again is another job. Runs outside of
the cluster have none and count as one owner. Nothing is ever taken over: nobody can know here whether the other job still runs.
"""

from __future__ import annotations

import json
import secrets
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ebb.compat import dataclass
from ebb.elastic.checkpoint.errors import OwnedFolderError
from ebb.elastic.checkpoint.files import Disk, create_whole
from ebb.elastic.room import with_room

FILE = "owner.json"


@dataclass(frozen=True, kw_only=True)
class Owner:
    """The job that this process works for."""

    uid: str = ""
    job: str = ""
    namespace: str = ""

    def __str__(self) -> str:
        if not self.uid:
            return "a run outside of a cluster"
        return f"job {self.namespace}/{self.job} ({self.uid})"


def claim_folder(output: Path, owner: Owner, disk: Disk | None = None) -> str:
    """The id of the folder, which its checkpoints carry. Any process of the job may call it at any time.

    Raises OwnedFolderError when it belongs to another job, OSError when the disk cannot be written and nobody owns it yet. Room
    on a full one is waited for.
    """
    disk = disk or Disk()
    fix = "Give each job its own --output folder; to go on from the checkpoints of that one, add --resume-from {path}"
    return _claim(disk, output / FILE, owner, f"--output {output}", fix.format(path=output))


def claim_file(path: Path, owner: Owner, disk: Disk | None = None) -> None:
    """The same for one file, which need not be there yet."""
    disk = disk or Disk()
    fix = f"Name another file; to go on from this one, add --resume-from {path}; to let it go, remove it and {marker(path).name}"
    _claim(disk, marker(path), owner, f"--checkpoint-file {path}", fix)


def marker(path: Path) -> Path:
    return path.with_name(f"{path.name}.{FILE}")


def _claim(disk: Disk, path: Path, owner: Owner, what: str, fix: str) -> str:
    content = {**asdict(owner), "id": secrets.token_hex(8), "created_at": round(time.time())}
    try:
        found = _read(disk, path)
    except FileNotFoundError:
        try:
            with_room(lambda: _create(disk, path, content), f"{path.parent} is full: the start")
        except FileExistsError:
            return _claim(disk, path, owner, what, fix)
        return str(content["id"])
    other = Owner(uid=found["uid"], job=found["job"], namespace=found["namespace"])
    if other.uid != owner.uid:
        raise OwnedFolderError(f"{what} belongs to {other}; this is {owner}. {fix}")
    return str(found["id"])


def _create(disk: Disk, path: Path, content: dict[str, Any]) -> None:
    disk.make_folder(path.parent)
    create_whole(disk, path, json.dumps(content).encode() + b"\n")


def _read(disk: Disk, path: Path) -> dict[str, Any]:
    text = disk.read(path)
    try:
        found = json.loads(text)
        return {name: str(found[name]) for name in ("uid", "job", "namespace", "id")}
    except (ValueError, KeyError, TypeError) as error:
        raise OwnedFolderError(
            f"{path} is damaged ({error!r}), so it cannot be told whose folder this is. Remove it if no other job writes here"
        ) from error
