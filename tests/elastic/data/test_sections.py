"""The order of samples in shards: each once per epoch at any global batch, and one shard under way in each section."""

import itertools
import random
from collections import Counter, defaultdict

import pytest

from ebb.elastic.data.order import Stream, share
from ebb.elastic.data.sections import Sections


def random_stream(seed: int) -> tuple[Stream, list[int]]:
    rng = random.Random(seed)
    sizes = [rng.choice((0, 1, 2, 7, 20)) for _ in range(rng.randint(1, 12))] + [3]
    sections = Sections(sizes, at_once=rng.randint(1, 9))
    stream = Stream(
        dataset_size=sum(sizes), epochs=rng.randint(1, 3), global_batch=rng.randint(1, 40), seed=seed, sections=sections
    )
    return stream, sizes


@pytest.mark.parametrize("seed", range(50))
def test_every_sample_once_per_epoch(seed: int) -> None:
    stream, _ = random_stream(seed)
    used = Counter(
        (sample.epoch, sample.number) for step in range(stream.total_steps) for sample in stream.samples(stream.step(step))
    )
    assert used == Counter(itertools.product(range(stream.epochs), range(stream.dataset_size)))


@pytest.mark.parametrize("seed", range(20))
def test_a_position_has_its_sample_whatever_is_asked_for_before(seed: int) -> None:
    stream, sizes = random_stream(seed)
    assert stream.sections is not None
    whole = stream.sections.numbers(seed, 0, stream.total_samples, global_batch=stream.global_batch)
    for position in random.Random(seed).sample(range(stream.total_samples), min(20, stream.total_samples)):
        fresh = Sections(sizes, at_once=stream.sections.at_once)  # type: ignore[attr-defined]
        assert fresh.numbers(seed, position, position + 1, global_batch=stream.global_batch) == [whole[position]]


@pytest.mark.parametrize(("global_batch", "at_once"), [(12, 4), (13, 4), (12, 1), (5, 16)])
def test_a_section_reads_one_shard_after_the_other(global_batch: int, at_once: int) -> None:
    """At its place in the step: a shard is finished before the next one begins."""
    sizes = [9, 14, 3, 8, 22, 5, 10, 6, 11]
    stream = Stream(
        dataset_size=sum(sizes), epochs=2, global_batch=global_batch, seed=1, sections=Sections(sizes, at_once=at_once)
    )
    sections = min(at_once, global_batch)
    starts = [-(-section * global_batch // sections) for section in range(sections)]
    shard_of = [shard for shard, size in enumerate(sizes) for _ in range(size)]
    read: dict[tuple[int, int], list[int]] = defaultdict(list)
    for position, sample in enumerate(stream.samples(stream.step(0)._replace(start=0, stop=stream.total_samples))):
        section = sum(position % global_batch >= start for start in starts)
        read[section, sample.epoch].append(shard_of[sample.number])
    for shards in read.values():
        assert len(list(itertools.groupby(shards))) == len(set(shards))
    assert sum(len(set(shards)) for shards in read.values()) <= 2 * (len(sizes) + sections - 1)  # ends of sections cut shards


def test_ranks_read_shards_of_their_own() -> None:
    sizes = [50] * 32
    stream = Stream(dataset_size=1600, epochs=1, global_batch=64, seed=0, sections=Sections(sizes, at_once=16))
    read = [
        {
            sample.number // 50
            for step in range(stream.total_steps)
            for sample in stream.samples(share(stream.step(step), rank, 4))
        }
        for rank in range(4)
    ]
    assert [len(shards) for shards in read] == [8, 8, 8, 8]
    assert len(set.union(*read)) == 32


def test_a_step_mixes_shards_and_epochs_differ() -> None:
    sizes = [100] * 20
    stream = Stream(dataset_size=2000, epochs=2, global_batch=64, seed=0, sections=Sections(sizes, at_once=16))
    first, second = (stream.samples(stream.step(step)) for step in (0, 32))
    assert len({sample.number // 100 for sample in first}) == 16
    assert list(map(int, first)) != list(map(int, second))


def test_the_order_is_pinned() -> None:
    """A job that is resumed by a newer image must go on in the same order."""
    stream = Stream(dataset_size=10, epochs=1, global_batch=4, seed=0, sections=Sections([4, 3, 3], at_once=2))
    assert [list(map(int, stream.samples(stream.step(step)))) for step in range(3)] == [[5, 4, 1, 2], [6, 7, 3, 0], [9, 8]]


def test_there_is_at_least_one_section() -> None:
    with pytest.raises(ValueError, match="sections is 0; it must be at least 1"):
        Sections([1], at_once=0)
