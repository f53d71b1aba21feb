"""The API: an interrupted run ends with the bits of an undisturbed one; what is foreign is refused; misuse is a sentence."""

import contextlib
import errno
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch.utils.data import TensorDataset

from ebb import elastic
from ebb.elastic.checkpoint import CheckpointFolder, ForeignCheckpointError, NotWritten
from ebb.elastic.checkpoint.__main__ import entries
from ebb.elastic.checkpoint.files import Disk
from ebb.elastic.checkpoint.saver import Saver
from ebb.elastic.data import DataError, Seeded
from ebb.elastic.notices.notice import Notice
from ebb.elastic.runtime.checkpointing import unwrap
from ebb.elastic.runtime.config import resolve
from testing import exactness as ledger
from tests.elastic.runtime import programs
from tests.elastic.runtime.programs import Points, Program, network, train
from tests.elastic.runtime.ranks import Ended, together


def interrupted(output: Path, at: list[int], **changes: Any) -> dict[str, Any]:
    """The last generation's answer; all of one rank."""
    for step in at:
        assert train(Program(output=output, leave_at=step, **changes))["left"]
    return train(Program(output=output, **changes))


@pytest.mark.parametrize("schedule", programs.SCHEDULES)
def test_any_schedule_goes_on(tmp_path: Path, schedule: str) -> None:
    """12 steps, 10 samples each of 37: epochs end within steps."""
    calm = train(Program(output=tmp_path / "calm", schedule=schedule))
    stormy = interrupted(tmp_path / "stormy", [0, 3, 4], schedule=schedule)
    assert stormy["weights"] == calm["weights"]
    assert stormy["rates"] == calm["rates"][5:]
    assert ledger.check(tmp_path / "stormy").exact


@pytest.mark.parametrize("optimizer", programs.OPTIMIZERS)
def test_any_optimizer_goes_on(tmp_path: Path, optimizer: str) -> None:
    calm = train(Program(output=tmp_path / "calm", optimizer=optimizer))
    assert interrupted(tmp_path / "stormy", [2, 7], optimizer=optimizer)["weights"] == calm["weights"]


def test_a_scaler_goes_on(tmp_path: Path) -> None:
    calm = train(Program(output=tmp_path / "calm", scaled=True))
    assert interrupted(tmp_path / "stormy", [4], scaled=True)["weights"] == calm["weights"]
    assert calm["weights"] == train(Program(output=tmp_path / "plain"))["weights"]  # powers of two: the scale leaves no trace


def test_all_ranks_leave_at_the_same_boundary_and_others_go_on(tmp_path: Path) -> None:
    first = together(train, 3, Program(output=tmp_path, leave_at=4, leaver=2))
    assert [(answer["left"], answer["step"]) for answer in first] == [(True, 5)] * 3
    second = together(train, 2, Program(output=tmp_path))
    assert [answer["steps"] for answer in second] == [list(range(5, 12))] * 2
    assert len({answer["weights"] for answer in second}) == 1 or second[0]["weights"]  # buffers are each rank's own
    assert ledger.check(tmp_path).exact


def test_an_agreement_that_is_known_late_is_known_to_all(tmp_path: Path) -> None:
    """As on a GPU: one step more, on every rank, and no line of the log is lost."""
    first = together(train, 2, Program(output=tmp_path, leave_at=4, leaver=1, lag=1))
    assert [(answer["left"], answer["step"]) for answer in first] == [(True, 6)] * 2
    together(train, 2, Program(output=tmp_path, lag=1))
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == list(range(1, 13))
    assert ledger.check(tmp_path).exact


@pytest.mark.parametrize(
    ("vanish_in", "resumed"),
    [pytest.param("pass", 4, id="in-the-backward-pass"), pytest.param("body", 5, id="after-the-optimizer")],
)
def test_what_survivors_hold_is_kept(tmp_path: Path, vanish_in: str, resumed: int) -> None:
    found = together(train, 3, Program(output=tmp_path, vanish_at=4, leaver=2, vanish_in=vanish_in))
    assert found == [Ended(75), Ended(75), Ended(9)]
    answer = train(Program(output=tmp_path))
    assert answer["steps"][0] == resumed
    assert ledger.check(tmp_path).exact


