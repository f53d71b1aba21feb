"""The order of calls to NCCL: here to one that behaves as its documentation, and those who met it, say. No GPU is needed.

A collective of a lost peer runs until its communicator is aborted, and then ends without an error and with other numbers.
"""

import os
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import HashStore, TCPStore

from ebb.elastic.runtime import nccl
from ebb.elastic.runtime.buckets import Buckets
from ebb.elastic.runtime.config import Place
from ebb.elastic.runtime.members import Members
from ebb.elastic.runtime.nccl import Nccl, find_abort
from ebb.elastic.runtime.process_group import PeerLostError
from tests.elastic.machines import until
from tests.elastic.runtime.ranks import together

LONGEST = timedelta(seconds=60)


class Kernel:
    """One collective on the GPU."""

    def __init__(self, tensor: torch.Tensor, sum_of: torch.Tensor | None) -> None:
        self._tensor, self._sum = tensor, sum_of
        self._through = threading.Event()
        self.ordered = False

    def end(self, *, aborted: bool) -> None:
        if not self._through.is_set():
            self._tensor.copy_(torch.full_like(self._tensor, -1.0) if aborted or self._sum is None else self._sum)
            self._through.set()

    def is_completed(self) -> bool:
        return self._through.is_set()

    def wait(self) -> None:
        """It returns at once: on a GPU the stream waits, and the host does not."""
        self.ordered = True


class Communicator:
    """`peers`: what they add; None: they are gone."""

    def __init__(self, peers: float | None = None, *, slow: bool = False) -> None:
        self._peers, self._slow = peers, slow
        self.calls: list[str] = []
        self.kernels: list[Kernel] = []
        self.asynchronous = os.environ.get("TORCH_NCCL_ASYNC_ERROR_HANDLING")

    def allreduce(self, tensors: list[torch.Tensor]) -> Kernel:
        self.calls.append("allreduce")
        (tensor,) = tensors
        self.kernels.append(Kernel(tensor, None if self._peers is None else tensor + self._peers))
        if self._peers is not None and not self._slow:
            self.kernels[-1].end(aborted=False)
        return self.kernels[-1]

    def abort(self) -> None:
        self.calls.append("abort")
        for each in self.kernels:
            each.end(aborted=True)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Communicator]:
    """Communicators for the groups that are made, in order; those that were taken are at the end."""
    waiting: list[Communicator] = []

    def take(*_: object) -> Communicator:
        waiting.append(waiting.pop(0))
        waiting[-1].asynchronous = os.environ["TORCH_NCCL_ASYNC_ERROR_HANDLING"]
        return waiting[-1]

    monkeypatch.setenv("TORCH_NCCL_ASYNC_ERROR_HANDLING", "3")  # torch's default: a broken collective ends the process
    monkeypatch.setenv("TORCH_NCCL_NONBLOCKING_TIMEOUT", "1800")
    monkeypatch.setattr(nccl, "make_group", take)
    return waiting


def gpus() -> Nccl:
    return Nccl(HashStore(), rank=0, size=2, longest=LONGEST)


def start(group: Nccl, tensor: torch.Tensor) -> Any:
    return group.allreduce([tensor])


def test_a_sum_is_used_once_the_gpu_is_through_with_it(made: list[Communicator]) -> None:
    made.append(Communicator(peers=2.0, slow=True))
    group, tensor = gpus(), torch.ones(3)
    work = start(group, tensor)
    threading.Timer(0.05, work.end, kwargs={"aborted": False}).start()
    assert group.wait(work, lost=lambda: False)
    assert work.ordered, "the stream that computes comes after it"
    assert tensor.tolist() == [3.0] * 3
    assert made[0].asynchronous == "0", "torch must not end the process"


def test_no_sum_of_an_aborted_communicator_is_used(made: list[Communicator]) -> None:
    """It completes without an error."""
    made.append(Communicator())
    group = gpus()
    work = start(group, torch.ones(3))
    threading.Timer(0.05, group.abort).start()
    assert not group.wait(work, lost=lambda: False)
    assert not work.ordered
    assert not group.wait(work, lost=lambda: False), "nor later, though it is through"


