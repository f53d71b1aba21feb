"""The verb that shows what runs on what: top."""

import asyncio
from typing import Annotated

import typer
from rich.console import Group
from rich.live import Live
from rich.text import Text

from ebb import client
from ebb.cli.options import Format, Namespace, Output, call, print_json, record
from ebb.cli.pages import top_page
from ebb.cli.render import make_console, now_local
from ebb.client.errors import BadRequest
from ebb.client.jobs.top import top_now
from ebb.kube import Unreachable

LEAST_SECONDS, MOST_SECONDS = 1.0, 3600.0  # the controller reads progress every few seconds: more often shows nothing new


def top(
    ctx: typer.Context,
    *,
    every: Annotated[float, typer.Option("--every", metavar="SECONDS", help="Seconds between updates.")] = 3.0,
    once: Annotated[bool, typer.Option("--once", help="Print once and exit, as into a pipe.")] = False,
    namespace: Namespace = None,
    output: Format = Output.TEXT,
) -> None:
    """Running jobs and machines, live: GPUs busy and free, speed, cost."""
    if not LEAST_SECONDS <= every <= MOST_SECONDS:
        raise BadRequest(
            f"every {every:g} is not a number of seconds from {LEAST_SECONDS:g} to {MOST_SECONDS:g}: leave it out for 3."
        )
    if output is Output.JSON:
        print_json(record(call(ctx, namespace, top_now)))
    elif once or not make_console().is_terminal:
        console = make_console()
        console.print(top_page(call(ctx, namespace, top_now), now_local(), console.width))
    else:
        call(ctx, namespace, lambda ebb: _watch(ebb, every))


async def _watch(ebb: client.Ebb, every: float) -> None:
    """Until Ctrl-C. An API server that is away for a while leaves the last page there, and why it is old."""
    console = make_console()
    found, trouble = await top_now(ebb), ""
    with Live(console=console, auto_refresh=False) as live:
        while True:
            page = top_page(found, now_local(), console.width)
            live.update(Group(page, Text(trouble, "yellow")) if trouble else page, refresh=True)
            await asyncio.sleep(every)
            try:
                found, trouble = await top_now(ebb, found), ""
            except Unreachable as error:
                trouble = f"{error}; trying again"
