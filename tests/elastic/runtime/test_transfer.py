"""A state that goes from one rank to others: each gets it whole, and as it was."""

import io
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import TCPStore
from torch.distributed.distributed_c10d import PrefixStore

from ebb.elastic.checkpoint.snapshot import memory_of, tensors_in
from ebb.elastic.runtime import transfer
from ebb.elastic.runtime.transfer import allocate, outline, pass_on

LIMIT = timedelta(seconds=60)


def on_ranks(world_size: int, body: Callable[[Any, int], Any]) -> list[Any]:
    """The answers of each rank's body(backend, rank); the ranks are threads of this process."""
    server = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=LIMIT)
    answers: list[Any] = [None] * world_size

    def run(rank: int) -> None:
        store = TCPStore("127.0.0.1", server.port, is_master=False, wait_for_workers=False, timeout=LIMIT)
        world: Any = dist.ProcessGroupGloo(PrefixStore("ranks", store), rank, world_size, timeout=LIMIT)
        answers[rank] = body(world, rank)
        world.barrier().wait()

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(world_size)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    return answers


def passed(state: Any, world_size: int) -> list[Any]:
    def body(world: Any, rank: int) -> Any:
        return pass_on(world, state if rank == 0 else None, first=rank == 0, wait=lambda work: work.wait())

    return on_ranks(world_size, body)


@pytest.mark.parametrize("world_size", [2, 4])
def test_all_ranks_have_the_state(world_size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, "_PIECE_BYTES", 64)  # many pieces, more of them than may be on their way
    state: dict[str, Any] = {
        "weights": torch.randn(7, 5),
        "half": torch.randn(3).bfloat16(),
        "flags": torch.tensor([True, False]),
        "number": torch.tensor(3.5),
        "nothing": torch.empty(0, 3),
        "plain": {"step": 4, 7: [1.5, "text", None, (1, 2)]},
    }
    answers = passed(state, world_size)
    for found in answers:
        assert found["plain"] == state["plain"]
        for name in ("weights", "half", "flags", "number", "nothing"):
            assert torch.equal(found[name], state[name]), name
            assert found[name].dtype == state[name].dtype
    assert answers[0] is state
    assert answers[1]["weights"].data_ptr() != state["weights"].data_ptr()


def test_tied_weights_stay_tied_and_channels_stay_last() -> None:
    tied = torch.randn(4)
    images = torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last)
    with_gaps = torch.arange(12.0).view(3, 4)[:, ::2]
    _, found = passed({"first": tied, "last": tied, "images": images, "gaps": with_gaps}, 2)
    assert found["first"] is found["last"]
    assert torch.equal(found["first"], tied)
    assert found["images"].is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(found["images"], images)
    assert torch.equal(found["gaps"], with_gaps)


def test_an_outline_is_one_that_torch_2_1_can_read() -> None:
    """torch 2.1 refuses to load some types of tensors of the device `meta`: a newcomer's start ended with an UnpicklingError."""
    tied = torch.randn(2, 3).t()
    state = {"random": torch.zeros(4, dtype=torch.uint8), "tied": [tied, tied], "nothing": torch.empty(0), "step": 7}
    content = outline(state, {memory_of(each): each for _, each in tensors_in(state)})
    read = torch.load(io.BytesIO(content), weights_only=True)
    assert {(each.dtype, each.device.type) for _, each in tensors_in(read)} == {(torch.int64, "cpu")}
    found, tensors = allocate(content)
    assert [(each.shape, each.stride(), each.dtype) for each in tensors] == [
        ((4,), (1,), torch.uint8),
        ((3, 2), (1, 3), torch.float32),
        ((0,), (1,), torch.float32),
    ]
    assert found["tied"][0] is found["tied"][1]
    assert found["step"] == 7
