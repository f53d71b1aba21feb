"""TensorBoard's event files of jobs, followed into a folder of this machine: `tensorboard --logdir FOLDER` shows the runs live.

    async with following(ebb, ["digits", "text"], Path("/tmp/x"), note=print) as found:     # what there is now is there
        found["digits"]                                                                     # how many files each job has
        await tensorboard.wait()                                                            # the rest comes meanwhile

Files that grow are only appended to, from where the copy ends, so a connection that was lost or an earlier run of the program
costs nothing twice. TensorBoard reads the files of one run in the order of their names and never goes back to an earlier one: a
file is begun when those before it are here as far as they go.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path, PurePosixPath
from typing import Protocol

from ebb.client.errors import BadRequest, ClientError, Missing
from ebb.client.files.data import is_fetchable, output_folder
from ebb.client.files.transfer import FileEntry, Files, gateway, printable
from ebb.client.jobs.watch import ignore
from ebb.client.platform.connection import Ebb
from ebb.kube import KubeError

MARK = "tfevents"  # TensorBoard takes every file for one whose name holds it
OWN = "tensorboard/"  # in a job's folder, where Ebb's trainers write theirs
EVERY_SECONDS = 5.0
Note = Callable[[str], None]


class SourceFiles(Protocol):
    """The part of transfer.py's `Files` that following needs."""

    async def list(self, path: str, *, recursive: bool) -> Sequence[FileEntry]:
        """Return what is in and below a folder. Raises Missing, ClientError, KubeError."""

    def read(self, path: str, start: int) -> AsyncIterator[bytes]:
        """From a byte to what is now the end. Raises Missing, ClientError, KubeError."""


@asynccontextmanager
async def following(
    ebb: Ebb, jobs: Sequence[str], folder: Path, *, note: Note = ignore, every: float = EVERY_SECONDS
) -> AsyncIterator[dict[str, int]]:
    """Keep copies of the jobs' event files in a folder below `folder` for each, as long as the block runs; yields how many files
    each has at its beginning. Raises Missing for a job that never was, NoPlatform, BadRequest, KubeError."""
    async with gateway(ebb) as files:
        sources = {job: await output_folder(ebb, files, job) for job in jobs}
        found = {job: await copy(files, source, folder / job) for job, source in sources.items()}
    task = asyncio.create_task(_keep_copying(ebb, sources, folder, note, every))
    try:
        yield found
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _keep_copying(ebb: Ebb, sources: dict[str, str], folder: Path, note: Note, every: float) -> None:
    """Copy for ever; a failure is said once and tried again."""
    trouble = ""
    while True:
        try:
            async with gateway(ebb) as files:
                while True:
                    await asyncio.sleep(every)
                    for job, source in sources.items():
                        await copy(files, source, folder / job)
                    if trouble:
                        note("event files come again")
                    trouble = ""
        except (ClientError, KubeError) as error:
            if str(error) != trouble:
                trouble = str(error)
                note(f"event files do not come now: {trouble.rstrip('.')}; trying again")
        await asyncio.sleep(every)


async def copy(files: Files | SourceFiles, source: str, target: Path) -> int:
    """Bring the copies of a folder's event files up to date, in the order of their names; how many there are."""
    try:
        entries = await files.list(source, recursive=True)
    except Missing:  # the job has not come so far
        return 0
    found = sorted((one for one in entries if _is_event_file(one)), key=lambda one: one.name)
    for one in found:
        await _append(files, f"{source}/{one.name}", target / one.name.removeprefix(OWN), one.size)
    return len(found)


async def _append(files: Files | SourceFiles, path: str, file: Path, size: int) -> None:
    """Append to a copy. One that is longer than its source is of another file, or of one that was cut: it begins anew."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        start = file.stat().st_size if file.exists() else 0
        if start > size:
            file.unlink()
            start = 0
        if start == size and file.exists():
            return
        with file.open("ab") as copied:
            async for piece in files.read(path, start):
                copied.write(piece)
    except Missing:
        return  # removed since it was listed
    except OSError as error:
        raise BadRequest(f"{printable(file)}: {error.strerror or error}.") from error


def _is_event_file(entry: FileEntry) -> bool:
    return entry.kind == "file" and MARK in PurePosixPath(entry.name).name and is_fetchable(entry.name)
