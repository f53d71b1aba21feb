"""The end of the launcher's process: everything that was registered, the right code, and no tearing down."""

import subprocess
import sys

import pytest

SCRIPT = """
import atexit, sys
from ebb.elastic.launch.__main__ import Ending

class TornDown:
    def __del__(self):
        print("torn down", flush=True)

kept = TornDown()
ending = Ending()
atexit.register(print, "in order")
sys.stdout.write("said last, ")
"""


@pytest.mark.parametrize(
    ("last", "code", "words"),
    [
        pytest.param("ending.code = 138", 138, "said last, in order\n", id="with-a-code"),
        pytest.param("sys.exit(2)", 2, "said last, in order\ntorn down\n", id="as-any-other-without"),
    ],
)
def test_how_it_ends(last: str, code: int, words: str) -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT + last], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (code, words, "")
