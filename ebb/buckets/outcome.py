"""The outcome of `python -m ebb.buckets` and of its preload: one line on standard output, and an exit code of __main__.py's."""

from collections.abc import Callable

from ebb.api.contract import EXIT_COPY_REFUSED
from ebb.buckets.stores import BucketError, Interrupted


def conclude(act: Callable[[], str], *, kept: str) -> int:
    """Say what `act` returns. Its errors become sentences; `kept`: what another try does with what is there."""
    try:
        say(act())
    except BucketError as error:
        say(f"error: {error}")
        return EXIT_COPY_REFUSED
    except (Interrupted, OSError) as error:
        say(f"error: {error}; {kept}")
        return 1
    return 0


def say(text: str) -> None:
    """One line, at once."""
    print(text, flush=True)
