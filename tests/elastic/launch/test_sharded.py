"""A sharded model under a plain launcher, as `ebb run` starts it: a rank that is killed, a notice, and other numbers of ranks."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ebb.elastic.contract import EXIT_RECLAIMED
from tests.elastic.machines import kill_with_children, until, workers

GRACE_SECONDS = 30  # a pod's in Kubernetes


@contextmanager
def launched(folder: Path, processes: int) -> Iterator["subprocess.Popen[bytes]"]:
    program = ["-m", "trainer.text.train", "--data", str(folder), "--output", str(folder / "out"), "--shard", "--recovery=memory"]
    program += [
        "--size=tiny",
        "--context=32",
        "--global-batch=6",
        "--log-every=1",
        "--workers=0",
        "--epochs=200",
        "--ledger",
    ]
    program += ["--min-step-seconds=0.05", "--checkpoint-min-seconds=300", "--snapshot-overhead=1000"]
    command = [sys.executable, "-m", "ebb.elastic.launch", "--standalone", f"--nproc-per-node={processes}", *program]
    with (folder / "launcher.log").open("ab") as log:
        launcher = subprocess.Popen(
            command, stdout=log, stderr=log, env={**os.environ, "OMP_NUM_THREADS": "1"}, start_new_session=True
        )
    try:
        yield launcher
    finally:
        kill_with_children(launcher)


def steps(folder: Path, generation: int) -> list[int]:
    path = folder / "out" / "metrics.jsonl"
    text = path.read_text() if path.exists() else ""
    lines: list[Any] = [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]
    return [line["step"] for line in lines if line["generation"] == generation]


@pytest.mark.e2e
def test_a_launcher_starts_a_sharded_model_again_and_leaves_in_time(tmp_path: Path) -> None:
    """Two ranks, of which one is killed, go on from a snapshot and end at a notice; three go on from where they were."""
    (tmp_path / "train.bin").write_bytes(bytes(range(97)) * 20)
    (tmp_path / "val.bin").write_bytes(bytes(range(97)))
    checkpoints = tmp_path / "out" / "checkpoints"

    def log() -> str:
        return (tmp_path / "launcher.log").read_text()

    with launched(tmp_path, 2) as launcher:
        until("two snapshots", lambda: "of each rank" in log() and len(steps(tmp_path, 1)) > 3)
        os.kill(workers(launcher.pid)[1], signal.SIGKILL)
        until("the ranks that it starts in their place", lambda: len(steps(tmp_path, 2)) > 3)
        assert steps(tmp_path, 1)[-1] - 2 < steps(tmp_path, 2)[0], log()
        assert "generation 1, from a snapshot in the memory of ranks 0, 1" in log()
        assert not list(checkpoints.glob("g00001-*.json")), "there was no checkpoint"
        os.kill(launcher.pid, signal.SIGTERM)
        assert launcher.wait(GRACE_SECONDS) == EXIT_RECLAIMED, log()
    done = steps(tmp_path, 2)[-1]
    assert (checkpoints / f"g00002-s{done:08}-r0.json").exists(), "what was done is kept"
    assert len(list(checkpoints.glob(f"g00002-s{done:08}-r0.part*"))) == 2
    with launched(tmp_path, 3) as launcher:
        until("steps of three ranks", lambda: len(steps(tmp_path, 3)) > 3)
        os.kill(launcher.pid, signal.SIGTERM)
        assert launcher.wait(GRACE_SECONDS) == EXIT_RECLAIMED, log()
    assert steps(tmp_path, 3)[0] == done + 1
    assert log().count("meeting the other machines of the job") == 3, "no meeting is in vain"
