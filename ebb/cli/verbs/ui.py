"""`ebb ui`: the live page in the browser."""

import asyncio
import json
import os
import sys
import tempfile
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from pathlib import Path
from typing import Annotated

import typer

from ebb.cli.exits import Exit
from ebb.cli.options import Format, Namespace, Output, call, note
from ebb.cli.ui.server import serving
from ebb.client.platform.connection import Ebb

SCREENS = ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY")  # without any of them Linux would open a browser of text in this terminal


def ui(
    ctx: typer.Context,
    *,
    port: Annotated[
        int | None, typer.Option("--port", metavar="PORT", min=1, max=65535, help="Port on 127.0.0.1; default: any free one.")
    ] = None,
    no_open: Annotated[bool, typer.Option("--no-open", help="Print the address only, and open no browser.")] = False,
    namespace: Namespace = None,
    output: Format = Output.TEXT,
) -> None:
    """Live page in your browser: jobs, losses, reclaims, logs, GPUs, money.

    All jobs with sweeps and free GPUs; each job with its loss, workers, reclaims, money and log. It reads with your own rights
    and changes nothing. Only this machine can reach it, and only with the printed address, which is new each time.

    On another machine: `ebb ui --port 8000` there, `ssh -L 8000:127.0.0.1:8000 HOST` here, and the printed address here.
    """

    async def hold(ebb: Ebb) -> None:
        async with serving(ebb, port=port or 0) as url:
            typer.echo(json.dumps({"url": url}) if output is Output.JSON else url)
            note("Whoever has this address can read the page. Ctrl-C closes it.")
            if no_open or not _has_screen():
                await asyncio.Event().wait()
            with _link(url) as file:
                if not await asyncio.to_thread(webbrowser.open, file.as_uri()):
                    note("No browser was found: open the address in one.")
                await asyncio.Event().wait()

    try:
        call(ctx, namespace, hold)
    except KeyboardInterrupt:
        note("\nebb: the page is closed; jobs continue.")
        raise typer.Exit(Exit.INTERRUPTED) from None


def _has_screen() -> bool:
    return not sys.platform.startswith("linux") or any(os.environ.get(name) for name in SCREENS)


@contextmanager
def _link(url: str) -> Iterator[Path]:
    """A file that only this user can read and that leads to the address: of a program's arguments all users of a machine know."""
    with tempfile.TemporaryDirectory(prefix="ebb-ui-") as folder:  # mode 0700
        file = Path(folder) / "open.html"
        file.write_text(
            f'<!DOCTYPE html>\n<meta charset="utf-8"><title>Ebb</title><meta name="referrer" content="no-referrer">'
            f'<meta http-equiv="refresh" content="0;url={escape(url)}"><a href="{escape(url)}">Go on to Ebb</a>\n',
            encoding="utf-8",
        )
        yield file
