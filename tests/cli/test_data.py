"""`ebb data` and `ebb outputs` as a user types them."""

import io
import json
import re
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from ebb.cli.app import app
from ebb.cli.terminal import progress_bar
from ebb.cli.verbs.data import size
from tests.cli.world import elastic_job
from tests.reached import session


def ebb(folder: Path, *words: str) -> tuple[int, str, str]:
    """(exit code, stdout, stderr)."""
    done = CliRunner().invoke(app, list(words), obj=session(folder, elastic_job()), env={"COLUMNS": "80"})
    if done.exception and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, done.stdout, done.stderr


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a set of two files, from which the commands are called."""
    (tmp_path / "set" / "train").mkdir(parents=True)
    (tmp_path / "set" / "train" / "1.jpg").write_bytes(b"x" * 1500)
    (tmp_path / "set" / "labels").write_bytes(b"y")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("ebb.client.logs.sources.OUTPUT_ROOT", f"{tmp_path}/output")
    return tmp_path


def test_a_folder_there_and_back(here: Path) -> None:
    assert ebb(here, "data", "put", "set", "data/set") == (0, f"set -> {here}/data/set: 2 files, 1.5 kB\n", "")
    assert ebb(here, "data", "put", "set", "data/set")[1] == f"set -> {here}/data/set: 0 files, 0 B (2 were there already)\n"
    code, out, err = ebb(here, "data", "ls", "data/set", "-r")
    lines = [line.split()[:2] for line in out.splitlines()]
    assert (code, lines, err) == (
        0,
        [["NAME", "SIZE"], ["labels", "1"], ["train/", "folder"], ["train/1.jpg", "1.5"]],
        f"{here}/data/set\n",
    )
    assert ebb(here, "data", "get", "data/set", "copy")[1] == f"{here}/data/set -> copy: 2 files, 1.5 kB\n"
    assert (here / "copy" / "train" / "1.jpg").read_bytes() == b"x" * 1500
    assert ebb(here, "data", "get", "data/set/labels")[1] == f"{here}/data/set/labels -> labels: 1 file, 1 B\n"


def test_json_has_these_fields(here: Path) -> None:
    code, out, _ = ebb(here, "data", "put", "set", "data/", "-o", "json")
    assert (code, json.loads(out)) == (
        0,
        {"source": "set", "target": f"{here}/data/set", "files": 2, "size": 1501, "there_already": 0, "left_out": []},
    )
    listed = json.loads(ebb(here, "data", "ls", "data/set", "-o", "json")[1])
    assert listed["path"] == f"{here}/data/set"
    assert [set(one) for one in listed["entries"]] == [{"name", "kind", "size", "modified_ns"}] * 2
    volumes = json.loads(ebb(here, "data", "ls", "-o", "json")[1])
    assert [set(one) for one in volumes["volumes"]] == [{"name", "path", "read_only", "total", "free"}] * 3
    assert json.loads(ebb(here, "data", "rm", "data/set/labels", "-o", "json")[1]) == {"removed": f"{here}/data/set/labels"}


def test_the_volumes_fit_a_terminal(here: Path) -> None:
    code, out, _ = ebb(here, "data", "ls")
    assert (code, [line.split()[0] for line in out.splitlines()]) == (0, ["NAME", "data", "output", "sets"])
    assert "read-only" in out.splitlines()[3]
    assert max(map(len, out.splitlines())) <= 80


def test_what_is_left_out_is_told(here: Path) -> None:
    (here / "set" / "out").symlink_to(here)
    assert ebb(here, "data", "put", "set", "data/set")[2] == "skipped, as it is a link, not a regular file, or gone: set/out\n"


def test_names_that_are_no_text_are_left_out_and_can_be_printed(here: Path) -> None:
    (here / "set" / "caf\udce9").write_bytes(b"x")
    code, out, err = ebb(here, "data", "put", "set", "data/set")
    assert (code, out) == (0, f"set -> {here}/data/set: 2 files, 1.5 kB\n")
    assert "set/caf\ufffd" in err


def test_a_name_that_is_no_text_removes_nothing_else(here: Path) -> None:
    ebb(here, "data", "put", "set", "data/x")
    code, _, err = ebb(here, "data", "rm", "-r", "data/x\udcff")
    assert (code, "is no UTF-8 text: rename the file" in " ".join(err.split())) == (2, True)
    assert (here / "data" / "x" / "labels").exists()


def test_removing_a_folder_needs_a_word(here: Path) -> None:
    ebb(here, "data", "put", "set", "data/set")
    code, _, err = ebb(here, "data", "rm", "data/set")
    assert (code, "say --recursive" in err) == (2, True)
    assert ebb(here, "data", "rm", "-r", "data/set") == (0, f"{here}/data/set is removed.\n", "")
    assert not (here / "data" / "set").exists()


def test_outputs_of_a_job(here: Path) -> None:
    folder = here / "output" / "elastic-job" / "digits-uid-digi"
    (folder / "checkpoints").mkdir(parents=True)
    (folder / "checkpoints" / "1.pt").write_bytes(b"w" * 2_500_000)
    code, out, err = ebb(here, "outputs", "digits")
    assert (code, out.splitlines()[1].split()[:2], err) == (0, ["checkpoints/", "folder"], f"{folder}\n")
    assert ebb(here, "outputs", "digits", "checkpoints")[1].splitlines()[1].split()[:3] == ["1.pt", "2.5", "MB"]
    assert ebb(here, "outputs", "get", "digits")[1] == f"{folder} -> digits: 1 file, 2.5 MB\n"
    assert ebb(here, "outputs", "get", "digits", "checkpoints/1.pt", "w.pt")[1] == (
        f"{folder}/checkpoints/1.pt -> w.pt: 1 file, 2.5 MB\n"
    )
    assert (here / "w.pt").read_bytes() == (here / "digits" / "checkpoints" / "1.pt").read_bytes() == b"w" * 2_500_000


def test_a_bar_fits_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    told = io.StringIO()
    console = Console(file=told, force_terminal=True, width=80, color_system=None)
    monkeypatch.setattr("ebb.cli.terminal.make_console", lambda *, stderr: console)
    with progress_bar() as show:
        show.announce(1000, 123_456_789_012)
        show.moved(23_456_789_012)
    lines = [re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", line) for line in re.split(r"[\r\n]", told.getvalue())]
    assert any("1000 files" in line and "23.5/123.5 GB" in line for line in lines), lines
    assert max(map(len, lines)) <= 80


REFUSED = {
    "no such file": (("data", "put", "none", "data/x"), 4, "none is not there on this machine"),
    "no such volume": (("data", "put", "set", "/etc"), 2, "path '/etc' is on no volume of the platform"),
    "read-only": (("data", "put", "set", "sets/x"), 2, "is on the read-only volume sets: use data/... or output/..."),
    "nothing there": (("data", "get", "data/none"), 4, "data/none is not there"),
    "up": (("data", "ls", "data/.."), 2, "it may not hold `..`"),
    "a volume": (("data", "rm", "-r", "data"), 2, "is a whole volume"),
    "no job": (("outputs", "other"), 4, "no job named 'other' in elastic-job. There are: digits."),
    "too many words": (
        ("outputs", "get", "digits", "a", "b", "c"),
        2,
        "'c' is too much: use `ebb outputs JOB [PATH]`",
    ),
    "out of the folder": (("outputs", "digits", "../x"), 2, "name what is in the job's folder"),
}


@pytest.mark.parametrize(("words", "code", "sentence"), REFUSED.values(), ids=REFUSED)
def test_misuse(here: Path, words: tuple[str, ...], code: int, sentence: str) -> None:
    found, out, err = ebb(here, *words)
    assert (found, out) == (code, "")
    assert sentence in " ".join(err.split()), err
    assert err.startswith("ebb: ")


def test_ctrl_c_says_that_nothing_is_lost(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("ebb.cli.verbs.data.call", interrupt)
    code, _, err = ebb(here, "data", "put", "set", "data/set")
    assert (code, "what was transferred is kept, and the same command resumes from there" in err) == (130, True)


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (1_500_000, "1.5 MB"), (2 * 10**9, "2.0 GB"), (10**13, "10.0 TB")],
)
def test_sizes(count: int, text: str) -> None:
    assert size(count) == text
