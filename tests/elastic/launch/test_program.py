"""What a script finds when it is run by program.py: the same as under `python script.py`."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ebb.elastic.launch import program

pytestmark = pytest.mark.e2e

SCRIPT = """
import helper, json, multiprocessing, os, pickle, sys
class Kept: pass
if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        doubled = pool.apply(helper.double, (21,))
    print(json.dumps([
        sys.argv, __file__, __name__, sys.path[0], doubled, type(pickle.loads(pickle.dumps(Kept()))).__module__,
        sorted(name for name in globals() if not name.startswith("__")), "trainer" in sys.modules, __doc__,
    ]))
"""


def run(*command: str, folder: Path, **environment: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-u", *command],
        cwd=folder, capture_output=True, text=True, timeout=60, check=False, env={**os.environ, **environment},
    )  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "helper.py").write_text("def double(x):\n    return 2 * x\n")
    (tmp_path / "code" / "script.py").write_text(SCRIPT)
    return tmp_path


def test_a_script_finds_no_difference(folder: Path) -> None:
    plain = run("code/script.py", "--lr", "1", folder=folder)
    ours = run(program.__file__, "code/script.py", "--lr", "1", folder=folder)
    assert json.loads(plain.stdout)[4] == 42, plain.stderr
    assert (ours.stdout, ours.stderr, ours.returncode) == (plain.stdout, plain.stderr, 0)


@pytest.mark.parametrize("text", ["1 / 0", "def f():\n    raise ValueError('a')\nf()", "1 +", "import no_such_module"])
def test_its_traceback_and_torchs_file(folder: Path, text: str) -> None:
    (folder / "wrong.py").write_text(text + "\n")
    plain = run("wrong.py", folder=folder)
    ours = run(program.__file__, "wrong.py", folder=folder, TORCHELASTIC_ERROR_FILE=str(folder / "error.json"))
    assert ours.returncode == plain.returncode == 1
    assert ours.stderr.splitlines()[-1] == plain.stderr.splitlines()[-1]
    assert [line for line in ours.stderr.splitlines() if "program.py" in line] == []
    said = json.loads((folder / "error.json").read_text())["message"]["message"]
    assert said.splitlines()[0].startswith(plain.stderr.splitlines()[-1].split("(")[0].strip())


ABORTS = """
import atexit, os, sys
class Torch:
    def __del__(self): os.abort()  # as a library's thread does while the interpreter is torn down
library = Torch()
atexit.register(print, "registered", flush=False)
print("done", end=" ")
"""


@pytest.mark.parametrize(("last", "code"), [("", 0), ("sys.exit()", 0), ("sys.exit(3)", 3), ("sys.exit(300)", 44)])
def test_who_is_done_is_not_torn_down(folder: Path, last: str, code: int) -> None:
    (folder / "aborts.py").write_text(ABORTS + last + "\n")
    plain = run("aborts.py", folder=folder)
    ours = run(program.__file__, "aborts.py", folder=folder)
    assert plain.returncode == -6
    assert (ours.returncode, ours.stdout) == (code, "done registered\n")
