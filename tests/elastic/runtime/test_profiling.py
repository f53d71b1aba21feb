"""Traces on request: the steps that were asked for, whole or not at all."""

import gzip
import json
from pathlib import Path

import pytest
import torch

from ebb import elastic
from ebb.elastic.notices.notice import Notice
from ebb.elastic.runtime import profiling
from ebb.elastic.runtime.profiling import Profiler


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profiling, "_LOOK_SECONDS", 0.0)


def ask(output: Path, text: str) -> Path:
    path = output / "profile" / "request.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def names(path: Path) -> list[str]:
    return [str(each.get("name")) for each in json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]]


def steps(profiler: Profiler, first: int, count: int) -> None:
    for step in range(first, first + count):
        profiler.begin()
        torch.ones(step + 1, 3) @ torch.ones(3, 2)
        profiler.end(step + 1)


def test_the_steps_that_were_asked_for_are_in_the_trace(tmp_path: Path) -> None:
    said: list[str] = []
    profiler = Profiler(tmp_path, torch.device("cpu"), say=said.append)
    steps(profiler, 0, 3)
    assert list(tmp_path.iterdir()) == []
    request = ask(tmp_path, '{"id": "4f2a", "steps": 2}')
    steps(profiler, 3, 5)
    assert names(tmp_path / "profile" / "4f2a.json.gz").count("aten::mm") == 2
    assert not request.exists()
    assert [path.name for path in (tmp_path / "profile").iterdir()] == ["4f2a.json.gz"]
    assert len(said) == 1
    assert said[0].startswith(
        f"a trace of the steps until 5 is in {tmp_path}/profile/4f2a.json.gz; the training stood still for "
    )


def test_a_process_that_ends_meanwhile_leaves_the_request_to_the_next(tmp_path: Path) -> None:
    request = ask(tmp_path, '{"id": "4f2a", "steps": 3}')
    first = Profiler(tmp_path, torch.device("cpu"))
    steps(first, 0, 2)
    first.stop()
    assert request.exists()
    steps(Profiler(tmp_path, torch.device("cpu")), 1, 3)
    assert names(tmp_path / "profile" / "4f2a.json.gz").count("aten::mm") == 3


@pytest.mark.parametrize("text", ["{", "[]", '{"id": "../x", "steps": 2}', '{"id": "x", "steps": 101}', '{"id": "x"}'])
def test_what_is_no_request_is_said_once_and_left_alone(tmp_path: Path, text: str) -> None:
    said: list[str] = []
    request = ask(tmp_path, text)
    steps(Profiler(tmp_path, torch.device("cpu"), say=said.append), 0, 3)
    assert (len(said), request.read_text()) == (1, text)
    assert "is no request for a trace" in said[0]


def test_a_trace_that_cannot_be_written_costs_no_step(tmp_path: Path) -> None:
    said: list[str] = []
    ask(tmp_path, '{"id": "x", "steps": 1}')
    (tmp_path / "profile" / ".tmp-x.json.gz").mkdir()
    steps(Profiler(tmp_path, torch.device("cpu"), say=said.append), 0, 1)
    assert said[0].startswith("no trace of the steps until 1: ")


@pytest.mark.e2e
def test_a_running_loop_answers(tmp_path: Path) -> None:
    data = torch.utils.data.TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
    with elastic.start(output=tmp_path, global_batch=8, epochs=2, seed=0, device="cpu", notice=Notice()) as run:
        network = torch.nn.Linear(4, 1)
        model = run.distribute(network)
        optimizer = torch.optim.SGD(network.parameters(), 0.01)
        run.register_state(model=model, optimizer=optimizer)
        for step in run.steps(run.loader(data, workers=0)):
            if step.number == 3:
                ask(tmp_path, '{"id": "abc", "steps": 4}')
            for inputs, targets in step:
                step.backward(torch.nn.functional.mse_loss(model(inputs), targets))
            optimizer.step()
            optimizer.zero_grad()
    found = names(tmp_path / "profile" / "abc.json.gz")
    assert sum("SGD.step" in name for name in found) == 4
