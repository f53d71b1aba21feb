"""Shared gradients on two real processes over gloo: the sum that one would have, whatever is tuned."""

import os
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
import torch.distributed as dist

from ebb import elastic
from ebb.elastic.notices.notice import Notice
from ebb.elastic.runtime.config import ConfigError, resolve
from ebb.elastic.speed import Speed, settings
from tests.elastic.runtime.ranks import together

STEPS = 4


class Case(NamedTuple):
    settings: dict[str, Any]
    passes: int = 1
    tolerance: float = 1e-6


CASES = {
    "plain": Case({}),
    "accumulated": Case({}, passes=3),
    "many-buckets-static-graph": Case({"bucket_mb": 0.0001, "static_graph": True}),
    "static-graph-left-out-while-accumulating": Case({"static_graph": True}, passes=3),
    "compressed": Case({"compression": "bf16"}, passes=2, tolerance=2e-2),
}


def network() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))


def inputs(step: int, number: int, rank: int) -> torch.Tensor:
    return torch.randn(5, 4, generator=torch.Generator().manual_seed(100 * step + 10 * number + rank))


def flat(model: torch.nn.Module) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def alone(passes: int) -> torch.Tensor:
    """The training in one process, sample by sample."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(STEPS):
        optimizer.zero_grad()
        for number in range(passes):
            for rank in range(2):
                (model(inputs(step, number, rank)).square().mean() / passes / 2).backward()
        optimizer.step()
    return flat(model)


def trained(case: Case, *, accumulates: bool) -> list[float]:
    """The same on two ranks."""
    rank = int(os.environ["RANK"])
    model, speed = network(), Speed(**case.settings)
    shared = speed.wrap(speed.prepare(model, torch.device("cpu")), 2, accumulates=accumulates)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(STEPS):
        optimizer.zero_grad()
        for number in range(case.passes):
            shared.require_backward_grad_sync = number == case.passes - 1  # type: ignore[assignment]
            (shared(inputs(step, number, rank)).square().mean() / case.passes).backward()
        optimizer.step()
    found: list[float] = flat(model).tolist()
    return found


def all_cases() -> dict[str, list[float]]:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    return {name: trained(case, accumulates=case.passes > 1) for name, case in CASES.items()}


@pytest.fixture(scope="module")
def of_both() -> list[dict[str, list[float]]]:
    """One group for all: that is what takes the time."""
    return together(all_cases, 2)


@pytest.mark.parametrize("name", CASES)
def test_the_gradient_is_that_of_one_process(of_both: list[dict[str, list[float]]], name: str) -> None:
    first, second = (torch.tensor(weights[name]) for weights in of_both)
    assert torch.equal(first, second)
    assert torch.allclose(first, alone(CASES[name].passes), atol=CASES[name].tolerance)


def wrong_case() -> list[float]:
    dist.init_process_group("gloo")
    try:
        return trained(Case({"static_graph": True}, passes=3), accumulates=False)
    except RuntimeError:
        return []


def test_torch_cannot_accumulate_on_a_static_graph() -> None:
    """Why it is left out then. When this fails, torch has repaired it (pull request 187732): take the rule out of Speed.wrap."""
    found = together(wrong_case, 2)
    right = [bool(weights) and torch.allclose(torch.tensor(weights), alone(3), atol=1e-6) for weights in found]
    assert not all(right)


def test_alone_there_is_nothing_to_wrap() -> None:
    model = torch.nn.Linear(2, 2)
    assert Speed().wrap(model, 1, accumulates=True) is model


def test_options_of_the_program_reach_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """They win over what the settings of speed would choose."""
    given: dict[str, object] = {}
    monkeypatch.setattr(settings, "DistributedDataParallel", lambda _model, **options: given.update(options))
    Speed().wrap(torch.nn.Linear(2, 2), 2, accumulates=False, find_unused_parameters=True, bucket_cap_mb=1.0)
    assert (given["find_unused_parameters"], given["bucket_cap_mb"], given["gradient_as_bucket_view"]) == (True, 1.0, True)


def test_run_distribute_passes_its_options_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, object] = {}
    monkeypatch.setattr(settings, "DistributedDataParallel", lambda model, **options: given.update(options) or model)
    run = elastic.start(resolve({}, output=tmp_path, recovery="restart"), notice=Notice())
    run._group.world_size = 2
    run.distribute(torch.nn.Linear(2, 2), speed=Speed(), find_unused_parameters=True)
    assert given["find_unused_parameters"] is True


def test_an_option_that_torch_does_not_have_is_refused_before_a_second_rank_comes(tmp_path: Path) -> None:
    run = elastic.start(resolve({}, output=tmp_path), notice=Notice())
    with pytest.raises(ConfigError, match=r"distribute\(find_unused=...\) is no option .* find_unused_parameters"):
        run.distribute(torch.nn.Linear(2, 2), find_unused=True)
