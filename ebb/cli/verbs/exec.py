"""`ebb exec`: a program in a worker, with this terminal if there is one."""

import asyncio
import os
import sys
from contextlib import ExitStack
from typing import Annotated

import typer

from ebb.cli import terminal
from ebb.cli.options import Format, JobName, Namespace, Output, call, print_json, record
from ebb.client.files.workers import SHELL, as_program, execute, program, running_worker
from ebb.client.platform.connection import Ebb
from ebb.kube.streams import Program


def execute_in(
    ctx: typer.Context,
    job: JobName,
    command: Annotated[
        list[str] | None, typer.Argument(metavar="-- COMMAND", help="Such as `-- nvidia-smi` or `-- bash`.")
    ] = None,
    *,
    worker: Annotated[int | None, typer.Option(help="Default: the first that runs.")] = None,
    no_stdin: Annotated[bool, typer.Option("--no-stdin", help="The command gets no input, as in loops of a shell.")] = False,
    namespace: Namespace = None,
    output: Format = Output.TEXT,
) -> None:
    """Run a command in a worker: ebb exec digits -- nvidia-smi

    With a terminal where this is one (`-- bash`, which is the default then). On a machine that is held it runs in the folder and
    environment of the program that failed. Ends with the command's exit code.
    """
    if output is Output.JSON:
        done = call(ctx, namespace, lambda ebb: execute(ebb, job, command or [], worker=worker))
        print_json(record(done))
        raise typer.Exit(done.exit_code)
    raise typer.Exit(call(ctx, namespace, lambda ebb: _attached(ebb, job, command or [], worker, listens=not no_stdin)))


async def _attached(ebb: Ebb, job: str, command: list[str], worker: int | None, *, listens: bool) -> int:
    """The exit code of the command, which is that of `ebb`."""
    pod = await running_worker(ebb, job, worker)
    is_tty = listens and sys.stdin.isatty() and sys.stdout.isatty()
    command = list(await as_program(ebb, job, pod, command or (SHELL if is_tty else ())))
    async with program(ebb, pod, command, stdin=listens, tty=is_tty) as started:
        with ExitStack() as held:
            if is_tty:
                held.enter_context(terminal.raw(sys.stdin.fileno()))
                await _fit(started)
                tasks = set[asyncio.Task[None]]()
                held.enter_context(terminal.resizes(lambda: tasks.add(asyncio.create_task(_fit(started)))))
            feeding = asyncio.create_task(_feed(started)) if listens else None
            try:
                async for channel, data in started:
                    await asyncio.to_thread(terminal.write, channel, data)
            finally:
                if feeding is not None:
                    feeding.cancel()
                    await asyncio.gather(feeding, return_exceptions=True)
    return started.exit_code


async def _feed(started: Program) -> None:
    async for data in terminal.keys(sys.stdin.fileno()):
        await started.send(data)
    await started.end_input()


async def _fit(started: Program) -> None:
    size = os.get_terminal_size(sys.stdin.fileno())
    await started.resize(size.columns, size.lines)