def test_a_rank_that_hangs_is_given_up(tmp_path: Path) -> None:
    """The steady limit, not the one of the first step; the others keep what they have."""
    limits = {"collective_seconds": 2.0, "first_step_seconds": 600.0}
    found = together(train, 2, Program(output=tmp_path, vanish_at=4, leaver=1, vanish_in="hang", settings=limits), waited_for=[0])
    assert found[0] == Ended(75)
    assert train(Program(output=tmp_path))["steps"][0] == 4


def test_a_slow_first_step_is_waited_for(tmp_path: Path) -> None:
    """The first step hangs, and only its own limit ends it."""
    limits = {"collective_seconds": 600.0, "first_step_seconds": 3.0}
    found = together(train, 2, Program(output=tmp_path, vanish_at=0, leaver=1, vanish_in="hang", settings=limits), waited_for=[0])
    assert found[0] == Ended(75)


def test_the_best_is_kept_besides_the_newest(tmp_path: Path) -> None:
    scores = {1: 0.5, 3: 0.9, 5: 0.7, 8: 0.6, 11: 0.8}
    train(Program(output=tmp_path, score_at=scores, settings={"keep_checkpoints": 2}))
    found = entries(tmp_path / "checkpoints", verify=True)
    assert [(entry.step, entry.score, entry.best) for entry in found] == [
        (12, 0.8, False),
        (9, 0.6, False),
        (4, 0.9, True),
    ]


def judge_while_a_write_is_slow(output: Path) -> int:
    """A large state's write is under way when the best one's is due, and the notice comes meanwhile; steps done."""
    notice = Notice()
    notice.leave_within(0.2, 75)
    config = resolve(os.environ, output=output, global_batch=10, epochs=2, workers=0)
    with contextlib.suppress(elastic.GracefulExit), elastic.start(config, notice=notice) as run:
        model = run.distribute(network())
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        run.register_state(model=model, optimizer=optimizer)
        for step in run.steps(run.loader(Points())):
            for batch in step:
                step.backward(model(batch["point"]).square().mean())
            optimizer.step()
            if step.number == 1:
                assert run._loop is not None
                _finish_slowly(run._loop.saver, notice)
                run.best(0.5)
    return run.step


def _finish_slowly(saver: Saver, notice: Notice) -> None:
    finish = saver.finish

    def slow() -> None:
        vars(saver)["finish"] = finish
        notice.give()
        time.sleep(1)
        finish()

    vars(saver)["finish"] = slow


def test_the_wait_for_a_write_is_not_ended_by_a_notice(tmp_path: Path) -> None:
    assert together(judge_while_a_write_is_slow, 1, tmp_path) == [3]
    assert [entry.step for entry in entries(tmp_path / "checkpoints", verify=True)] == [3, 2]


def test_a_program_may_stop_early(tmp_path: Path) -> None:
    answer = train(Program(output=tmp_path, break_at=6))
    assert answer["step"] == 7
    assert json.loads((tmp_path / "result.json").read_text())["step"] == 7
    assert entries(tmp_path / "checkpoints", verify=True)[0].step == 7


@pytest.mark.parametrize("folder", ["job", "job/checkpoints"])
def test_the_start_waits_for_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], folder: str
) -> None:
    monkeypatch.setattr("ebb.elastic.room._LOOK_SECONDS", 0.0)
    make, failures = Disk.make_folder, [OSError(errno.ENOSPC, "No space left on device")] * 2

    def full_at_first(disk: Disk, path: Path) -> None:
        if path == tmp_path / folder and failures:
            raise failures.pop()
        make(disk, path)

    monkeypatch.setattr(Disk, "make_folder", full_at_first)
    assert train(Program(output=tmp_path / "job"))["step"] == 12
    assert f"{tmp_path / 'job'} is full: the start waits for room, for 300 s" in capsys.readouterr().err


def test_the_end_waits_for_room_for_the_last_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ebb.elastic.checkpoint.saver._RETRY_SECONDS", 0.0)
    write, failures = CheckpointFolder.write, [NotWritten("no space left")] * 2

    def full_at_first(*given: Any, step: int, **named: Any) -> Any:
        if step == 12 and failures:
            raise failures.pop()
        return write(*given, step=step, **named)

    monkeypatch.setattr(CheckpointFolder, "write", full_at_first)
    assert train(Program(output=tmp_path))["step"] == 12
    assert (entries(tmp_path / "checkpoints", verify=True)[0].step, failures) == (12, [])


