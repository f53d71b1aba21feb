"""A group that is made again under a living model: recovery in memory.

    group = Members.enter(config.place, device, longest_seconds=1800)
    group.start_sum(values); group.raise_if_broken()               # errors become `broken`, never an exception in backward()
    group.follow(broken=True, leaving=notice_seen)                 # the next generation's: rank, world size, connections
    group.pass_on([2, 0], give=loop.state)                         # the state of rank 2, to rank 0

The launchers meet through etcd as always and give each living worker its place (rendezvous/places.py). A generation has a store
of its own, and gloo's connections between its ranks; nothing of an older one is used again. What fails once is `broken` until the
next follow(), and its connections are cut, so that all others notice as well. Between GPUs there is NCCL beside gloo (nccl.py).
"""

from __future__ import annotations

import contextlib
import datetime
import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent import futures
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore

from ebb.compat import Self
from ebb.elastic.notices.relay import FOLDER_VARIABLE
from ebb.elastic.rendezvous.places import SOCKET_NAME, LauncherGone, PlaceClient, WorkerPlace
from ebb.elastic.runtime.config import Place
from ebb.elastic.runtime.connections import Connections, hang_up, sockets
from ebb.elastic.runtime.nccl import Nccl
from ebb.elastic.runtime.process_group import (
    MEETING_SECONDS,
    Group,
    PeerLostError,
    is_loss,
    keep_for_ever,
    let_go,
    noticing_loss,
)
from ebb.elastic.runtime.transfer import pass_on
from ebb.elastic.torch_compat import has_keys, open_store

T = TypeVar("T")
_LONGEST_LOOK = 0.05  # seconds between two looks whether all ranks have come, or a newer place has


class Standing(NamedTuple):
    """The facts that one rank brings into a generation. `step`: steps done, -1 before it is ready for its first one."""

    step: int
    facts: dict[str, Any]  # the answers that it was given before its first step, and other small things that all must know

    @property
    def reached(self) -> tuple[int, int]:
        """The order of their states: by steps, before the first one by the answers that came with it; without a state last."""
        if self.step >= 0:
            return self.step, 0
        return -1, -1 if self.facts["behind"] else len(self.facts["answers"])


