"""The ranks that train together in one generation: meeting, agreeing, summing, and noticing that one is gone.

    group = Group.join(place, device, longest_seconds=1800)
    agreed = group.agree(leave=notice.seen, wish=notice.take_wish(), checkpoint_step=120, sums=[loss]).wait()

A world of one has no process group at all. Tensors on the CPU go through gloo, those on a GPU through NCCL. `longest_seconds` is
the limit of a single collective, which torch fixes here: that of the first step of a generation. watchdog.py has the shorter one.

A machine that loses its power closes no socket: its peers would wait for the collective's timeout. So the kernel is told to
probe every connection between ranks, and no other of this process, and to fail it after PEER_SECONDS without an answer. A peer
that is merely slow, or stopped, still answers (its kernel does), so this does not split a job under load. A rank that fails or is
killed closes its sockets and is noticed at once.
"""

import contextlib
import ctypes
import datetime
import json
import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from ebb.elastic.faults import Fault, fault_of
from ebb.elastic.runtime.config import Place

# Retransmissions and probes go unanswered for this long before a peer counts as gone. 4 s: well above the pauses of a busy
# network, a fraction of a recovery.
PEER_SECONDS = 4
MEETING_SECONDS = 60  # the launchers have met already; only the start of the other processes is waited for
_LEAVING = "leaving"


class PeerLostError(Exception):
    """Another rank is gone, or its network. The parameters are those of the last finished step."""


class Agreed(NamedTuple):
    """The facts that all ranks know after a step."""

    leaving: frozenset[int]  # the machines of the ranks that were told to leave
    wish: bool  # some rank wants a checkpoint soon
    change: bool  # some machine knows of newcomers
    checkpoint_step: int  # of the newest one, as rank 0 knows it
    sums: list[float]


@dataclass
class Agreement:
    """The sums of one step, on their way."""

    values: torch.Tensor
    work: dist.Work | None
    machines: int

    def wait(self) -> Agreed:
        if self.work is not None:
            with noticing_loss():
                self.work.wait()
        wish, change, checkpoint_step, *rest = self.values.tolist()
        leaving = frozenset(machine for machine, told in enumerate(rest[: self.machines]) if told > 0)
        return Agreed(leaving, wish > 0, change > 0, int(checkpoint_step), rest[self.machines :])


@dataclass
class Group:
    """One membership, seen from one rank."""

    rank: int
    world_size: int
    device: torch.device
    machine: int = 0
    machines: int = 1
    _store: Store | None = field(default=None, repr=False)
    _world: Any = field(default=None, repr=False)  # torch's process group, or one backend: their collectives are the same
    _sockets: frozenset[str] = field(default=frozenset(), repr=False)  # the group's own, as the kernel names them

    @classmethod
    def join(cls, place: Place, device: torch.device, *, longest_seconds: float) -> "Group":
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
        for each in (self._store, self._world):
            _keep_for_ever(each)
        self.barrier()
        self._sockets = self._own(sockets() - others)
        for connection, _ in _connections(self._sockets):
            with connection:
                _probe(connection)

    def _own(self, found: frozenset[str]) -> frozenset[str]:
        """Of these, the connections between ranks, which both ends have, and the one to the store. The program's own threads, a
        tracker's or a data set's, may have opened others while the ranks met."""
        ends = _ends(found)
        heard = self.all_facts(list(ends.values()))
        theirs = {(here, there) for rank, each in enumerate(heard) if rank != self.rank for here, there in each}
        shared = {name for name, (here, there) in ends.items() if (there, here) in theirs}
        if not shared:  # a proxy sits between the ranks
            return found
        port = os.environ.get("MASTER_PORT")
        return frozenset(shared | {name for name, (_, there) in ends.items() if there.rpartition(":")[2] == port})

    def close(self) -> None:
        """All ranks are through, and none is missed."""
        if self._store is not None:
            dist.destroy_process_group()

    def agree(self, *, leave: bool, wish: bool, change: bool, checkpoint_step: int, sums: list[float]) -> Agreement:
        """Start to sum a step's flags and numbers over the ranks, and to tell rank 0's `checkpoint_step`; the same answer on all.
        Every rank brings as many numbers."""
        told = checkpoint_step if self.rank == 0 else 0
        leaving = [0.0] * self.machines
        leaving[self.machine] = float(leave)
        values = torch.tensor([float(wish), float(change), float(told), *leaving, *sums], dtype=torch.float64)
        if self._world is None:
            return Agreement(values, None, self.machines)
        with noticing_loss():
            return Agreement(values, self._world.allreduce([values]), self.machines)

    def sum(self, numbers: list[float]) -> list[float]:
        values = torch.tensor(numbers, dtype=torch.float64)
        if self._world is not None:
            with noticing_loss():
                self._world.allreduce([values]).wait()
        total: list[float] = values.tolist()
        return total

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
            self._world.allgather([found], [own]).wait()
        return [json.loads(bytes(each.tolist())) for each in found]

    def hand_out_tensors(self, tensors: list[torch.Tensor], source: int = 0) -> None:
        """The values of rank `source`, into every rank's tensors."""
        if self._world is None:
            return
        with noticing_loss():
            for tensor in tensors:
                self._world.broadcast(tensor, source).wait()

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
            return bool(self._store.check([_LEAVING]))

    def abandon(self) -> None:
        """Cut the connections to the other ranks, so that those who wait for this one notice too. The store stays."""
        for connection, port in _connections(self._sockets):
            with connection, contextlib.suppress(OSError):
                if str(port) != os.environ.get("MASTER_PORT"):
                    connection.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def noticing_loss() -> Iterator[None]:
    """Turn the errors of a broken collective, in a backward pass too, into PeerLostError; others pass."""
    try:
        yield
    except RuntimeError as error:  # torch's DistError is one
        if not is_loss(error):
            raise
        raise PeerLostError(_first_line(error)) from error


