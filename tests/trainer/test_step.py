"""The gradient of a step is that of one large batch, at any number of ranks, uneven shares and accumulation included."""

import multiprocessing
import socket
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from trainer.config import Place
from trainer.data import Batch
from trainer.group import Group
from trainer.order import Piece, share, split
from trainer.step import Step, backward, learning_rate, normalise

SIDE = 8
CPU = torch.device("cpu")


def network() -> torch.nn.Module:
    """Without BatchNorm, whose statistics are those of a micro-batch by its nature."""
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * SIDE * SIDE, 16), torch.nn.Tanh(), torch.nn.Linear(16, 4))


def samples(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    images = torch.randint(0, 256, (count, 3, SIDE, SIDE), generator=generator, dtype=torch.uint8)
    return images, torch.randint(0, 4, (count,), generator=generator)


def gradients(model: torch.nn.Module) -> list[torch.Tensor]:
    return [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]


def one_rank(rank: int, world_size: int, count: int, largest: int) -> tuple[list[torch.Tensor], float, list[int]]:
    """What a rank leaves in its parameters; loss and ids are its own."""
    model = network()
    shared = model if world_size == 1 else DistributedDataParallel(model)
    images, labels = samples(count)
    pieces = split(share(Piece(0, count), rank, world_size), largest)
    batches: Iterator[Batch] = iter(
        [Batch(images[slice(*piece)], labels[slice(*piece)], list(range(*piece))) for piece in pieces]
    )
    empty = Batch(torch.zeros((2, 3, SIDE, SIDE), dtype=torch.uint8), torch.zeros(2, dtype=torch.int64), [])
    told: list[int] = []
    step = Step(num_micro_batches=len(pieces), num_samples=count, world_size=world_size)
    loss = backward(shared, batches, step, empty=empty, device=CPU, before_sharing=told.extend)
    return gradients(model), loss.item(), told


def reference(count: int) -> tuple[list[torch.Tensor], float]:
    model = network()
    images, labels = samples(count)
    loss = cross_entropy(model(normalise(images, CPU)), labels)
    loss.backward()  # type: ignore[no-untyped-call]
    return gradients(model), loss.item()


def in_a_process(rank: int, place: tuple[int, int], count: int, largest: int, answers: Any) -> None:
    import os

    world_size, port = place
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(world_size))
    with Group.join(Place(rank=rank, world_size=world_size), CPU, collective_seconds=60) as group:
        grads, loss, ids = one_rank(rank, world_size, count, largest)
        leave, total, newest = group.agree(rank == 1, loss, checkpoint_step=40 + rank).wait()
        answers.put((rank, [grad.tolist() for grad in grads], total, ids, leave, newest))
        group.barrier()


@pytest.mark.parametrize(
    ("world_size", "count", "largest"),
    [
        pytest.param(2, 9, 99, id="two-uneven"),
        pytest.param(3, 10, 2, id="three-uneven-accumulated"),
        pytest.param(3, 2, 99, id="one-rank-without-samples"),
    ],
)
def test_the_gradient_of_several_ranks_is_that_of_one_batch(world_size: int, count: int, largest: int) -> None:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.trainer.test_step"])
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    answers = context.Queue()
    ranks = [
        context.Process(target=in_a_process, args=(rank, (world_size, port), count, largest, answers), daemon=True)
        for rank in range(world_size)
    ]
    for process in ranks:
        process.start()
    results = sorted(answers.get(timeout=60) for _ in ranks)
    for process in ranks:
        process.join(30)
    expected, loss = reference(count)
    for _, grads, total, _, leave, newest in results:
        assert all(torch.allclose(torch.tensor(grad), want, atol=1e-6) for grad, want in zip(grads, expected, strict=True))
        assert total == pytest.approx(loss, abs=1e-6)
        assert leave  # only rank 1 wants to: all agree
        assert newest == 40  # what rank 0 says
    assert [number for _, _, _, ids, _, _ in results for number in ids] == list(range(count))


@pytest.mark.parametrize(("count", "largest"), [(9, 99), (9, 4), (10, 1)])
def test_accumulation_changes_nothing(count: int, largest: int) -> None:
    grads, loss, ids = one_rank(0, 1, count, largest)
    expected, expected_loss = reference(count)
    assert all(torch.allclose(grad, want, atol=1e-6) for grad, want in zip(grads, expected, strict=True))
    assert loss == pytest.approx(expected_loss, abs=1e-6)
    assert ids == list(range(count))


def test_one_sample_can_be_normalised_over() -> None:
    """A share of one sample, with a BatchNorm that sees one value per channel."""
    model = torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.BatchNorm1d(3), torch.nn.Linear(3, 4))
    images, labels = samples(1)
    step = Step(num_micro_batches=1, num_samples=8, world_size=1)
    batch = Batch(images, labels, [0])
    loss = backward(model, iter([batch]), step, empty=batch, device=CPU, before_sharing=lambda _: None)
    assert loss.item() == pytest.approx(cross_entropy(model[3](model[2].bias), labels[0]).item() / 8, abs=1e-6)


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        pytest.param(0, 0.01, id="first-of-warm-up"),
        pytest.param(9, 0.1, id="peak"),
        pytest.param(10, 0.1, id="start-of-the-cosine"),
        pytest.param(60, 0.05, id="half-way"),
        pytest.param(110, 0.0, id="end"),
    ],
)
def test_the_learning_rate_is_a_function_of_the_step(step: int, expected: float) -> None:
    assert learning_rate(step, peak=0.1, total_steps=110, warmup_steps=10) == pytest.approx(expected)
