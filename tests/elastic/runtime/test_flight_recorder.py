"""NCCL's flight recorder: kept on a hang, wherever torch and the disk allow it, and never a reason to hang or fail itself."""

import pickle
import threading
from pathlib import Path

import pytest

from ebb.elastic.runtime import flight_recorder
from ebb.elastic.runtime.flight_recorder import keep, place

RECORDED = pickle.dumps({"version": "2.10", "entries": [{"profiling_name": "nccl:all_reduce", "state": "started"}]})


def kept(output: Path, content: bytes) -> list[str]:
    said: list[str] = []
    keep(output, 3, say=said.append, dump=lambda: content)
    return said


def test_a_rank_that_hangs_leaves_its_last_collectives(tmp_path: Path) -> None:
    (said,) = kept(tmp_path, RECORDED)
    assert [path.name for path in tmp_path.iterdir()] == ["nccl_trace_rank_3"]
    assert pickle.loads((tmp_path / "nccl_trace_rank_3").read_bytes())["entries"][0]["state"] == "started"
    assert f"torchfrtrace --prefix nccl_trace_rank_ {tmp_path}" in said


def test_where_nothing_was_recorded_there_is_no_file(tmp_path: Path) -> None:
    said: list[str] = []
    keep(tmp_path, 0, say=said.append)  # by this torch, without a GPU
    assert said == []
    assert not list(tmp_path.iterdir())


def test_a_disk_that_takes_nothing_costs_the_file_alone(tmp_path: Path) -> None:
    (said,) = kept(tmp_path / "gone", RECORDED)
    assert said.startswith("NCCL's flight recorder could not be kept: ")


def test_a_recorder_that_hangs_too_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flight_recorder, "_DUMP_SECONDS", 0.01)
    free = threading.Event()

    def dump() -> bytes:
        free.wait(60)
        return b""

    keep(tmp_path, 0, say=lambda _: None, dump=dump)
    assert not free.is_set()
    free.set()


def test_torch_records_and_writes_to_the_same_place() -> None:
    environment = {"EBB_OUTPUT_DIR": "/mnt/output/digits", "TORCH_FR_BUFFER_SIZE": "50"}
    place(environment)
    assert environment["TORCH_FR_BUFFER_SIZE"] == "50"
    assert environment["TORCH_FR_DUMP_TEMP_FILE"] == "/mnt/output/digits/nccl_trace_rank_"
    assert environment["TORCH_NCCL_DUMP_ON_TIMEOUT"] == "1"


def test_without_an_output_folder_nothing_is_written() -> None:
    environment: dict[str, str] = {}
    place(environment)
    assert set(environment) == {"TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"}