def is_loss(error: BaseException | None) -> bool:
    """True if an error, wherever in a program it was raised, says that a collective is broken."""
    if isinstance(error, PeerLostError | dist.DistNetworkError | dist.DistStoreError):
        return True
    return isinstance(error, RuntimeError) and fault_of(str(error)) is Fault.PEER


def _keep_for_ever(each: object) -> None:
    """With peers that are already gone, the destructors of gloo's contexts and of the store can wait for ever (torch 2.13, seen
    with three ranks at the end of a run). So nothing ever drops the last reference, the end of the interpreter included."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(each))


def let_go(each: object) -> None:
    """The reverse of keeping it for ever. What is dropped then may wait in its destructor."""
    if each is not None:
        ctypes.pythonapi.Py_DecRef(ctypes.py_object(each))


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0][:200]


def sockets() -> frozenset[str]:
    """All of this process, by names that are not used again as descriptors are: socket:[INODE]."""
    found = set()
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            found.add(entry.readlink().as_posix())
    return frozenset(name for name in found if name.startswith("socket:"))


def _connections(sockets: frozenset[str]) -> list[tuple[socket.socket, int]]:
    """Duplicates of those that are TCP connections, each with the other end's port. The port is asked once: a peer that ends at
    any moment takes the answer with it."""
    found = []
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            if entry.readlink().as_posix() in sockets:
                connection = socket.socket(fileno=os.dup(int(entry.name)))
                port = _peer_port(connection)
                if port is None:
                    connection.close()
                else:
                    found.append((connection, port))
    return found


def _ends(sockets: frozenset[str]) -> dict[str, tuple[str, str]]:
    """Of those that are TCP connections: address and port here, and there."""
    found = {}
    for connection, _ in _connections(sockets):
        with connection, contextlib.suppress(OSError):
            name = Path(f"/proc/self/fd/{connection.fileno()}").readlink().as_posix()
            found[name] = _words(connection.getsockname()), _words(connection.getpeername())
    return found


def _words(address: tuple[Any, ...]) -> str:
    return f"{address[0].removeprefix('::ffff:')}:{address[1]}"


def _peer_port(connection: socket.socket) -> int | None:
    if connection.family not in (socket.AF_INET, socket.AF_INET6) or connection.type != socket.SOCK_STREAM:
        return None
    try:
        return int(connection.getpeername()[1])
    except OSError:  # it listens, or has no other end any more
        return None


def _probe(connection: socket.socket) -> None:
    """Fail the connection when the other kernel is silent for PEER_SECONDS: idle, or with data on its way (tcp(7))."""
    with contextlib.suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 1)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 1)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, PEER_SECONDS - 1)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, PEER_SECONDS * 1000)
