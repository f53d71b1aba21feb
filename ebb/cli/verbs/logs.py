"""`ebb logs`."""

import re
from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer

from ebb import client
from ebb.cli.errors import exit_code_of
from ebb.cli.exits import Exit
from ebb.cli.options import Format, JobName, Namespace, Output, call
from ebb.cli.render import make_console
from ebb.cli.terminal import Writer
from ebb.client.errors import BadRequest
from ebb.client.logs import Choice, follow_logs, on_volume, print_logs
from ebb.client.platform.connection import read_job
from ebb.client.times import seconds


def logs(
    ctx: typer.Context,
    job: JobName,
    *,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Until the job ends, across lost and new workers.")] = False,
    worker: Annotated[int | None, typer.Option("--worker", metavar="N", min=0, help="One worker's only.")] = None,
    rank: Annotated[int | None, typer.Option("--rank", metavar="N", min=0, help="One rank's only, wherever it ran.")] = None,
    since: Annotated[
        str | None, typer.Option("--since", metavar="TIME", help="Later lines only: 10m (ago), or 2026-12-01T18:00Z.")
    ] = None,
    grep: Annotated[str | None, typer.Option("--grep", metavar="REGEX", help="Only lines that match.")] = None,
    lost: Annotated[bool, typer.Option("--lost", help="Only of workers that are gone.")] = False,
    tail: Annotated[int | None, typer.Option("--tail", metavar="N", min=0, help="Start with each worker's last N lines.")] = None,
    namespace: Namespace = None,
    output: Format = Output.TEXT,
) -> None:
    """Output of the workers, merged."""
    if follow and lost:
        raise BadRequest("--lost and --follow exclude each other: a worker that is gone writes nothing more. Leave one out.")
    choice = Choice(worker=worker, rank=rank, since=_since(since), grep=_pattern(grep), lost=lost, tail=tail)
    writer = Writer(
        colour=make_console().is_terminal, json=output is Output.JSON, prefix=worker is None and rank is None, ranks=rank is None
    )

    async def read(ebb: client.Ebb) -> Exit:
        await read_job(ebb.kube, ebb.namespace, job)
        async with on_volume(ebb, writer.note) as files:
            if follow:
                return exit_code_of(await follow_logs(ebb.kube, ebb.namespace, job, writer, choice=choice, files=files))
            await print_logs(ebb.kube, ebb.namespace, job, writer, choice=choice, files=files)
            return Exit.OK

    raise typer.Exit(call(ctx, namespace, read))


def _since(text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        return datetime.fromisoformat(text).astimezone(UTC)  # without an offset: the user's own time
    except ValueError:
        pass
    try:
        return datetime.now(UTC) - timedelta(seconds=seconds(text, "--since"))
    except (BadRequest, OverflowError) as error:
        raise BadRequest(f"--since {text!r} is not a time: use for example 10m (ago), or 2026-12-01T18:00Z.") from error


def _pattern(text: str | None) -> re.Pattern[str] | None:
    try:
        return None if text is None else re.compile(text)
    except re.error as error:
        raise BadRequest(
            f"--grep {text!r} is not a regular expression ({error}): put a \\ before . * + ? ( [ {{ | meant as such."
        ) from error
