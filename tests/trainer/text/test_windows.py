"""Windows cover a text once, are addressed by number, and go through torch's loader with the data order's samples."""

from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader

from ebb.elastic.data.order import Stream
from ebb.elastic.data.sealed import DataError
from trainer.text.windows import Windows


def text(folder: Path, size: int) -> Path:
    path = folder / "train.bin"
    path.write_bytes(bytes(number * 7 % 251 for number in range(size)))
    return path


@pytest.mark.parametrize(("size", "context", "count"), [(101, 10, 10), (100, 10, 9), (110, 10, 10), (11, 10, 1), (2, 1, 1)])
def test_every_byte_is_predicted_once(tmp_path: Path, size: int, context: int, count: int) -> None:
    path = text(tmp_path, size)
    windows = Windows(path, context=context)
    assert len(windows) == count
    content = path.read_bytes()
    targets = b""
    for number in range(count):
        inputs, target, own = windows[number]
        assert (inputs.dtype, len(inputs), len(target), own) == (torch.uint8, context, context, number)
        assert bytes(inputs.tolist())[1:] == bytes(target.tolist())[:-1]
        targets += bytes(target.tolist())
    assert targets == content[1 : count * context + 1]


def test_the_data_orders_samples_are_its_numbers(tmp_path: Path) -> None:
    windows = Windows(text(tmp_path, 301), context=10)
    stream = Stream(dataset_size=len(windows), epochs=2, global_batch=7, seed=0)
    plan = [stream.samples(stream.step(step)) for step in range(stream.total_steps)]
    for workers in (0, 1):
        loader = DataLoader(windows, batch_sampler=plan, num_workers=workers, multiprocessing_context="fork" if workers else None)
        batches = list(loader)
        assert [number for _, _, numbers in batches for number in numbers.tolist()] == [
            int(each) for step in plan for each in step
        ]
        assert torch.equal(batches[3][0][2], windows[plan[3][2]][0])


@pytest.mark.parametrize("number", [-1, 9, 1000])
def test_there_is_no_other_window(tmp_path: Path, number: int) -> None:
    with pytest.raises(IndexError, match="of 9"):
        Windows(text(tmp_path, 100), context=10)[number]


@pytest.mark.parametrize(
    ("size", "words"), [(0, "has 0 tokens; a window of 10 needs 11"), (10, "has 10 tokens"), (None, "cannot read")]
)
def test_a_text_that_cannot_be_used(tmp_path: Path, size: int | None, words: str) -> None:
    path = tmp_path / "missing.bin" if size is None else text(tmp_path, size)
    with pytest.raises(DataError, match=words):
        Windows(path, context=10)
