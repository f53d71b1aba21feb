"""The edge of a program: a sentence for what a user can cause, a trace for a bug, always the right code; and an end."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import torch

from ebb import elastic
from ebb.elastic.contract import EXIT_FINISHED, EXIT_HARDWARE, EXIT_PROGRAM_FAILED, EXIT_RECLAIMED
from ebb.elastic.data import DataError
from ebb.elastic.runtime.config import resolve
from ebb.elastic.runtime.main import run_program
from tests.elastic.runtime.ranks import together

Work = Callable[[elastic.RunConfig, elastic.Run], None]


def parse(arguments: list[str], _: Mapping[str, str]) -> elastic.RunConfig:
    return resolve({}, output=arguments[0], global_batch=4, epochs=1, workers=0)


def fine(_: elastic.RunConfig, __: elastic.Run) -> None:
    pass


def data_is_gone(_: elastic.RunConfig, __: elastic.Run) -> None:
    raise DataError("the data is gone")


def bug(_: elastic.RunConfig, __: elastic.Run) -> None:
    raise KeyError("lr")


def gpu_fails(_: elastic.RunConfig, __: elastic.Run) -> None:
    raise RuntimeError("CUDA error: uncorrectable ECC error encountered\nCUDA kernel errors might be asynchronously reported")


def hears_a_notice(_: elastic.RunConfig, run: elastic.Run) -> None:
    model = run.distribute(torch.nn.Linear(1, 1))
    run.register_state(model=model, optimizer=torch.optim.SGD(model.parameters(), 0.1))
    for step in run.steps(run.loader(torch.ones(9, 1))):
        os.kill(os.getpid(), signal.SIGTERM)
        run._notice.wait(60)  # the side thread hears it
        for batch in step:
            step.backward(model(batch).sum())


@pytest.fixture
def error_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The one in which torch's agent looks for an exception."""
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(tmp_path / "error.json"))
    return tmp_path / "error.json"


@pytest.mark.parametrize(
    ("work", "code", "words"),
    [
        pytest.param(fine, EXIT_FINISHED, "", id="fine"),
        pytest.param(data_is_gone, EXIT_PROGRAM_FAILED, "error: the data is gone\n", id="a-sentence"),
        pytest.param(bug, EXIT_PROGRAM_FAILED, "KeyError: 'lr'", id="a-bug-with-its-trace"),
        pytest.param(gpu_fails, EXIT_HARDWARE, "CUDA error: uncorrectable ECC error encountered", id="a-gpu-that-failed"),
    ],
)
def test_how_it_ends(
    work: Work,
    code: int,
    words: str,
    error_file: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run_program([str(error_file.parent)], parse, work) == code
    said = capsys.readouterr().err
    assert words in said
    assert ("Traceback" in said) == (work in (bug, gpu_fails))
    assert error_file.exists() == (work is gpu_fails), "the launcher says how the machine failed"


def told(output: Path) -> int:
    return run_program([str(output)], parse, hears_a_notice)


def test_a_notice_has_its_code(tmp_path: Path) -> None:
    """In a process of its own: a notice also sets the time at which it ends in any case."""
    assert together(told, 1, tmp_path) == [EXIT_RECLAIMED]


def test_a_wrong_setting(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_program([], lambda _, environment: resolve(environment, batch=3), fine) == EXIT_PROGRAM_FAILED
    assert capsys.readouterr().err.startswith("error: there is no setting 'batch'")


ENDS = """
import sys, threading
from ebb.elastic.runtime.main import end_process
threading.Thread(target=threading.Event().wait).start()  # an interpreter that is torn down waits for it
print("the last word")
end_process(int(sys.argv[1]))
"""


@pytest.mark.e2e
def test_a_process_ends_whatever_waits_in_it() -> None:
    done = subprocess.run([sys.executable, "-c", ENDS, "3"], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (3, "the last word\n"), done.stderr


@pytest.mark.e2e
def test_a_text_training_under_the_launcher_ends(tmp_path: Path) -> None:
    """A worker that the launcher forks must not end behind torch's back: with os._exit(0) the launcher would wait for ever."""
    for part in ("train", "val"):
        (tmp_path / f"{part}.bin").write_bytes(bytes(range(256)) * 20)
    command = [sys.executable, "-m", "ebb.elastic.launch", "--standalone", "--nproc-per-node=2", "-m", "trainer.text.train"]
    settings = ["--data", str(tmp_path), "--output", str(tmp_path / "out"), "--size", "tiny", "--global-batch", "16"]
    with subprocess.Popen(
        [*command, *settings, "--workers", "0"], env={**os.environ, "OMP_NUM_THREADS": "1"}, stderr=subprocess.PIPE, text=True
    ) as launcher:
        watch = threading.Timer(120, launcher.kill)
        watch.start()
        said = launcher.stderr.read() if launcher.stderr else ""
        assert launcher.wait() == EXIT_FINISHED, said
        watch.cancel()
    assert json.loads((tmp_path / "out/result.json").read_text())["step"] == 5


def test_no_module_of_torch_is_left_to_the_first_step() -> None:
    """A newcomer takes its first step with all others, who would wait for its imports."""
    program = """
import sys
import torch
from ebb import elastic

elastic.Run  # as a program does that uses it
before = {name for name in sys.modules if name.startswith("torch.")}
network = torch.nn.Linear(2, 1)
optimizer = torch.optim.Adam(network.parameters())
network(torch.ones(1, 2)).sum().backward()
optimizer.step()
print(sum(name.startswith("torch._dynamo") for name in set(sys.modules) - before))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == ["0"]
