"""The ranks that train together in one generation: meeting, agreeing, summing, and noticing that one is gone.

    group = Group.join(place, device, longest_seconds=1800)
    agreed = group.agree(leave=notice.seen, wish=notice.take_wish(), checkpoint_step=120, sums=[loss]).wait()

A world of one has no process group at all. Tensors on the CPU go through gloo, those on a GPU through NCCL. `longest_seconds` is
the limit of a single collective, which torch fixes here: that of the first step of a generation. watchdog.py has the shorter one.

gloo alone does not notice every loss. When a connection closes it informs the operations that are queued on it, and forgets the
one that is half received, or half sent, which then waits for its whole timeout (transport/tcp/pair.cc, Pair::signalException, in
torch 2.13; a peer killed in the middle of a broadcast of 800 MB shows it). So wait() looks at the connections itself.
"""

from __future__ import annotations

import ctypes
import datetime
import functools
import gc
import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, TypeVar

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from ebb.elastic.faults import Fault, fault_of
from ebb.elastic.runtime.config import Place
from ebb.elastic.runtime.connections import Connections, sockets
from ebb.elastic.torch_compat import CONNECTION_ERRORS, has_keys

MEETING_SECONDS = 60  # the launchers have met already; only the start of the other processes is waited for
_LEAVING = "leaving"
_Kept = TypeVar("_Kept")
# Between two looks at a collective that takes long. gloo has as long to hand out what a peer sent before it closed a connection.
_LOOK = datetime.timedelta(seconds=0.25)


class PeerLostError(Exception):
    """Another rank is gone, or its network. The parameters are those of the last finished step."""


class Agreed(NamedTuple):
    """The facts that all ranks know after a step."""

    leaving: frozenset[int]  # the machines of the ranks that were told to leave
    wish: bool  # some rank wants a checkpoint soon
    change: bool  # some machine knows of newcomers
    snapshot: bool  # each machine that makes them is due for one, or some machine has none yet
    checkpoint_step: int  # of the newest one, as rank 0 knows it
    sums: list[float]


@dataclass
class Agreement:
    """The sums of one step, on their way."""

    values: torch.Tensor
    work: dist.Work | None
    machines: int
    await_work: Callable[[dist.Work], None]

    def wait(self) -> Agreed:
        """Raises PeerLostError."""
        if self.work is not None:
            self.await_work(self.work)
        wish, change, makers, due, checkpoint_step, *rest = self.values.tolist()
        leaving = frozenset(machine for machine, told in enumerate(rest[: self.machines]) if told > 0)
        return Agreed(leaving, wish > 0, change > 0, due >= makers > 0, int(checkpoint_step), rest[self.machines :])


