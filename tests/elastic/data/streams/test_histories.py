"""Real shards through changes of machines: nothing lost, nothing repeated, and at most the shard under way read again."""

from pathlib import Path
from typing import Any

import pytest
import torch

from ebb.elastic.data.order import Stream
from ebb.elastic.data.streams.cache import Cache
from ebb.elastic.runtime.loading import Loader
from ebb.elastic.runtime.plan import MicroBatchPlan
from tests.elastic.data.streams import histories, written


@pytest.mark.parametrize("format", written.FORMATS)
def test_no_sample_is_lost_or_repeated(format: str, tmp_path: Path) -> None:
    """Some of the histories; `make prove-models` plays fifty."""
    played = histories.play_all(tmp_path, format, 6)
    assert (played.lost, played.repeated) == (0, 0)
    assert played.changes > 6
    assert played.samples > 6 * sum(written.SIZES)


@pytest.mark.parametrize("format", written.FORMATS)
@pytest.mark.parametrize("sections", [1, 3])
def test_a_resume_reads_the_shard_under_way_again_and_no_other(
    format: str, sections: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each time on a new machine, with nothing in its cache. Counted is what is fetched from the store."""
    fetched: list[str] = []
    make = Cache._make

    def counted(self: Cache, path: Path, write: Any) -> None:
        fetched.append(path.name)
        make(self, path, write)

    opened = histories.store(format, tmp_path)
    opened(tmp_path / "first")  # counts the samples
    monkeypatch.setattr(Cache, "_make", counted)

    def train(machine: str, first_step: int, stop: int) -> list[str]:
        """Returns the files that it has fetched."""
        fetched.clear()
        dataset = opened(tmp_path / machine)
        loader = Loader(dataset, seed=0, workers=0, sections=sections)
        stream = Stream(dataset_size=len(dataset), epochs=1, global_batch=3, seed=0, sections=loader.sections)
        plan = MicroBatchPlan(stream=stream, first_step=first_step, rank=0, world_size=1, max_micro_batch=3)
        source = loader.start(plan, torch.device("cpu"), say=print)
        for _ in range(first_step, min(stop, stream.total_steps)):
            next(source)
        return list(fetched)

    undisturbed = train("undisturbed", 0, 99)
    assert len(undisturbed) == len(set(undisturbed))
    for cut in (1, 4, 9, 14):
        before, after = train(f"before{cut}", 0, cut), train(f"after{cut}", cut, 99)
        again = set(before) & set(after)
        per_shard = 2 if format == "webdataset" else 1  # a tar, and where samples begin in it
        # one under way in each section; and one that two sections share, which each reads at its own time
        assert len(again) <= per_shard * (2 * sections - 1), "a shard that was finished is read again"
        assert set(before) | set(after) == set(undisturbed)
