"""The ranks of one pod, which together hold one copy of a sharded model: they live, decide and end together.

    pod = Pod.meet(place, device, folder=relay.folder, longest_seconds=1800, raise_if_lost=...)
    pod.mesh                                 # for fully_shard(); its process group is torch's default one
    if pod.any(group.is_over): ...           # the same answer on all ranks of the pod
    found = pod.together(lambda: ...)        # raises PeerLostError on all of them where one has lost a peer

Forward and backward passes of a sharded model are collectives of its pod. So no rank of it may go into a new generation, or
begin a step once more, while another one goes on: whatever one of them learns about the other pods is put to a vote. A pod that
has lost one of its ranks cannot go on, and its launcher starts all of them anew: those that are left end at once, since gloo may
leave them waiting in a collective for its whole timeout.
"""

from __future__ import annotations

import datetime
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import TCPStore
from torch.distributed.distributed_c10d import PrefixStore

from ebb.compat import Never, Self
from ebb.elastic.contract import EXIT_PEER_LOST
from ebb.elastic.notices.relay import is_running
from ebb.elastic.runtime.config import Place
from ebb.elastic.runtime.process_group import MEETING_SECONDS, PeerLostError, keep_for_ever
from ebb.elastic.torch_compat import DistError, open_store

if TYPE_CHECKING:  # before torch 2.2 it is elsewhere, and no model is sharded there
    from torch.distributed.device_mesh import DeviceMesh

T = TypeVar("T")
_LOOK_SECONDS = 0.02  # between two looks for the others while they meet
_WATCH_SECONDS = 0.1  # between two looks whether they live: a signal of the kernel's for that is there since Python 3.9 alone
_MEETING = "pod-meeting"
_ADDRESS = "127.0.0.1"  # they share a machine


class Pod:
    """One rank's end; made by meet()."""

    def __init__(self, mesh: DeviceMesh, store: TCPStore, place: Place, processes: list[int], folder: Path) -> None:
        self.mesh, self.rank, self.size = mesh, place.local_rank, place.local_world_size
        self._store, self._group, self._processes, self._folder = store, mesh.get_group(), processes, folder
        threading.Thread(target=self._watch, name="pod", daemon=True).start()

    @classmethod
    def meet(
        cls,
        place: Place,
        device: torch.device,
        *,
        folder: Path,
        longest_seconds: float,
        raise_if_lost: Callable[[], None],
    ) -> Self:
        """With the other ranks of the machine, which have been started together with this one. `raise_if_lost` is asked while
        they are waited for. Raises PeerLostError when they do not come."""
        _left(folder, os.getpid()).unlink(missing_ok=True)  # of an older process of the same number
        store = _meet(place, folder, raise_if_lost)
        backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
        dist.init_process_group(
            backend,
            store=PrefixStore("group", store),
            rank=place.local_rank,
            world_size=place.local_world_size,
            timeout=datetime.timedelta(seconds=longest_seconds),
        )
        for each in (store, dist.group.WORLD):
            keep_for_ever(each)
        processes = [int(store.get(f"process/{rank}")) for rank in range(place.local_world_size)]
        from torch.distributed.device_mesh import DeviceMesh  # noqa: PLC0415

        return cls(DeviceMesh(device.type, list(range(place.local_world_size))), store, place, processes, folder)

    def any(self, flag: bool) -> bool:
        """True on all ranks of the pod if the flag is on one of them."""
        values = torch.tensor([float(flag)])
        dist.all_reduce(values, dist.ReduceOp.MAX, self._group)
        return bool(values[0])

    def least(self, number: int) -> int:
        """The smallest of all ranks' numbers."""
        values = torch.tensor([number])
        dist.all_reduce(values, dist.ReduceOp.MIN, self._group)
        return int(values[0])

    def together(self, work: Callable[[], T]) -> T:
        """The result of work(), on all ranks of the pod or on none. Raises PeerLostError where it was raised on one of them."""
        lost: PeerLostError | None = None
        result: T | None = None
        try:
            result = work()
        except PeerLostError as error:
            lost = error
        if self.any(lost is not None):
            raise lost or PeerLostError("another rank of this machine has lost a peer")
        return result  # type: ignore[return-value]  # there is one

    def exchange(self, name: str) -> Exchange:
        """For words between the ranks' threads, beside the collectives."""
        store = open_store(_ADDRESS, self._store.port, is_master=False, wait_for_workers=False)
        return Exchange(PrefixStore(name, keep_for_ever(store)))

    def part(self) -> None:
        """This rank comes to its end in order: the others need not end for it."""
        _left(self._folder, os.getpid()).touch()

    def _watch(self) -> None:
        others = {process for process in self._processes if process != os.getpid()}
        while others:
            time.sleep(_WATCH_SECONDS)
            for process in [each for each in others if not is_running(each)]:
                others.discard(process)
                if not _left(self._folder, process).exists() and not _left(self._folder, os.getpid()).exists():
                    _end(f"rank {self._processes.index(process)} of this machine is gone, and with it this copy of the model")


class Exchange:
    """Small words by name; one is waited for."""

    def __init__(self, store: PrefixStore) -> None:
        self._store = store

    def tell(self, name: str, word: object) -> None:
        self._store.set(name, json.dumps(word))

    def hear(self, name: str, *, seconds: float) -> object:
        """Raises TimeoutError where it does not come in time."""
        try:
            self._store.wait([name], datetime.timedelta(seconds=seconds))
        except DistError as error:
            raise TimeoutError(f"no word of {name} in {seconds:.0f} s") from error
        return json.loads(self._store.get(name))


def _meet(place: Place, folder: Path, raise_if_lost: Callable[[], None]) -> TCPStore:
    """A store of the pod's own in which all its ranks have said who they are. The first one has it, and leaves its address in a
    file until all have come; one that an older process has left is of no use, as that one has ended."""
    file, deadline = folder / _MEETING, time.monotonic() + MEETING_SECONDS
    seconds = datetime.timedelta(seconds=MEETING_SECONDS)

    def wait() -> None:
        raise_if_lost()
        if time.monotonic() > deadline:
            raise PeerLostError(f"the {place.local_world_size} ranks of this machine have not met in {MEETING_SECONDS} s")
        time.sleep(_LOOK_SECONDS)  # for a process that may not have begun yet

    if place.local_rank == 0:
        store = open_store(_ADDRESS, 0, is_master=True, wait_for_workers=False, timeout=seconds)
        temporary = file.with_name(f"{_MEETING}-{os.getpid()}")
        temporary.write_text(json.dumps([os.getpid(), store.port]))
        temporary.rename(file)
    else:
        while (port := _port(file)) is None:
            wait()
        store = open_store(_ADDRESS, port, is_master=False, wait_for_workers=False, timeout=seconds)
    store.set(f"process/{place.local_rank}", str(os.getpid()))
    while not store.check([f"process/{rank}" for rank in range(place.local_world_size)]):
        wait()
    if place.local_rank == 0:
        file.unlink()
    return store


def _port(file: Path) -> int | None:
    """None before its process has written it."""
    try:
        process, port = json.loads(file.read_text())
    except (OSError, ValueError):
        return None
    return int(port) if is_running(process) else None


def _left(folder: Path, process: int) -> Path:
    return folder / f"pod-left-{process}"


def _end(reason: str) -> Never:
    print(f"a peer is gone ({reason})", flush=True)
    sys.stderr.flush()
    os._exit(EXIT_PEER_LOST)
