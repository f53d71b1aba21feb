"""`ebb report`."""

import json
import webbrowser
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from ebb.api.clock import stamp
from ebb.cli.options import Mode, Namespace, call, job_names, note
from ebb.client import report as reports
from ebb.client.errors import BadRequest
from ebb.client.sweep import metric_of

JSON = "json"  # as every verb's -o json; a file of that name is ./json


def report(
    ctx: typer.Context,
    name: Annotated[
        str,
        typer.Argument(metavar="JOB|SWEEP", help="A job's name, also of a deleted one, or a sweep's.", autocompletion=job_names),
    ],
    *,
    output: Annotated[
        str | None, typer.Option("-o", "--output", metavar="FILE|json", help="The page; json: its figures, to stdout.")
    ] = None,
    show: Annotated[bool, typer.Option("--open", help="Show the page in the browser.")] = False,
    metric: Annotated[
        str, typer.Option(metavar="METRIC", help="Of a sweep, whose runs are compared by it; see `ebb sweep show`.")
    ] = "loss",
    mode: Annotated[Mode | None, typer.Option(help="The best is the least or the greatest; loss: min.")] = None,
    namespace: Namespace = None,
) -> None:
    """One HTML page: loss, rate, workers, reclaims, goodput, money."""
    path = None if output == JSON else Path(output or f"{name}.html")
    if path is not None:
        _check(path)
    compared = metric_of(metric, mode)
    found = call(ctx, namespace, lambda ebb: reports.make(ebb, name, metric=compared))
    if path is None:
        typer.echo(json.dumps(asdict(found), indent=2, allow_nan=False))
        return
    html = reports.page(found, made=stamp(datetime.now(UTC).timestamp()))
    try:
        path.write_text(html, encoding="utf-8")
    except OSError as error:
        raise BadRequest(f"output {str(path)!r} cannot be written ({error.strerror}): name another file with -o.") from error
    for sentence in found.notes:
        note(sentence)
    typer.echo(str(path))
    if show and not webbrowser.open(path.resolve().as_uri()):
        note(f"No browser was found: open {path.resolve()} in one.")


def _check(path: Path) -> None:
    """Before minutes are spent on reading."""
    if not path.parent.is_dir():
        raise BadRequest(f"output {str(path)!r}: there is no folder {str(path.parent)!r}. Make it, or name another file with -o.")
    if path.is_dir():
        raise BadRequest(f"output {str(path)!r} is a folder: name a file in it, such as {path / 'report.html'}.")
