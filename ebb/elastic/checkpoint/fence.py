"""The right to commit: only the newest generation has it, however late a writer of an older one wakes up.

    fence = FileFence.claim(output)                     without etcd: exclusive creates in <output>/generations
    fence = EtcdFence(register, generation=12, membership="/ebb/<run>/generation", folder=id)
    fence.commit(manifest); fence.newest()

EtcdFence decides in one transaction: the membership record is still the one that this generation was formed with, and the
checkpoint's key is as it was read; then the name is put. FileFence looks at the claims just before; what slips through between
its look and the rename is a checkpoint of an older generation, and a newer generation's first one is newer than that.
"""

from __future__ import annotations

import errno
import json
import socket
import sys
import time
from pathlib import Path
from typing import Any, Protocol

from ebb.elastic.checkpoint.errors import FenceUnreachable, Stale
from ebb.elastic.checkpoint.files import Disk, look
from ebb.elastic.checkpoint.manifest import FOLDER, Manifest, order_of

_CLAIMS = "generations"
_NOT_WRITABLE = (errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOSPC, errno.EDQUOT)
_TRIES = 5  # two survivors of a loss commit at the same time at most; each try is lost to another's success


class Fence(Protocol):
    """Of one generation. Safe to call from any thread, by one at a time."""

    generation: int

    def commit(self, manifest: Manifest) -> None:
        """Make it the newest checkpoint, unless a newer one is.

        Raises Stale: a newer generation exists, never try again. Unreachable: not decided, or decided and the answer was lost;
        the same call may be made again.
        """

    def newest(self) -> str | None:
        """The name of the newest committed checkpoint, if the fence keeps it. Raises Unreachable."""

    def is_replaced(self) -> bool:
        """True if a newer generation exists, as far as can be known now. Also beside another call."""


def highest_generation(output: Path, disk: Disk | None = None) -> int:
    """Of any claim and any checkpoint, committed or not, in a job's folder; 0 without one. A new generation must be higher."""
    disk = disk or Disk()
    found = [order_of(Path(name).stem) for name in look(disk, output / FOLDER)]
    claims = [int(name) for name in look(disk, output / _CLAIMS) if name.isdigit()]
    return max([0, *claims, *(order.generation for order in found if order)])


class FileFence:
    """For one machine, and for launchers that agree on no generation. The newest checkpoint is what the folder shows."""

    def __init__(self, output: Path, generation: int, *, disk: Disk | None = None, claimed: bool = True) -> None:
        self.generation = generation
        self._output = output
        self._disk = disk or Disk()
        self._claimed = claimed

    @classmethod
    def claim(cls, output: Path, *, disk: Disk | None = None) -> FileFence:
        """One more than the highest; two callers never get the same. A disk that cannot be written is told, and claimed later."""
        disk = disk or Disk()
        generation = highest_generation(output, disk) + 1
        try:
            disk.make_folder(output / _CLAIMS)
            while not _create(disk, output, generation):
                generation += 1
        except OSError as error:
            if error.errno not in _NOT_WRITABLE:
                raise
            print(f"{output} cannot be written ({error.strerror}): no checkpoint until it can", file=sys.stderr, flush=True)
            return cls(output, generation, disk=disk, claimed=False)
        _forget_older(disk, output, generation)
        return cls(output, generation, disk=disk)

    def commit(self, manifest: Manifest) -> None:
        try:
            if not self._claimed and not _create(self._disk, self._output, self.generation):
                raise Stale(f"generation {self.generation} was claimed by another while the disk could not be written")
            self._claimed = True
            highest = self._highest()
        except OSError as error:
            raise FenceUnreachable(f"{self._output / _CLAIMS} cannot be read or written: {error.strerror}") from error
        if highest > self.generation:
            raise _stale(manifest, highest)

    def newest(self) -> str | None:
        return None

    def is_replaced(self) -> bool:
        try:
            return self._highest() > self.generation
        except OSError:
            return False

    def _highest(self) -> int:
        return max((int(name) for name in look(self._disk, self._output / _CLAIMS) if name.isdigit()), default=0)


