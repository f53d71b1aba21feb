"""The launcher's own pipes: all that it and its workers write is in the file and on its stdout, and all of it before it ends."""

import os
import re
import select
import subprocess
import sys
from pathlib import Path

import pytest

STAMPED = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z) (\S+) (.*)")


def program(text: str) -> str:
    """A process that has its pipes, without torch."""
    head = "import os, sys, threading\nfrom ebb.elastic.launch.logs import LogPipes\npipes = LogPipes.of(os.environ)\n"
    return f"{head}{text}\npipes.close()\n"


def environment_of(folder: Path, **environment: str) -> dict[str, str]:
    given = {"EBB_OUTPUT_DIR": str(folder), "EBB_WORKER_INDEX": "3", "EBB_POD_UID": "uid-1", **environment}
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("EBB_", "KUBERNETES_"))}
    return {**kept, **given}


def run(folder: Path, text: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    command, given = [sys.executable, "-c", program(text)], environment_of(folder, **environment)
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True, env=given)


def stored(folder: Path) -> list[tuple[str, str]]:
    """(tag, text) of each line on the volume, in order."""
    found = []
    for part in sorted((folder / "logs").glob("worker-*/*.log")):
        for line in part.read_text().splitlines():
            match = STAMPED.fullmatch(line)
            assert match, line
            found.append((match[2], match[3]))
    return found


def test_what_the_launcher_says_is_in_both_places(tmp_path: Path) -> None:
    done = run(tmp_path, "print('out')\nprint('err', file=sys.stderr)\nos.system('echo child')\nos.write(1, b'raw')")
    assert (done.stdout, done.stderr) == ("out\nchild\nraw\n", "err\n") or done.stdout == "child\nraw\nout\n"
    assert sorted(stored(tmp_path)) == [("-.-.err", "err"), ("-.-.out", "child"), ("-.-.out", "out"), ("-.-.out", "raw")]
    (part,) = (tmp_path / "logs" / "worker-3").iterdir()
    assert re.fullmatch(r"\d{8}T\d{6}-\d{9}Z\.uid-1\.000000\.log", part.name)


FOUR_RANKS = """
def write(rank):
    with open(pipes.pipe(f"{rank}.{rank}.out", 1), "wb", buffering=0) as file:
        for number in range(5000):
            file.write(b"rank %d " % rank)
            file.write(b"line %d\\n" % number)
ranks = [threading.Thread(target=write, args=(rank,)) for rank in range(4)]
for each in ranks: each.start()
for each in ranks: each.join()
"""


def test_no_line_of_four_ranks_is_split_lost_or_out_of_order(tmp_path: Path) -> None:
    done = run(tmp_path, FOUR_RANKS)
    for text in ([f"{tag} {text}" for tag, text in stored(tmp_path)], [f". {line}" for line in done.stdout.splitlines()]):
        assert len(text) == 20_000
        for rank in range(4):
            own = [line.partition(" ")[2] for line in text if f" rank {rank} " in line]
            assert own == [f"rank {rank} line {number}" for number in range(5000)]
    assert all(tag == f"{text.split()[1]}.{text.split()[1]}.out" for tag, text in stored(tmp_path))


def test_half_a_line_of_a_worker_that_is_gone_is_not_glued_to_the_next(tmp_path: Path) -> None:
    text = """
with open(pipes.pipe("0.0.out", 1), "wb") as file: file.write(b"half")
pipes.renew()
with open(pipes.pipe("0.0.out", 1), "wb") as file: file.write(b"next\\n")
"""
    run(tmp_path, text)
    assert stored(tmp_path) == [("0.0.out", "half"), ("0.0.out", "next")]


@pytest.mark.parametrize(
    ("environment", "files"),
    [
        pytest.param({"EBB_OUTPUT_DIR": ""}, False, id="no-job"),
        pytest.param({"EBB_POD_UID": "", "KUBERNETES_SERVICE_HOST": "10.0.0.1"}, False, id="a-pod-that-cannot-be-told-apart"),
        pytest.param({"EBB_POD_UID": ""}, True, id="no-pod"),
    ],
)
def test_where_there_is_a_file(environment: dict[str, str], files: bool, tmp_path: Path) -> None:
    assert run(tmp_path, "print('a')", **environment).stdout == "a\n"
    assert [text for _, text in stored(tmp_path)] == ["a"] * files


