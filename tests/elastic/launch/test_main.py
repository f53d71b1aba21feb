"""The command: its help, what it refuses, and the exit codes of programs that run alone."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ebb.elastic.contract import EXIT_NO_PROGRAM
from tests.elastic.launch.wheels import pack
from tests.elastic.machines import until

pytestmark = pytest.mark.e2e
ROOT = Path(__file__).parents[3]


def launch(*arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "ebb.elastic.launch", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
    )


CUT_SHORT = """
import os, signal, sys
from ebb.elastic.launch import __main__ as launcher, node_agent
def launch(*_):
    try:
        os.kill(os.getpid(), signal.SIGTERM)
    except BaseException:  # as a library's own import does
        pass
    raise ImportError("cannot load module more than once per process")
node_agent.launch = launch
if sys.argv[1:] == ["quiet"]:
    os.kill = lambda *_: None
sys.exit(launcher.main(["-m", "x"]))
"""


@pytest.mark.parametrize(("words", "code"), [([], 138), (["quiet"], 1)])
def test_an_import_that_a_notice_cut_short_is_no_failure(words: list[str], code: int) -> None:
    done = subprocess.run([sys.executable, "-c", CUT_SHORT, *words], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == code, done.stderr
    assert ("left before the training" in done.stderr + done.stdout) == (code == 138)


@pytest.mark.parametrize("arguments", [[], ["--help"]], ids=["nothing", "help"])
def test_without_arguments_it_teaches(arguments: list[str]) -> None:
    done = launch(*arguments)
    assert done.returncode == 0
    assert "python -m ebb.elastic.launch --standalone" in done.stdout
    assert "usage: python -m ebb.elastic.launch" in done.stdout
    assert "--nproc-per-node" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        pytest.param(["--nnodes=0:2", "--rdzv_backend=etcd3", __file__], "min_nodes must be > 0", id="no-machines"),
        pytest.param(["--nproc-per-node=many", __file__], "Unsupported nproc_per_node value: many", id="processes"),
        pytest.param(["--nnodes=2", "--rdzv_backend=etcd3", __file__], "--rdzv_endpoint is missing", id="no-endpoint"),
        pytest.param(["--nnodes=2", "--rdzv_backend=zoo", "--rdzv_endpoint=a:1", __file__], "'zoo'", id="unknown-backend"),
    ],
)
def test_wrong_settings_are_a_sentence(arguments: list[str], words: str) -> None:
    done = launch(*arguments)
    assert done.returncode == 1
    assert words in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        pytest.param(["train.py"], "no file 'train.py' in {folder}, and no code came with the job: send its folder", id="a-file"),
        pytest.param(["-m", "no_such.train"], "no module 'no_such.train' in {folder}, and no code came", id="a-module"),
        pytest.param(["--no-python", "./run.sh"], "no program './run.sh' that may be run in {folder}", id="a-program"),
    ],
)
def test_a_program_that_is_not_there_has_a_code_of_its_own(
    arguments: list[str], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a job of two machines, of which the other one never comes: it is not waited for."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    done = launch("--nnodes=2", "--rdzv_backend=etcd3", "--rdzv_endpoint=127.0.0.1:1", *arguments)
    assert done.returncode == EXIT_NO_PROGRAM, done.stderr
    assert words.format(folder=tmp_path) in done.stderr
    assert "Traceback" not in done.stderr


def test_a_program_that_is_not_in_the_jobs_code(tmp_path: Path) -> None:
    sha = pack(tmp_path / "code.tar.gz", {"src/train.py": "print('ran')\n"})
    environment = {"EBB_CODE_ARCHIVE": str(tmp_path / "code.tar.gz"), "EBB_CODE_SHA256": sha}
    done = launch("--standalone", "train.py", **environment)
    assert done.returncode == EXIT_NO_PROGRAM, done.stderr
    assert "no file 'train.py' in the code that came with the job: name it as it is there" in done.stderr
    assert "ran\n" in launch("--standalone", "src/train.py", **environment).stdout
    assert "ran\n" in launch("--standalone", "-m", "src.train", **environment).stdout


@pytest.mark.parametrize(
    ("program", "code", "words"),
    [
        pytest.param("import sys; sys.exit(0)", 0, "", id="fine"),
        pytest.param("import sys; sys.exit(3)", 3, "failed with exit code 3; its last lines say why", id="its-code"),
        pytest.param("raise KeyError('lr')", 1, "failed with exit code 1: KeyError: 'lr': the job ends", id="its-exception"),
        pytest.param("import os; os.abort()", 134, "a worker was killed by signal 6: the job ends", id="a-signal-three-times"),
        pytest.param(
            "raise RuntimeError('CUDA error: uncorrectable ECC error encountered')",
            79,
            "a GPU of this machine failed: RuntimeError: CUDA error: uncorrectable ECC error encountered; the job goes on",
            id="a-gpu-that-failed",
        ),
        pytest.param("import os; os.kill(os.getpid(), 10)", 1, "killed by signal 10", id="not-a-reclaim"),
    ],
)
def test_a_script_alone(program: str, code: int, words: str, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(program + "\n")
    done = launch("--standalone", str(script))
    assert done.returncode == code, done.stderr
    assert words in done.stderr
    assert "ebb/elastic/launch" not in done.stderr, "the traceback is the script's own"


RUNS_OUT = """
import torch
from ebb import elastic
with elastic.start(global_batch=8, epochs=2, workers=0) as run:
    model = run.distribute(torch.nn.Linear(1, 1))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    run.register_state(model=model, optimizer=optimizer)
    for step in run.steps(run.loader(torch.ones(20, 1))):
        for batch in step:
            if len(batch) > 2:
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
            step.backward(model(batch).mean())
        optimizer.step()
        optimizer.zero_grad()
