# mypy: disallow-untyped-calls=False
# (torch's streams and events have no types)
"""Snapshots of a replica, in memory that its processes do not take with them: for the loss of all of a job's processes.

    snapshots = Snapshots.find(config, os.environ, owner="...", optimizer=optimizer)    # None where no launcher lends memory
    snapshots.due; snapshots.take(generation, step, state)     # at a step boundary, on all machines at the same one
    find_newest(snapshots, config, start, fence, group, pod=None)  # when all processes are new: the state to go on from, or None

Every machine keeps its own. After a step all replicas hold the same state, so each has a copy of its neighbours' without any
traffic: as long as one launcher lives the newest snapshot does, whichever machines are gone. One rank of a machine writes it; of
a sharded model every rank its part, which is that of the same local rank of each other pod. Only a snapshot of which all parts
are there counts, on whichever machines they are.

Each of these ranks has two files of memory (notices/relay.py), and the one that does not hold the newest snapshot is written to:
first its header is cleared, then come the tensors, then all that is not a tensor, then the header, which has the sizes and
checksums of what is small. So one that was cut off in the middle is none, and the older one counts. The tensors have no
checksum: it would take longer than the copy, and they lie in the same memory as those that are trained.

On a GPU a stream of its own copies into the files, whose memory is pinned. What a forward pass changes goes first, and the
computing stream waits for that; for the weights and the optimizer's state it waits before the next update. The host waits for
neither, and commits at a later boundary.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import mmap
import os
import sys
import threading
import time
import weakref
import zlib
from collections.abc import Callable, Mapping, Sequence, Set
from pathlib import Path
from typing import Any, NamedTuple

import torch

from ebb.compat import Self, zip
from ebb.elastic.checkpoint import Fence
from ebb.elastic.checkpoint.snapshot import addresses, memory_of, tensors_in
from ebb.elastic.checkpoint.values import decode
from ebb.elastic.memory import free_memory
from ebb.elastic.notices.relay import Relay
from ebb.elastic.runtime.config import RunConfig
from ebb.elastic.runtime.members import Members
from ebb.elastic.runtime.pod import Pod
from ebb.elastic.runtime.start import Origin, Start, newest_checkpoint
from ebb.elastic.runtime.transfer import allocate, dense, outline

_HEADER_BYTES = 512
_ALIGNMENT = 64  # of each tensor: a cache line, and a multiple of every number's size
_GROWTH = 2**16  # for the part that is no tensor: numbers in it get longer
_TELLING = 2  # then the cost of one is known
_TOUCHED_BYTES = 2**26  # at a time: small enough for torch to use one thread
_NICE = 10  # nice(7): a tenth of a core that others want too. Beside 2 busy loops on 2 cores 3.2 GB took 25 s, and 145 s with 19
_ROOM_SHARE = 0.5  # of the memory that is free when it is asked for: the training needs some for itself


class SnapshotOrder(NamedTuple):
    """The place of a snapshot among all, and among checkpoints; the newest is the greatest."""

    generation: int
    step: int


_NONE = SnapshotOrder(-1, -1)


class MemoryFile:
    """A file for one state. Whole or empty, whenever its writer ends; a part of one is never read."""

    def __init__(self, path: Path) -> None:
        """Raises OSError."""
        self._descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        weakref.finalize(self, os.close, self._descriptor)
        self._memory = torch.empty(0, dtype=torch.uint8)
        self._pinned = False

    @property
    def size(self) -> int:
        return os.fstat(self._descriptor).st_size

    def reserve(self, size: int, *, pinned: bool) -> None:
        """Take the memory, so that no later write can fail for want of it. The state in it stays. Raises OSError."""
        self._unpin()
        self._memory = torch.empty(0, dtype=torch.uint8)
        if size > self.size:
            os.posix_fallocate(self._descriptor, 0, size)
        self._memory = torch.frombuffer(mmap.mmap(self._descriptor, self.size), dtype=torch.uint8)
        # The first touch of a page takes longer than its copy. By torch, which lets other threads work meanwhile: mmap() with
        # MAP_POPULATE holds Python's lock until all pages are there, 6 s for 11 GiB (H200, torch 2.11, Python 3.12).
        for start in range(0, self.size, _TOUCHED_BYTES):
            self._memory[start : start + _TOUCHED_BYTES : mmap.PAGESIZE].max()
        if pinned:
            torch.cuda.check_error(torch.cuda.cudart().cudaHostRegister(self._memory.data_ptr(), self.size, 0))
            self._pinned = True

    def release(self) -> None:
        """Give the memory back to the kernel."""
        self._unpin()
        self._memory = torch.empty(0, dtype=torch.uint8)
        os.ftruncate(self._descriptor, 0)

    def clear(self) -> None:
        os.pwrite(self._descriptor, bytes(min(_HEADER_BYTES, self.size)), 0)

    def parts(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Tensors of these forms, one after the other in the file's memory."""
        found, start = [], _HEADER_BYTES
        for each in tensors:
            content = self._memory[start : start + each.nbytes]
            found.append(content.view(each.dtype).as_strided(each.shape, each.stride()))
            start += _aligned(each.nbytes)
        return found

    def commit(self, order: SnapshotOrder, owner: str, rest: bytes, data_bytes: int) -> None:
        """All tensors are there: write the others, and then the word that it is whole."""
        os.pwrite(self._descriptor, rest, _HEADER_BYTES + data_bytes)
        facts = {
            **order._asdict(),
            **{"owner": owner, "data_bytes": data_bytes, "rest_bytes": len(rest), "rest_crc32": zlib.crc32(rest)},
        }
        content = json.dumps(facts).encode()
        header = f"{zlib.crc32(content):08x} ".encode() + content
        assert len(header) < _HEADER_BYTES, f"{len(header)} bytes of header"
        os.pwrite(self._descriptor, header.ljust(_HEADER_BYTES, b"\0"), 0)

    def facts(self) -> dict[str, Any] | None:
        """The header's; None where the file holds no whole state."""
        checksum, _, content = os.pread(self._descriptor, _HEADER_BYTES, 0).rstrip(b"\0").partition(b" ")
        if not content or checksum != f"{zlib.crc32(content):08x}".encode():
            return None
        facts: dict[str, Any] = json.loads(content)
        end = _HEADER_BYTES + facts["data_bytes"] + facts["rest_bytes"]
        if end > self.size or zlib.crc32(self._rest(facts)) != facts["rest_crc32"]:
            return None
        return facts

    def read(self) -> Any:
        """The state of a whole file, in tensors that are not the file's: it is written to again while they are in use."""
        facts = self.facts()
        assert facts is not None
        state, tensors = allocate(self._rest(facts))
        view = memoryview(mmap.mmap(self._descriptor, self.size, prot=mmap.PROT_READ))
        start = _HEADER_BYTES
        for each in tensors:
            if each.numel():
                content = each.as_strided((each.numel(),), (1,)).view(torch.uint8)
                content.numpy()[:] = view[start : start + each.nbytes]
            start += _aligned(each.nbytes)
        return state

    def _rest(self, facts: dict[str, Any]) -> bytes:
        return os.pread(self._descriptor, facts["rest_bytes"], _HEADER_BYTES + facts["data_bytes"])

    def _unpin(self) -> None:
        if self._pinned:
            torch.cuda.check_error(torch.cuda.cudart().cudaHostUnregister(self._memory.data_ptr()))
            self._pinned = False


