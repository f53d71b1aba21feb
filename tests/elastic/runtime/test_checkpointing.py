"""What a checkpoint holds goes on in a program that computes otherwise: with another memory layout, with a fused optimizer."""

import copy
import io
import pickle
from collections import deque
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ebb import elastic
from ebb.elastic.checkpoint import ForeignCheckpointError
from ebb.elastic.checkpoint.state import Reached, dump, load
from ebb.elastic.data.order import Stream
from ebb.elastic.notices.notice import Notice
from ebb.elastic.runtime.checkpointing import Checkpointing, TrainingState
from ebb.elastic.runtime.config import resolve
from ebb.elastic.runtime.report import TimeAccount
from ebb.elastic.speed import Speed
from tests.elastic.runtime.ranks import together

CPU = torch.device("cpu")
IMAGES = torch.randn((4, 3, 8, 8), generator=torch.Generator().manual_seed(1))
PLAIN, QUICK = Speed(), Speed(channels_last=True, fused=True)


def kept(speed: Speed) -> TrainingState:
    torch.manual_seed(0)
    layers = [torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.Conv2d(8, 4, 3)]
    network = speed.prepare(torch.nn.Sequential(*layers), CPU)
    optimizer = torch.optim.SGD(network.parameters(), 0.1, momentum=0.9, **speed.optimizer_options(CPU))
    return TrainingState(model=network, optimizer=optimizer, others={})


def step(of: TrainingState, speed: Speed) -> None:
    of.optimizer.zero_grad()
    of.network(speed.laid_out(IMAGES)).square().mean().backward()
    of.optimizer.step()


@pytest.mark.parametrize("settings_stay", [False, True], ids=["own", "a-file"])
@pytest.mark.parametrize(("before", "after"), [(PLAIN, QUICK), (QUICK, PLAIN), (QUICK, QUICK)])
def test_another_layout_changes_no_weight(before: Speed, after: Speed, settings_stay: bool) -> None:
    calm = kept(before)
    step(calm, before)
    state = calm.state(Reached(step=1, samples=4, epoch=0), seed=0, virtual=None, parts={})
    resumed = kept(after)
    resumed.load(copy.deepcopy(state), settings_stay=settings_stay)
    for _ in range(3):
        step(calm, before)
        step(resumed, after)
    for wanted, found in zip(calm.network.parameters(), resumed.network.parameters(), strict=True):
        assert torch.allclose(found, wanted, atol=1e-5)
    assert bool(resumed.optimizer.param_groups[0]["fused"]) is after.fused


class Remembers:
    """An object with a state of any kind."""

    def __init__(self, **state: Any) -> None:
        self.state = state

    def state_dict(self) -> dict[str, Any]:
        return dict(self.state)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.state = state


def with_others(**others: Any) -> TrainingState:
    network = torch.nn.Linear(2, 2)
    return TrainingState(model=network, optimizer=torch.optim.SGD(network.parameters(), np.float64(0.1)), others=others)


def resume(saved: TrainingState, into: TrainingState) -> None:
    """Through a file, as torch reads it anywhere."""
    file = io.BytesIO()
    dump(saved.state(Reached(step=1, samples=4, epoch=0), seed=0, virtual=None, parts={}))(file)  # type: ignore[arg-type]
    into.load(load(file.getvalue()), settings_stay=False)


def test_state_of_any_common_kind_is_loaded_again() -> None:
    """It was saved and committed before, and refused by every start after that."""
    state = {"best": np.float64(0.5), "last": deque([1, 2], maxlen=2), "path": Path("/x"), "spent": timedelta(hours=1)}
    resumed = Remembers()
    resume(with_others(mine=Remembers(**state)), with_others(mine=resumed))
    assert resumed.state == state


