"""The number of loader processes, and the word when data comes too late; with a clock and rates of our own."""

import json
from collections.abc import Iterable, Iterator
from itertools import count
from pathlib import Path

import pytest
import torch

from ebb.elastic.data import open_images, tuning
from ebb.elastic.data.order import Sample
from ebb.elastic.data.tuning import (
    Site,
    Watched,
    advice,
    best,
    loader_workers,
    loading_rate,
    measure,
    measured_workers,
    random_batches,
    rate_of,
    samples_in_a_batch,
    workers_beside_cpu_training,
)
from tests.elastic import images

SITE = Site(cores=8, decoding=True, image_size=224, micro_batch=64, augment="imagenet")


@pytest.fixture(autouse=True)
def _much_shared_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "_free_shm", lambda: 2**40)


class Machine:
    """Each process makes 100 images a second, until there are `wall` of them."""

    def __init__(self, wall: int) -> None:
        self.wall = wall
        self.asked: list[int] = []

    def rate(self, workers: int) -> float:
        self.asked.append(workers)
        return 100.0 * min(workers, self.wall) - workers


@pytest.mark.parametrize(
    ("wall", "most", "asked", "chosen"),
    [
        pytest.param(99, 8, [1, 2, 4, 8], 8, id="every-core-helps"),
        pytest.param(99, 6, [1, 2, 4, 6], 6, id="not-a-power-of-two"),
        pytest.param(2, 8, [1, 2, 4], 2, id="slow-storage"),
        pytest.param(1, 8, [1, 2], 1, id="one-is-enough"),
    ],
)
def test_the_smallest_number_that_is_nearly_the_best(wall: int, most: int, asked: list[int], chosen: int) -> None:
    machine = Machine(wall)
    assert best(measure(machine.rate, most)) == chosen
    assert machine.asked == asked


def test_it_is_measured_once_per_kind_of_machine(tmp_path: Path) -> None:
    machine, said = Machine(4), list[str]()
    first = loader_workers(-1, SITE, machine.rate, kept_in=tmp_path, say=said.append)
    again = loader_workers(-1, SITE, machine.rate, kept_in=tmp_path, say=said.append)
    assert (first, again, machine.asked) == (4, 4, [1, 2, 4, 8])
    assert said == ["4 loader processes per rank (images a second by their number, 1: 99, 2: 198, 4: 396, 8: 392)"]
    other = Site(**(json.loads((tmp_path / "loader.json").read_text())["site"] | {"cores": 2}))
    assert loader_workers(-1, other, machine.rate, kept_in=tmp_path, say=said.append) == 2


def test_a_damaged_note_is_measured_again(tmp_path: Path) -> None:
    (tmp_path / "loader.json").write_text("[")
    assert loader_workers(-1, SITE, Machine(2).rate, kept_in=tmp_path) == 2


@pytest.mark.parametrize(
    ("asked", "expected", "words"),
    [
        pytest.param(0, 0, [], id="none"),
        pytest.param(3, 3, [], id="as-asked"),
        pytest.param(12, 8, ["--workers is 12, but this rank has 8 cores: it uses 8"], id="never-more-than-cores"),
    ],
)
def test_what_was_asked_for(tmp_path: Path, asked: int, expected: int, words: list[str]) -> None:
    said: list[str] = []
    machine = Machine(4)
    assert loader_workers(asked, SITE, machine.rate, kept_in=tmp_path, say=said.append) == expected
    assert (said, machine.asked) == (words, [])


@pytest.mark.parametrize(
    ("shm", "asked", "expected"),
    [
        pytest.param((64 * 2**20, 1), 8, 2, id="docker's default"),  # a batch is 9.6 MB, two of them per process
        pytest.param((64 * 2**20, 2), 8, 1, id="two ranks"),
        pytest.param((2**20, 1), -1, 0, id="nothing fits"),
    ],
)
def test_never_more_than_shared_memory_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shm: tuple[int, int], asked: int, expected: int
) -> None:
    free, ranks = shm
    monkeypatch.setattr(tuning, "_free_shm", lambda: free)
    said: list[str] = []
    found = loader_workers(asked, SITE, Machine(1).rate, kept_in=tmp_path, ranks=ranks, say=said.append)
    assert found == expected
    assert said[0].startswith(f"/dev/shm has room for the batches of {expected} loader processes: give the container more")


def test_the_rate_is_that_of_real_loader_processes(tmp_path: Path) -> None:
    data = images.make(tmp_path / "data", train=30)
    dataset = open_images(data / "train", tmp_path, image_size=32, augment="shift", seed=0)
    rate = loading_rate(dataset, 16, seconds=0.05)
    assert rate(0) > 0
    assert rate(1) > 0


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def watched(waits: list[float], step_seconds: float) -> tuple[list[str], Watched[int]]:
    """Run through a loader that makes one wait so long for each batch."""
    clock, said = Clock(), list[str]()

    def source() -> Iterator[int]:
        for number, wait in enumerate(waits):
            clock.now += wait
            yield number

    loader = Watched(source(), say=lambda text: said.append(f"{clock.now:.0f}: {text}"), advice="turn the knob", clock=clock)
    for expected, number in enumerate(loader):
        assert number == expected
        clock.now += step_seconds
    return said, loader


