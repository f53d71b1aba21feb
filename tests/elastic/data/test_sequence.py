"""Files that are read in sequence: the same promise as for samples that can be read in any order."""

import gzip
import json
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ebb.elastic.data import DataError, ElasticLoader, ShardSequence
from ebb.elastic.data.sequence import Shard, lines

Shards = list[Shard]


class Files:
    """Files that exist by name alone; says what was read of them."""

    def __init__(self, counts: list[int]) -> None:
        self.shards: Shards = [(str(number), count) for number, count in enumerate(counts)]
        self.read_from: Counter[str] = Counter()

    def read(self, path: str | Path, start: int) -> Iterator[tuple[int, int]]:
        for place in range(start, dict(self.shards)[path]):
            self.read_from[str(path)] += 1
            yield int(str(path)), place


def sequence(files: Files, **more: Any) -> ShardSequence:
    return ShardSequence(files.shards, files.read, collate=list, **({"global_batch": 8, "epochs": 2, "seed": 1} | more))


@pytest.mark.parametrize("seed", range(60))
def test_every_sample_once_per_epoch_over_random_histories(seed: int) -> None:
    rng = random.Random(seed)
    files = Files([rng.randint(0, 9) for _ in range(rng.randint(1, 12))] + [1])
    shape = {"global_batch": rng.randint(1, 20), "epochs": rng.randint(1, 3), "seed": seed, "lanes": rng.randint(0, 5)}
    used: Counter[tuple[int, int]] = Counter()
    state: dict[str, int] | None = None
    total = sum(count for _, count in files.shards) * shape["epochs"]
    while state is None or state["samples"] < total:
        world_size, steps, largest = rng.randint(1, 5), rng.randint(1, 4), rng.randint(0, 4)
        states = []
        found: Counter[tuple[int, int]] = Counter()
        for rank in range(world_size):
            dataset = sequence(files, rank=rank, world_size=world_size, max_micro_batch=largest, **shape)
            if state is not None:
                dataset.load_state_dict(state)
            left = steps
            while left and dataset.samples < dataset.total_samples:
                dataset.begin()
                for batch in dataset:
                    now = dataset.take()
                    found.update(batch[: now.num_samples])
                    left -= now.last
                    if not left:
                        break
            states.append(dataset.state_dict())
        assert all(other == states[0] for other in states)
        if rng.random() < 0.7:  # else killed: nothing of it was saved
            used, state = used + found, states[0]
    assert used == Counter({(int(str(path)), place): shape["epochs"] for path, count in files.shards for place in range(count)})


def test_the_samples_of_a_step_do_not_depend_on_the_world_size() -> None:
    files = Files([7, 5, 9, 6, 4])

    def steps(world_size: int) -> list[Counter[tuple[int, int]]]:
        ranks = [list(sequence(files, rank=rank, world_size=world_size)) for rank in range(world_size)]
        return [Counter(sample for batch in batches for sample in batch) for batches in zip(*ranks, strict=True)]

    assert steps(1) == steps(2) == steps(4)


def test_a_rank_reads_its_own_files_and_not_those_of_others() -> None:
    """8 lanes of one file's length each on 4 ranks: a rank's 2 lanes lie in 3 files at most, for it starts inside of one."""
    for rank in range(4):
        files = Files([100] * 8)
        list(sequence(files, rank=rank, world_size=4, epochs=1))
        assert len(files.read_from) <= 4
        assert sum(files.read_from.values()) == 200  # every sample once: nothing is read to be thrown away


def test_order_differs_between_epochs_and_mixes_files() -> None:
    files = Files([50] * 8)
    dataset = sequence(files, rank=0, world_size=1)
    first = [dataset.take() and batch for batch in dataset]
    second = [dataset.take() and batch for batch in dataset]
    assert [sample for batch in first for sample in batch] != [sample for batch in second for sample in batch]
    assert {len({path for path, _ in batch}) for batch in first} == {8}


def write(folder: Path, counts: list[int], suffix: str) -> Shards:
    shards: Shards = []
    for number, count in enumerate(counts):
        path = folder / f"part-{number}.jsonl{suffix}"
        content = "".join(json.dumps([number, place]) + "\n" for place in range(count)).encode()
        path.write_bytes(gzip.compress(content) if suffix == ".gz" else content)
        shards.append((path, count))
    return shards


def draw(raw: bytes) -> list[float]:
    return [*json.loads(raw), random.random()]


@pytest.mark.filterwarnings("ignore:This DataLoader will create 3 worker processes")  # on a machine with fewer cores
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_loader_processes_give_what_one_gives(tmp_path: Path, suffix: str) -> None:
    shards = write(tmp_path, [7, 5, 9], suffix)

    def read(workers: int) -> tuple[list[Any], list[int]]:
        dataset = ShardSequence(shards, lines, decode=draw, collate=list, global_batch=4, epochs=3, seed=2, max_micro_batch=2)
        loader = ElasticLoader(dataset, num_workers=workers)
        batches, lengths = [], []
        while loader.epoch < 3:
            lengths.append(len(loader))
            batches += list(loader)
        return batches, lengths

    alone = read(0)
    assert read(2) == alone
    assert read(3) == alone
    batches, lengths = alone
    assert sum(lengths) == len(batches)
    assert Counter((file, place) for batch in batches for file, place, _ in batch) == Counter(
        {(file, place): 3 for file, count in enumerate([7, 5, 9]) for place in range(count)}
    )


def test_persistent_loader_processes_go_on_where_the_run_stands(tmp_path: Path) -> None:
    """A pass that was left in the middle: the processes have read ahead of what was used."""
    dataset = ShardSequence(write(tmp_path, [9, 9], ""), lines, decode=draw, collate=list, global_batch=3, epochs=2, seed=2)
    loader = ElasticLoader(dataset, num_workers=2)
    used = []
    for batch in loader:
        used += batch
        if len(used) == 6:
            break
    while loader.epoch < 2:
        for batch in loader:
            used += batch
    assert Counter((file, place) for file, place, _ in used) == Counter(
        {(file, place): 2 for file in range(2) for place in range(9)}
    )


def test_a_file_with_fewer_samples_than_said_is_named(tmp_path: Path) -> None:
    shards = write(tmp_path, [3, 4], "")
    wrong: Shards = [(path, count + 1) for path, count in shards]
    with pytest.raises(DataError, match=r"part-\d.jsonl has fewer samples than the \d that the program said"):
        list(ShardSequence(wrong, lines, collate=list, global_batch=9, epochs=1))


def test_other_lanes_are_refused() -> None:
    state = sequence(Files([5] * 4)).state_dict()
    with pytest.raises(DataError, match=r"4 lanes and this program 2.*lanes=4"):
        sequence(Files([5] * 4), lanes=2).load_state_dict(state)