def test_a_volume_that_cannot_be_written_is_said_once_and_ends_nothing(tmp_path: Path) -> None:
    (tmp_path / "logs").touch()
    done = run(tmp_path, "for number in range(100): print(number)")
    assert done.stdout.split() == [str(number) for number in range(100)]
    first, last = done.stderr.splitlines()
    assert "the log on the output volume cannot be written" in first
    assert "100 lines are not on the output volume" in last


def test_a_stdout_that_nobody_reads_any_more_does_not_stop_the_file(tmp_path: Path) -> None:
    run(tmp_path, "reader, writer = os.pipe()\nos.close(reader)\nos.dup2(writer, pipes._console[1])\nprint('a')")
    assert stored(tmp_path) == [("-.-.out", "a")]


BAR = """
os.write(1, b"\\r 10%")
sys.stdin.readline()
os.write(1, b"\\r 20%\\n")
"""


def test_a_terminal_has_a_progress_bar_while_it_moves(tmp_path: Path) -> None:
    master, terminal = os.openpty()
    with subprocess.Popen(
        [sys.executable, "-c", program(BAR)],
        stdin=subprocess.PIPE,
        stdout=terminal,
        stderr=subprocess.DEVNULL,
        env=environment_of(tmp_path),
    ) as process:
        os.close(terminal)
        assert process.stdin is not None
        assert select.select([master], [], [], 30)[0], "before its line ends"
        assert os.read(master, 100) == b"\r 10%"
        process.stdin.write(b"\n")
        process.stdin.close()
        assert process.wait(30) == 0
    assert os.read(master, 100) == b"\r 20%\r\n"
    os.close(master)
    (part,) = (tmp_path / "logs" / "worker-3").iterdir()
    assert part.read_bytes().endswith(b" -.-.out \r 10%\r 20%\n")
    assert part.read_bytes().count(b"\n") == 1


def test_where_lines_are_kept_a_bar_is_one_line(tmp_path: Path) -> None:
    """Of two ranks, none is torn by the other's."""
    text = """
bars = [open(pipes.pipe(f"{rank}.{rank}.out", 1), "wb", buffering=0) for rank in range(2)]
for number in range(50):
    for rank, bar in enumerate(bars): bar.write(b"\\r%d:%d" % (rank, number))
for bar in bars: bar.write(b"\\n")
"""
    done = subprocess.run([sys.executable, "-c", program(text)], stdout=subprocess.PIPE, env=environment_of(tmp_path), check=True)
    bars = [b"".join(b"\r%d:%d" % (rank, number) for number in range(50)) for rank in range(2)]
    assert sorted(done.stdout.split(b"\n")) == [b"", *bars]


SCRIPT = """
import os, sys
rank = os.environ["RANK"]
for number in range(50):
    print(f"rank {rank} line {number}", file=sys.stderr if number % 2 else sys.stdout)
os.system(f"echo rank {rank} child")
"""


@pytest.mark.e2e
@pytest.mark.parametrize("module", [False, True], ids=["script", "module"])
def test_the_ranks_of_a_real_launcher_are_told_apart(module: bool, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(SCRIPT)
    what = ["-m", "program"] if module else [str(tmp_path / "program.py")]
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-m", "ebb.elastic.launch", "--standalone", "--nproc-per-node=2", *what],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
        env={**os.environ, "EBB_OUTPUT_DIR": str(tmp_path / "out"), "OMP_NUM_THREADS": "1", "PYTHONPATH": path},
    )
    lines = stored(tmp_path / "out")
    for rank in range(2):
        own = f"rank {rank}"
        assert [text for tag, text in lines if tag == f"{rank}.{rank}.out"] == [
            *(f"{own} line {number}" for number in range(0, 50, 2)),
            f"{own} child",
        ]
        assert [text for tag, text in lines if tag == f"{rank}.{rank}.err"] == [f"{own} line {n}" for n in range(1, 50, 2)]
    assert any(tag == "-.-.err" and "[launcher" in text for tag, text in lines)
    assert sorted(done.stdout.splitlines() + done.stderr.splitlines()) == sorted(text for _, text in lines)
