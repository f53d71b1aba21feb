"""The frame of the commands beside `pulumi`: python -m infra.account.preflight, .leftovers and .costs.

    given = parser("infra.account.costs", "What the stack costs.", "...").parse_args(arguments)
    run(lambda: show(given.stack))

Each command is in infra/account, and asks the cloud for its own part (infra.cloud.Cloud); a cloud without an account has none.
The last line of output is one JSON object, for programs. None of them changes anything.

    CannotLook     nothing can be found out: no credentials, no network; the text is one plain sentence
    Refused        one request to the account did not succeed; each cloud has its own, with the cloud's code
"""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from typing import Any

from infra.config.section import ConfigError

EXIT_GOOD, EXIT_BAD, EXIT_USAGE, EXIT_BLIND, EXIT_INTERRUPTED = 0, 1, 2, 3, 130
EXIT_CODES = "exit codes: 0 {good}, 1 {bad}, 2 wrong arguments or settings, 3 nothing could be looked at (credentials, network)"


class CannotLook(Exception):
    """Nothing can be found out."""


class RequestRefused(Exception):
    """One request did not succeed."""

    known = False  # True where a check of preflight reports the reason, once for all requests

    @property
    def denied(self) -> bool:
        """True if the caller lacks the right to ask, which says nothing about what was asked for."""
        return False


def parser(module: str, what: str, more: str) -> argparse.ArgumentParser:
    """-s STACK as `pulumi` has it. `more`: what the command shows, and how to read it."""
    made = argparse.ArgumentParser(
        prog=f"python -m {module}", description=what, epilog=more, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument(
        "-s", "--stack", required=True, metavar="NAME", help="which stack, e.g. dev: its settings are in Pulumi.NAME.yaml"
    )
    return made


def run(command: Callable[[], int]) -> int:
    """A command with its errors in words. Its progress goes line by line, also into a pipe."""
    try:
        return command()
    except ConfigError as error:
        print(error, file=sys.stderr)
        return EXIT_USAGE
    except CannotLook as error:
        print(error, file=sys.stderr)
        conclude({"error": str(error)})
        return EXIT_BLIND
    except KeyboardInterrupt:
        print("interrupted; nothing was changed", file=sys.stderr)
        return EXIT_INTERRUPTED


def say(line: str = "") -> None:
    print(line, flush=True)


def conclude(facts: dict[str, Any]) -> None:
    """The last line."""
    print(json.dumps(facts), flush=True)


def table(rows: Sequence[Sequence[str]], *, right: Sequence[int] = ()) -> list[str]:
    """Rows as lines, in columns as wide as they must be; those in `right` end together."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))] if rows else []
    return [
        "  ".join(
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
