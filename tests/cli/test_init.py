"""`ebb init`: its questions, what it writes, and that `ebb submit` takes it."""

import json
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner, Result

from ebb.cli.app import app
from ebb.cli.verbs import init as verb
from tests.cli.world import FakeKube, platform_map, session


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verb, "is_interactive", lambda: True)


def ebb(*words: str, answers: str | None = None) -> Result:
    return CliRunner().invoke(
        app, list(words), obj=session(FakeKube(platform_map())), input=answers, env={"COLUMNS": "80", "EBB_USER": "ada"}
    )


def test_all_defaults_make_a_job_file_that_is_taken(folder: Path) -> None:
    (folder / "train.py").touch()
    (folder / "requirements.txt").touch()
    result = ebb("init", "--yes")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == (
        "requirements.txt goes along, and is installed before the workers start.\n"
        "ebb.yaml is written. Look what it would start: ebb submit -f ebb.yaml --dry-run; start it: ebb submit -f ebb.yaml\n"
    )
    assert (folder / "ebb.yaml").read_text() == (
        "# A job of Ebb: `ebb submit -f ebb.yaml`. Flags win over it; `ebb submit --help` lists them.\n"
        "command: python train.py\n"
        "code: .  # this folder goes along, less what .gitignore ignores; requirements.txt is installed\n"
        "gpus: 1\n"
    )
    sent = ebb("submit", "-f", "ebb.yaml", "--dry-run")
    assert sent.exit_code == 0, sent.stderr
    assert "ebb.dev/code" in yaml.safe_load(sent.stdout)["metadata"]["annotations"]


@pytest.mark.usefixtures("terminal")
def test_answers_are_written_and_wrong_ones_asked_again(folder: Path) -> None:
    (folder / "a.py").touch()
    (folder / "b.py").touch()
    result = ebb("init", "-f", "exp.yaml", answers="python c.py\npython b.py --tag 'x: 1'\nno\n4\ndigits\n-1\n$5\n12.5\n")
    assert result.exit_code == 0, result.output
    assert yaml.safe_load((folder / "exp.yaml").read_text()) == {
        "command": "python b.py --tag 'x: 1'", "code": ".", "gpus": 4, "data": "digits", "max-cost": 12.5,
    }  # fmt: skip
    assert f"program 'c.py' is not in {folder}" in result.stderr
    for said in ("'no' is not a whole number of GPUs, 1 or more", "'-1' is not an amount of USD, more than 0", "'$5' is not an"):
        assert said in result.stderr
    assert ebb("submit", "-f", "exp.yaml", "--dry-run").exit_code == 0


@pytest.mark.usefixtures("terminal")
def test_enter_takes_each_default_that_is_shown(folder: Path) -> None:
    (folder / "main.py").touch()
    (folder / "other.py").touch()
    result = ebb("init", "-o", "json", answers="\n\n\n\n")
    assert json.loads(result.stdout) == {"file": "ebb.yaml", "next": "ebb submit -f ebb.yaml"}
    for question in ("as you would start it here [python main.py]:", "GPUs [1]:", "volume [none]:", "in USD [none]:"):
        assert question in result.stderr
    assert yaml.safe_load((folder / "ebb.yaml").read_text()) == {"command": "python main.py", "code": ".", "gpus": 1}


@pytest.mark.usefixtures("terminal")
def test_a_program_of_the_image_takes_no_folder_along(folder: Path) -> None:
    assert ebb("init", answers="-m trainer --data /mnt/data/digits\n\n\n\n").exit_code == 0
    assert yaml.safe_load((folder / "ebb.yaml").read_text()) == {"command": "-m trainer --data /mnt/data/digits", "gpus": 1}


@pytest.mark.usefixtures("terminal")
def test_the_end_of_the_answers_writes_nothing(folder: Path) -> None:
    result = ebb("init", answers="-m trainer\n")
    assert (result.exit_code, result.stderr.endswith("\nNothing was written.\n")) == (130, True)
    assert list(folder.iterdir()) == []


def test_a_pipe_is_told_of_yes() -> None:
    result = ebb("init", answers="x\n")
    assert (result.exit_code, result.stderr) == (
        2, "ebb: yes is missing: this is no terminal to ask questions on, so take all defaults with --yes.\n"
    )  # fmt: skip


def test_a_file_that_is_there_is_kept(folder: Path) -> None:
    (folder / "train.py").touch()
    (folder / "ebb.yaml").write_text("mine")
    result = ebb("init", "--yes")
    assert (result.exit_code, result.stderr) == (
        2, "ebb: file 'ebb.yaml' is there already: edit it, remove it, or name another one with -f.\n"
    )  # fmt: skip
    assert (folder / "ebb.yaml").read_text() == "mine"


@pytest.mark.parametrize("names", [[], ["a.py", "b.py"]], ids=["none", "two"])
def test_no_program_is_guessed(names: list[str], folder: Path) -> None:
    for name in names:
        (folder / name).touch()
    result = ebb("init", "--yes")
    assert (result.exit_code, f"ebb: program: {folder} holds none that is clearly it" in result.stderr) == (2, True)
    assert not (folder / "ebb.yaml").exists()


@pytest.mark.usefixtures("terminal")
def test_a_folder_that_is_not_there_is_said() -> None:
    result = ebb("init", "-f", "nowhere/ebb.yaml", answers="-m trainer\n\n\n\n")
    sentence = "file 'nowhere/ebb.yaml' cannot be written: No such file or directory. Name another one with -f."
    assert (result.exit_code, result.stderr.endswith(f"ebb: {sentence}\n")) == (2, True)


def test_the_program_is_looked_for_beside_the_file(folder: Path) -> None:
    (folder / "jobs").mkdir()
    (folder / "jobs" / "train.py").touch()
    assert ebb("init", "--yes", "-f", "jobs/ebb.yaml").exit_code == 0
    assert ebb("submit", "-f", "jobs/ebb.yaml", "--dry-run").exit_code == 0
