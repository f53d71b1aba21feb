"""`ebb events`: what happened to a job, in order."""

import json
from contextlib import aclosing
from typing import Annotated

import typer

from ebb import client
from ebb.cli.options import Format, JobName, Namespace, Output, call, note, print_json, record
from ebb.cli.pages import event_lines
from ebb.cli.render import make_console, now_local
from ebb.client.timeline.events import events as read_events
from ebb.client.timeline.events import follow_events
from ebb.client.timeline.timeline import Entry


def events(
    ctx: typer.Context,
    job: JobName,
    *,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Go on until the job is over.")] = False,
    namespace: Namespace = None,
    output: Format = Output.TEXT,
) -> None:
    """Events of a job and its workers, in chronological order."""
    if follow:
        call(ctx, namespace, lambda ebb: _follow(ebb, job, output))
        return
    found = call(ctx, namespace, lambda ebb: read_events(ebb, job))
    if output is Output.JSON:
        print_json({"events": [record(entry) for entry in found]})
    elif found:
        _print(found)
    else:
        note(f"Nothing is known about {job} yet. Kubernetes forgets events after an hour.")


async def _follow(ebb: client.Ebb, job: str, output: Output) -> None:
    async with aclosing(follow_events(ebb, job, note)) as entries:
        async for entry in entries:
            if output is Output.JSON:
                typer.echo(json.dumps(record(entry)))
            else:
                _print([entry])


def _print(entries: "tuple[Entry, ...] | list[Entry]") -> None:
    console = make_console()
    for line in event_lines(entries, now_local(), console.width):
        console.print(line)
