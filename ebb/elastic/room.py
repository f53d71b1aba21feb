"""Waits for room on a full disk, where a training can neither begin nor end without.

with_room(lambda: (output / "result.json").write_text(text), f"{output} is full: result.json")
"""

from __future__ import annotations

import errno
import sys
import time
from collections.abc import Callable
from typing import TypeVar

# As long as the training that would be done again, since that is the longest time between two checkpoints.
ROOM_SECONDS = 300.0
_FULL = (errno.ENOSPC, errno.EDQUOT)
_LOOK_SECONDS = 1.0

T = TypeVar("T")


def with_room(write: Callable[[], T], what: str) -> T:
    """The result of write(), which is called again while the disk is full. Raises OSError, after ROOM_SECONDS that of the full
    disk. `what` begins the sentence that says so."""
    until, told = time.monotonic() + ROOM_SECONDS, False
    while True:
        try:
            return write()
        except OSError as error:
            if error.errno not in _FULL or time.monotonic() >= until:
                raise
            if not told:
                print(f"{what} waits for room, for {ROOM_SECONDS:.0f} s", file=sys.stderr, flush=True)
            told = True
            time.sleep(_LOOK_SECONDS)