"""


def test_a_script_that_runs_out_of_memory_goes_on_with_smaller_micro_batches(tmp_path: Path) -> None:
    """Its loop catches nothing: each time a new process repeats the step, and --max-restarts is 0."""
    (tmp_path / "script.py").write_text(RUNS_OUT)
    done = launch("--standalone", str(tmp_path / "script.py"), EBB_OUTPUT_DIR=str(tmp_path / "output"))
    assert done.returncode == 0, done.stderr
    assert [line.partition(" (")[0] for line in done.stdout.splitlines() if "ran out" in line and "repeated" in line] == [
        f"rank 0: {before} samples at once ran out of memory on this machine's CPU: step 0 is repeated with {after} at most, and "
        "the same gradient"
        for before, after in ((8, 4), (4, 2))
    ]
    assert json.loads((tmp_path / "output" / "result.json").read_text())["step"] == 5


def launch_module(folder: Path, program: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    (folder / "wrong.py").write_text(program + "\n")
    path = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
    return launch("--standalone", *arguments, "-m", "wrong", PYTHONPATH=path)


IN_ORDER = """
import os, sys, time
from multiprocessing.util import Finalize
if os.environ["RANK"] == "1":
    Finalize(None, print, ("the other ended in order",), {"flush": True}, exitpriority=1)
"""


@pytest.mark.parametrize(
    "program",
    [
        pytest.param("os._exit(0)", id="both"),
        pytest.param("if os.environ['RANK'] == '0': os._exit(0)\ntime.sleep(0.5)", id="one-of-two"),
        pytest.param("if os.environ['RANK'] == '0': time.sleep(0.5); os._exit(0)", id="the-last-of-two"),
    ],
)
def test_a_module_may_end_without_a_word(program: str, tmp_path: Path) -> None:
    done = launch_module(tmp_path, IN_ORDER + program, "--nproc-per-node=2")
    assert done.returncode == 0, done.stderr
    assert ("the other ended in order" in done.stdout) is ("RANK" in program)


def test_a_module_that_ends_without_a_word_beside_one_that_fails(tmp_path: Path) -> None:
    program = "import os, time\nif os.environ['RANK'] == '0': os._exit(0)\ntime.sleep(0.5)\nraise KeyError('lr')"
    done = launch_module(tmp_path, program, "--nproc-per-node=2")
    assert done.returncode == 1, done.stderr
    assert "KeyError: 'lr': the job ends" in done.stderr


BOTH_END = """
import os, pathlib
if os.environ["RANK"] == "1":
    raise KeyError("lr")
again = pathlib.Path(__file__ + ".again")
code = 3 if again.exists() else 75  # not for ever
again.touch()
os._exit(code)
"""


def test_a_mistake_is_seen_beside_a_rank_that_has_lost_its_peer(tmp_path: Path) -> None:
    """torch names one of the forked processes that have failed since it looked, the first by rank: all began anew for ever."""
    done = launch_module(tmp_path, BOTH_END, "--nproc-per-node=2", "--monitor-interval=3")
    assert done.returncode == 1, done.stderr
    assert "KeyError: 'lr': the job ends" in done.stderr


SAVES_LONG = """
import os, pathlib, time
from ebb.elastic.notices.notice import install
notice, saved, saves = install(), pathlib.Path(__file__ + ".saved"), pathlib.Path(__file__ + ".saves")
if saved.exists():
    os._exit(0)
if os.environ["RANK"] == "0":
    with notice.saving():
        saves.touch()
        time.sleep(33)
        saved.touch()
while not saves.exists():
    time.sleep(0.01)
os._exit(75)
"""


def test_a_rank_that_saves_is_not_ended_beside_one_that_has_ended(tmp_path: Path) -> None:
    """torch gives it 30 s."""
    done = launch_module(tmp_path, SAVES_LONG, "--nproc-per-node=2")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("meeting the other machines") == 2, done.stderr


def test_a_module_alone_says_its_exception(tmp_path: Path) -> None:
    done = launch_module(tmp_path, "raise KeyError('lr')")
    assert done.returncode == 1, done.stderr
    assert "a worker failed with exit code 1: KeyError: 'lr': the job ends" in done.stderr
    assert "wrong.py" in done.stderr, "and its traceback"


@pytest.mark.parametrize("deaf", [False, True], ids=["once", "twice-where-a-worker-is-deaf"])
def test_ctrl_c_is_clean(deaf: bool, tmp_path: Path) -> None:
    """As a terminal does it: to the whole process group."""
    script, log = tmp_path / "script.py", tmp_path / "log"
    ignores = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" if deaf else ""
    script.write_text(f"{ignores}import time\nprint('runs', flush=True)\ntime.sleep(600)\n")
    with log.open("wb") as file:
        command = [sys.executable, "-m", "ebb.elastic.launch", "--standalone", str(script)]
        process = subprocess.Popen(command, stdout=file, stderr=file, start_new_session=True)
    until("it runs", lambda: "runs" in log.read_text())
    os.killpg(process.pid, signal.SIGINT)
    if deaf:
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(2)
        os.killpg(process.pid, signal.SIGINT)
    assert process.wait(20) == 130
    assert "Traceback" not in log.read_text()
