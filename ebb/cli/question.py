"""A question before something is sent: asked where somebody sits who can answer it."""

import signal
import sys

import typer

from ebb.cli.render import make_console


def somebody_there() -> bool:
    """Whether a question would be seen, and could be answered."""
    return sys.stdin.isatty() and make_console().is_terminal


def agreed(question: str) -> bool:
    """Whether the answer is yes. Ctrl-C and the end of input are a no.

    asyncio, under which verbs run, would only note a Ctrl-C here, and go on waiting for the answer.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return typer.confirm(question, default=True)
    except typer.Abort:
        typer.echo(err=True)
        return False
    finally:
        signal.signal(signal.SIGINT, before)