def test_state_that_could_not_be_loaded_is_refused_at_once() -> None:
    with pytest.raises(
        TypeError, match=r"run.register_state\(mine=...\)\['model'\] is a Remembers, which a checkpoint cannot hold"
    ):
        with_others(mine=Remembers(model=Remembers()))


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        (("ema",), (), r"the checkpoint holds ema, which run.register_state\(\) was not given"),
        ((), ("ema",), "the checkpoint has no state of ema: they would start anew"),
        (("a", "b", "c"), ("d", "b"), "has no state of d and holds a, c, which .* Register the same names; .* --resume-from"),
    ],
)
def test_other_names_are_refused_before_anything_is_loaded(before: tuple[str], after: tuple[str], words: str) -> None:
    resumed = with_others(**{name: Remembers() for name in after})
    weights = copy.deepcopy(resumed.network.state_dict())
    with pytest.raises(ForeignCheckpointError, match=words):
        resume(with_others(**{name: Remembers(x=1) for name in before}), resumed)
    assert all(torch.equal(now, weights[name]) for name, now in resumed.network.state_dict().items())


def opened(output: Path, *, resume_from: str = "", **others: Any) -> tuple[elastic.Run, Checkpointing]:
    config = resolve({}, output=output, resume_from=resume_from, global_batch=4, epochs=1, workers=0)
    run = elastic.start(config, notice=Notice())
    model = run.distribute(torch.nn.Linear(400, 400))
    run.register_state(model=model, optimizer=torch.optim.SGD(model.parameters(), 0.1, momentum=0.9), **others)
    assert run._checkpointing is not None
    return run, run._checkpointing


def save_first_step(output: Path, **others: Any) -> None:
    run, first = opened(output, **others)
    stream = Stream(dataset_size=8, epochs=1, global_batch=4, seed=0)
    with run:
        first.saver.save_now(1, lambda: first.state(1, stream, {"dataset_size": 8}, TimeAccount(useful_seconds=7.0)))


def test_another_jobs_checkpoint_may_have_other_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The way out that the refusal names: what both know goes on, and the rest is said."""
    save_first_step(tmp_path / "first", old=Remembers(x=1), both=Remembers(x=2))
    with pytest.raises(ForeignCheckpointError, match="holds old, which"):
        opened(tmp_path / "first", new=Remembers(x=3), both=Remembers())
    new, both = Remembers(x=3), Remembers()
    _, resumed = opened(tmp_path / "second", resume_from=str(tmp_path / "first"), new=new, both=both)
    assert (resumed.origin.step, new.state, both.state) == (1, {"x": 3}, {"x": 2})
    said = "the checkpoint has no state of new and holds old, which run.register_state() was not given: they start anew"
    assert said in capsys.readouterr().err


def test_a_checkpoint_that_is_loaded_leaves_memory(tmp_path: Path) -> None:
    """Its bytes and tensors were held for the life of each process: twice the state."""
    save_first_step(tmp_path)
    _, resumed = opened(tmp_path)
    stream = Stream(dataset_size=8, epochs=1, global_batch=4, seed=0)
    assert (resumed.origin.step, resumed.saved["account"]["useful_seconds"]) == (1, 7.0)
    assert resumed.first_step({"dataset_size": 8}, stream) == 1
    assert len(pickle.dumps([resumed.origin, resumed.saved])) < 2000


def start_large(output: Path) -> float:
    """A state of 64 MiB of weights and as much momentum. Resident MiB when it is registered, before it is saved once more."""
    run = elastic.start(resolve({}, output=output, global_batch=4, epochs=1, workers=0), notice=Notice())
    model = run.distribute(torch.nn.Linear(4096, 4096, bias=False))
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    run.register_state(model=model, optimizer=optimizer)
    status = Path("/proc/self/status").read_text(encoding="ascii")
    found = int(status.partition("VmRSS:")[2].split()[0]) / 1024
    model(torch.ones(4, 4096)).sum().backward()
    optimizer.step()
    checkpointing, stream = run._checkpointing, Stream(dataset_size=8, epochs=1, global_batch=4, seed=0)
    assert checkpointing is not None
    step = checkpointing.origin.step + 1
    checkpointing.saver.save_now(step, lambda: checkpointing.state(step, stream, {"dataset_size": 8}, TimeAccount()))
    return found


def test_the_memory_of_a_load_goes_back_to_the_kernel(tmp_path: Path) -> None:
    """Freed memory is kept for the next step otherwise: all that the load had needed, for the life of the process."""
    (fresh,) = together(start_large, 1, tmp_path)
    (resumed,) = together(start_large, 1, tmp_path)
    assert resumed - fresh < 64 + 32, "the momentum, and some air"
