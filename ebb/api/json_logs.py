"""Log formats: text for people at a terminal, one JSON object a line for whatever collects the logs of pods.

    set_up("json", logging.INFO)
    with about("elastic-job", "digits"): log.warning("no room")      # the line then has the job's namespace and name

`about` follows the context into every task that is started inside it. Events of Kubernetes, which people read, are not logs.
"""

import json
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TextIO

from ebb.api.clock import stamp

FORMATS = ("json", "text")
TEXT = "%(asctime)s %(levelname)s %(name)s %(message)s"
_job: ContextVar[tuple[str, str] | None] = ContextVar("job", default=None)


@contextmanager
def about(namespace: str, name: str) -> Iterator[None]:
    """Mark what is logged inside as about this job."""
    token = _job.set((namespace, name))
    try:
        yield
    finally:
        _job.reset(token)


class JsonFormatter(logging.Formatter):
    """time, level, logger, message; job and namespace if it is about one; error if there is a traceback."""

    def format(self, record: logging.LogRecord) -> str:
        """One line, whatever is in the message."""
        line = {
            "time": stamp(record.created, digits=6),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        job = _job.get()
        if job is not None:
            line["namespace"], line["job"] = job
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


def default_format() -> str:
    """People read a terminal, programs everything else."""
    return "text" if sys.stdout.isatty() else "json"


def set_up(form: str, level: int, stream: TextIO | None = None) -> None:
    """Send the logs of this process to a stream, by default stdout, in this form: one of FORMATS. Once a process."""
    handler = logging.StreamHandler(stream or sys.stdout)
    handler.setFormatter(JsonFormatter() if form == "json" else logging.Formatter(TEXT))
    logging.getLogger().addHandler(handler)
    logging.getLogger().setLevel(level)
