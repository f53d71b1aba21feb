"""What is inside: read anywhere, on the CPU, without running code; and a snapshot is the state, bit for bit."""

import io
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ebb.elastic.checkpoint import RefusedError
from ebb.elastic.checkpoint.snapshot import Buffers, addresses
from ebb.elastic.checkpoint.state import Reached, capture_random, collect, load, restore_random, weights


def network() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4))


def collected() -> dict[str, Any]:
    plain = network()
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.1, momentum=0.9)
    reached = Reached(step=7, samples=70, epoch=2, best_accuracy=55.5)
    return collect(arch="tiny", network=plain, optimizer=optimizer, reached=reached, seed=3, parts={"account": {"a": 1.0}})


def test_the_entries_are_these() -> None:
    """The first five are the original example's; a new one is a decision."""
    state = collected()
    assert list(state) == [*("epoch", "arch", "best_acc1", "state_dict", "optimizer", "step", "sampler", "random", "account")]
    assert (state["epoch"], state["arch"], state["best_acc1"]) == (1, "tiny", 55.5)
    assert state["sampler"] == {"seed": 3, "samples": 70}
    assert {name.partition(".")[0] for name in state["state_dict"]} == {"module"}


def test_it_is_read_with_torch_load_alone() -> None:
    again = load(saved(collected()))
    fresh = network()
    fresh.load_state_dict(weights(again))
    wrapped = torch.nn.DataParallel(network())
    wrapped.load_state_dict(again["state_dict"])  # as the original example does


class Evil:
    def __reduce__(self) -> Any:
        return (print, ("code was run",))


def saved(content: Any) -> bytes:
    file = io.BytesIO()
    torch.save(content, file)
    return file.getvalue()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        pytest.param(saved(Evil()), "x.pth cannot be read as tensors and plain values", id="code"),
        pytest.param(b"", "cannot be read", id="empty"),
        pytest.param(b"PK\x03\x04 not a zip", "cannot be read", id="half-a-zip"),
        pytest.param(saved([1, 2]), "holds a list; a dict with state_dict is needed", id="a-list"),
    ],
)
def test_what_is_no_checkpoint_is_a_sentence(content: bytes, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(RefusedError, match=words):
        load(content, "x.pth")
    assert capsys.readouterr().out == ""


def draws() -> tuple[Any, ...]:
    return torch.rand(3).tolist(), random.random(), np.random.random()


def test_the_generators_go_on_where_they_were_on_rank_0_and_differ_on_the_others() -> None:
    random.seed(1), np.random.seed(1), torch.manual_seed(1)
    random.gauss(0, 1)
    before = load(saved(capture_random()))
    expected = draws()
    seen = []
    for rank in (0, 1, 2, 1):
        draws()
        restore_random(before, rank=rank, seed=9)
        seen.append(draws())
    assert seen[0] == expected
    assert seen[1] == seen[3]
    assert len({str(draw) for draw in seen}) == 3


def test_a_snapshot_is_the_state_and_keeps_its_form() -> None:
    tied = torch.randn(4, 4)
    state: dict[str, Any] = {
        "a": tied, "b": [tied, (torch.randn(3), 7)], "c": torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
        "d": torch.tensor(5), "e": "text", "f": None, "g": torch.empty(0), "h": torch.arange(6)[::2], "i": torch.empty(0),
    }  # fmt: skip
    buffers = Buffers()
    buffers.prepare(state)
    copy = buffers.copy(state).tree
    assert torch.equal(copy["a"], tied)
    assert copy["a"] is copy["b"][0]
    assert copy["a"].data_ptr() != tied.data_ptr()
    assert copy["c"].is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(copy["c"], state["c"])
    assert (copy["b"][1][1], copy["e"], copy["f"], copy["d"].item()) == (7, "text", None, 5)
    assert torch.equal(copy["h"], torch.tensor([0, 2, 4]))


def test_a_state_that_changes_its_form_gets_other_buffers() -> None:
    buffers = Buffers()
    for shape in ((2,), (3,), (3, 3)):
        tensor = torch.randn(shape)
        assert torch.equal(buffers.copy({"a": tensor}).tree["a"], tensor)


def test_late_tensors_are_copied_when_the_writer_does_it() -> None:
    parameter = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([parameter], momentum=0.9)
    other = torch.ones(3)
    snapshot = Buffers().copy({"late": parameter, "now": other}, late=addresses(optimizer))
    other.fill_(2)
    with torch.no_grad():
        parameter.fill_(3)  # a loop that does not wait
    snapshot.complete()
    snapshot.settle()
    assert (snapshot.tree["late"][0].item(), snapshot.tree["now"][0].item()) == (3, 1)


def test_a_checkpoint_takes_no_more_than_its_tensors(tmp_path: Path) -> None:
    """A view of a large tensor must not bring all of it along."""
    large = torch.randn(100_000)
    file = tmp_path / "x"
    torch.save(Buffers().copy({"a": large[:10]}).tree, file)
    assert file.stat().st_size < 10_000
