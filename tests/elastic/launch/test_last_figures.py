"""The last figures of a finished launcher, left for the platform."""

import json
from pathlib import Path

from ebb.elastic.contract import ENV_OUTPUT_DIR, ENV_POD_UID
from ebb.elastic.launch.last_figures import leave


def place(folder: Path, *lines: str) -> tuple[dict[str, str], Path]:
    (folder / "metrics.jsonl").write_text("".join(f"{line}\n" for line in lines))
    message = folder / "termination-log"
    message.touch()
    return {ENV_OUTPUT_DIR: str(folder), ENV_POD_UID: "uid"}, message


def test_the_last_line_is_left(tmp_path: Path) -> None:
    last = {"step": 47, "total_steps": 47, "loss": 0.25, "world_size": 2, "figures": {"acc": 1.0}}
    environment, message = place(tmp_path, '{"step": 40, "loss": 9}', json.dumps(last), '{"step": 4')
    leave(environment, message)
    assert json.loads(message.read_text()) == {"ebb": {"step": 47, "total_steps": 47, "loss": 0.25}}


def test_a_loss_that_is_no_number_is_left_out(tmp_path: Path) -> None:
    environment, message = place(tmp_path, '{"step": 47, "loss": NaN, "epoch": null}')
    leave(environment, message)
    assert json.loads(message.read_text()) == {"ebb": {"step": 47}}


def test_nothing_is_left_where_it_is_no_pod_or_nothing_is_known(tmp_path: Path) -> None:
    environment, message = place(tmp_path, '{"step": 47}')
    leave({ENV_OUTPUT_DIR: environment[ENV_OUTPUT_DIR]}, message)
    leave({ENV_POD_UID: "uid"}, message)
    assert message.read_text() == ""
    missing = tmp_path / "no-such-file"
    leave(environment, missing)
    assert not missing.exists(), "nothing is made in /dev"
    (tmp_path / "metrics.jsonl").write_text("no line\n")
    leave(environment, message)
    assert message.read_text() == ""
