"""The look for a program before workers start: what is missing is named, what may be there is let through."""

import os
import sys
import threading
from argparse import Namespace
from pathlib import Path

import pytest

from ebb.elastic.launch.locate import find_missing


def missing(name: str, environment: dict[str, str] | None = None, *, patience: float = 0.01, **flags: bool) -> str:
    settings = Namespace(**{"training_script": name, "module": False, "no_python": False, **flags})
    return find_missing(settings, environment or {}, print, patience_seconds=patience)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_what_is_there_is_let_through(folder: Path) -> None:
    (folder / "train.py").touch()
    (folder / "run.sh").touch(0o755)
    (folder / "mine" / "net").mkdir(parents=True)
    (folder / "mine" / "net" / "train.py").write_text("raise SystemExit('nothing is imported')")
    path = {"PYTHONPATH": str(folder)}
    assert missing("train.py") == missing(str(folder / "train.py")) == missing("./run.sh", no_python=True) == ""
    assert missing("sh", no_python=True) == ""
    assert missing("mine.net.train", path, module=True) == missing("json.tool", module=True) == ""
    assert missing("ebb.elastic.launch", module=True) == missing("__main__", module=True) == ""
    assert str(folder) not in sys.path
    assert "mine" not in sys.modules


def test_what_is_missing_is_named_with_the_fix(folder: Path) -> None:
    (folder / "run.sh").touch(0o644)
    assert missing("train.py") == (
        f"no file 'train.py' in {folder}, and no code came with the job: send its folder along with --code DIR, or name one "
        "that is there"
    )
    assert missing("train.py", {"EBB_CODE_ARCHIVE": "/ebb/code/code.tar.gz"}) == (
        "no file 'train.py' in the code that came with the job: name it as it is there, or send the folder that holds it with "
        "--code DIR"
    )
    assert missing("no_such.train", module=True).startswith(f"no module 'no_such.train' in {folder}")
    assert missing("./run.sh", no_python=True).startswith("no program './run.sh' that may be run in")


def test_a_volume_gets_time_to_show_a_file(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As a network file system does with what another machine has just written."""
    script = folder / "volume" / "train.py"
    script.parent.mkdir()
    monkeypatch.setattr(os.path, "ismount", lambda path: Path(path) in (script.parent, Path("/")))
    threading.Timer(0.2, script.touch).start()
    assert missing(str(script), patience=30.0) == ""
    assert capsys.readouterr().out == f"waiting for {script} to show up on its volume\n"
    assert missing("/opt/train.py", patience=30.0).startswith("no file '/opt/train.py' in"), "an image is whole: no time is given"
