"""`ebb logs`."""

from typing import Annotated

import typer

from workloads import client
from workloads.cli.exits import Exit
from workloads.cli.options import Format, JobName, Namespace, Output, call
from workloads.cli.outcome import ended
from workloads.cli.render import make_console
from workloads.cli.writer import Writer
from workloads.client.logs import follow_logs, print_logs
from workloads.client.reach import read_job


def logs(
    ctx: typer.Context,
    job: JobName,
    *,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Until the job is over, across lost and new workers.")] = False,
    worker: Annotated[int | None, typer.Option("--worker", metavar="N", min=0, help="One worker's only.")] = None,
    tail: Annotated[int | None, typer.Option("--tail", metavar="N", min=0, help="Begin with each worker's last N lines.")] = None,
    namespace: Namespace = None,
    output: Format = Output.TEXT,
) -> None:
    """What the workers print, merged."""
    writer = Writer(colour=make_console().is_terminal, json=output is Output.JSON, prefix=worker is None)

    async def read(ebb: client.Ebb) -> Exit:
        await read_job(ebb.kube, ebb.namespace, job)
        if follow:
            return ended(await follow_logs(ebb.kube, ebb.namespace, job, writer, worker=worker, tail=tail))
        await print_logs(ebb.kube, ebb.namespace, job, writer, worker=worker, tail=tail)
        return Exit.OK

    raise typer.Exit(call(ctx, namespace, read))
