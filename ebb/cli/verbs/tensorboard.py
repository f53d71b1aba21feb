"""`ebb tensorboard`: the user's own TensorBoard over event files that come from the platform."""

import asyncio
import importlib.util
import json
import shutil
import sys
import tempfile
from asyncio.subprocess import Process
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from ebb.cli.exits import Exit
from ebb.cli.options import Format, JobNames, Namespace, Output, call, note
from ebb.client.errors import BadRequest, ClientError
from ebb.client.files.event_files import following
from ebb.client.platform.connection import Ebb

RELOAD_SECONDS = "5"
PATIENCE_SECONDS = 5.0  # for it to end by itself


def tensorboard(
    ctx: typer.Context,
    jobs: JobNames,
    *,
    port: Annotated[
        int | None, typer.Option("--port", metavar="PORT", min=1, max=65535, help="Port of TensorBoard; default: it chooses.")
    ] = None,
    keep: Annotated[
        Path | None,
        typer.Option("--keep", metavar="DIR", help="Copy the files there and leave them; again, only what is new comes."),
    ] = None,
    namespace: Namespace = None,
    output: Format = Output.TEXT,
) -> None:
    """Your own TensorBoard on jobs, live: ebb tensorboard digits text

    Files named *tfevents* in the jobs' output folders come to this machine while TensorBoard, which you install yourself, runs on
    them: those of Ebb's trainers, and what your program writes below $EBB_OUTPUT_DIR. Deleted jobs count. Ctrl-C ends it.
    """
    command = find_tensorboard()
    wanted = list(dict.fromkeys(jobs))

    async def hold(ebb: Ebb) -> None:
        with _folder(keep) as folder:
            async with following(ebb, wanted, folder, note=note) as found:
                for job, count in found.items():
                    if not count:
                        note(f"{job} has written no event files so far: they are shown when they come.")
                options = ["--logdir", str(folder), "--reload_interval", RELOAD_SECONDS]
                options += ["--port", str(port)] if port else []
                if output is Output.JSON:
                    typer.echo(json.dumps({"logdir": str(folder), "files": found}))
                await _run([*command, *options])

    try:
        call(ctx, namespace, hold)
    except KeyboardInterrupt:
        note("\nebb: TensorBoard is closed; jobs continue.")
        raise typer.Exit(Exit.INTERRUPTED) from None


def find_tensorboard() -> list[str]:
    """The program on the PATH, else the package beside this one. Raises BadRequest where there is neither."""
    if program := shutil.which("tensorboard"):
        return [program]
    if importlib.util.find_spec("tensorboard") is not None:
        return [sys.executable, "-m", "tensorboard.main"]
    raise BadRequest(
        "tensorboard is not installed on this machine: install it with `pip install tensorboard`. Without it, `ebb ui` and "
        "`ebb report JOB` show the curves, and `ebb outputs get JOB` fetches the event files."
    )


async def _run(command: list[str]) -> None:
    """To its end, which is that of this verb. Raises ClientError where it ends by itself in an error."""
    process = await asyncio.create_subprocess_exec(*command)
    try:
        code = await process.wait()
    except asyncio.CancelledError:
        await _end(process)
        raise
    if code:
        raise ClientError(f"tensorboard ended with exit code {code}; what it says is above.")


async def _end(process: Process) -> None:
    """A terminal's Ctrl-C has reached it already."""
    if process.returncode is None:
        process.terminate()
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()


@contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    """The one that is kept, or one for this run."""
    if keep is None:
        with tempfile.TemporaryDirectory(prefix="ebb-tensorboard-") as folder:
            yield Path(folder)
        return
    try:
        keep.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadRequest(f"keep {str(keep)!r} cannot be made ({error.strerror}): name another folder.") from error
    yield keep