def test_a_sustained_wait_is_said_once_in_five_minutes() -> None:
    said, loader = watched([30.0] + [0.5] * 500, 1.0)
    assert said == [f"{at}: 33% of the last 60 s went by waiting for data: turn the knob" for at in (90, 390, 690)]
    assert loader.waited_seconds == 250.0  # the first is the start of the processes


@pytest.mark.parametrize(
    "waits",
    [
        pytest.param([30.0] + [0.1] * 500, id="below-the-limit"),
        pytest.param([0.0] * 200 + [5.0] + [0.0] * 200, id="one-hiccup"),
        pytest.param([0.0] + [9.0] * 5, id="too-short-to-tell"),
    ],
)
def test_what_is_not_worth_a_word(waits: list[float]) -> None:
    assert watched(waits, 1.0)[0] == []


@pytest.mark.parametrize(
    ("workers", "decoding", "words"),
    [
        pytest.param(0, True, "--workers 1 (now 0; this rank has 8 cores)", id="none"),
        pytest.param(3, False, "--workers 6 (now 3; this rank has 8 cores)", id="few"),
        pytest.param(6, True, "--workers 8 (now 6;", id="not-more-than-cores"),
        pytest.param(8, True, "python -m ebb.elastic.data convert DATA OUT", id="decoding"),
        pytest.param(8, False, "faster storage", id="storage"),
    ],
)
def test_the_knob(workers: int, decoding: bool, words: str) -> None:
    site = Site(cores=8, decoding=decoding, image_size=224, micro_batch=64, augment="imagenet")
    assert words in advice(workers, site)


class Points:
    """Any map-style dataset: a dict of tensors. Notes which samples were read."""

    def __init__(self) -> None:
        self.read: list[int] = []

    def __len__(self) -> int:
        return 10

    def __getitem__(self, number: int) -> dict[str, object]:
        self.read.append(int(number))
        return {"point": torch.zeros(3), "pair": (torch.zeros(2, dtype=torch.uint8), "a name")}


def test_any_dataset_is_measured_once_and_its_batches_must_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started, said = list[int](), list[str]()

    def start(workers: int, plan: Iterable[list[Sample]]) -> Iterator[list[Sample]]:
        started.append(workers)
        return iter(plan)

    for _ in range(2):
        workers = measured_workers(Points(), start, micro_batch=4, cores=2, kept_in=tmp_path, say=said.append)
        assert 1 <= workers <= 2
    assert started == [1, 2]
    assert json.loads((tmp_path / "loader.json").read_text())["site"] == {
        "cores": 2, "dataset": "Points", "samples": 10, "micro_batch": 4, "batch_bytes": 4 * (12 + 2),
    }  # fmt: skip
    monkeypatch.setattr(tuning, "_free_shm", lambda: 2 * 4 * 14)  # room for the two batches of one process, and no more
    assert measured_workers(Points(), start, micro_batch=4, cores=2, say=said.append) == 0
    assert "shared memory" in said[-1]


def test_a_measurement_reads_every_sample_before_any_twice() -> None:
    plan = random_batches(10, 4)
    read = [int(sample) for _ in range(6) for sample in next(plan)]
    assert sorted(read[:10]) == sorted(read[10:]) == list(range(10))
    assert read[:10] != list(range(10))
    assert samples_in_a_batch(10, 4) == pytest.approx(20 / 6)


def test_data_in_shards_is_measured_shard_after_shard() -> None:
    """At random places each sample would fetch a shard."""
    read: list[int] = []

    def start(_workers: int, plan: Iterable[list[Sample]]) -> Iterator[list[Sample]]:
        for samples in plan:
            read.extend(map(int, samples))
            yield samples

    data = Points()
    data.shard_sizes = [6, 4]  # type: ignore[attr-defined]
    measured_workers(data, start, micro_batch=4, cores=2, say=lambda _: None)
    assert read[:20] == list(range(10)) * 2


def test_a_rate_counts_samples_not_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()

    def start(_workers: int) -> Iterator[int]:
        for number in count():
            clock.now += 0.1 if number >= 4 else 7.0  # the first ones wait for the processes to start
            yield number

    monkeypatch.setattr("time.monotonic", clock)
    assert rate_of(start, 32.0, seconds=2.0)(2) == pytest.approx(320.0)


@pytest.mark.parametrize(("cores", "workers"), [(1, 0), (2, 1), (9, 8), (64, 8)])
def test_beside_training_on_the_same_cores(cores: int, workers: int) -> None:
    assert workers_beside_cpu_training(cores) == workers