# --- what is refused


def test_another_model_is_refused(tmp_path: Path) -> None:
    train(Program(output=tmp_path, leave_at=1))
    with pytest.raises(ForeignCheckpointError, match=r"weights is '\w{12}' here and must be '\w{12}' as in the checkpoint"):
        train(Program(output=tmp_path, plain=True))


def test_another_optimizer_is_refused(tmp_path: Path) -> None:
    train(Program(output=tmp_path, leave_at=1))
    with pytest.raises(ForeignCheckpointError, match="optimizer is 'AdamW' here and must be 'SGD'"):
        train(Program(output=tmp_path, optimizer="adamw"))


def test_other_data_is_refused(tmp_path: Path) -> None:
    train(Program(output=tmp_path, leave_at=1))
    with pytest.raises(DataError, match="its dataset_size was 37 and is 36 here"):
        train(Program(output=tmp_path, size=36))


def of_each_rank(output: Path) -> str:
    """Each rank sees as many samples as its number says."""
    run = elastic.start(resolve(os.environ, output=output), notice=Notice())
    try:
        run.loader(Points(30 + run.rank))
    except DataError as error:
        return str(error)
    return ""


def test_ranks_that_see_different_data_are_refused(tmp_path: Path) -> None:
    first, second = together(of_each_rank, 2, tmp_path)
    assert first == ""
    assert second.startswith("rank 1 sees other data than rank 0: {'dataset_size': 31, 'fingerprint': ''} here")


def test_settings_are_named_when_they_are_wrong(tmp_path: Path) -> None:
    with pytest.raises(elastic.ConfigError, match="there is no setting 'batch'; allowed: output, epochs, global_batch"):
        elastic.start(output=tmp_path, batch=3, notice=Notice())
    with pytest.raises(elastic.ConfigError, match=r"--output is missing: give start\(output=...\), or set EBB_OUTPUT_DIR"):
        resolve({}, epochs=2)


def test_the_environment_fills_what_a_program_leaves_open() -> None:
    environment = {"EBB_OUTPUT_DIR": "/out", "EBB_GLOBAL_BATCH": "512", "EBB_LEDGER": "1", "EBB_CHECKPOINT_SECONDS": "60"}
    config = resolve(environment, global_batch=8, seed=None)
    assert (config.output, config.global_batch, config.ledger, config.checkpoint_seconds) == (Path("/out"), 8, True, 60.0)


# --- misuse


def opened(output: Path, dataset: Any, **settings: Any) -> tuple[elastic.Run, torch.nn.Module, elastic.Loader]:
    run = elastic.start(resolve({}, output=output, **{"global_batch": 4, "epochs": 1, "workers": 0, **settings}), notice=Notice())
    model = run.distribute(network(plain=True))
    run.register_state(model=model, optimizer=torch.optim.SGD(model.parameters(), 0.1))
    return run, model, run.loader(dataset)


def forget_backward(step: elastic.Step, model: torch.nn.Module) -> None:
    for _ in step:
        pass


def twice(step: elastic.Step, model: torch.nn.Module) -> None:
    for batch in step:
        step.backward(model(batch["point"]).sum())
        step.backward(model(batch["point"]).sum())


def no_mean(step: elastic.Step, model: torch.nn.Module) -> None:
    for batch in step:
        step.backward(model(batch["point"]).sum(1))


def not_through(step: elastic.Step, model: torch.nn.Module) -> None:
    for batch in step:
        step.backward(model(batch["point"]).sum())
        break


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (forget_backward, r"call step.backward\(loss\) once for each micro-batch"),
        (twice, r"step.backward\(loss\) belongs to a micro-batch, once for each"),
        (no_mean, r"the loss has the shape \(2,\); it must be one number"),
        (not_through, "must run to its end in every step"),
    ],
)
def test_misuse_is_a_sentence(tmp_path: Path, body: Callable[[elastic.Step, torch.nn.Module], None], words: str) -> None:
    run, model, loader = opened(tmp_path, Points(8), max_micro_batch=2)

    def program() -> None:
        with run:
            for step in run.steps(loader):
                body(step, model)

    with pytest.raises((RuntimeError, ValueError), match=words):
        program()


