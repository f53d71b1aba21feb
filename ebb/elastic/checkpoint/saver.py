"""When checkpoints are written, and by whom: in a thread while training goes on, at once before leaving.

    saver = Saver(folder, fence, cadence=Cadence(...), optimizer=optimizer)
    saver.maybe_save(step, state)          # between steps: starts a write if one is due; state() gives references, no copies
    saver.save(step, state, metrics={"top1": 71.3}, score=71.3)          # after a validation: starts a write in any case
    saver.save_now(step, state)            # before leaving: returns when it is committed, or could not be
    saver.save_now(step, state, last=True) # trained to the end: waits for room and for the fence, and fails without them
    saver.finish()

The training stands still only while what the next forward pass changes is copied, and before the next update if the rest is not
copied by then (see snapshot.py; `optimizer` gets a hook for that). `stalls` are the seconds of each checkpoint.
A disk that is full costs the checkpoint, never the training: a sentence is printed, the older checkpoint stays. While the fence
is out of reach the candidate waits for it, and no other is written. The last checkpoint is all that stays of a training, so
nobody goes without it.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import torch

from ebb.elastic.checkpoint import retention
from ebb.elastic.checkpoint.cadence import Cadence, Cost
from ebb.elastic.checkpoint.errors import CheckpointError, FenceUnreachable, NotWritten, Stale
from ebb.elastic.checkpoint.fence import Fence
from ebb.elastic.checkpoint.folder import DATA, CheckpointFolder
from ebb.elastic.checkpoint.manifest import Manifest
from ebb.elastic.checkpoint.plain import PlainFile
from ebb.elastic.checkpoint.snapshot import Buffers, Snapshot, addresses
from ebb.elastic.checkpoint.state import dump
from ebb.elastic.room import ROOM_SECONDS

State = dict[str, Any]
# Before leaving: a third of the shortest notice (30 s, GCP and Azure); the rest is for the step and the write.
LEAVE_COMMIT_SECONDS = 10.0
LAST_SECONDS = ROOM_SECONDS  # of the end; an etcd whose machine is lost is back within two minutes
_RETRY_SECONDS = 1.0


class Saver:
    """The checkpoints of one rank in one generation."""

    def __init__(
        self,
        folder: CheckpointFolder,
        fence: Fence,
        *,
        cadence: Cadence,
        writer: int = 0,
        optimizer: torch.optim.Optimizer | None = None,
        plain: PlainFile | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._folder = folder
        self._fence = fence
        self._writer = writer
        self._cadence = cadence
        self._optimizer = optimizer
        self._plain = plain
        self._clock = clock
        self._buffers = Buffers()
        self._prepared = False
        self._soon = False
        self._thread: threading.Thread | None = None
        self._snapshot: Snapshot | None = None
        self._hurry = threading.Event()
        self._failure: BaseException | None = None
        self._waiting: Manifest | None = None  # a candidate that the fence could not decide on yet
        self._saved: Manifest | None = None
        self._last_start = clock()
        self._write_seconds = self._taken_seconds = 0.0
        self._untold_cost = 0.0
        self.stalls: list[float] = []
        if optimizer is not None:
            optimizer.register_step_pre_hook(lambda *_: self.settle())

    @property
    def saved_step(self) -> int:
        """Of the newest checkpoint of this generation and rank; -1 before the first."""
        return self._saved.step if self._saved else -1

    def maybe_save(self, step: int, take_state: Callable[[], State], *, soon: bool = False) -> None:
        """Start a write when the last one is long enough ago and done. `soon`: do not wait for the cadence this once."""
        self._soon |= soon
        self._raise_failure()
        if self._busy():
            return
        if not self._prepared:
            self._prepared = True
            self._start(self._buffers.prepare, take_state())
            return
        if self._is_due():
            self._begin(step, take_state, {})

    def _is_due(self) -> bool:
        return self._soon or self._clock() - self._last_start >= self._cadence.seconds_between(self._cost())

    def save(self, step: int, take_state: Callable[[], State], *, metrics: dict[str, float], score: float) -> None:
        """Start a write that carries a validation's result; one that is under way is waited for."""
        self.finish()
        self._prepared = True
        self._begin(step, take_state, {"metrics": metrics, "score": score})

    def settle(self) -> None:
        """Return when the weights may change: before every update, by the optimizer's hook."""
        if self._snapshot is not None:
            start = self._clock()
            self._snapshot.settle()
            self._snapshot = None
            self._count(self._clock() - start)

    def save_now(
        self,
        step: int,
        take_state: Callable[[], State],
        *,
        metrics: dict[str, float] | None = None,
        score: float | None = None,
        last: bool = False,
    ) -> None:
        """Return when a checkpoint of `step` is committed, or could not be. Nothing may change the state meanwhile.

        The `last` one is tried again for LAST_SECONDS; then NotWritten or FenceUnreachable is raised."""

        def save(until: float) -> CheckpointError | None:
            return self._save(step, take_state, until=until, metrics=metrics, score=score)

        start = self._clock()
        self.finish()
        if last:
            self._insist(save)
        else:
            problem = save(self._clock() + LEAVE_COMMIT_SECONDS)
            if problem and not isinstance(problem, FenceUnreachable):  # which was said
                _say(problem)
        self.stalls.append(0.0)
        self._count(self._clock() - start)

    def _insist(self, save: Callable[[float], CheckpointError | None]) -> None:
        """Raises CheckpointError."""
        until, told = self._clock() + LAST_SECONDS, False
        while True:
            began, problem = self._clock(), save(until)
            if isinstance(problem, Stale):  # not this one's to save
                _say(problem)
                problem = None
            if not self._on_any(problem is not None):
                return
            if self._on_any(self._clock() >= until):
                raise problem or NotWritten("another rank of this machine could not write its part of the last checkpoint")
            if problem and not told:
                _say(f"{problem}. It is the last checkpoint: trying again for {LAST_SECONDS:.0f} s")
                told = True
            self._hurry.wait(max(_RETRY_SECONDS, self._clock() - began))  # a large one takes long to fail
            self._try_again()

    def _on_any(self, flag: bool) -> bool:
        """True if the flag is on one of the ranks that write a checkpoint together."""
        return flag

    def _try_again(self) -> None:
        """Forget what is known of the checkpoint that could not be written."""

    @property
    def is_replaced(self) -> bool:
        """True if a newer generation than that of this saver is known of."""
        return self._fence.is_replaced()

    def claim(self, step: int) -> bool:
        """After a loss: True for the first of all survivors that asks for this step."""
        return self._folder.claim_saving(self._fence.generation, step)

    def finish(self) -> None:
        """Wait for the thread; if it waits for the fence, once more and no longer."""
        self._hurry.set()
        self.settle()
        if self._thread is not None:
            self._thread.join()
        self._hurry.clear()
        self._raise_failure()

    def move(self, folder: CheckpointFolder, fence: Fence, *, writer: int, plain: PlainFile | None) -> None:
        """Into the next generation, in which the training goes on from the state that it has. A write that is under way is not
        waited for: what it writes is a state on the way to the present one, so the new fence may commit it."""
        self.settle()
        with contextlib.suppress(Stale):
            self._raise_failure()
        self._folder, self._fence, self._writer, self._plain = folder, fence, writer, plain

    def take_cost(self) -> float:
        """Seconds for which the training stood still since the last call."""
        cost, self._untold_cost = self._untold_cost, 0.0
        return cost

    def _begin(self, step: int, take_state: Callable[[], State], facts: dict[str, Any]) -> None:
        self._soon = False
        self._last_start = self._clock()
        late = addresses(self._optimizer) if self._optimizer is not None else frozenset[int]()
        state = take_state()
        self._snapshot = self._buffers.copy(self._form(state), late=late)
        self._start(self._write_aside, step, self._snapshot, _on_gpu(state), {**facts, **self._facts()})
        self.stalls.append(0.0)
        self._count(self._clock() - self._last_start)

    def _start(self, target: Callable[..., None], *arguments: Any) -> None:
        self._thread = threading.Thread(target=self._guarded, args=(target, *arguments), name="checkpoint", daemon=True)
        self._thread.start()

    def _guarded(self, target: Callable[..., None], *arguments: Any) -> None:
        try:
            target(*arguments)
        except BaseException as error:  # a bug: raised in the training's thread, where it ends the program with its trace
            self._failure = error

    def _raise_failure(self) -> None:
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure

    def _busy(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _cost(self) -> Cost:
        """Of the last checkpoint."""
        stall = self.stalls[-1] if self.stalls else 0.0
        return Cost(stall_seconds=stall, taken_seconds=self._taken_seconds, write_seconds=self._write_seconds)

    def _write_aside(self, step: int, snapshot: Snapshot, on_gpu: bool, facts: dict[str, Any]) -> None:
        start, processor_start = self._clock(), time.thread_time()
        snapshot.complete()
        try:
            self._waiting = self._put(snapshot.tree, step, facts)
            self._write_seconds = self._clock() - start
            used = time.thread_time() - processor_start
            self._taken_seconds = 0.0 if on_gpu else used / torch.get_num_threads()
            self._commit(until=None)
        except CheckpointError as error:
            _say(error)

    def _save(
        self, step: int, take_state: Callable[[], State], *, until: float, metrics: dict[str, float] | None, score: float | None
    ) -> CheckpointError | None:
        """In the training's own thread: the state stands still, so it needs no copy but from a GPU. The reason why there is no
        checkpoint, None where there is."""
        if self.saved_step == step:
            if score is not None and self._saved is not None:
                self._judge(self._saved, metrics or {}, score)
            return None
        try:
            if self._waiting is None or self._waiting.step != step:
                form = self._form(state := take_state())
                snapshot = self._buffers.copy(form) if _on_gpu(state) else Snapshot(form, [], None)
                snapshot.complete()
                self._waiting = self._put(snapshot.tree, step, {"metrics": metrics, "score": score, **self._facts()})
            return self._commit(until=until)
        except CheckpointError as error:
            return error

    def _form(self, state: State) -> State:
        """The part of the state that this rank writes, as a tree of tensors and plain values."""
        return state

    def _facts(self) -> dict[str, Any]:
        """Of the manifest, as they are when a write begins."""
        return {}

    def _put(self, tree: State, step: int, facts: dict[str, Any]) -> Manifest | None:
        """Write it; a candidate to be committed, if this rank does that. Raises NotWritten."""
        here = {"generation": self._fence.generation, "writer": self._writer}
        return self._folder.write(dump(tree), step=step, **{**here, **facts})

    def _commit(self, *, until: float | None) -> FenceUnreachable | None:
        """Try until the fence has decided, the training wants to leave, or the time is over: then the reason is returned.
        Raises Stale, NotWritten."""
        manifest = self._waiting
        if manifest is None:
            return None
        told = False
        while True:
            try:
                self._folder.commit(manifest, self._fence)
                break
            except FenceUnreachable as error:
                if not told:
                    _say(f"checkpoint {manifest.name} is written, but not committed yet: {error}")
                    told = True
                if self._hurry.wait(_RETRY_SECONDS) or (until is not None and self._clock() >= until):
                    return error
            except Stale:
                self._waiting = None
                raise
        self._saved, self._waiting = manifest, None
        self._publish(manifest)
        return None

    def _publish(self, manifest: Manifest) -> None:
        if self._plain is not None:
            best = retention.best(self._folder.disk, self._folder.place) == manifest.name
            self._plain.publish(self._folder.place / (manifest.name + DATA), best=best)

    def _judge(self, manifest: Manifest, metrics: dict[str, float], score: float) -> None:
        try:
            self._saved = self._folder.judge(manifest, metrics, score)
            self._publish(self._saved)
        except CheckpointError as error:
            _say(error)

    def _count(self, seconds: float) -> None:
        if self.stalls:
            self.stalls[-1] += seconds
        self._untold_cost += seconds


def _on_gpu(state: State) -> bool:
    return any(isinstance(tensor, torch.Tensor) and tensor.is_cuda for tensor in state.get("state_dict", {}).values())


def _say(text: object) -> None:
    print(text, file=sys.stderr, flush=True)
