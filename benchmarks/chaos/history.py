"""The history of a run: one file of JSON lines, all that the judge needs and nothing else, so that it can be judged again.

    with History.begin(path, seed=7, ...) as history: history.add("action", kind="link", ...)
    records = read(path)      # raises HistoryError

Each line has `at`, seconds since the beginning, and `what`:

    begin    seed, seconds, plant, schema          end      it is whole: nothing was cut off
    action   number, kind, victim                  healed   number
    skipped  number, kind, why                     job      name, uid, workers, ends, backoff
    status   job, uid, state, reason, failures, reclaims    gone     job
    pod      uid, name, job, index, ip, phase, leaving, node, gone; code, message: of a container that has ended
    key      of etcd: key, value, revision         file     job, name, text: of its ledger and result
    crashes  job, times: its program really failed bill     at_unix, machines, cost: what the devcluster and `ebb cost` say
    part     name, well: of the platform, at the end
    acts     acts, since: a controller renews its Lease, or none does; at the beginning one does
"""

import json
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TextIO

Record = dict[str, Any]
SCHEMA = 1


class HistoryError(ValueError):
    """The file is no history of this kind; the message says where."""


class History:
    """The writer. A line is on the disk when the call returns, so that a run that dies leaves what it saw."""

    def __init__(self, file: TextIO) -> None:
        self._file, self._began = file, time.monotonic()

    @classmethod
    def begin(cls, path: Path, **facts: Any) -> Self:
        path.parent.mkdir(parents=True, exist_ok=True)
        history = cls(path.open("w", encoding="utf-8"))
        history.add("begin", schema=SCHEMA, **facts)
        return history

    @property
    def seconds(self) -> float:
        """Since the beginning."""
        return time.monotonic() - self._began

    def add(self, what: str, **facts: Any) -> None:
        self._file.write(json.dumps({"at": round(self.seconds, 3), "what": what, **facts}) + "\n")
        self._file.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is None:
            self.add("end")
        self._file.close()


def read(path: Path) -> list[Record]:
    """All whole lines. Raises HistoryError."""
    try:
        records: list[Record] = [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n")[:-1]]
    except FileNotFoundError:
        raise HistoryError(f"there is no history {path}; a run writes one, and says where") from None
    except ValueError as error:
        raise HistoryError(f"{path} is no history of chaos: {error}") from error
    if not records or records[0].get("what") != "begin" or records[0].get("schema") != SCHEMA:
        raise HistoryError(f"{path} is no history of chaos of schema {SCHEMA}: its first line must begin one")
    return records
