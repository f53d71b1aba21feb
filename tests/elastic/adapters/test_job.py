"""The part that all adapters share, on one rank: resuming, agreeing, saving and leaving."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ebb.elastic.adapters.job import AdaptedJob, output_folder
from ebb.elastic.notices.notice import Notice, install
from ebb.elastic.runtime.config import ConfigError
from ebb.elastic.runtime.loop import GracefulExit
from testing import exactness

_begun: list[AdaptedJob] = []
_told: list[dict[str, Any]] = []


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(Notice, "leave_within", lambda *_: None)  # it would end the tests
    monkeypatch.setattr("ebb.elastic.adapters.job.log", lambda **told: _told.append(told))
    for name in ("RANK", "WORLD_SIZE", "EBB_OUTPUT_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("EBB_LEDGER", "1")
    monkeypatch.setenv("EBB_CHECKPOINT_MIN_SECONDS", "1000")
    monkeypatch.setenv("EBB_CHECKPOINT_SECONDS", "1000")
    _told.clear()
    yield
    while _begun:
        _begun.pop().close()


def begin(output: Path) -> AdaptedJob:
    job = AdaptedJob.begin(output=output, global_batch=4, epochs=2, dataset_size=10, micro_batch=3, seed=0, place=output)
    _begun.append(job)
    return job


def train(job: AdaptedJob, steps: int) -> int:
    """Some steps, as a library would; saves where all agree to."""
    step = job.resumed_step
    total = 2 * job.plan.steps_per_epoch
    while step < min(job.resumed_step + steps, total):
        job.begin_step(step)
        for samples in job.plan.micro_batches(step):
            job.use([int(each) for each in samples])
        job.write_down(step)
        step += 1
        if job.end_step(step, last=step == total).saves:
            with job.saving(step) as folder:
                folder.mkdir(parents=True)
                (folder / "state").write_text(str(step))
        if job.leaves:
            job.leave()
    return step


def test_a_notice_costs_nothing(tmp_path: Path) -> None:
    first = begin(tmp_path)
    assert (first.found, first.resumed_step) == (None, 0)
    train(first, 3)
    install().give()
    with pytest.raises(GracefulExit) as left:
        train(first, 1)
    assert left.value.code == 138


def test_the_next_process_goes_on_after_the_last_checkpoint(tmp_path: Path) -> None:
    first = begin(tmp_path)
    install().give()
    with pytest.raises(GracefulExit):
        train(first, 4)
    install()._event.clear()  # another process has a notice of its own
    second = begin(tmp_path)
    assert (second.resumed_step, second.generation) == (1, first.generation + 1)
    assert second.found is not None
    assert (second.found / "state").read_text() == "1"
    assert train(second, 100) == 6
    second.finish(6)
    verdict = exactness.check(tmp_path)
    assert verdict.exact
    assert (verdict.samples, verdict.steps, verdict.steps_redone) == (20, 6, 0)
    assert json.loads((tmp_path / "result.json").read_text())["step"] == 6
    assert [each["step"] for each in _told] == [1, 2, 3, 4, 5, 6]
    assert (_told[-1]["total_steps"], _told[-1]["epoch"]) == (6, 2.0)


def test_the_last_step_is_saved(tmp_path: Path) -> None:
    """So that what a program does after its training can be cut short without a step done again."""
    train(begin(tmp_path), 100)
    assert begin(tmp_path).resumed_step == 6


@pytest.mark.parametrize(
    "error",
    [
        OSError(28, "No space left on device"),
        RuntimeError(
            "[enforce fail at inline_container.cc:668] . PytorchStreamWriter failed writing file data/0: file write failed"
        ),
    ],
)
def test_a_disk_that_is_full_costs_the_checkpoint_alone(
    tmp_path: Path, error: Exception, capsys: pytest.CaptureFixture[str]
) -> None:
    job = begin(tmp_path)
    with job.saving(3):
        raise error
    assert f"step 3 has no checkpoint: {error}" in capsys.readouterr().err
    assert begin(tmp_path).found is None


def test_another_error_while_saving_is_the_programs(tmp_path: Path) -> None:
    job = begin(tmp_path)
    with pytest.raises(RuntimeError, match="boom"), job.saving(3):
        raise RuntimeError("boom")


def test_a_survivor_of_a_loss_saves_what_it_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os._exit", lambda code: (_ for _ in ()).throw(SystemExit(code)))
    job = begin(tmp_path)
    step = train(job, 2)

    def save(folder: Path) -> None:
        folder.mkdir(parents=True)
        (folder / "state").write_text("alone")

    job.whole = False  # in the middle of an update
    with pytest.raises(SystemExit):
        job.after_loss(RuntimeError("Connection closed by peer"), step, save)
    assert not list(tmp_path.glob("checkpoint-*"))
    job.whole = True
    with pytest.raises(SystemExit) as ended:
        job.after_loss(RuntimeError("Connection closed by peer"), step, save)
    assert ended.value.code == 75
    assert begin(tmp_path).resumed_step == 2


def test_a_global_batch_must_be_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="global_batch is 0"):
        AdaptedJob.begin(output=tmp_path, global_batch=0, epochs=1, dataset_size=10, micro_batch=1, seed=0, place=tmp_path)


def test_a_relative_folder_is_one_of_the_jobs_output(monkeypatch: pytest.MonkeyPatch) -> None:
    assert output_folder("out") == Path("out")
    monkeypatch.setenv("EBB_OUTPUT_DIR", "/mnt/output/digits")
    assert output_folder("out") == Path("/mnt/output/digits/out")
    assert output_folder("/data/out") == Path("/data/out")
