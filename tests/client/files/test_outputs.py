"""What jobs have written: of running, finished and deleted ones."""

import os
from pathlib import Path

import pytest

from ebb.client.errors import BadRequest, Missing
from ebb.client.files.data import fetch_outputs, list_outputs
from tests.cli.world import elastic_job
from tests.reached import ebb_of, reached

HERE = "elastic-job/digits-uid-digi"  # the first eight letters of the uid


@pytest.fixture(autouse=True)
def output_volume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """It is at /mnt/output on a platform."""
    monkeypatch.setattr("ebb.client.logs.sources.OUTPUT_ROOT", f"{tmp_path}/output")
    monkeypatch.setattr("ebb.client.files.data.OUTPUT_ROOT", f"{tmp_path}/output")
    return tmp_path / "output"


def written(root: Path, folder: str = HERE, **files: str) -> None:
    for name, content in {"metrics.jsonl": "{}\n", "logs/worker-0/a.log": "line\n", **files}.items():
        (root / folder / name).parent.mkdir(parents=True, exist_ok=True)
        (root / folder / name).write_text(content)


async def test_a_jobs_folder_is_listed_and_fetched(tmp_path: Path, output_volume: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(output_volume)
    monkeypatch.chdir(tmp_path)
    async with reached(tmp_path, elastic_job()) as kube:
        ebb = ebb_of(kube)
        assert [one.name for one in (await list_outputs(ebb, "digits")).entries] == ["logs", "metrics.jsonl"]
        assert [one.name for one in (await list_outputs(ebb, "digits", "logs", recursive=True)).entries] == [
            "worker-0",
            "worker-0/a.log",
        ]
        assert (await fetch_outputs(ebb, "digits")).target == "digits"
        assert (await fetch_outputs(ebb, "digits", "logs")).target == "digits/logs"
        assert (await fetch_outputs(ebb, "digits", "metrics.jsonl", "m.txt")).target == "m.txt"
    assert (tmp_path / "digits" / "logs" / "worker-0" / "a.log").read_text() == "line\n"
    assert (tmp_path / "m.txt").read_text() == "{}\n"


async def test_a_deleted_jobs_newest_folder_is_found(tmp_path: Path, output_volume: Path) -> None:
    for folder in ("digits-00000001", "digits-00000002", "digits-2-00000003"):
        written(output_volume, f"elastic-job/{folder}")
    os.utime(output_volume / "elastic-job" / "digits-00000001", (1e9, 1e9 - 60))
    async with reached(tmp_path) as kube:
        assert (await list_outputs(ebb_of(kube), "digits")).path.endswith("digits-00000002")
        with pytest.raises(Missing, match="no job named 'never'"):
            await list_outputs(ebb_of(kube), "never")


async def test_a_job_that_has_written_nothing(tmp_path: Path) -> None:
    async with reached(tmp_path, elastic_job()) as kube:
        with pytest.raises(Missing, match="digits has written nothing so far"):
            await list_outputs(ebb_of(kube), "digits")


@pytest.mark.parametrize("path", ["../other", "/etc", "logs/../../x"])
async def test_only_what_is_in_the_jobs_folder(tmp_path: Path, path: str) -> None:
    async with reached(tmp_path, elastic_job()) as kube:
        with pytest.raises(BadRequest, match="name what is in the job's folder"):
            await fetch_outputs(ebb_of(kube), "digits", path)
