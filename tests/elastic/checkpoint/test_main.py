"""python -m ebb.elastic.checkpoint inspect|verify."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from ebb.elastic.checkpoint.__main__ import main
from ebb.elastic.checkpoint.state import dump
from tests.elastic.checkpoint.making import claimed, save, state
from tests.elastic.checkpoint.test_damage import flip


@pytest.fixture
def job(tmp_path: Path) -> Path:
    place, fence = claimed(tmp_path, keep=2)
    for step, score in ((10, 71.5), (20, 60.0), (30, None)):
        place.save(dump(state(step)), fence, step=step, score=score)
    place.write(dump(state(40)), generation=1, step=40)
    (tmp_path / "checkpoints/g00001-s00000050-r0.pt").write_bytes(b"half")
    return tmp_path


def test_the_table(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(job)]) == 0
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.split() == ["NAME", "STATE", "MB", "WRITTEN", "SCORE", "CONFIGURATION"]
    assert [(line.split()[0], line.split()[1], line.split()[-1]) for line in lines] == [
        ("g00001-s00000050-r0", "leftover", "-"),
        ("g00001-s00000040-r0", "candidate", lines[1].split()[-1]),
        ("g00001-s00000030-r0", "committed", "newest"),
        ("g00001-s00000020-r0", "committed", lines[3].split()[-1]),
        ("g00001-s00000010-r0", "committed", "best"),
    ]


def test_json_for_programs(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(job / "checkpoints"), "-o", "json"]) == 0
    newest = json.loads(capsys.readouterr().out)["checkpoints"][2]
    assert (newest["name"], newest["newest"], newest["problem"]) == ("g00001-s00000030-r0", True, None)


def test_a_flipped_bit_is_seen_by_verify_alone(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flip(job / "checkpoints/g00001-s00000030-r0.pt")
    assert [main(["inspect", str(job)]), main(["verify", str(job)])] == [0, 1]
    assert "does not have the sha256 of its manifest" in capsys.readouterr().out


def test_nothing_to_go_on_from(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save(tmp_path)
    assert main(["verify", str(tmp_path)]) == 3
    assert capsys.readouterr().out.startswith("no checkpoints in")
    save(tmp_path, 10)
    flip(tmp_path / "checkpoints/g00002-s00000010-r0.json")
    assert main(["inspect", str(tmp_path)]) == 3


def test_no_such_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(tmp_path / "nowhere")]) == 2
    assert "there is no folder" in capsys.readouterr().err


def test_it_is_a_program_that_does_without_torch(job: Path) -> None:
    code = "import sys; from ebb.elastic.checkpoint.__main__ import main; main(sys.argv[1:]); assert 'torch' not in sys.modules"
    for command in (["-c", code], ["-m", "ebb.elastic.checkpoint"]):
        ran = subprocess.run([sys.executable, *command, "verify", str(job)], capture_output=True, text=True, check=False)
        assert (ran.returncode, ran.stderr) == (0, "")
