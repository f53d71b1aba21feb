"""`ebb tensorboard`: the user's own program over files that come. Which ones come: tests of ebb/client/files/event_files."""

import asyncio
import importlib.util
import json
import os
import signal
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from ebb.api.contract import ENV_OUTPUT_DIR
from ebb.cli.app import app
from tests.cli.program import EBB, MAIN
from tests.cli.world import elastic_job
from tests.client.files.test_outputs import output_volume, written
from tests.reached import reached, session

__all__ = ["output_volume"]
EVENTS = "tensorboard/events.out.tfevents.0000000001.digits-worker-0"


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tensorboard on the PATH that says in a file how it was called and what it saw, and does what $THEN says."""
    folder = tmp_path / "bin"
    folder.mkdir()
    script = folder / "tensorboard"
    seen = '{ echo $$; echo "$@"; find "$2" -type f; }'
    script.write_text(f"#!/bin/sh\n{seen} > {folder}/new; mv {folder}/new {folder}/seen\n${{THEN:-exit 0}}\n")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return folder / "seen"


def invoke(tmp_path: Path, *words: str) -> Result:
    jobs = (elastic_job(), elastic_job("new"))
    return CliRunner().invoke(app, ["tensorboard", *words], obj=session(tmp_path, *jobs))


def test_tensorboard_runs_on_what_has_come(tmp_path: Path, output_volume: Path, program: Path) -> None:
    written(output_volume, **{EVENTS: "one"})
    result = invoke(tmp_path, "digits", "new", "digits", "--port", "6123")
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == "new has written no event files so far: they are shown when they come.\n"
    _, words, *files = program.read_text().splitlines()
    folder = Path(words.split()[1])
    assert words == f"--logdir {folder} --reload_interval 5 --port 6123"
    assert [Path(file).relative_to(folder).as_posix() for file in files] == [f"digits/{Path(EVENTS).name}"]
    assert not folder.exists()


def test_a_folder_that_is_kept(tmp_path: Path, output_volume: Path, program: Path) -> None:
    written(output_volume, **{EVENTS: "one"})
    kept = tmp_path / "a" / "kept"
    result = invoke(tmp_path, "digits", "--keep", str(kept), "-o", "json")
    assert json.loads(result.stdout) == {"logdir": str(kept), "files": {"digits": 1}}
    assert (kept / "digits" / Path(EVENTS).name).read_text() == "one"


def test_a_folder_that_cannot_be_made(tmp_path: Path, program: Path) -> None:
    (tmp_path / "file").write_text("")
    result = invoke(tmp_path, "digits", "--keep", str(tmp_path / "file"))
    assert (result.exit_code, "cannot be made" in result.stderr) == (2, True)
    assert not program.exists()


def test_without_tensorboard_it_says_how_to_install_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    result = invoke(tmp_path, "digits")
    assert result.exit_code == 2
    assert "tensorboard is not installed on this machine: install it with `pip install tensorboard`." in result.stderr


def test_the_package_alone_will_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ebb.cli.verbs.tensorboard import find_tensorboard

    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: object())
    assert find_tensorboard()[1:] == ["-m", "tensorboard.main"]


def test_an_error_of_tensorboards_is_passed_on(
    tmp_path: Path, output_volume: Path, program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THEN", "exit 3")
    result = invoke(tmp_path, "digits")
    assert (result.exit_code, "tensorboard ended with exit code 3" in result.stderr) == (1, True)


def test_a_job_that_never_was(tmp_path: Path, output_volume: Path, program: Path) -> None:
    result = invoke(tmp_path, "never")
    assert (result.exit_code, "no job named 'never'" in result.stderr) == (4, True)
    assert not program.exists()


async def test_ctrl_c_ends_both_and_leaves_nothing(tmp_path: Path, program: Path) -> None:
    job = elastic_job()
    container = job["spec"]["replicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]
    container["env"] = [{"name": ENV_OUTPUT_DIR, "value": str(tmp_path / "output" / "digits")}]
    async with reached(tmp_path, job) as kube:
        temporary = tmp_path / "tmp"
        temporary.mkdir()
        environment = {
            **os.environ, "EBB_KUBECONFIG": str(kube.kubeconfig), "THEN": "exec sleep 100", "TMPDIR": str(temporary)
        }  # fmt: skip
        err, its = os.pipe()
        started = EBB.start(*MAIN, "tensorboard", "digits", env=environment, stderr=its)
        os.close(its)
        async with asyncio.timeout(20):
            while not program.exists():  # noqa: ASYNC110 - another process writes it
                await asyncio.sleep(0.02)
        pid = int(program.read_text().split()[0])
        started.send_signal(signal.SIGINT)
        assert await asyncio.to_thread(started.wait) == 130
    with os.fdopen(err) as file:
        assert file.read().splitlines()[-1] == "ebb: TensorBoard is closed; jobs continue."
    assert not Path(f"/proc/{pid}").exists()
    assert list(temporary.iterdir()) == []
