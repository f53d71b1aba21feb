"""Names of newer Pythons, as older ones get them from ebb.compat."""

import subprocess
from pathlib import Path

import pytest

from benchmarks.install.__main__ import python_of

ROOT = Path(__file__).parents[1]
PROGRAM = """
import dataclasses
from ebb.compat import add_note, dataclass, pairwise, zip

assert list(pairwise([1, 2, 3])) == [(1, 2), (2, 3)]
assert list(zip([1, 2], "ab", strict=True)) == [(1, "a"), (2, "b")]
assert list(zip([1, 2], "a")) == [(1, "a")]
try:
    list(zip([1, 2], "a", strict=True))
    raise SystemExit("different lengths passed")
except ValueError:
    pass

@dataclass(frozen=True, kw_only=True)
class Settings:
    name: str = "job"
    size: int
    parts: list = dataclasses.field(default_factory=list)
    def __post_init__(self):
        if self.size < 0:
            raise ValueError("size")

assert Settings(size=3) == Settings(size=3, name="job", parts=[])
assert dataclasses.replace(Settings(size=3), size=4).size == 4
for wrong in ({}, {"size": 1, "other": 2}):
    try:
        Settings(**wrong)
        raise SystemExit(f"{wrong} passed")
    except TypeError:
        pass
try:
    Settings(size=-1)
    raise SystemExit("__post_init__ was left out")
except ValueError:
    pass
try:
    Settings(size=1).size = 2
    raise SystemExit("frozen was left out")
except dataclasses.FrozenInstanceError:
    pass
error = RuntimeError("out of memory")
add_note(error, "take less")
import traceback
assert "out of memory\\ntake less" in "".join(traceback.format_exception(type(error), error, None))
"""


@pytest.mark.e2e
@pytest.mark.parametrize("version", ["3.9", "3.10", "3.11"])
def test_what_is_newer_works_on_an_older_python(version: str) -> None:
    python = python_of(version)
    if python is None:
        pytest.skip(f"Python {version} is not on this machine")
    done = subprocess.run([python, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
