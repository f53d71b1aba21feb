"""Lengths of time and moments as people write them."""

import re
from datetime import UTC, datetime, timedelta

from ebb.client.errors import BadRequest

_DURATION = re.compile(r"(\d+(?:\.\d+)?)(s|m|h|d|)")
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}


def seconds(text: str, label: str) -> float:
    """Seconds of 90, 90s, 15m, 2h or 1d. Raises BadRequest."""
    match = _DURATION.fullmatch(text)
    if not match:
        raise BadRequest(f"{label} {text!r} is not a length of time: use for example 90s, 15m or 2h.")
    return float(match[1]) * _SECONDS[match[2]]


def moment(text: str, label: str, now: datetime | None = None) -> str:
    """RFC 3339 of a moment such as 2026-12-01T18:00Z, or of a time from now such as 12h. Raises BadRequest."""
    try:
        if _DURATION.fullmatch(text):
            at = (now or datetime.now(UTC)) + timedelta(seconds=seconds(text, label))
        else:
            at = datetime.fromisoformat(text).astimezone(UTC)  # without an offset: the user's own time
    except (ValueError, OverflowError) as error:
        if isinstance(error, BadRequest):
            raise
        raise BadRequest(f"{label} {text!r} is not a time: use for example 12h, or 2026-12-01T18:00Z.") from error
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")
