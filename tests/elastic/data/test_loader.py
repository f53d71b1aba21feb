"""Loader processes give what none gives, start under any parent, and a loop of one's own needs few changes."""

import multiprocessing
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import Dataset

from ebb.elastic.data import (
    Batch,
    DataError,
    ElasticBatchSampler,
    ElasticLoader,
    ShardSequence,
    batches,
    on_device,
    open_images,
)
from ebb.elastic.data.order import Plan, Sample, Stream
from tests.elastic import images


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return images.make(tmp_path_factory.mktemp("images"))


def load(data: Path, workers: int) -> list[Batch]:
    stream = Stream(dataset_size=27, epochs=2, global_batch=8, seed=0)
    plan: Iterable[list[Sample]] = Plan(stream=stream, first_step=1, rank=0, world_size=1, max_micro_batch=8)
    dataset = open_images(data / "train", data / "out", image_size=32, augment="shift", seed=0)
    return list(batches(dataset, plan, workers=workers))


@pytest.mark.filterwarnings("ignore:This DataLoader will create 4 worker processes")  # on a machine with fewer cores
def test_four_loader_processes_give_what_none_gives(data: Path) -> None:
    """They hand their batches over through /dev/shm."""
    alone, four = load(data, 0), load(data, 4)
    assert [batch.ids for batch in four] == [batch.ids for batch in alone]
    assert all(torch.equal(one.images, other.images) for one, other in zip(alone, four, strict=True))
    assert sum(len(batch.ids) for batch in four) == 2 * 27 - 8


def load_in_a_child(data: Path, answers: Any) -> None:
    answers.put((multiprocessing.get_start_method(), [batch.ids for batch in load(data, 1)]))


def test_a_child_of_a_fork_server_forks_its_loader_processes(data: Path) -> None:
    """It inherits `forkserver`; through that, loader processes would import everything again, and here even find no dataset."""
    context = multiprocessing.get_context("forkserver")
    answers = context.Queue()
    child = context.Process(target=load_in_a_child, args=(data, answers))
    child.start()
    method, ids = answers.get(timeout=60)
    child.join(30)
    assert (method, ids) == ("forkserver", [batch.ids for batch in load(data, 0)])


def test_on_the_cpu_batches_stay_where_they_are(data: Path) -> None:
    loaded = load(data, 0)
    given = list(on_device(iter(loaded), torch.device("cpu")))
    assert all(one is other for one, other in zip(given, loaded, strict=True))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu_batches_are_copied_ahead(data: Path) -> None:
    device = torch.device("cuda", 0)
    loaded = load(data, 0)
    given = list(on_device(iter(loaded), device))
    assert all(batch.images.device == batch.labels.device == device for batch in given)
    assert all(torch.equal(one.images.cpu(), other.images) for one, other in zip(given, loaded, strict=True))


class Points(Dataset[Any]):
    """Noise around a line, drawn anew each time: an augmentation."""

    name = "points"

    def __len__(self) -> int:
        return 23

    def __getitem__(self, number: int) -> tuple[torch.Tensor, torch.Tensor, int]:
        point = torch.tensor([number / 23.0])
        return point, 3 * point + 1 + 0.1 * torch.randn(1), number


def train(loader: ElasticLoader, used: Counter[int], steps: int, weights: torch.Tensor) -> None:
    """A stock loop. Stops after so many steps, as a reclaim would."""
    while loader.epoch < 3:
        for points, targets, numbers in loader:
            loss = ((points @ weights[:1] + weights[1] - targets) ** 2).mean()
            (loss * loader.now.weight).backward()
            used.update(numbers.tolist())
            if loader.now.last:
                assert weights.grad is not None
                weights.data -= 0.1 * weights.grad
                weights.grad = None
                steps -= 1
                if not steps:
                    return


@pytest.mark.parametrize("workers", [0, 2])
def test_a_stock_loop_is_exact_with_few_changes(workers: int) -> None:
    """One run without accumulation, and one that is stopped, goes on from its state, and accumulates: the same weights."""

    def fresh(**more: Any) -> ElasticLoader:
        return ElasticLoader(Points(), global_batch=6, epochs=3, seed=5, num_workers=workers, **more)

    def start() -> torch.Tensor:
        return torch.zeros((2, 1), requires_grad=True)

    whole, expected = start(), Counter[int]()
    train(fresh(), expected, 99, whole)
    stopped, used = start(), Counter[int]()
    loader = fresh(max_micro_batch=4)
    assert len(loader) == 8  # 4 steps of 2 batches
    train(loader, used, 5, stopped)
    state = loader.state_dict()
    loader = fresh(max_micro_batch=2)
    loader.load_state_dict(state)
    assert len(loader) == 9  # the rest of the second epoch: 16 samples, 3 steps of 3
    train(loader, used, 99, stopped)
    assert used == expected == Counter({number: 3 for number in range(23)})
    assert torch.allclose(stopped, whole, atol=1e-6)


@pytest.mark.skipif(torch.cuda.is_available(), reason="it is measured where there is a GPU")
def test_minus_one_leaves_a_core_to_the_training(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two ranks share the machine."""
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(6)))
    monkeypatch.setattr("ebb.elastic.cores._limit", lambda _: None)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    loader = ElasticLoader(Points(), global_batch=6, epochs=1, num_workers=-1)
    assert loader._loader.num_workers == 2
    assert loader._loader.persistent_workers


def test_the_largest_batch_of_a_rank() -> None:
    assert ElasticBatchSampler(100, global_batch=33, epochs=1, rank=1, world_size=4).largest_micro_batch() == 9
    sampler = ElasticBatchSampler(100, global_batch=33, epochs=1, max_micro_batch=4, rank=0, world_size=4)
    assert sampler.largest_micro_batch() == 3  # 9 samples in 3 batches


@pytest.mark.parametrize("wrong", ["batch_size", "shuffle", "sampler", "drop_last"])
def test_arguments_that_would_break_the_order_are_refused(wrong: str) -> None:
    options: dict[str, Any] = {wrong: True}
    with pytest.raises(ValueError, match=f"{wrong}: the order is this loader's own"):
        ElasticLoader(Points(), global_batch=2, epochs=1, **options)


def test_a_sequence_knows_its_batches_itself() -> None:
    dataset = ShardSequence([("a", 3)], lambda *_: [1, 2, 3], global_batch=2, epochs=1)
    with pytest.raises(ValueError, match="are set at the ShardSequence"):
        ElasticLoader(dataset, global_batch=2)
    with pytest.raises(ValueError, match="num_workers is -1; a ShardSequence only reads bytes"):
        ElasticLoader(dataset, num_workers=-1)


def test_a_state_of_other_data_is_refused() -> None:
    with pytest.raises(DataError, match="dataset_size 24 and this program 23"):
        ElasticLoader(Points(), global_batch=2, epochs=1).load_state_dict({"seed": 0, "dataset_size": 24})
