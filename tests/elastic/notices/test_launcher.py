"""The whole way on one machine: a cloud's announcement, the launcher, its worker, a checkpoint, exit code 138."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ebb.elastic.contract import EXIT_RECLAIMED
from ebb.elastic.launch.settings import parse
from tests.elastic import images
from tests.elastic.machines import kill_with_children, until
from tests.metadata.clouds import AwsMetadata, serve


@pytest.fixture
def cloud() -> Iterator[AwsMetadata]:
    with serve(AwsMetadata()) as cloud:
        yield cloud


def start(cloud: AwsMetadata, output: Path, *more: str) -> "subprocess.Popen[bytes]":
    temporary = output / ("temporary" * 10)  # longer than a Unix socket's path may be
    temporary.mkdir()
    own = {"AWS_EC2_METADATA_SERVICE_ENDPOINT": cloud.address, "OMP_NUM_THREADS": "1", "TMPDIR": str(temporary)}
    with (output / "launcher.log").open("wb") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "ebb.elastic.launch", "--notices=aws", *more],
            stdout=log,
            stderr=log,
            env={**os.environ, **own},
            start_new_session=True,
        )


@pytest.mark.e2e
def test_a_machine_that_is_taken_back_leaves_with_a_checkpoint(cloud: AwsMetadata, tmp_path: Path) -> None:
    data, output = images.make(tmp_path / "images"), tmp_path / "output"
    output.mkdir()
    training = ["-m", "trainer", "--data", str(data), "--output", str(output), "--arch", "squeezenet1_1", "--image-size", "32"]
    training += ["--global-batch", "9", "--epochs", "400", "--log-every", "1", "--workers", "0", "--min-step-seconds", "0.05"]
    training += ["--checkpoint-min-seconds", "250"]  # only the wish brings one
    cloud.rebalance = {"noticeTime": cloud.stamp(0)}
    machine = start(cloud, output, "--standalone", *training)
    try:
        until(
            "some steps", lambda: (output / "metrics.jsonl").exists() and (output / "metrics.jsonl").read_text().count("\n") > 3
        )
        assert "AWS says that this machine may be taken back soon: the workers make a checkpoint soon and stay" in logs(output)
        until("the checkpoint", lambda: len(list((output / "checkpoints").glob("g*.json"))) == 1)
        cloud.action = {"action": "terminate", "time": cloud.stamp(118)}
        assert machine.wait(60) == EXIT_RECLAIMED
    finally:
        kill_with_children(machine)
    assert "AWS takes this machine back (terminate at " in logs(output)
    steps = (output / "metrics.jsonl").read_text().count("\n")
    assert list((output / "checkpoints").glob(f"g*-s{steps:08}-r0.json"))
    assert not list(output.glob("temporary*/ebb-notice-*"))  # the launcher cleaned up


@pytest.mark.e2e
def test_a_machine_that_waits_for_others_leaves_at_once(cloud: AwsMetadata, tmp_path: Path) -> None:
    cloud.action = {"action": "terminate", "time": cloud.stamp(118)}
    meeting = ["--nnodes=2:2", "--rdzv_backend=c10d", "--rdzv_endpoint=localhost:0", "--rdzv_id=lonely"]
    machine = start(cloud, tmp_path, *meeting, "-m", "trainer")
    try:
        assert machine.wait(60) == EXIT_RECLAIMED
    finally:
        kill_with_children(machine)


@pytest.mark.parametrize("words", ["--notices=ec2", "--notices"])
def test_a_wrong_choice_is_refused(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parse(["--standalone", words])
    assert ended.value.code != EXIT_RECLAIMED
    assert "--notices" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "variable", "expected"), [([], None, "auto"), ([], "gcp", "gcp"), (["--notices", "none"], "gcp", "none")]
)
def test_flag_variable_and_default(
    words: list[str], variable: str | None, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PET_NOTICES", raising=False)
    if variable:
        monkeypatch.setenv("PET_NOTICES", variable)
    settings = parse([*words, "-m", "program", "--notices", "of the program"])
    assert settings.notices == expected
    assert settings.training_script_args == ["--notices", "of the program"]


def logs(output: Path) -> str:
    return (output / "launcher.log").read_text()
