"""Histories that are done, so that an interrupted proof can go on: a line of JSON for each history, in a file of this code.

    records = Records.open(EBB_HOME / "exact"); records.get("history 17 agents") -> what was kept, or None
    records.keep("history 17 agents", {...})

The file's name is a hash of the trainer and of the judge: other code begins anew.
"""

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Self

from devcluster.settings import CHECKOUT

_CODE = ("ebb/elastic/**/*.py", "trainer/**/*.py", "benchmarks/exact/*.py", "testing/exactness.py")


class Records:
    """Used by several threads; a line is written at once and whole."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._kept: dict[str, dict[str, Any]] = {}
        for line in path.read_text().split("\n")[:-1] if path.exists() else []:
            entry = json.loads(line)
            self._kept[entry["key"]] = entry["value"]

    @classmethod
    def open(cls, folder: Path, fingerprint: str) -> Self:
        folder.mkdir(parents=True, exist_ok=True)
        return cls(folder / f"{fingerprint}.jsonl")

    def get(self, key: str) -> dict[str, Any] | None:
        return self._kept.get(key)

    def keep(self, key: str, value: dict[str, Any]) -> None:
        self._kept[key] = value
        with self.path.open("a") as file:
            file.write(json.dumps({"key": key, "value": value}) + "\n")


def fingerprint(root: Path = CHECKOUT, patterns: Iterable[str] = _CODE) -> str:
    digest = hashlib.sha256()
    for path in sorted({path for pattern in patterns for path in root.glob(pattern)}):
        digest.update(f"{path.relative_to(root)}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]