def _create(disk: Disk, output: Path, generation: int) -> bool:
    try:
        descriptor = disk.create(output / _CLAIMS / f"{generation:05}")
    except FileExistsError:
        return False
    try:
        disk.write(descriptor, memoryview(f"{socket.gethostname()} {time.time()}\n".encode()))
        disk.sync(descriptor)
    finally:
        disk.close(descriptor)
    disk.sync_folder(output / _CLAIMS)
    return True


def _forget_older(disk: Disk, output: Path, generation: int) -> None:
    """Only the highest claim decides."""
    for name in disk.names(output / _CLAIMS):
        if name.isdigit() and int(name) < generation:
            disk.remove(output / _CLAIMS / name)


class Register(Protocol):
    """The part of etcd that EtcdFence needs. Both methods raise Unreachable."""

    def read(self, key: str) -> tuple[bytes, int] | None:
        """The value and the revision of its last change."""

    def put_if(self, key: str, value: bytes, *, revision: int, guard: str, guard_value: bytes) -> bool:
        """Put if `key` is at that revision (0: not there) and `guard` holds that value; all or nothing."""


class EtcdFence:
    """The membership record is compared by its bytes, not by its revision: revisions start anew when etcd has lost its data."""

    def __init__(self, register: Register, *, generation: int, membership: str, folder: str) -> None:
        self.generation = generation
        self._register = register
        self._membership_key = membership
        self._key = f"/ebb/checkpoints/{folder}"
        self._membership: bytes | None = None

    def commit(self, manifest: Manifest) -> None:
        for _ in range(_TRIES):
            membership = self._own_membership()
            held = self._register.read(self._key)
            name = _name_in(held)
            order = order_of(name) if name else None
            if order is not None and order.generation > self.generation:
                raise _stale(manifest, order.generation)
            if name == manifest.name:
                return  # by an earlier try whose answer was lost
            value = held[0] if held and order and order > manifest.order else _value(manifest)
            revision = held[1] if held else 0
            if self._register.put_if(self._key, value, revision=revision, guard=self._membership_key, guard_value=membership):
                return
            self._compare_membership(membership)
        raise FenceUnreachable(f"{self._key} in etcd was changed {_TRIES} times by others during the commit")

    def newest(self) -> str | None:
        self._own_membership()
        return _name_in(self._register.read(self._key))

    def is_replaced(self) -> bool:
        try:
            return _number_in(self._read_membership()) > self.generation
        except FenceUnreachable:
            return False

    def _own_membership(self) -> bytes:
        """The record that this generation was formed with."""
        if self._membership is None:
            found = self._read_membership()
            if (number := _number_in(found)) != self.generation:
                self._refuse(number)
            self._membership = found
        return self._membership

    def _compare_membership(self, expected: bytes) -> None:
        found = self._read_membership()
        if found != expected:
            self._refuse(_number_in(found))

    def _read_membership(self) -> bytes:
        found = self._register.read(self._membership_key)
        if found is None:
            raise FenceUnreachable(
                "etcd knows of no generation of this job: it has lost its data, and the machines must meet again"
            )
        return found[0]

    def _refuse(self, number: int) -> None:
        if number < self.generation:
            raise FenceUnreachable(
                f"etcd knows only generation {number}, this is {self.generation}: the machines must meet again"
            )
        raise Stale(f"generation {self.generation} was replaced: etcd's membership is of generation {number}")


def _value(manifest: Manifest) -> bytes:
    return json.dumps({"name": manifest.name, "generation": manifest.generation, "step": manifest.step}).encode()


def _name_in(held: tuple[bytes, int] | None) -> str | None:
    """None also for what no version of ours has written: the folder's listing decides then."""
    name = _object(held[0]).get("name") if held else None
    return name if isinstance(name, str) and order_of(name) else None


def _number_in(membership: bytes) -> int:
    number = _object(membership).get("number")
    return number if isinstance(number, int) else 0


def _object(text: bytes) -> dict[str, Any]:
    try:
        content = json.loads(text)
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}


def _stale(manifest: Manifest, newer: int) -> Stale:
    was = f"generation {manifest.generation} was replaced by a newer one ({newer})"
    return Stale(f"checkpoint of step {manifest.step} is not committed: {was}")
