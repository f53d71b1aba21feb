"""`ebb port`: a port of a worker on this machine, for a notebook, a profiler or whatever the program serves."""

import asyncio
from typing import Annotated

import typer

from ebb.cli.exits import Exit
from ebb.cli.options import Format, JobName, Namespace, Output, call, note
from ebb.client.files.workers import port as open_port
from ebb.client.platform.connection import Ebb


def port(
    ctx: typer.Context,
    job: JobName,
    number: Annotated[int, typer.Argument(metavar="PORT", help="The worker's port that your program listens on.")],
    *,
    local: Annotated[int | None, typer.Option(help="The port here; default: the same, or a free one if it is taken.")] = None,
    worker: Annotated[int | None, typer.Option(help="Default: the first that runs; when it is lost, another.")] = None,
    namespace: Namespace = None,
    output: Format = Output.TEXT,
) -> None:
    """Forward a worker's port to this machine: ebb port digits 8888

    Stays open until Ctrl-C, also when the worker is lost: new connections go to another one.
    """

    async def hold(ebb: Ebb) -> None:
        async with open_port(
            ebb, job, number, local=await _free(number) if local is None else local, worker=worker, note=note
        ) as (
            host,
            here,
        ):
            if output is Output.JSON:
                typer.echo(f'{{"host": "{host}", "port": {here}}}')
            else:
                typer.echo(f"http://{host}:{here} is port {number} of {job}. Ctrl-C closes it.")
            await asyncio.Event().wait()

    try:
        call(ctx, namespace, hold)
    except KeyboardInterrupt:
        note("\nebb: the port is closed; the job continues.")
        raise typer.Exit(Exit.INTERRUPTED) from None


async def _free(number: int) -> int:
    """The same number if nothing has it here."""
    try:
        server = await asyncio.start_server(lambda *_: None, "127.0.0.1", number)
    except (OSError, OverflowError):
        return 0
    server.close()
    await server.wait_closed()
    return number
