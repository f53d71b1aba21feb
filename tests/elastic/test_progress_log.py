"""ebb.log(): lines, files and metrics of programs without Ebb's loop, which whatever shows a job's progress reads."""

import errno
import json
import math
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import ebb
from ebb import elastic
from ebb.api.status import Progress
from ebb.client.report.lines import Reader
from ebb.controller.metrics import read_progress
from ebb.elastic import progress_log
from ebb.elastic.contract import ENV_METRICS_PORT, ENV_OUTPUT_DIR, ENV_PROGRESS_REGEX
from ebb.elastic.progress_log import LINE_SECONDS, PlainProgress, ProgressLog, check
from ebb.elastic.runtime.metrics import prometheus_text
from testing.ports import free_port
from tests.elastic.checkpoint.making import full_disk
from tests.elastic.runtime.programs import Points


class Clock:
    """In the place of the time module."""

    def __init__(self) -> None:
        self.now = 1000.0

    def time(self) -> float:
        return self.now

    monotonic = time


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(progress_log, "time", clock)
    return clock


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """A process that has neither logged before nor run Ebb's loop."""
    for name in (ENV_OUTPUT_DIR, ENV_METRICS_PORT, ENV_PROGRESS_REGEX, "RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(progress_log, "_own", None)
    monkeypatch.setattr(progress_log, "_of_loop", None)
    yield monkeypatch
    if progress_log._own is not None:
        progress_log._own.close()


Logs = Callable[..., ProgressLog]


def records(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


@pytest.fixture
def logs() -> Iterator[Logs]:
    """A log of the processes of one job, one after the other."""
    made = []

    def log_of(folder: Path, world_size: int = 2) -> ProgressLog:
        made.append(ProgressLog({ENV_OUTPUT_DIR: str(folder)}, world_size=world_size))
        return made[-1]

    yield log_of
    for each in made:
        each.close()


def shown(log: ProgressLog) -> Progress:
    """As the controller reads it, and `ebb status` shows it."""
    found = read_progress(prometheus_text(log.board.progress), 0.0)
    assert found is not None
    return found


def test_outside_of_ebb_it_prints_a_line(alone: None, capsys: pytest.CaptureFixture[str]) -> None:
    ebb.log(step=12, loss=torch.tensor(0.25), val_acc=0.5, epoch=3, total_steps=100)
    assert capsys.readouterr() == ("step 12/100  epoch 3.00  loss 0.2500  val_acc 0.5000  world 1\n", "")


def test_rank_zero_counts(alone: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    alone.setenv("RANK", "1")
    ebb.log(step=1, loss=0.5)
    assert capsys.readouterr().out == ""
    with pytest.raises(ValueError, match="step=-1"):
        ebb.log(step=-1)


def test_the_controller_reads_it(clock: Clock, logs: Logs, tmp_path: Path) -> None:
    log = logs(tmp_path)
    log.report(10, {"loss": 0.5, "epoch": 1.0, "total_steps": 100.0, "samples_per_second": 7.0, "val_acc": 0.25})
    assert shown(log) == Progress(
        step=10, total_steps=100, epoch=1, loss=0.5, samples_per_second=7.0, world_size=2, at="1970-01-01T00:00:00Z"
    )
    log.report(20, {"loss": math.nan})
    assert shown(log).loss is None
    assert shown(log).step == 20


def test_the_report_reads_it(clock: Clock, logs: Logs, tmp_path: Path) -> None:
    log = logs(tmp_path)
    for step in range(1, 5):
        log.report(step, {"val_acc": step / 10} if step == 4 else {"loss": 1 / step, "lr": 0.1})
        clock.now += 10.0
    reader = Reader()
    for line in (tmp_path / "metrics.jsonl").read_text().splitlines():
        reader.feed(line)
    training = reader.done()
    assert [(span.step, span.loss.mean) for span in training.spans] == [(1, 1.0), (2, 0.5), (3, 0.333333), (4, 0.333333)]
    assert training.spans[3].figures["val_acc"].mean == 0.4
    assert (training.first_world_size, training.not_numbers, training.unreadable) == (2, 0, 0)


def test_lines_without_a_loss_are_no_lines_whose_loss_is_gone() -> None:
    reader = Reader()
    for step, more in ((1, ""), (2, ',"loss":NaN'), (3, ',"loss":0.5')):
        reader.feed(f'{{"time":{step},"step":{step}{more}}}')
    assert reader.done().not_numbers == 1


def test_one_line_a_second_has_all_that_was_said_since_the_last(
    clock: Clock, logs: Logs, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = logs(tmp_path)
    log.report(1, {"loss": 0.5})
    log.report(2, {"val_acc": 0.1})
    clock.now += LINE_SECONDS / 2
    log.report(3, {"loss": 0.4})
    assert shown(log).step == 3  # who asks hears of every step
    clock.now += LINE_SECONDS / 2
    log.report(4, {"loss": 0.3})
    log.report(5, {"loss": 0.2})
    log.flush()
    log.flush()
    assert [(each["step"], each["loss"], each["figures"]) for each in records(tmp_path)] == [
        (1, 0.5, {}),
        (4, 0.3, {"val_acc": 0.1}),
        (5, 0.2, {}),
    ]
    assert len(capsys.readouterr().out.splitlines()) == 3


def test_time_in_steps_counts_from_the_first_step(clock: Clock, logs: Logs, tmp_path: Path) -> None:
    """The first steps took as long as those after them, as far as anybody knows."""
    log = logs(tmp_path)
    log.report(10, {})
    assert shown(log).useful_seconds is None
    clock.now += 20.0
    log.report(20, {})
    clock.now += 20.0
    log.report(30, {})
    assert shown(log).useful_seconds == pytest.approx(60.0)


def test_a_program_that_starts_again_goes_on_in_the_same_file(clock: Clock, logs: Logs, tmp_path: Path) -> None:
    before = logs(tmp_path, world_size=2)
    for step in (10, 20, 40):
        before.report(step, {"loss": 0.5})
        clock.now += 10.0
    after = logs(tmp_path, world_size=1)
    clock.now += 90.0
    after.report(20, {"loss": 0.7})  # from a checkpoint of its own
    last = records(tmp_path)[-1]
    assert (last["generation"], last["world_size"], last["steps_redone"]) == (2, 1, 20)
    assert last["useful_seconds"] == pytest.approx(15.0)  # of 30: half of the steps count
    assert last["lost_seconds"] == pytest.approx(15.0 + 100.0)
    assert shown(after).generation is None  # it agrees on none, and the controller counts those without a step


def test_a_step_that_goes_back_is_done_again(clock: Clock, logs: Logs, tmp_path: Path) -> None:
    log = logs(tmp_path)
    for step in (10, 5, 6):
        log.report(step, {})
        clock.now += 5.0
    assert records(tmp_path)[-1]["steps_redone"] == 5


def test_a_program_that_begins_again_elsewhere_is_not_heard_here(clock: Clock, logs: Logs, tmp_path: Path) -> None:
    log = logs(tmp_path)
    log.report(10, {"loss": 0.5})
    log.begin_again(3)
    assert prometheus_text(log.board.progress) == ""
    log.report(11, {"loss": 0.4})
    assert records(tmp_path)[-1]["world_size"] == 3


def test_a_full_disk_costs_the_line(clock: Clock, logs: Logs, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = logs(tmp_path)
    log.report(1, {"loss": 0.5})
    with full_disk(10):
        for step in range(2, 4):
            clock.now += LINE_SECONDS
            log.report(step, {"loss": 0.5})
    assert capsys.readouterr().err.count("training goes on") == 1
    assert shown(log).step == 3


def test_a_folder_that_is_none_costs_the_curves(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    log = ProgressLog({ENV_OUTPUT_DIR: str(tmp_path / "file")}, world_size=1)
    log.report(1, {"loss": 0.5})
    assert "its curves are not kept" in capsys.readouterr().err
    assert shown(log).step == 1


def test_a_console_that_is_full_costs_the_line(alone: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    alone.setattr("builtins.print", refuse)
    ebb.log(step=1, loss=0.5)
    assert progress_log._own is not None


def test_it_answers_prometheus_and_says_its_last_line_at_the_end(tmp_path: Path) -> None:
    """In a process of its own, without torch: the import is cheap, and the last line comes at exit."""
    port = free_port()
    text = f"""
import sys, urllib.request, ebb
for step in range(1000): ebb.log(step=step, loss=0.5)
print(urllib.request.urlopen("http://127.0.0.1:{port}/metrics").read().decode())
print("torch" in sys.modules)
"""
    environment = {
        **os.environ,
        ENV_OUTPUT_DIR: str(tmp_path / "new"),
        ENV_METRICS_PORT: str(port),
        "RANK": "0",
        "WORLD_SIZE": "4",
    }
    environment.pop(ENV_PROGRESS_REGEX, None)
    done = subprocess.run([sys.executable, "-c", text], env=environment, capture_output=True, text=True, timeout=60, check=True)
    assert "\nebb_step 999\n" in done.stdout
    assert "\nFalse\n" in done.stdout
    assert [each["step"] for each in records(tmp_path / "new")] == [0, 999]
    assert records(tmp_path / "new")[0]["world_size"] == 4


def test_a_process_of_multiprocessing_says_its_last_line_too(tmp_path: Path) -> None:
    """It ends without what atexit has; the launcher forks modules so."""
    text = """
import multiprocessing, ebb
def program():
    for step in range(3): ebb.log(step=step)
process = multiprocessing.get_context("fork").Process(target=program)
process.start()
process.join()
"""
    environment = {**os.environ, ENV_OUTPUT_DIR: str(tmp_path), "RANK": "0"}
    subprocess.run([sys.executable, "-c", text], env=environment, timeout=60, check=True)
    assert [each["step"] for each in records(tmp_path)] == [0, 2]


def test_where_the_launcher_reads_the_lines_it_only_prints(
    alone: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    alone.setenv(ENV_OUTPUT_DIR, str(tmp_path))
    alone.setenv(ENV_PROGRESS_REGEX, "step (?P<step>.*)")
    ebb.log(step=7, loss=0.5)
    assert capsys.readouterr().out == "step 7  loss 0.5000  world 1\n"
    assert not (tmp_path / "metrics.jsonl").exists()


def test_in_a_program_with_ebbs_loop_figures_come_with_its_next_line(
    alone: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    progress_log.yield_to_loop()
    ebb.log(step=3, loss=9.0, val_acc=0.5)
    assert capsys.readouterr().out == ""
    assert progress_log.take_figures() == {"val_acc": 0.5}
    assert progress_log.take_figures() == {}


def test_figures_stand_in_the_loops_own_lines(alone: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with elastic.start(output=tmp_path, global_batch=4, epochs=1, log_every=1, workers=0) as run:
        model = run.distribute(torch.nn.Linear(4, 1))
        run.register_state(model=model, optimizer=torch.optim.SGD(model.parameters(), 0.1))
        for step in run.steps(run.loader(Points(8))):
            ebb.log(step=step.number, val_acc=step.number / 2)
            for batch in step:
                step.backward(model(batch["point"]).mean())
    assert [each["figures"] for each in records(tmp_path)] == [{"val_acc": 0.0}, {"val_acc": 0.5}]


@pytest.mark.parametrize("step", [-1, 1.5, True, "3", None, torch.tensor([1, 2])])
def test_a_step_that_is_none_is_named(step: Any) -> None:
    with pytest.raises(ValueError, match=r"ebb\.log\(step=.*allowed is a whole number of 0 or more.*give step=int"):
        check(step, {})


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"loss": "0.5"}, r"ebb\.log\(loss='0\.5'\): allowed is one number; take its mean"),
        ({"loss": torch.ones(2)}, r"loss=a Tensor of shape \(2,\)"),
        ({"ok": True}, r"ok=True"),
        ({"two words": 1.0}, r"'two words'.*letters, digits.*rename it"),
        ({"x" * 65: 1.0}, "up to 64"),
        ({"total_steps": -3}, "total_steps=-3"),
    ],
)
def test_a_value_that_is_none_is_named(values: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        check(1, values)


def test_numbers_of_any_kind_are_values() -> None:
    found = check(torch.tensor(3), {"loss": torch.tensor(0.5), "val/acc": 1, "lr": None, "nan": math.nan})
    assert found[0] == 3
    assert found[1] == {"loss": 0.5, "val/acc": 1.0, "nan": pytest.approx(math.nan, nan_ok=True)}


def test_the_record_has_the_fields_of_ebbs_own_loop() -> None:
    assert vars(PlainProgress(time=0.0, step=0)).keys() <= elastic.Progress.__dataclass_fields__.keys()