class _Copying(NamedTuple):
    """A snapshot whose tensors are on their way from a GPU."""

    commit: Callable[[], None]
    began: torch.cuda.Event
    ended: torch.cuda.Event


class Snapshots:
    """Of one machine, or of one rank of a `pod`. `share` is the share of the time that they may take; `owner` says whose they are
    (owner_of)."""

    def __init__(
        self,
        files: Sequence[MemoryFile],
        *,
        share: float,
        owner: str,
        optimizer: torch.optim.Optimizer,
        pod: Pod | None = None,
        free_bytes: Callable[[], int] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._files = list(files)
        self._share, self._owner, self._optimizer, self._clock = share, owner, optimizer, clock
        self._pod = pod
        self._free_bytes = free_bytes or free_memory
        self._reserved = 0
        self._stream: torch.cuda.Stream | None = None
        self._copying: _Copying | None = None
        self._preparing: threading.Thread | None = None
        self._error: Exception | None = None  # in that thread
        self._number = 0  # of this process
        self._began = 0.0
        self.seconds = 0.0  # that the last one took
        optimizer.register_step_pre_hook(lambda *_: self.settle())

    @classmethod
    def find(
        cls,
        config: RunConfig,
        environment: Mapping[str, str],
        *,
        owner: str,
        optimizer: torch.optim.Optimizer,
        pod: Pod | None = None,
    ) -> Self | None:
        """None on a rank that writes none: there is no memory for it, or another one of the machine does. All ranks of a pod, or
        none of them, have one."""
        files: list[MemoryFile] = []
        relay = Relay.find(environment)
        writes = pod is not None or config.place.local_rank == 0
        if config.recovery == "memory" and writes and relay is not None and config.snapshot_overhead:
            with contextlib.suppress(OSError):  # its launcher is gone
                files += [MemoryFile(path) for path in relay.memory(config.place.local_rank)]
        lacks = len(files) < 2
        if lacks if pod is None else pod.any(lacks):
            return None
        return cls(files, share=config.snapshot_overhead, owner=owner, optimizer=optimizer, pod=pod)

    @property
    def due(self) -> float | None:
        """1 if the last one is long enough ago for its cost, and 0 if not; infinite before the first: no other machine has a say
        then. The reverse, -infinite, while the memory for it is being taken. None where there are none any more."""
        self._commit_copied()
        if self._preparing is not None and self._preparing.is_alive():
            return -math.inf
        if self._error is not None:
            self._give_up(self._error)
        if not self._files:
            return None
        if self._number == 0:
            return math.inf
        return float(self._copying is None and self._clock() - self._began >= self.seconds / self._share)

    def take(self, generation: int, step: int, state: Callable[[], Any], *, say: Callable[[str], None] = print) -> None:
        """Copy the state after `step` steps; on the CPU it is done when this returns. The first call, and one for a larger state,
        only begins to take the memory, beside the training. All ranks of a pod call it at the same boundary: where one of them
        has none any more, the others' parts are of no use."""
        free = 0 if self._reserved else self._free_bytes()  # before any rank of the pod takes some of it
        if self._pod is not None and self._pod.any(not self._files):
            self._release()
        if self.due in (None, -math.inf) or self._copying is not None:
            return
        self._began = self._clock()
        tree = state()
        tensors = {memory_of(each): dense(each) for _, each in tensors_in(tree)}  # tied weights once
        rest, data_bytes = outline(tree, tensors), sum(_aligned(each.nbytes) for each in tensors.values())
        held = list(tensors.values())
        if (size := _HEADER_BYTES + data_bytes + len(rest)) > self._reserved:
            device = next((each.device for each in held if each.is_cuda), None)
            self._prepare(size + _GROWTH, device, free or self._free_bytes())
            return
        self._number += 1
        if self._number == _TELLING:
            apart = self.seconds / self._share
            each_rank = "" if self._pod is None else ", of each rank"
            say(f"snapshots in memory: {_mib(size)} in {self.seconds:.4f} s, one every {apart:.1f} s at most{each_rank}")
        file = min(self._files, key=lambda each: self._order(each) or _NONE)
        file.clear()

        def commit() -> None:
            file.commit(SnapshotOrder(generation, step), self._owner, rest, data_bytes)

        self._copy(held, file.parts(held), commit)
        self.seconds = self._clock() - self._began

    def settle(self) -> None:
        """Before the state changes: on a GPU the change comes after the copy, and nobody waits here."""
        if self._copying is not None:
            torch.cuda.current_stream().wait_event(self._copying.ended)

    def held(self, *, below: int) -> list[SnapshotOrder]:
        """The whole ones of generations below that."""
        return [each for each in map(self._order, self._files) if each is not None and each.generation < below]

    def read(self, order: SnapshotOrder) -> Any:
        """The state of one that is held, as take() got it."""
        return next(each for each in self._files if self._order(each) == order).read()

    def _order(self, file: MemoryFile) -> SnapshotOrder | None:
        facts = file.facts()
        return SnapshotOrder(facts["generation"], facts["step"]) if facts and facts["owner"] == self._owner else None

    def _prepare(self, size: int, device: torch.device | None, free: int) -> None:
        """Take the memory of both files, so that no copy can fail for want of it, nor touch a page that is not there yet: that
        takes longer than the copy. In a thread of its own, which gets the processors that the training leaves: it takes seconds,
        a loss may come meanwhile, and all wait for the step after it. A GPU is told where the pages are."""
        ranks = 1 if self._pod is None else self._pod.size

        def reserve() -> None:
            if device is None:  # for a GPU they are pinned under the driver's locks, which the training waits for too
                with contextlib.suppress(OSError):  # a sandbox may know no priorities
                    os.nice(_NICE)  # on Linux of this thread alone
            try:
                wanted = sum(max(0, size - each.size) for each in self._files)
                if wanted > (room := int(_ROOM_SHARE * free / ranks)):
                    whose = "half of what is free" if ranks == 1 else f"this rank's share, of {ranks}, of half of what is free"
                    raise MemoryError(f"{_mib(wanted)} are needed, and {_mib(room)} are {whose}")
                with torch.cuda.device(device) if device is not None else contextlib.nullcontext():
                    for each in self._files:
                        each.reserve(size, pinned=device is not None)
                self._reserved = size
            except (OSError, MemoryError, RuntimeError) as error:  # the last one of CUDA
                self._error = error

        self._preparing = threading.Thread(target=reserve, name="snapshots", daemon=True)
        self._preparing.start()

    def _give_up(self, error: Exception) -> None:
        """Once, and for the life of this process; what older processes have left would only get older."""
        self._release()
        print(f"no snapshots in memory: {error}. Checkpoints go on as before", file=sys.stderr, flush=True)

    def _release(self) -> None:
        for each in self._files:
            with contextlib.suppress(OSError):
                each.release()
        self._files, self._error = [], None

    def _copy(self, held: list[torch.Tensor], parts: list[torch.Tensor], commit: Callable[[], None]) -> None:
        on_gpu = [each.is_cuda for each in held]
        pairs = list(zip(parts, held, on_gpu, strict=True))
        _copy_all([(part, tensor) for part, tensor, cuda in pairs if not cuda])
        if not any(on_gpu):
            commit()
            return
        late = addresses(self._optimizer)
        computing = torch.cuda.current_stream()
        self._stream = self._stream or torch.cuda.Stream()
        began, first, ended = (torch.cuda.Event(enable_timing=timed) for timed in (True, False, True))
        self._stream.wait_stream(computing)
        with torch.cuda.stream(self._stream):
            began.record()
            _copy_all([(part, tensor) for part, tensor, cuda in pairs if cuda and tensor.data_ptr() not in late])
            first.record()
            _copy_all([(part, tensor) for part, tensor, cuda in pairs if cuda and tensor.data_ptr() in late])
            ended.record()
        for each in held:
            if each.is_cuda:  # a state that the program lets go meanwhile is not given to others before it is copied
                each.record_stream(self._stream)
        computing.wait_event(first)
        self._copying = _Copying(commit, began, ended)

    def _commit_copied(self) -> None:
        if self._copying is not None and self._copying.ended.query():
            self._copying.commit()
            self.seconds = max(self.seconds, self._copying.began.elapsed_time(self._copying.ended) / 1000)
            self._copying = None


def find_newest(
    snapshots: Snapshots | None, config: RunConfig, start: Start, fence: Fence, group: Members, *, pod: Pod | None
) -> tuple[Origin, dict[str, Any]] | None:
    """When all processes of a generation are new: the newest state that launchers hold, on every rank its part of it. None where
    no snapshot is newer than all checkpoints. Raises PeerLostError."""
    mine = snapshots.held(below=start.generation) if snapshots is not None else []
    heard = group.all_facts([mine, newest_checkpoint(config, fence) if group.rank == 0 else None])
    held = [{SnapshotOrder(*each) for each in orders} for orders, _ in heard]
    size = 1 if pod is None else pod.size
    newest, missing = choose(held, size)
    checkpoint = heard[0][1]
    if missing is not None and missing[0] > tuple(checkpoint or _NONE) and group.rank == 0:
        print(
            f"the snapshot after step {missing[0].step} of generation {missing[0].generation} lacks the part of local rank "
            f"{missing[1]}: what is older counts",
            file=sys.stderr,
            flush=True,
        )
    if newest <= tuple(checkpoint or _NONE):
        return None
    lanes = [range(part, group.world_size, size) for part in range(size)]
    sources = [next(rank for rank in lane if newest in held[rank]) for lane in lanes]
    source, lane = sources[group.rank % size], lanes[group.rank % size]
    state = snapshots.read(newest) if snapshots is not None and newest in held[group.rank] else None
    if needy := [rank for rank in lane if newest not in held[rank]]:
        given = group.pass_on([source, *needy], give=lambda: state)
        state = given if state is None else state
    where = f"rank {source}" if size == 1 else f"ranks {', '.join(map(str, sources))}"
    words = f"resumed after step {newest.step} of generation {newest.generation}, from a snapshot in the memory of {where}"
    on_disk = checkpoint[1] if checkpoint else 0
    return Origin(step=newest.step, generation=newest.generation, words=words, checkpoint_step=on_disk), decode(state)


def choose(held: Sequence[Set[SnapshotOrder]], size: int) -> tuple[SnapshotOrder, tuple[SnapshotOrder, int] | None]:
    """The newest snapshot of which all parts are there, of those that each rank holds; ranks that are `size` apart hold the same
    part. And a newer one, where there is one, with the first of its parts that is missing."""
    parts = [frozenset[SnapshotOrder]().union(*held[part::size]) for part in range(size)]
    newest = max(frozenset.intersection(*parts), default=_NONE)
    seen = max(frozenset.union(*parts), default=_NONE)
    return newest, None if seen == newest else (seen, next(number for number, part in enumerate(parts) if seen not in part))


def owner_of(start: Start, identity: dict[str, Any], pod: Pod | None = None) -> str:
    """In a few letters: the job's folder, and what must be the same to go on from its states; of which part they are."""
    facts = [start.folder, identity, *([] if pod is None else [pod.rank, pod.size])]
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:32]


def _copy_all(pairs: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
    if pairs:
        parts, tensors = map(list, zip(*pairs, strict=True))
        torch._foreach_copy_(parts, tensors, non_blocking=tensors[0].is_cuda)


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def _mib(size: int) -> str:
    return f"{size / 2**20:.0f} MiB"
