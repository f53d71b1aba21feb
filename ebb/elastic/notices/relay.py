"""Between the launcher and its workers, on one machine: until when to have left, that a checkpoint soon would be wise, who saves;
and memory that outlives a worker.

    relay = Relay.create(os.environ)             # the launcher, before it starts anything
    relay.tell_deadline(time.monotonic() + 115); relay.wish_for_checkpoint(); relay.lend_memory(local_world_size)
    relay = Relay.find(os.environ)               # a worker; None without such a launcher
    relay.deadline(); relay.wishes(); relay.begin_saving(os.getpid()); relay.end_saving(os.getpid()); relay.memory(local_rank)

A signal cannot carry a time, and a second signal would kill a program that does not know it; so two small files say it. A
worker that never looks misses nothing but the hurry. Times are of CLOCK_MONOTONIC, which the processes of a machine share.

The memory is that of files without a name, which the launcher holds open (memfd_create): they go with the launcher, however it
ends, and no limit of /dev/shm holds for them, which loader processes need for themselves. The kernel charges what is written to
them to the pod, as it does with /dev/shm.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Mapping, MutableMapping
from pathlib import Path

from ebb.compat import Self

FOLDER_VARIABLE = "EBB_NOTICE_FOLDER"
_NUM_FILES = 2  # of memory, for each rank: while one is written, the other one is whole


class Relay:
    """The folder that both sides know."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._deadline = folder / "leave-by"
        self._wishes = folder / "checkpoint-wishes"
        self._lent: list[int] = []

    @classmethod
    def create(cls, environment: MutableMapping[str, str]) -> Self:
        """A fresh folder, named in `environment` for all processes that are started from now on."""
        folder = Path(tempfile.mkdtemp(prefix="ebb-notice-"))
        environment[FOLDER_VARIABLE] = str(folder)
        return cls(folder)

    @classmethod
    def find(cls, environment: Mapping[str, str]) -> Self | None:
        folder = environment.get(FOLDER_VARIABLE)
        return cls(Path(folder)) if folder else None

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        while self._lent:
            os.close(self._lent.pop())

    def lend_memory(self, ranks: int) -> None:
        """Files in this process's memory, empty so far, for the machine's ranks to write to and to find again. None where there
        are no such files."""
        for rank in range(ranks):
            for number in range(_NUM_FILES):
                with contextlib.suppress(AttributeError, OSError):  # no Linux; vm.memfd_noexec forbids them
                    self._lent.append(os.memfd_create("ebb-memory"))
                    (self.folder / f"memory-{rank}-{number}").symlink_to(f"/proc/{os.getpid()}/fd/{self._lent[-1]}")

    def memory(self, local_rank: int) -> list[Path]:
        """The files that the launcher lends to that rank of the machine."""
        return sorted(self.folder.glob(f"memory-{local_rank}-*"))

    def tell_deadline(self, leave_by: float) -> None:
        temporary = self._deadline.with_suffix(".tmp")
        temporary.write_text(repr(leave_by), encoding="ascii")
        temporary.rename(self._deadline)

    def deadline(self) -> float | None:
        """When the machine goes; None: nobody knows."""
        try:
            return float(self._deadline.read_text(encoding="ascii"))
        except (OSError, ValueError):
            return None

    def wish_for_checkpoint(self) -> None:
        with self._wishes.open("ab") as file:
            file.write(b"!")

    def wishes(self) -> int:
        """The number of wishes so far: one call of stat, cheap enough for every step."""
        try:
            return os.stat(self._wishes).st_size  # noqa: PTH116  # a third of the time of Path.stat
        except OSError:
            return 0

    def begin_saving(self, process: int) -> None:
        """A worker saves what it holds: its launcher lets it."""
        with contextlib.suppress(OSError):  # then it has the short grace
            self._saving(process).touch()

    def end_saving(self, process: int) -> None:
        """The worker has saved, or could not."""
        with contextlib.suppress(OSError):
            self._saving(process).unlink()

    def is_saving(self, process: int) -> bool:
        """True from begin_saving to end_saving, or to the end of the process."""
        return self._saving(process).exists() and is_running(process)

    def _saving(self, process: int) -> Path:
        return self.folder / f"saving-{process}"


def is_running(process: int) -> bool:
    """False for one that has ended, though nobody may have asked for its code yet."""
    try:
        state = Path(f"/proc/{process}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return False
    return state not in "ZX"
