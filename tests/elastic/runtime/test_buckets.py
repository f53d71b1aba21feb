"""Gradients that are summed without torch's own buckets: all of them, those that take no part, and what is refused."""

import datetime
from typing import Any

import pytest
import torch
import torch.distributed as dist

from ebb.elastic.runtime.buckets import Buckets
from ebb.elastic.runtime.members import Members
from ebb.elastic.runtime.process_group import PeerLostError


class Twins(Members):
    """Two ranks, of which the other one always has the same gradients."""

    def start_sum(self, values: torch.Tensor, backend: Any = None) -> dist.Work:
        values.mul_(2)
        return DoneWork()


class DoneWork(dist.Work):
    def wait(self, timeout: datetime.timedelta = datetime.timedelta(0)) -> bool:
        return True


@pytest.fixture
def twins() -> Twins:
    return Twins(0, 2, torch.device("cpu"))


def summed(buckets: Buckets, loss: torch.Tensor) -> None:
    buckets.arm()
    loss.backward()  # type: ignore[no-untyped-call]
    buckets.finish()


@pytest.mark.parametrize("in_lockstep", [False, True])
@pytest.mark.parametrize("limit_bytes", [1, 40, 10**6])
def test_every_gradient_is_the_sum_however_they_are_cut(twins: Twins, limit_bytes: int, in_lockstep: bool) -> None:
    network = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2).double())
    values = [torch.ones(1, 3), torch.ones(1, 4, dtype=torch.float64)]
    buckets = Buckets(network.parameters(), twins, limit_bytes=limit_bytes, in_lockstep=in_lockstep)
    summed(buckets, sum((layer(value).sum() for layer, value in zip(network, values, strict=True)), torch.zeros(())))
    found = [parameter.grad for parameter in network.parameters()]
    for each in network.parameters():
        each.grad = None
    sum((layer(value).sum() for layer, value in zip(network, values, strict=True)), torch.zeros(())).backward()
    for one, parameter in zip(found, network.parameters(), strict=True):
        assert one is not None
        assert parameter.grad is not None
        assert torch.equal(one, 2 * parameter.grad)


def test_gradients_in_lockstep_have_no_second_set_of_them() -> None:
    """They travel in their bucket alone, and are that bucket's memory when they come back."""
    layer = torch.nn.Linear(2, 1, bias=False)

    class Watching(Twins):
        def start_sum(self, values: torch.Tensor, backend: Any = None) -> dist.Work:
            assert layer.weight.grad is None
            sums.append(values)
            return super().start_sum(values)

    sums: list[torch.Tensor] = []
    buckets = Buckets(layer.parameters(), Watching(0, 2, torch.device("cpu")), in_lockstep=True)
    summed(buckets, layer(torch.ones(1, 2)).sum())
    assert layer.weight.grad is not None
    assert layer.weight.grad.data_ptr() == sums[0].data_ptr()
    assert [each._flat for each in buckets._buckets] == [None]


class Richer(Twins):
    """The other rank has a gradient of 1 where this one has none."""

    def start_sum(self, values: torch.Tensor, backend: Any = None) -> dist.Work:
        values.add_(values == 0)
        return super().start_sum(values)


def test_gradients_may_travel_in_half_the_bytes() -> None:
    """And keep their own type, also those that another rank alone has."""
    used, unused = torch.nn.Linear(1, 1, bias=False), torch.nn.Linear(1, 1, bias=False)
    group = Richer(0, 2, torch.device("cpu"))
    buckets = Buckets([*used.parameters(), *unused.parameters()], group, dtype=torch.bfloat16)
    assert {each._flat.dtype for each in buckets._buckets if each._flat is not None} == {torch.bfloat16}
    summed(buckets, (used(torch.ones(1, 1)) * (1 + 2**-12)).sum())
    for parameter in (used.weight, unused.weight):
        assert parameter.grad is not None
        assert parameter.grad.dtype == torch.float32
        assert parameter.grad.item() == 2  # 2**-12 is lost in 8 significant bits


def test_a_parameter_that_took_no_part_keeps_none(twins: Twins) -> None:
    used, unused = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
    buckets = Buckets([*used.parameters(), *unused.parameters()], twins, limit_bytes=1)
    for _ in range(2):
        summed(buckets, used(torch.ones(1, 2)).sum())
    assert used.weight.grad is not None
    assert unused.weight.grad is None


def test_a_pass_that_is_not_the_last_sums_nothing(twins: Twins) -> None:
    layer = torch.nn.Linear(1, 1, bias=False)
    buckets = Buckets(layer.parameters(), twins)
    layer(torch.ones(1, 1)).sum().backward()
    assert layer.weight.grad is not None
    assert layer.weight.grad.item() == 1
    summed(buckets, layer(torch.ones(1, 1)).sum())
    assert layer.weight.grad.item() == 4  # of two ranks with two micro-batches each


def test_sparse_gradients_are_refused(twins: Twins) -> None:
    layer = torch.nn.Embedding(3, 2, sparse=True)
    buckets = Buckets(layer.parameters(), twins)
    buckets.arm()
    with pytest.raises(RuntimeError, match="sparse=False, or set --recovery restart"):
        layer(torch.tensor([1])).sum().backward()


def test_a_parameter_with_two_gradients_in_a_pass_is_refused(twins: Twins) -> None:
    layer = torch.nn.Linear(2, 2)

    def again(value: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = torch.utils.checkpoint.checkpoint(layer, value, use_reentrant=True)
        return found

    buckets = Buckets(layer.parameters(), twins)
    buckets.arm()
    value = torch.ones(1, 2, requires_grad=True)
    with pytest.raises(RuntimeError, match="two gradients in one backward pass"):
        (again(value) + again(value)).sum().backward()  # type: ignore[no-untyped-call]


def test_a_pass_ends_where_a_peer_is_gone(twins: Twins) -> None:
    first, last = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
    buckets = Buckets([*first.parameters(), *last.parameters()], twins)
    last.weight.register_post_accumulate_grad_hook(lambda _: twins.abandon())  # type: ignore[no-untyped-call]
    buckets.arm()
    with pytest.raises(PeerLostError):
        last(first(torch.ones(1, 2))).sum().backward()
    assert first.weight.grad is None
    with pytest.raises(PeerLostError):
        buckets.finish()
