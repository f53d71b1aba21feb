"""What the verbs share: their common options, the output format, and the step from typer into asyncio."""

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Annotated, Any, TypeVar

import typer

from workloads.cli.session import Session
from workloads.client.ebb import Ebb
from workloads.client.errors import BadRequest

T = TypeVar("T")

_DURATION = re.compile(r"(\d+(?:\.\d+)?)(s|m|h|d|)")
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}


class Output(StrEnum):
    """-o: text for people, json for programs (one object; `logs`: one per line)."""

    TEXT = "text"
    JSON = "json"


JobNames = Annotated[list[str], typer.Argument(metavar="JOB", help="The jobs' names.")]
JobName = Annotated[str, typer.Argument(metavar="JOB", help="The job's name, as `ebb list` shows it.")]
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


def seconds(text: str, label: str) -> float:
    """Seconds of 90, 90s, 15m, 2h or 1d. Raises BadRequest."""
    match = _DURATION.fullmatch(text)
    if not match:
        raise BadRequest(f"{label} {text!r} is not a length of time: use for example 90s, 15m or 2h.")
    return float(match[1]) * _SECONDS[match[2]]


def moment(text: str, label: str) -> str:
    """RFC 3339 of a moment such as 2026-12-01T18:00Z, or of a time from now such as 12h. Raises BadRequest."""
    if _DURATION.fullmatch(text):
        at = datetime.now(UTC) + timedelta(seconds=seconds(text, label))
    else:
        try:
            at = datetime.fromisoformat(text).astimezone(UTC)  # without an offset: the user's own time
        except ValueError as error:
            raise BadRequest(f"{label} {text!r} is not a time: use for example 12h, or 2026-12-01T18:00Z.") from error
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")


def note(text: str) -> None:
    """A line for the person, not for the pipe."""
    typer.echo(text, err=True)
