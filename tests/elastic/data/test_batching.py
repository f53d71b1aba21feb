"""Loader processes give what none gives, and start under any parent."""

import multiprocessing
from pathlib import Path
from typing import Any

import pytest
import torch

from ebb.elastic.data import Batch, batches, open_images
from ebb.elastic.data.order import Stream
from ebb.elastic.runtime.plan import MicroBatchPlan
from tests.elastic import images


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return images.make(tmp_path_factory.mktemp("images"))


def load(data: Path, workers: int) -> list[Batch]:
    stream = Stream(dataset_size=27, epochs=2, global_batch=8, seed=0)
    plan = MicroBatchPlan(stream=stream, first_step=1, rank=0, world_size=1, max_micro_batch=8)
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
    # A process has one fork server: where it starts here, tests of tests/elastic/runtime come from it too.
    context.set_forkserver_preload(["tests.elastic.runtime.programs"])
    answers = context.Queue()
    child = context.Process(target=load_in_a_child, args=(data, answers))
    child.start()
    method, ids = answers.get(timeout=60)
    child.join(30)
    assert (method, ids) == ("forkserver", [batch.ids for batch in load(data, 0)])
