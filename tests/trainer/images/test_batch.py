"""The global batch: fixed at the first start, whatever machines come and go later."""

from pathlib import Path
from typing import Any

import pytest

from ebb.elastic.checkpoint import Manifest
from trainer.images.batch import BatchSizes, batch_sizes, kept_global_batch, processes_wanted

FIRST = {"batch_size": 0, "global_batch": 0, "largest": 0, "processes": 8, "kept": None}


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        pytest.param({}, BatchSizes(256, 32, "global batch 256: 32 for each of 8 processes"), id="as-the-original-example"),
        pytest.param({"batch_size": 64}, BatchSizes(512, 64, "global batch 512: 64 for each of 8 processes"), id="-b"),
        pytest.param(
            {"batch_size": 64, "processes": 1}, BatchSizes(64, 64, "global batch 64: 64 for each of 1 processes"), id="one"
        ),
        pytest.param({"global_batch": 100}, BatchSizes(100, 256, "global batch 100, as asked for"), id="--global-batch"),
        pytest.param(
            {"global_batch": 100, "batch_size": 10},
            BatchSizes(100, 10, "global batch 100, as asked for"),
            id="both: -b is a pass",
        ),
        pytest.param(
            {"kept": 256, "processes": 3}, BatchSizes(256, 32, "global batch 256, as at the first start"), id="fewer-later"
        ),
        pytest.param(
            {"kept": 256, "batch_size": 16, "processes": 64},
            BatchSizes(256, 16, "global batch 256, as at the first start"),
            id="another -b later: only smaller passes",
        ),
        pytest.param({"kept": 256, "global_batch": 256}, BatchSizes(256, 256, "global batch 256, as asked for"), id="the-same"),
        pytest.param(
            {"largest": 256, "batch_size": 16, "global_batch": 64},
            BatchSizes(64, 16, "global batch 64, as asked for"),
            id="two-limits",
        ),
        pytest.param({"largest": 8}, BatchSizes(256, 8, "global batch 256: 32 for each of 8 processes"), id="--max-micro-batch"),
    ],
)
def test_the_rule(said: dict[str, Any], expected: BatchSizes) -> None:
    assert batch_sizes(**FIRST | said) == expected


@pytest.mark.parametrize(
    ("planned", "local", "world", "wanted"),
    [(4, 2, 2, 8), (0, 1, 3, 3), (4, 1, 1, 4)],
    ids=["few-are-there", "no-controller", "one"],
)
def test_the_processes_that_a_job_wants(planned: int, local: int, world: int, wanted: int) -> None:
    assert processes_wanted(planned_workers=planned, local_world_size=local, world_size=world) == wanted


def test_the_jobs_own_number_is_in_its_checkpoints(tmp_path: Path) -> None:
    assert kept_global_batch(tmp_path) is None
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    (folder / "g00001-s00000010-r0.json").write_text("{")  # damaged
    (folder / "g00001-s00000020-r0.candidate").write_bytes(manifest(1, 512))  # nobody has agreed on it
    assert kept_global_batch(tmp_path) is None
    for generation, global_batch in ((9, 64), (10, 256), (2, 32)):
        (folder / f"g{generation:05}-s00000010-r0.json").write_bytes(manifest(generation, global_batch))
    assert kept_global_batch(tmp_path) == 256


def manifest(generation: int, global_batch: int) -> bytes:
    identity = {"global_batch": global_batch}
    return Manifest(
        generation=generation, step=10, writer=0, sha256="", size_bytes=1, identity=identity, folder="", written_at=0.0
    ).to_json()
