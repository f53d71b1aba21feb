"""The steps of a generation, and the work between two of them: agree, write down, save, leave.

All ranks leave at the same boundary: whether one was told to is summed over the ranks while the optimizer works, and known to all
when the step ends. On a GPU it is known one step later, so that no host waits for another one's GPU.

WeightsGuard: averaged weights that are copied over the model's own for a validation must never get into a checkpoint as its own.
What torch counts as a change of a tensor is seen, and so is a change behind torch's back (through .data) of the few numbers that
are kept. It costs some microseconds a step, and waits for no device before holds().
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import torch

from ebb.compat import Never, dataclass, zip
from ebb.elastic.checkpoint import Stale
from ebb.elastic.checkpoint.saver import Saver
from ebb.elastic.checkpoint.sharded import local, to_local
from ebb.elastic.contract import EXIT_RECLAIMED
from ebb.elastic.data.order import Stream
from ebb.elastic.data.tuning import Watched
from ebb.elastic.notices.notice import Notice
from ebb.elastic.runtime.gradients import Gradients
from ebb.elastic.runtime.loading import Fetched
from ebb.elastic.runtime.members import Members
from ebb.elastic.runtime.micro_batch import device_name, halve, keep_limit
from ebb.elastic.runtime.plan import MicroBatchPlan
from ebb.elastic.runtime.pod import Pod
from ebb.elastic.runtime.process_group import Agreed, Agreement, Group, PeerLostError
from ebb.elastic.runtime.profiling import Profiler
from ebb.elastic.runtime.report import DataWaits, Report, SampleLedger
from ebb.elastic.runtime.snapshots import Snapshots
from ebb.elastic.runtime.step import Step, Sums, restart
from ebb.elastic.runtime.watchdog import Watchdog


class GracefulExit(SystemExit):
    """The program ends here, at a step boundary and with a checkpoint, because this machine or another one was told to leave."""

    def __init__(self) -> None:
        super().__init__(EXIT_RECLAIMED)


class Follows(Protocol):
    """The way of a loop into the next generation (recovery.py), where its process lives through changes."""

    group: Members

    def follow(self, loop: Loop, *, broken: bool, members_only: bool = False) -> bool: ...
    def take(self, loop: Loop, saved: dict[str, Any]) -> None: ...
    def end(self, loop: Loop, part: Callable[[], None]) -> None: ...
    def tell_calls(self, loop: Loop) -> None: ...


@dataclass
class Pending:
    """A step whose agreement is on its way."""

    number: int  # steps done with it
    samples: int  # since the last line
    agreement: Agreement
    logged: bool
    names: list[str]
    seconds: float = 0.0


_SHORTEST_LEASE_SECONDS = 2.0  # of the rendezvous: the others take nobody for dead who stood still for less
_PROBES = 4  # tensors of which the first number is kept


class WeightsGuard:
    def __init__(self, parameters: list[torch.nn.Parameter]) -> None:
        mine = [local(each) if each.requires_grad else each for each in parameters]
        self._parameters = [part for each, part in zip(parameters, mine, strict=True) if each.requires_grad and part.numel()]
        self._probed = self._parameters[:: max(1, len(self._parameters) // _PROBES)][:_PROBES]
        self.set()

    def set(self) -> None:
        self._versions, self._numbers = self._changes(), self._first_numbers()

    def holds(self) -> bool:
        if self._versions != self._changes():
            return False
        pairs = zip(self._numbers, self._first_numbers(), strict=True)
        return all(torch.equal(before, now) for before, now in pairs)

    def _changes(self) -> int:
        return sum(each._version for each in self._parameters)

    @torch.no_grad()
    def _first_numbers(self) -> list[torch.Tensor]:
        return [each.as_strided((1,), (1,)).clone() for each in self._probed]


@dataclass(kw_only=True)
class Loop:
    """One rank in one generation. `step` is the number of steps done: the weights are those after it, if `at_boundary`."""

    group: Group
    notice: Notice
    stream: Stream
    plan: MicroBatchPlan
    gradients: Gradients
    source: Watched[Fetched]
    read: Callable[[MicroBatchPlan], Watched[Fetched]]  # the samples of a plan, from its first step on
    output: Path
    saver: Saver
    state: Callable[[], dict[str, Any]]
    report: Report
    watchdog: Watchdog
    ledger: SampleLedger | None
    step: int
    checkpoint_step: int
    log_every: int
    min_step_seconds: float
    lag: int  # steps by which an agreement is known late
    mark: WeightsGuard
    profiler: Profiler | None = None  # for traces that somebody asks for
    follows: Follows | None = None
    pod: Pod | None = None  # of a sharded model: it goes as one into every generation
    snapshots: Snapshots | None = None  # where this rank makes its machine's, or those of its part
    names: list[str] | None = None  # of the program's own sums, as rank 0 knows them
    evaluation_pending: bool = False  # one of the weights after the last step, which is under way, or was cut short

    def __post_init__(self) -> None:
        self.at_boundary = True
        self.mark.set()
        self.ended = False
        self.score: tuple[float, dict[str, float]] | None = None
        self._sums = Sums(self.group.device)
        self._waits = DataWaits(self.group.rank, self.group.world_size, lambda: self.source.waited_seconds)
        self._newer: dict[str, Any] | None = None  # a state that is ahead, to be taken at the boundary
        self._reported = 0  # the last step of which the account knows, as far as the ranks agreed on it
        self._lost_seconds = 0.0  # of the step under way: in which no step could go on
        self._open: tuple[Step, float] | None = None  # the step that the program has, and when it got it
        self._pending: deque[Pending] = deque()
        self._told_until = min(self.step * self.stream.global_batch, self.stream.total_samples)

    def steps(self) -> Iterator[Step]:
        """Until the end. Raises GracefulExit where the ranks agree to leave."""
        self.report.begin()
        first = True
        while self.step < self.stream.total_steps:
            started, self._lost_seconds = time.monotonic(), 0.0
            self._waits.begin_step()
            if self.profiler is not None and self.group.rank == 0:
                self.profiler.begin()
            step = self._step()
            self._open = step, started
            yield step
            self._open = None
            self._end_body(step)
            leaves = self._between(started)
            if self.profiler is not None:
                self.profiler.end(self.step)
            if leaves:
                self.leave()
            if first and self.follows is not None:
                self.follows.tell_calls(self)
            first = False
        self.ended = True
        self.end(self._settle_and_save)
        self.watchdog.rest()

    def end(self, part: Callable[[], None]) -> None:
        """Do a part of the end: all ranks do the same ones in the same order, and once more without those that are lost."""
        if self.follows is None or self.pod is not None:
            part()
        else:
            self.follows.end(self, part)

    def _settle_and_save(self) -> None:
        self.settle()
        self.save_now()

    def stop_early(self) -> None:
        """The program has left the loop, on every rank at the same step, and has not failed: that step is the last one."""
        if self.profiler is not None:
            self.profiler.stop()
        if self._open is not None and self._open[0].done:
            (step, started), self._open = self._open, None
            self._end_body(step)
            self._between(started, last=True)

    def updated(self, *_: object) -> None:
        """The optimizer has changed the weights: until the boundary they are those of no step."""
        self.at_boundary = False
        self.mark.set()

    @property
    def whole(self) -> bool:
        """True if the state is that after `step` steps."""
        return self.at_boundary and self.mark.holds()

    def begin_evaluation(self) -> bool:
        """The present weights are to be judged. True if this may be cut short and made again: it finds the state of a step, and
        until it is through that is kept with the evaluation pending. An update that is done ends its step here for that."""
        self.take_newer()
        if self._open is not None:
            step, started = self._open
            if step.done and not step.counted and not self.at_boundary and self.mark.holds():
                self._count(step)
                if self._pending:
                    self._pending[-1].seconds = time.monotonic() - started
            if step.begun and not step.counted:
                return False
        if not (self.ended or self.whole):
            return False
        self.evaluation_pending = True
        return True

    @property
    def resumes_with_evaluation(self) -> bool:
        """True if who goes on from the present state has to evaluate it: the body that was to do so has not ended."""
        return self.evaluation_pending or (self._open is not None and self._open[0].counted)

    def judged(self, score: float, metrics: dict[str, float]) -> None:
        """The present weights were. Those of the step under way are kept at its end."""
        self.score = float(score), {name: float(value) for name, value in metrics.items()}  # of numpy and torch too
        if self.ended:
            self.end(partial(self.save_now, last=True))
        elif self._open is not None and not self._open[0].begun:
            self._save(wish=False)

    def _step(self) -> Step:
        return Step(
            number=self.step,
            samples=self.stream.step(self.step),
            dataset_size=self.stream.dataset_size,
            seed=self.stream.seed,
            micro_batches=self.plan.micro_batches(self.step),
            source=self.source,
            gradients=self.gradients,
            sums=self._sums,
            write_down=self._write_down,
            shared=self._agree,
            again=None if self.follows is None else self._again,
            smaller=None if self.plan.virtual_workers or self.pod is not None else self._smaller,
        )

    def _write_down(self, number: int, samples: list[int]) -> None:
        if self.ledger:
            self.ledger.write(number, samples)

    def _again(self, step: Step) -> bool:
        """A peer is gone before any of the step is done: True if it begins once more, in a new generation; False if other ranks
        have done it."""
        self.follow_group(broken=True)
        if self._newer is not None:
            return False
        self.renew_step()
        return True

    def _smaller(self, step: Step, error: str, gave: bool) -> bool:
        """The step ran out of memory: True if it begins once more, with smaller micro-batches; False if other ranks have done it.
        Raises NoRoomError."""
        self.shrink(error)
        if gave:
            return self._again(step)  # the others wait for sums that do not come: they begin once more too
        self.gradients.undo()
        if self.group.device.type == "cuda":
            torch.cuda.empty_cache()
        waited_seconds = self.source.waited_seconds
        self.source = self.read(self.plan)
        self.source.waited_seconds = waited_seconds
        restart(step, micro_batches=self.plan.micro_batches(self.step), source=self.source)
        return True

    def shrink(self, error: str) -> None:
        """Halve the micro-batches of the step under way, for this process and those that come after it. Raises NoRoomError."""
        device, micro_batches = self.group.device, self.plan.micro_batches(self.step)
        limit = halve(micro_batches, device, together=self.plan.together)
        self.plan = replace(self.plan, first_step=self.step, max_micro_batch=limit)
        keep_limit(self.output, device, limit)
        before = max(each.num_samples for each in micro_batches)
        print(
            f"rank {self.group.rank}: {before} samples at once ran out of memory on {device_name(device)}: step {self.step} is "
            f"repeated with {limit} at most, and the same gradient ({error[:200]})",
            flush=True,
        )

    @property
    def computes(self) -> bool:
        """True in a step whose micro-batches are under way, and nothing of which is done."""
        return self._open is not None and self._open[0].begun and not self._open[0].done and self.at_boundary

    def follow_group(self, *, broken: bool, members_only: bool = False) -> bool:
        """Into the next generation; see Recovery.follow."""
        assert self.follows is not None
        began = time.monotonic()
        self._pending.clear()
        newcomers = self.follows.follow(self, broken=broken, members_only=members_only)
        seconds = time.monotonic() - began
        self._lost_seconds += seconds
        self.report.account.lost_seconds += seconds
        return newcomers

    def renew_step(self) -> None:
        """The step that the program has begins in the present generation: nothing of it is done."""
        if self._open is not None and not self._open[0].counted:
            plan = self.plan.micro_batches(self.step)
            restart(self._open[0], micro_batches=plan, source=self.source, write_down=self._write_down)

    @property
    def is_outrun(self) -> bool:
        """True if the program has a step that it has not begun, and others have done it."""
        return self._newer is not None and self._open is not None and not self._open[0].begun

    def take_newer(self) -> None:
        """At a boundary, or for an evaluation: the steps that the others have done are done here too."""
        if self._newer is None or self.follows is None:
            return
        if self._open is not None and not self._open[0].counted:
            self._count(self._open[0])
        else:
            self.follows.take(self, self._newer)
            self.mark.set()

    def enter(
        self,
        *,
        plan: MicroBatchPlan,
        source: Watched[Fetched],
        generation: int,
        resumed_generation: int,
        names: list[str] | None,
        newer: dict[str, Any] | None,
    ) -> None:
        """A new generation of the same process. The sums since the last line are of ranks that are gone too: they start anew."""
        self.plan, self.source, self.names, self._newer = plan, source, names, newer
        self.gradients.follow()
        self._sums.take([])
        self._told_until = min(plan.first_step * self.stream.global_batch, self.stream.total_samples)
        self._waits = DataWaits(self.group.rank, self.group.world_size, lambda: self.source.waited_seconds)
        self.report.enter(generation, resumed_step=plan.first_step)
        if self.ledger is not None:
            self.ledger = self.ledger.next(
                generation=generation, resumed_step=plan.first_step, resumed_generation=resumed_generation, group=self.group
            )

    def take(self, step: int, account: dict[str, Any], *, evaluation_pending: bool) -> None:
        """The numbers of another rank's state, which is in place."""
        self.step, self.evaluation_pending, self._newer = step, evaluation_pending, None
        self.report.account.useful_seconds = float(account["useful_seconds"])

    def _agree(self, step: Step) -> None:
        """Start it while the optimizer works. Only a step that is logged waits for the device."""
        if self._newer is not None:
            return
        done = step.number + 1
        logged = done % self.log_every == 0 or done == self.stream.total_steps
        try:
            if logged and self.names is None:
                self.names = self.group.hand_out_facts(self._sums.names)  # a rank without samples knows none
            sums = [step.loss.item(), *self._sums.take(self.names or []), *self._waits.mine()] if logged else []
            agreement = self.group.agree(
                leave=self.notice.seen,
                wish=self.notice.take_wish(),
                change=self.follows is not None and self.follows.group.change_wanted,
                checkpoint_step=max(self.checkpoint_step, self.saver.saved_step),
                sums=sums,
                snapshot_due=self.snapshots.due if self.snapshots is not None else None,
            )
        except PeerLostError:
            if self.follows is None:
                raise
            return self.follows.group.abandon()  # the gradient is there: the step is done, and the boundary comes first
        self._pending.append(Pending(done, step.samples.stop - self._told_until, agreement, logged, self.names or []))
        if logged:
            self._told_until = step.samples.stop

    def _count(self, step: Step) -> None:
        if not step.done:
            raise RuntimeError(
                f"step {step.number} has micro-batches left: `for batch in step:` must run to its end in every step"
            )
        self.gradients.commit()
        if self._newer is not None and self.follows is not None:
            self.follows.take(self, self._newer)
        else:
            self.step += 1
        step.counted = self.at_boundary = True
        self.mark.set()
        self.evaluation_pending = False

    def _end_body(self, step: Step) -> None:
        if not step.counted:
            self._count(step)
        self.at_boundary = True  # changes since an evaluation for which it was counted belong to the step too
        self.mark.set()

    def _between(self, started: float, *, last: bool = False) -> bool:
        """Agree on the step; True to leave."""
        now = self._pending[-1] if self._pending else None
        agreed = self._answers(0 if last else self.lag)
        answered = time.monotonic()
        pause = max(0.0, self.min_step_seconds - (answered - started))
        self.notice.wait(pause)
        seconds = time.monotonic() - started - self._lost_seconds
        if now is not None:
            now.seconds = seconds
        self.watchdog.beat()
        self.ended = last
        left_behind = bool(agreed) and not last and self._is_left_behind(agreed, time.monotonic() - answered - pause)
        over = self.group.is_over if self.pod is None else self.pod.any(self.group.is_over)
        if left_behind or (self.pod is not None and over):
            self.group.abandon()
            agreed = []
        if self.pod is not None and over:
            left_behind = self.pod.any(left_behind)  # the pod's other ranks skip the same collectives
        if left_behind:
            self._go_on(frozenset(), change=False, broken=True)
            return False
        for each, answer in agreed:
            self._report(each, answer)
        if not agreed and self.follows is not None and self._reported < self.step:
            self.report.step(self.step, seconds)  # what the ranks would have agreed on is lost; the step is not
        if last:
            return False
        leaving = frozenset[int]().union(*(answer.leaving for _, answer in agreed))
        if leaving and (self.follows is None or len(leaving) == self.group.machines):
            return True
        broken = self.group.is_over if self.pod is None else over
        # After the last step newcomers would evaluate alone: the others have seen an evaluation, and leave it out.
        through = self.step >= self.stream.total_steps
        self._go_on(leaving, change=not through and any(answer.change for _, answer in agreed), broken=broken)
        self._save(any(answer.wish for _, answer in agreed))
        if self.snapshots is not None and any(answer.snapshot for _, answer in agreed):
            self.snapshots.take(self.report.generation, self.step, self.give, say=self.report.say)
        return False

    def _is_left_behind(self, agreed: list[tuple[Pending, Agreed]], seconds: float) -> bool:
        """True if this process stood still for so long, and the others have gone on without it: its lines would come among
        theirs."""
        stopping = any(answer.leaving or answer.change for _, answer in agreed)  # then the others leave by agreement
        if self.follows is None or stopping or seconds < _SHORTEST_LEASE_SECONDS:
            return False
        # Behind data that this process has not read yet, it does not see that a connection is closed.
        if not (self.follows.group.is_left or self.saver.is_replaced):
            return False
        self.follows.group.abandon()
        return True

    def _answers(self, left: int) -> list[tuple[Pending, Agreed]]:
        """All but so many; none where a peer is gone and this process goes on without it."""
        try:
            return [(each, each.agreement.wait()) for each in self._taken(left)]
        except PeerLostError:
            if self.follows is None:
                raise
            self.follows.group.abandon()
            return []

    def _go_on(self, leaving: frozenset[int], *, change: bool, broken: bool) -> None:
        """Into a new generation, if there is to be one. Raises GracefulExit where this machine leaves: others have its state."""
        if self.follows is None:
            return
        if self.group.machine in leaving:
            self.report.say(f"left after step {self.step}; the other machines go on with its state")
            raise GracefulExit
        if leaving or change or broken:
            self.follow_group(broken=broken, members_only=self.step >= self.stream.total_steps)
            self.take_newer()  # where this process stood still, and the others went on

    def _taken(self, left: int) -> list[Pending]:
        return [self._pending.popleft() for _ in range(len(self._pending) - left)]

    def settle(self) -> None:
        """All steps are agreed on. Raises PeerLostError."""
        for each in self._taken(0):
            self._report(each, each.agreement.wait())

    def _report(self, pending: Pending, agreed: Agreed) -> None:
        self.checkpoint_step = agreed.checkpoint_step
        self._reported = pending.number
        self.report.step(pending.number, pending.seconds)
        if not pending.logged:
            return
        loss, *sums = agreed.sums
        figures, waits = sums[: len(pending.names)], sums[len(pending.names) :]
        self.report.line(
            step=pending.number,
            loss=loss,
            samples=self.stream.step(pending.number - 1).size,
            step_seconds=pending.seconds,
            waits=self._waits.of_all(waits),
            figures={name: each / pending.samples for name, each in zip(pending.names, figures, strict=True)},
            checkpoint_step=self.checkpoint_step,
            checkpoint_seconds=self.saver.take_cost(),
        )

    def _save(self, wish: bool) -> None:
        score, self.score = self.score, None
        if not self._writes:
            return
        try:
            if score is not None:
                with self.notice.saving():  # it waits for a write that is under way
                    self.saver.save(self.step, self.state, score=score[0], metrics=score[1])
            else:
                self.saver.maybe_save(self.step, self.state, soon=wish)
        except Stale:
            if self.follows is None:
                raise
            self.follows.group.abandon()  # the others are in a newer generation already

    @property
    def _writes(self) -> bool:
        """True on the ranks that write checkpoints: one, or those of one pod."""
        return self.group.rank == 0 if self.pod is None else self.group.machine == 0

    def give(self) -> dict[str, Any]:
        """The state for another rank, or for a snapshot; of a sharded model this rank's part."""
        state: dict[str, Any] = to_local(self.state())
        return state

    def save_now(self, *, last: bool = False) -> None:
        """A checkpoint of the present step is on the disk when any rank returns, or could not be written. Raises CheckpointError
        where that is the `last` one."""
        facts: dict[str, Any] = {} if self.score is None else {"score": self.score[0], "metrics": self.score[1]}
        with self.watchdog.unhurried(), self.notice.saving():
            if self._writes:
                self.saver.save_now(self.step, self.state, last=last, **facts)
            self.group.barrier()  # nobody goes before
        self.score = None

    def leave(self) -> Never:
        """At a boundary, or from an evaluation. Raises GracefulExit."""
        self.settle()
        whole = self.whole  # the program may have changed the weights behind our back since the evaluation began
        if whole:
            self.save_now()
        where = "an evaluation " if self.evaluation_pending else ""
        self.report.say(f"left {where}after step {self.step} {'with' if whole else 'without'} a checkpoint")
        raise GracefulExit

    def close(self) -> None:
        self.report.close()
        if self.ledger is not None:
            self.ledger.close()
