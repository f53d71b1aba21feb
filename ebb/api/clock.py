"""Times as Kubernetes writes them, to and from unix seconds. Reads no clock: `now` is always an argument."""

import re
from datetime import UTC, datetime

RFC_3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)")


def stamp(seconds: float, *, digits: int = 0) -> str:
    """`2026-11-21T07:00:00Z`; with `digits`, fractions of a second (at most 6)."""
    when = datetime.fromtimestamp(seconds, UTC)
    fraction = f"{when:%f}"[:digits]
    return f"{when:%Y-%m-%dT%H:%M:%S}{'.' + fraction if fraction else ''}Z"


def unix(text: str | None) -> float | None:
    """Unix seconds of a time that Kubernetes wrote; None for none."""
    return datetime.fromisoformat(text).timestamp() if text else None


def find(text: str) -> float | None:
    """The first RFC 3339 time inside a sentence, as unix seconds; None for none, or for one that no calendar has."""
    found = RFC_3339.search(text)
    try:
        return unix(found.group()) if found else None
    except ValueError:
        return None
