"""The gradient of a step is that of one large batch, at any number of ranks, uneven shares and accumulation included."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.functional import cross_entropy

from ebb.elastic.data import Seeded
from ebb.elastic.data.order import Piece, samples
from tests.elastic.runtime import programs
from tests.elastic.runtime.programs import Points, Program
from tests.elastic.runtime.ranks import together

SEED = 3


def one_step(output: Path, global_batch: int, largest: int) -> Program:
    settings = {"global_batch": global_batch, "max_micro_batch": largest, "epochs": 1, "seed": SEED}
    return Program(output=output, size=global_batch, plain=True, settings=settings)


def reference(count: int) -> tuple[list[torch.Tensor], float]:
    """One batch, one rank, no run."""
    torch.manual_seed(SEED)
    model = programs.network(plain=True)
    read = [Seeded(Points(count), seed=SEED)[number] for number in samples(SEED, count, Piece(0, count))]
    loss = cross_entropy(model(torch.stack([each["point"] for each in read])), torch.stack([each["label"] for each in read]))
    loss.backward()  # type: ignore[no-untyped-call]
    return [each.grad for each in model.parameters() if each.grad is not None], loss.item()


@pytest.mark.parametrize(
    ("world_size", "count", "largest"),
    [
        pytest.param(1, 9, 99, id="one"),
        pytest.param(1, 9, 4, id="one-accumulated"),
        pytest.param(1, 10, 1, id="one-by-one"),
        pytest.param(2, 9, 99, id="two-uneven"),
        pytest.param(3, 10, 2, id="three-uneven-accumulated"),
        pytest.param(3, 2, 99, id="one-rank-without-samples"),
    ],
)
def test_the_gradient_of_several_ranks_is_that_of_one_batch(tmp_path: Path, world_size: int, count: int, largest: int) -> None:
    answers: list[dict[str, Any]] = together(programs.train, world_size, one_step(tmp_path, count, largest))
    expected, loss = reference(count)
    for answer in answers:
        gradient = [torch.tensor(each) for each in answer["gradient"]]
        assert all(torch.allclose(each, want, atol=1e-6) for each, want in zip(gradient, expected, strict=True))
    told = [line for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert len(told) == 1
    assert f'"loss":{round(loss, 5)}' in told[0]
    assert '"figures":{"right":1.0}' in told[0]  # the mean over all samples, those that weigh nothing left out


def test_virtual_workers_sum_to_the_same_gradient(tmp_path: Path) -> None:
    program = one_step(tmp_path, 10, 2)
    program.settings["virtual_workers"] = 4
    expected, _ = reference(10)
    for answer in together(programs.train, 2, program):
        gradient = [torch.tensor(each) for each in answer["gradient"]]
        assert all(torch.allclose(each, want, atol=1e-6) for each, want in zip(gradient, expected, strict=True))


def test_one_sample_can_be_normalised_over(tmp_path: Path) -> None:
    """A last step of one sample, with BatchNorm: 11 samples, 10 a step."""
    answer = programs.train(Program(output=tmp_path, size=11, settings={"epochs": 1}))
    assert answer["steps"] == [0, 1]
    assert len(answer["seen"][1]) == 1