def test_a_lost_peer_ends_the_wait_and_not_the_kernel(made: list[Communicator], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nccl, "_LOOK_SECONDS", 0.01)
    made.append(Communicator())
    group = gpus()
    work = start(group, torch.ones(3))
    assert not group.wait(work, lost=lambda: True)
    assert not work.is_completed()
    group.abort()
    group.abort()
    assert made[0].calls == ["allreduce", "abort"]
    assert work.is_completed()


def test_an_abort_that_fails_is_an_abort(made: list[Communicator], monkeypatch: pytest.MonkeyPatch) -> None:
    made.append(Communicator())
    group = gpus()

    def fail() -> None:
        raise RuntimeError("NCCL communicator was aborted on rank 0")

    monkeypatch.setattr(made[0], "abort", fail)
    group.abort()
    assert group.aborted


class Summing(Communicator):
    """Over gloo, between the processes of a test; the peers may be gone."""

    def __init__(self, world: Any) -> None:
        super().__init__()
        self._world = world

    def allreduce(self, tensors: list[torch.Tensor]) -> Any:
        self.calls.append("allreduce")
        return self._world.allreduce(tensors)

    def abort(self) -> None:
        self.calls.append("abort")


def sums_of_gpus(gone: Path) -> tuple[list[float], str, list[str]]:
    """Of two ranks whose GPU is said to be one; then rank 1 is gone, and rank 0 abandons the rest."""
    rank, port = int(os.environ["RANK"]), int(os.environ["MASTER_PORT"])
    _server = TCPStore("127.0.0.1", port, is_master=True, wait_for_workers=False, timeout=LONGEST) if rank == 0 else None
    communicators: list[Summing] = []

    def make(store: Any, rank: int, size: int, longest: timedelta) -> Summing:
        world = dist.ProcessGroupGloo(store, rank, size, timeout=longest)
        communicators.append(Summing(world))
        return communicators[-1]

    vars(nccl)["make_group"] = make
    group = Members.enter(Place(rank=rank, world_size=2), torch.device("cuda"), longest_seconds=60)
    weights = torch.nn.Parameter(torch.ones(4))
    buckets = Buckets([weights], group)
    for _ in range(2):
        weights.grad = None
        buckets.arm()
        (weights * float(rank + 1)).sum().backward()  # type: ignore[no-untyped-call]
        buckets.finish()
    found = [] if weights.grad is None else weights.grad.tolist()
    if rank == 1:
        gone.touch()
        return found, "", communicators[0].calls
    until("rank 1 is gone", gone.exists)
    buckets.arm()
    weights.sum().backward()  # type: ignore[no-untyped-call]
    with pytest.raises(PeerLostError) as caught:
        buckets.finish()
    group.abandon()
    assert group.start_sum(torch.ones(1)) is None, "no collective comes after an abort"
    return found, type(caught.value).__name__, communicators[0].calls


def test_gradients_go_over_nccl_and_losses_come_from_gloo(tmp_path: Path) -> None:
    first, second = together(sums_of_gpus, 2, tmp_path / "gone")
    assert first[0] == second[0] == [3.0] * 4
    assert first[1] == "PeerLostError"
    assert first[2] == ["allreduce"] * 3 + ["abort"]


@pytest.mark.parametrize(
    ("methods", "found"), [(("abort", "_shutdown"), "abort"), (("_shutdown",), "_shutdown"), (("_abort",), "_abort")]
)
def test_each_torchs_own_way_to_end_a_collective_is_found(methods: tuple[str, ...], found: str) -> None:
    """torch 2.4 has no abort(): a lost peer was an AttributeError."""
    assert find_abort(type("Group", (), dict.fromkeys(methods))) == found


def test_a_torch_without_any_says_so() -> None:
    with pytest.raises(AttributeError, match="has none of abort"):
        find_abort(object)


def test_an_abort_reaches_an_older_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch 2.4's group has `_shutdown` alone."""
    ended: list[object] = []

    class Older:
        def _shutdown(self) -> None:
            ended.append(self)

    older = Older()
    monkeypatch.setattr(nccl, "make_group", lambda *_: older)
    monkeypatch.setattr(os, "environ", {**os.environ})
    Nccl(HashStore(), rank=0, size=2, longest=LONGEST).abort()
    assert ended == [older]