def test_the_order_of_calls(tmp_path: Path) -> None:
    run = elastic.start(resolve({}, output=tmp_path), notice=Notice())
    model = network()
    with pytest.raises(RuntimeError, match=r"run.register_state\(\) comes after run.distribute\(model\)"):
        run.register_state(model=model, optimizer=torch.optim.SGD(model.parameters(), 0.1))
    with pytest.raises(RuntimeError, match=r"run.steps\(\) comes after run.register_state"):
        next(run.steps(run.loader(Points())))
    run.distribute(model)
    with pytest.raises(TypeError, match=r"run.register_state\(lr=...\) is a float, which has no state_dict"):
        run.register_state(model=model, optimizer=torch.optim.SGD(model.parameters(), 0.1), lr=0.1)


# --- batches of any form


class Pair(NamedTuple):
    point: torch.Tensor
    more: dict[str, Any]


def collate_to_pair(samples: list[dict[str, torch.Tensor]]) -> Pair:
    points = torch.stack([each["point"] for each in samples])
    return Pair(points, {"labels": [each["label"] for each in samples], "name": "a batch"})


def test_batches_may_have_any_form(tmp_path: Path) -> None:
    run, model, _ = opened(tmp_path, Points(8))
    with run:
        for step in run.steps(run.loader(Points(8), collate_fn=collate_to_pair)):
            for batch in step:
                assert isinstance(batch, Pair)
                assert (batch.more["name"], len(batch.more["labels"])) == ("a batch", 4)
                step.backward(model(batch.point).mean())


def test_a_tuple_of_tensors_with_loader_processes(tmp_path: Path) -> None:
    dataset = TensorDataset(torch.arange(8.0)[:, None].repeat(1, 4), torch.arange(8))
    run, model, _ = opened(tmp_path, dataset)
    seen: list[int] = []
    with run:
        for step in run.steps(run.loader(dataset, workers=1)):
            for points, numbers in step:
                assert points[:, 0].tolist() == [float(number) for number in numbers]
                seen += numbers.tolist()
                step.backward(model(points).mean())
    assert sorted(seen) == list(range(8))


# --- evaluation


def evaluated(output: Path) -> dict[str, float]:
    run = elastic.start(resolve(os.environ, output=output, workers=0), notice=Notice())
    with run:
        model = run.distribute(network())
        run.register_state(model=model, optimizer=torch.optim.SGD(model.parameters(), 0.1))
        model = unwrap(model)

        def measure(batch: dict[str, torch.Tensor]) -> dict[str, Any]:
            assert not model.training
            return {
                "number": batch["number"].sum(),
                "even": (batch["number"] % 2 == 0).sum(),
                "outputs": model(batch["point"]).sum(),
            }

        found = run.evaluate(Points(7), measure, batch_size=2)
        assert model.training
        assert all(int(each) == 0 for name, each in model.named_buffers() if "num_batches" in name)  # nothing was learnt from it
        model.eval()
        seeded = Seeded(Points(7), seed=run.config.seed)
        whole = model(torch.stack([seeded[number]["point"] for number in range(7)])).sum() / 7
        assert found["outputs"] == pytest.approx(whole.item(), abs=1e-5)
    return found


@pytest.mark.parametrize("world_size", [1, 2, 9])
def test_evaluation_counts_each_sample_once(tmp_path: Path, world_size: int) -> None:
    found = together(evaluated, world_size, tmp_path)
    assert all(each == found[0] for each in found)
    assert (found[0]["samples"], found[0]["number"], found[0]["even"]) == (7.0, 3.0, pytest.approx(4 / 7))


def first_makes(output: Path, folder: Path) -> list[str]:
    run = elastic.start(resolve(os.environ, output=output), notice=Notice())
    with run, run.rank_zero_first():
        (folder / f"{len(list(folder.iterdir()))}-{run.rank}").touch()
    return sorted(path.name for path in folder.iterdir())


def test_rank_zero_goes_first(tmp_path: Path) -> None:
    folder = tmp_path / "made"
    folder.mkdir()
    names = together(first_makes, 3, tmp_path / "out", folder)[0]
    assert names[0] == "0-0"
    assert len(names) == 3