@dataclass
class Group:
    """One membership, seen from one rank."""

    awaits_gpus: ClassVar[bool] = False  # a sum on GPUs is known to be whole before it is used
    rank: int
    world_size: int
    device: torch.device
    machine: int = 0
    machines: int = 1
    _store: Store | None = field(default=None, repr=False)
    _world: Any = field(default=None, repr=False)  # torch's process group, or one backend: their collectives are the same
    broken: bool = False  # abandoned: no collective of it comes to an end any more
    _connections: Connections = field(default=Connections(), repr=False)

    @classmethod
    def join(cls, place: Place, device: torch.device, *, longest_seconds: float) -> Group:
        """Meet the other ranks. Raises PeerLostError when they do not come."""
        if place.world_size == 1:
            return cls(0, 1, device, place.machine, place.machines)
        limit = datetime.timedelta(seconds=MEETING_SECONDS)
        others = sockets()  # gloo and the store do not hand out theirs: they are among the new ones
        backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
        with noticing_loss():
            store, rank, world_size = next(rendezvous("env://", place.rank, place.world_size, timeout=limit))
            dist.init_process_group(
                backend,
                store=PrefixStore("group", store),
                rank=rank,
                world_size=world_size,
                timeout=datetime.timedelta(seconds=longest_seconds),
            )
        group = cls(rank, world_size, device, place.machine, place.machines, store, dist.group.WORLD)
        group._settle(others)
        return group

    def _settle(self, others: frozenset[str]) -> None:
        """The group is there: try it, and watch its connections, which are those that are not `others`."""
        _leave_garbage_to_this_process()
        for each in (self._store, self._world):
            keep_for_ever(each)
        self.barrier()
        store_port = int(os.environ.get("MASTER_PORT", "0"))
        self._connections = Connections.between(others, rank=self.rank, store_port=store_port, tell_all=self.all_facts)

    def close(self) -> None:
        """All ranks are through, and none is missed."""
        if self._store is not None:
            dist.destroy_process_group()

    def agree(
        self,
        *,
        leave: bool,
        wish: bool,
        change: bool,
        checkpoint_step: int,
        sums: list[float],
        snapshot_due: float | None = None,  # snapshots.py; of a rank that makes none
    ) -> Agreement:
        """Start to sum a step's flags and numbers over the ranks, and to tell rank 0's `checkpoint_step`; the same answer on all.
        Every rank brings as many numbers."""
        told = checkpoint_step if self.rank == 0 else 0
        leaving = [0.0] * self.machines
        leaving[self.machine] = float(leave)
        flags = [wish, change, snapshot_due is not None, snapshot_due or 0.0]
        values = torch.tensor([*map(float, flags), float(told), *leaving, *sums], dtype=torch.float64)
        if self._world is None:
            return Agreement(values, None, self.machines, self.wait)
        with noticing_loss():
            return Agreement(values, self._world.allreduce([values]), self.machines, self.wait)

    def sum(self, numbers: list[float]) -> list[float]:
        return self.begin_sum(numbers)()

    def begin_sum(self, numbers: list[float]) -> Callable[[], list[float]]:
        """Start to sum over the ranks; the answer waits for the sums. Both raise PeerLostError."""
        values = torch.tensor(numbers, dtype=torch.float64)
        work = None
        if self._world is not None:
            with noticing_loss():
                work = self._world.allreduce([values])

        def finish() -> list[float]:
            if work is not None:
                self.wait(work)
            total: list[float] = values.tolist()
            return total

        return finish

    def barrier(self) -> None:
        self.sum([0.0])

    def hand_out(self, content: bytes | None, source: int = 0) -> bytes:
        """The bytes of rank `source`, on every rank; the others pass None."""
        if self._world is None:
            assert content is not None
            return content
        length = int(self.sum([float(len(content or b""))])[0])
        buffer = torch.frombuffer(bytearray(content or bytes(length)), dtype=torch.uint8) if length else torch.empty(0)
        if length:
            self.hand_out_tensors([buffer], source)
        return content if content is not None else (buffer.numpy().tobytes() if length else b"")

    def hand_out_facts(self, facts: Any, source: int = 0) -> Any:
        """Those of rank `source`, as JSON, on every rank; the others may pass anything."""
        return json.loads(self.hand_out(json.dumps(facts).encode() if self.rank == source else None, source))

    def all_facts(self, facts: Any) -> list[Any]:
        """Every rank's, as JSON, in the order of the ranks, on every rank."""
        content = json.dumps(facts).encode()
        if self._world is None:
            return [json.loads(content)]
        sizes = [0.0] * self.world_size
        sizes[self.rank] = len(content)
        lengths = [int(size) for size in self.sum(sizes)]
        own = torch.tensor(list(content.ljust(max(lengths))), dtype=torch.uint8)
        found = [torch.empty_like(own) for _ in lengths]
        with noticing_loss():
            self.wait(self._world.allgather([found], [own]))
        return [json.loads(bytes(each.tolist())) for each in found]

    def hand_out_tensors(self, tensors: list[torch.Tensor], source: int = 0) -> None:
        """The values of rank `source`, into every rank's tensors."""
        if self._world is None:
            return
        with noticing_loss():
            for tensor in tensors:
                if tensor.is_cuda:
                    self._hand_out_on_gpu(tensor, source)
                else:
                    self.wait(self._world.broadcast(tensor, source))

    def _hand_out_on_gpu(self, tensor: torch.Tensor, source: int) -> None:
        self._world.broadcast(tensor, source).wait()

    @property
    def is_over(self) -> bool:
        """True if this membership can do nothing more."""
        return self.broken

    def wait(self, work: dist.Work) -> None:
        """For a collective on the CPU. Raises PeerLostError when a rank is gone, or the group was abandoned meanwhile; an error
        that had another cause."""
        over = False
        with noticing_loss():
            while True:
                try:
                    work.wait(_LOOK)
                    return
                except RuntimeError:
                    if work.is_completed():  # it failed by itself: then it says so once more
                        work.wait()
                        return
                if over:
                    raise PeerLostError("a peer is gone, or has left")
                over = self.is_over or self._connections.closed

    def tell_leaving(self) -> None:
        """To ranks that ask told_to_leave() while there is no collective. Raises PeerLostError when the store is gone."""
        if self._store is not None:
            with noticing_loss():
                self._store.set(_LEAVING, "1")

    def told_to_leave(self) -> bool:
        """True if a rank has said so: one question to the store, which waits for no rank."""
        if self._store is None:
            return False
        with noticing_loss():
            return has_keys(self._store, [_LEAVING])

    def abandon(self) -> None:
        """Cut the connections to the other ranks, so that those who wait for this one notice too, and who waits here. The store
        stays."""
        self.broken = True
        self._connections.cut()


class _NoticingLoss:
    """No generator: its frames would hold the error that holds them, and so the work of a lost peer, with gloo's threads and
    connections, until the garbage collector comes."""

    def __enter__(self) -> None: ...

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        if isinstance(error, RuntimeError) and is_loss(error):  # torch's DistError is one
            raise PeerLostError(_first_line(error)) from error


def noticing_loss() -> _NoticingLoss:
    """Turn the errors of a broken collective, in a backward pass too, into PeerLostError; others pass."""
    return _NoticingLoss()


def is_loss(error: BaseException | None) -> bool:
    """True if an error, wherever in a program it was raised, says that a collective is broken."""
    if isinstance(error, (PeerLostError, *CONNECTION_ERRORS)):
        return True
    return isinstance(error, RuntimeError) and fault_of(str(error)) is Fault.PEER


def keep_for_ever(each: _Kept) -> _Kept:
    """With peers that are already gone, the destructors of gloo's contexts and of the store can wait for ever (torch 2.13, seen
    with three ranks at the end of a run). So nothing ever drops the last reference, the end of the interpreter included."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(each))
    return each


@functools.cache
def _leave_garbage_to_this_process() -> None:
    """Processes that are forked from this one, those of loaders, collect nothing of what it has left to the garbage collector.

    A part of gloo may be in it, held by an error that a program has kept. Its destructor waits there for a thread that was not
    forked, for ever and with Python's lock (torch 2.6), so that the loader gives nothing more; and it takes descriptors out of
    the epoll set that both processes have, on which this one is aborted.
    """
    os.register_at_fork(after_in_child=gc.freeze)


def let_go(each: object) -> None:
    """The reverse of keeping it for ever. What is dropped then may wait in its destructor."""
    if each is not None:
        ctypes.pythonapi.Py_DecRef(ctypes.py_object(each))


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0][:200]
