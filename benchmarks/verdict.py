"""The end of a measurement with promises: one line of JSON, and its folder, which stays where a promise is broken.

    sys.exit(conclude("models", measure, judge, failures=(AssertionError, OSError)))

`measure` gets the folder and a way to say how far it is, and returns the figures; `judge` says which promises they break.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

KEPT, BROKEN, FAILED, INTERRUPTED = 0, 1, 2, 130
Say = Callable[[str], None]


def conclude(
    name: str,
    measure: Callable[[Path, Say], dict[str, Any]],
    judge: Callable[[dict[str, Any]], list[str]],
    *,
    failures: tuple[type[Exception], ...],
) -> int:
    """The exit status. `failures` are the errors that only say that it could not be run."""
    folder, status = Path(tempfile.mkdtemp(prefix=f"ebb-{name}-")), FAILED
    try:
        found = measure(folder, _say)
        broken = judge(found)
        for problem in broken:
            _say(f"broken: {problem}; its folders are kept in {folder}")
        print(json.dumps(found), flush=True)
        status = BROKEN if broken else KEPT
    except KeyboardInterrupt:
        status = INTERRUPTED
    except failures as error:
        _say(f"error: {error}; its folders are kept in {folder}")
    finally:
        if status in (KEPT, INTERRUPTED):
            shutil.rmtree(folder, ignore_errors=True)
    return status


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