@dataclass
class Members(Group):
    """One rank, in one generation after the other."""

    awaits_gpus = True
    longest_seconds: float = 0.0
    transfer_seconds: float = 0.0  # that a state has taken in this generation
    _client: PlaceClient | None = field(default=None, repr=False)
    _error: RuntimeError | None = field(default=None, repr=False)
    _backends: list[Any] = field(default_factory=list, repr=False)  # of the ranks that a state goes to, in this generation
    _gpus: Nccl | None = field(default=None, repr=False)

    @classmethod
    def enter(cls, place: Place, device: torch.device, *, longest_seconds: float) -> Self:
        """Into the generation for which this process was started, or beside it. Where that one is over already, and there will be
        a next one, `is_over`; otherwise raises PeerLostError."""
        group = cls(place.rank, place.world_size, device, place.machine, place.machines, longest_seconds=longest_seconds)
        folder = os.environ.get(FOLDER_VARIABLE)
        if folder and place.launched:
            with contextlib.suppress(OSError):  # torchrun, or a launcher without the socket: nobody gives places
                group._client = PlaceClient(Path(folder) / SOCKET_NAME, group.abandon)
        if place.world_size > 1 and group.beside is None:
            try:
                group._meet(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
            except PeerLostError:
                if not group.can_follow:
                    raise
                group.abandon()
        return group

    @property
    def beside(self) -> Any:
        """The facts of a generation that trains, which this process is to join, and has no place in yet; None if it has one."""
        return self._client.beside if self._client is not None else None

    def tell(self, facts: Any) -> None:
        """The facts of this generation, for newcomers that get ready beside it. Those of rank 0 count."""
        if self._client is not None and self.rank == 0:
            self._client.tell(facts)

    @property
    def can_follow(self) -> bool:
        """True if a launcher gives this process its next place."""
        return self._client is not None

    @property
    def change_wanted(self) -> bool:
        """True if newcomers wait for a step boundary."""
        return self._client is not None and self._client.change_wanted

    @property
    def is_over(self) -> bool:
        """True if this generation can do nothing more: a peer is gone, or the launcher has a new place already."""
        return self.broken or (self._client is not None and self._client.place_waits)

    @property
    def is_left(self) -> bool:
        """True if it is over, or another rank is gone from it."""
        return self.is_over or self._connections.closed

    def follow(self, *, broken: bool, leaving: Callable[[], bool], members_only: bool = False) -> bool:
        """Into the next generation, whenever it comes; without newcomers, if `members_only` and there are enough. False if
        `leaving`, which is asked while nobody gives a place, is true. Raises PeerLostError: of the new generation too a rank may
        be gone, then follow again; LauncherGone."""
        if self._client is None:
            raise LauncherGone
        self._leave()
        place = self._client.next(broken=broken, leaving=leaving, members_only=members_only)
        if place is None:
            return False
        self.rank, self.world_size, self.machine, self.machines = place.rank, place.world_size, place.machine, place.machines
        self.broken, self._error, self.transfer_seconds = False, None, 0.0
        _tell_environment(place)
        if place.world_size > 1:
            self._meet(place.address, place.port)
        return True

    def standings(self, mine: Standing) -> list[Standing]:
        """Of all ranks, in their order."""
        return [Standing(*each) for each in self.all_facts(mine)]

    def pass_on(self, chain: Sequence[int], *, give: Callable[[], Any] | None = None) -> Any:
        """The state that chain[0] gives, on the others of the chain; None on that one, and outside. Raises PeerLostError."""
        if self.rank not in chain:
            return None
        began, first = time.monotonic(), self.rank == chain[0]
        given = give() if give is not None and first else None
        with noticing_loss():
            assert self._store is not None
            store = PrefixStore(f"state-{chain[0]}", self._store)  # parts of a sharded one go their own ways
            self._come(store, chain)
            backend = self._backend(store, chain.index(self.rank), len(chain))
            self._backends.append(keep_for_ever(backend))  # if a peer is lost it stays until the generation ends
            state = pass_on(backend, given, first=first, wait=self.wait)
            self.wait(backend.allreduce([torch.zeros(1)]))  # all have it: nobody cuts the connections too soon
        self._backends.remove(backend)
        _let_go_beside([backend])
        self.transfer_seconds = time.monotonic() - began
        return None if first else state

    def lane(self, pod_size: int) -> range:
        """This rank and those that hold the same part of a model sharded over `pod_size` ranks; with 1 all ranks."""
        return range(self.rank % pod_size, self.world_size, pod_size)

    def placed(self, place: Place) -> Place:
        """The same, with this generation's ranks."""
        here = {name: getattr(self, name) for name in ("rank", "world_size", "machine", "machines")}
        return replace(place, **here)

    def connect(self, name: str, ranks: Sequence[int]) -> Any:
        """Connections between some of the ranks, this one among them, for sums of their own until the generation ends. They are
        waited for. Raises PeerLostError."""
        with noticing_loss():
            if self._store is None:
                raise PeerLostError("the generation is over")
            store = PrefixStore(name, self._store)
            self._come(store, ranks)
            backend: Any
            if self.device.type == "cuda":
                longest = datetime.timedelta(seconds=self.longest_seconds)
                backend = Nccl(store, rank=ranks.index(self.rank), size=len(ranks), longest=longest)
            else:
                backend = self._backend(store, ranks.index(self.rank), len(ranks))
        self._backends.append(keep_for_ever(backend))
        return backend

    def start_sum(self, values: torch.Tensor, backend: Any = None) -> dist.Work | None:
        """Start to add up the tensors of all ranks, or of those of a backend, in place. None where a peer is gone: the group is
        broken then, and nothing is raised, as this is called from the middle of a backward pass."""
        sums = backend or self._gpus or self._world
        if self.broken or sums is None:
            return None
        try:
            work: dist.Work = sums.allreduce([values])
        except RuntimeError as error:
            self._error, self.broken = error, True
            return None
        return work

    def finish_sum(self, work: dist.Work, backend: Any = None) -> None:
        """The sum is in the tensors, also of a GPU. Raises PeerLostError."""
        gpus = backend or self._gpus
        if not isinstance(gpus, Nccl):
            return self.wait(work)
        with noticing_loss():
            if not gpus.wait(work, lost=lambda: self.is_left):
                raise PeerLostError("a peer is gone, or has left")

    def _hand_out_on_gpu(self, tensor: torch.Tensor, source: int) -> None:
        assert self._gpus is not None
        self.finish_sum(self._gpus.broadcast(tensor, source))

    def abandon(self) -> None:
        """See Group.abandon()."""
        super().abandon()
        for each in (self._gpus, *self._backends):
            if isinstance(each, Nccl):
                each.abort()

    def raise_if_broken(self) -> None:
        """Raises PeerLostError, or an error that had another cause."""
        if self._error is not None and not is_loss(self._error):
            raise self._error
        if self.broken:
            raise PeerLostError(str(self._error or "the generation is over").splitlines()[0])

    def close(self) -> None:
        """Nothing: the end of the process closes the connections, and taking gloo apart may wait for ever."""

    def _leave(self) -> None:
        """The old generation's connections go, those to its store too."""
        self.abandon()
        parts = [*self._backends, self._gpus, self._world, self._store]
        self._world = self._store = self._gpus = None
        self._backends, self._connections = [], Connections()
        _let_go_beside(parts)

    def _meet(self, address: str, port: int) -> None:
        """Raises PeerLostError when one of the ranks is gone, when nothing has come through the new connections for
        MEETING_SECONDS, and when a newer generation is there already."""
        others, seconds = sockets(), datetime.timedelta(seconds=MEETING_SECONDS)
        try:
            with noticing_loss():
                server = self._unless_over(
                    lambda: open_store(address, port, is_master=False, wait_for_workers=False, timeout=seconds)
                )
                store = PrefixStore("members", server)
                self._come(store, range(self.world_size))
                world = self._backend(store, self.rank, self.world_size)
        except PeerLostError:
            hang_up(others, port)  # what is left alone ends, with its threads and descriptors
            raise
        self._store, self._world = store, world
        world._set_default_timeout(seconds)  # all have come: what is sent now waits for nobody's step
        self._settle(others)
        world._set_default_timeout(datetime.timedelta(seconds=self.longest_seconds))
        if self.device.type == "cuda":
            longest = datetime.timedelta(seconds=self.longest_seconds)
            gpus = Nccl(PrefixStore("nccl", store), rank=self.rank, size=self.world_size, longest=longest)
            self._gpus = keep_for_ever(gpus)

    def _backend(self, store: PrefixStore, rank: int, size: int) -> Any:
        """Connections between ranks that have come."""
        longest = datetime.timedelta(seconds=self.longest_seconds)
        can_change = hasattr(dist.ProcessGroupGloo, "_set_default_timeout")  # since torch 2.3
        seconds = datetime.timedelta(seconds=MEETING_SECONDS) if can_change else longest
        backend = self._unless_over(lambda: dist.ProcessGroupGloo(PrefixStore("gloo", store), rank, size, timeout=seconds))
        if can_change:
            backend._set_default_timeout(longest)
        return backend

    def _come(self, store: PrefixStore, ranks: Iterable[int]) -> None:
        """Wait for these ranks, however long they need to their step boundary: only the launcher, or a connection that closes,
        says that one of them will not come."""
        store.set(f"here/{self.rank}", "")
        missing, seconds = [f"here/{rank}" for rank in ranks], 0.002
        while not has_keys(store, missing):
            self.raise_if_left()
            time.sleep(seconds)  # a store has no wait that a newer place could end
            seconds = min(2 * seconds, _LONGEST_LOOK)

    def _unless_over(self, connect: Callable[[], T]) -> T:
        """The connection that `connect` makes. Where a rank has died meanwhile torch tries for MEETING_SECONDS: the launcher, or
        a connection that closes, says so sooner. Then it is left alone, in its thread, and nobody uses what it makes."""
        made: futures.Future[T] = futures.Future()

        def run() -> None:
            try:
                made.set_result(connect())
            except BaseException as error:
                made.set_exception(error)

        threading.Thread(target=run, name="connecting", daemon=True).start()
        while True:
            with contextlib.suppress(futures.TimeoutError):  # another one than Python's before 3.11
                return made.result(_LONGEST_LOOK)
            self.raise_if_left()

    def raise_if_left(self) -> None:
        """Raises PeerLostError."""
        if self.is_left:
            raise PeerLostError("a peer is gone, or a newer generation is there")


def _let_go_beside(parts: list[Any]) -> None:
    """gloo's threads and descriptors go with the last reference. Its destructors may wait for ever for peers that are gone,
    though not with Python's lock: so a thread of their own waits, if any."""
    threading.Thread(target=_drop, args=(parts,), name="old-generation", daemon=True).start()


def _drop(parts: list[Any]) -> None:
    while parts:
        let_go(parts[-1])
        parts.pop()


def _tell_environment(place: WorkerPlace) -> None:
    """torchrun's variables, as a process that was started for this generation would find them."""
    os.environ.update(
        RANK=str(place.rank),
        WORLD_SIZE=str(place.world_size),
        GROUP_RANK=str(place.machine),
        GROUP_WORLD_SIZE=str(place.machines),
        MASTER_ADDR=place.address,
        MASTER_PORT=str(place.port),
    )
