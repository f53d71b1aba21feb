"""`python -m ebb.controller` with another wall clock and other limits: python -m tests.apiserver.shifted SETTINGS ARGUMENTS...

SETTINGS is JSON: {"shift_seconds": 7200, "ebb.controller.election.DURATION_SECONDS": 3}. Only numbers that say how long
something takes are set here, so that a test of a quarter of a minute takes seconds; a name that is not there ends the process.
"""

import datetime as module
import importlib
import json
import sys
import time
from typing import Any


def shift(seconds: float) -> None:
    """Move what everybody reads as wall time; the monotonic clock stays, as when somebody sets a machine's clock."""
    real_time, real_class = time.time, module.datetime

    class Shifted(real_class):  # type: ignore[misc, valid-type]
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return real_class.now(tz) + module.timedelta(seconds=seconds)

        @classmethod
        def utcnow(cls) -> Any:
            return real_class.now(module.UTC).replace(tzinfo=None) + module.timedelta(seconds=seconds)

    time.time = lambda: real_time() + seconds
    module.datetime = Shifted  # type: ignore[misc]


def main(arguments: list[str]) -> int:
    settings = json.loads(arguments[0])
    shift(settings.pop("shift_seconds", 0.0))
    for name, value in settings.items():
        where, _, constant = name.rpartition(".")
        holder = importlib.import_module(where)
        assert hasattr(holder, constant), f"{name} is no more: say in the tests where it went"
        setattr(holder, constant, value)
    found: int = importlib.import_module("ebb.controller.__main__").main(arguments[1:])
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
