"""What the verbs share: their common options, the output format, and the step from typer into asyncio."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import asdict
from enum import StrEnum
from typing import Annotated, Any, TypeVar

import typer

from ebb.cli.completion import job_names
from ebb.cli.session import Session
from ebb.client.platform.ebb import Ebb

T = TypeVar("T")


class Output(StrEnum):
    """-o: text for people, json for programs (one object; `logs`: one per line)."""

    TEXT = "text"
    JSON = "json"


JobNames = Annotated[list[str], typer.Argument(metavar="JOB", help="The jobs' names.", autocompletion=job_names)]
JobName = Annotated[str, typer.Argument(metavar="JOB", help="The job's name, as `ebb list` shows it.", autocompletion=job_names)]
Format = Annotated[Output, typer.Option("-o", "--output", help="text, or json with a stable schema.")]
Namespace = Annotated[
    str | None, typer.Option("-n", "--namespace", help="The team's namespace; default: the platform's own for jobs.")
]


def session_of(ctx: typer.Context) -> Session:
    """What the main command prepared."""
    assert isinstance(ctx.obj, Session), ctx.obj
    return ctx.obj


def call(ctx: typer.Context, namespace: str | None, verb: Callable[[Ebb], Awaitable[T]]) -> T:
    """What `verb` returns of the platform that the options name."""

    async def connected() -> T:
        async with session_of(ctx).open(namespace) as ebb:
            return await verb(ebb)

    return run(connected())


def run(verb: Coroutine[Any, Any, T]) -> T:
    """Run a verb. Ctrl-C cancels it, so that its connections close, and raises KeyboardInterrupt here."""
    return asyncio.run(verb)


def print_json(value: Any) -> None:
    """One JSON document on stdout."""
    typer.echo(json.dumps(value, indent=2))


def record(view: Any) -> dict[str, Any]:
    """A view as `-o json` prints it: the dataclass' fields."""
    return asdict(view)


def note(text: str) -> None:
    """A line for the person, not for the pipe."""
    typer.echo(text, err=True)
