"""One run of a tracker for all processes of a job, on rank 0."""

import subprocess
import sys
from pathlib import Path

from ebb.elastic.launch import program, trackers

JOB = {"EBB_OUTPUT_DIR": "/mnt/output/digits", "EBB_JOB": "digits", "EBB_JOB_UID": "5f3c"}


def placed(**given: str) -> dict[str, str]:
    environment = {**JOB, **given}
    trackers.place(environment)
    return environment


def test_every_process_of_a_job_goes_on_with_the_same_run() -> None:
    first, second = placed(), placed(EBB_OUTPUT_DIR="/mnt/efs/digits")
    assert first["WANDB_RUN_ID"] == second["WANDB_RUN_ID"]
    assert (first["WANDB_RESUME"], first["WANDB_NAME"]) == ("allow", "digits")
    assert first["WANDB_DIR"] == "/mnt/output/digits"
    assert first["TENSORBOARD_LOGGING_DIR"] == "/mnt/output/digits/tensorboard"


def test_another_job_of_the_same_name_has_another_run() -> None:
    assert placed()["WANDB_RUN_ID"] != placed(EBB_JOB_UID="9a1b")["WANDB_RUN_ID"]


def test_outside_of_a_cluster_the_folder_decides() -> None:
    one, same, other = placed(EBB_JOB_UID=""), placed(EBB_JOB_UID=""), placed(EBB_JOB_UID="", EBB_OUTPUT_DIR="/tmp/run")
    assert one["WANDB_RUN_ID"] == same["WANDB_RUN_ID"] != other["WANDB_RUN_ID"]


def test_what_a_user_has_set_stays_on_all_ranks() -> None:
    given = placed(WANDB_RUN_ID="mine", WANDB_DIR="/tmp/wandb", RANK="1")
    trackers.leave_to_rank_zero(given)
    assert (given["WANDB_RUN_ID"], given["WANDB_DIR"]) == ("mine", "/tmp/wandb")
    assert "WANDB_RESUME" not in given


def test_other_ranks_have_no_part_in_the_run() -> None:
    first, second = placed(RANK="0"), placed(RANK="1")
    for environment in (first, second):
        trackers.leave_to_rank_zero(environment)
    assert "WANDB_RUN_ID" in first
    assert second.keys().isdisjoint({"WANDB_RUN_ID", "WANDB_RESUME"})


def test_without_a_folder_nothing_is_set() -> None:
    environment = {"EBB_JOB_UID": "5f3c"}
    trackers.place(environment)
    assert environment == {"EBB_JOB_UID": "5f3c"}


def test_a_script_is_told_the_same(tmp_path: Path) -> None:
    """It runs without any import of ours (program.py)."""
    (tmp_path / "script.py").write_text("import os; print(os.environ.get('WANDB_RUN_ID'), os.environ.get('WANDB_RESUME'))")
    command = [sys.executable, str(Path(program.__file__)), str(tmp_path / "script.py")]
    for rank, said in (("0", [placed()["WANDB_RUN_ID"], "allow"]), ("1", ["None", "None"])):
        done = subprocess.run(command, env=placed(RANK=rank), capture_output=True, text=True, check=True)
        assert done.stdout.split() == said
