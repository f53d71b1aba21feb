"""Recovery in memory: a run's processes live through a change of machines.

    recovery = Recovery(config=config, group=group, checkpointing=checkpointing, loader=loader, ...)
    recovery.follow(loop, broken=True)       # at a step boundary, or before any of a step is done; afterwards the loop goes on
    config, inherited = meet(config, group, standing, leaving=notice_seen)                 # in a process that gets ready
    config, inherited, state = come_in(config, group, inherited, leaving=notice_seen)      # in a process that is ready to begin

All ranks of the new generation compare how many steps they have done. Nobody can be more than one step ahead: a step needs the
gradients of all. The one with the most steps is the source, and whoever is behind or new takes its whole state. So a step
happens for all or for none, without a vote in every step, and nothing is read from a disk.

A newcomer builds its model and opens its data while the others train, or, where they had not begun when it came, while they wait
at their first step boundary. Where a first pass is slow it makes one beside them (rehearsal.py). The state comes when it is ready
for its first step.

Before the first step ranks ask each other the same things in the same order (Run._answer). Where one is lost meanwhile, the
others meet again, and ask once more for the answer that did not come. One that has fewer answers than another, since it is new
or the loss came between them, gets that one's, takes part in what is still to be asked, and takes the state as a newcomer does.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, field, replace
from typing import Any

from ebb.compat import dataclass
from ebb.elastic.checkpoint import Fence, FileFence, Stale
from ebb.elastic.checkpoint.values import decode
from ebb.elastic.runtime.checkpointing import Checkpointing
from ebb.elastic.runtime.config import RunConfig
from ebb.elastic.runtime.evaluation import Stopped, listener
from ebb.elastic.runtime.loading import Loader
from ebb.elastic.runtime.loop import GracefulExit, Loop
from ebb.elastic.runtime.loop_setup import plan_of
from ebb.elastic.runtime.members import Members, Standing
from ebb.elastic.runtime.micro_batch import read_limit
from ebb.elastic.runtime.peer_loss import meet_again, save_after_loss
from ebb.elastic.runtime.pod import Pod
from ebb.elastic.runtime.process_group import Agreed, PeerLostError
from ebb.elastic.runtime.rehearsal import Calls
from ebb.elastic.runtime.start import Start, join, move_saver, newest_checkpoint


@dataclass(frozen=True, order=True)
class Evaluated:
    """The evaluations since the first step, and the figures of the last one."""

    count: int = 0
    figures: dict[str, float] = field(default_factory=dict, compare=False)


@dataclass(frozen=True, kw_only=True)
class Inherited:
    """The part of a rank that comes from the others of its generation."""

    start: Start
    fence: Fence
    step: int = -1  # that the source has done; -1: no rank is ready for one yet
    facts: dict[str, Any]
    training: bool = False  # the source has got ready: it answers nothing that comes before the first step
    chain: tuple[int, ...] = ()  # the source, and those that need its state; nobody where all have the same
    newcomers: bool = False
    evaluated: Evaluated = Evaluated()  # the last one that any of the ranks is through with
    ended: int = 0  # parts of the end that any of them is through with


def inherit(config: RunConfig, group: Members, mine: Standing) -> Inherited:
    """The same on all ranks of a generation that has just formed. Raises PeerLostError, and what runtime.start.join does."""
    start, fence = join(config, group)
    found = group.standings(mine)
    source = max(range(group.world_size), key=lambda rank: (found[rank].reached, -rank))
    (step, facts), reached = found[source], found[source].reached
    if reached < (-1, 0):
        meet_again(PeerLostError("no process is left that has the job's state"))
    if step >= 0 and start.generation > facts["generation"] + 1:
        _end_if_outrun(config, group, fence, step, facts["generation"])
    lane = group.lane(int(facts.get("pod_size", 1)))
    needy = [rank for rank in lane if found[rank].reached != reached]
    giver = next((rank for rank in lane if found[rank].reached == reached), None)
    if giver is None:
        meet_again(PeerLostError(f"no rank has the newest state of the part of rank {group.rank}"))
    return Inherited(
        start=start,
        fence=fence,
        step=step,
        facts=facts,
        training=step >= 0,
        chain=(giver, *needy) if needy else (),
        newcomers=any(each.step < 0 for each in found),
        evaluated=max((Evaluated(*each.facts["evaluated"]) for each in found if each.step >= 0), default=Evaluated()),
        ended=max((each.facts["ended"] for each in found if each.step >= 0), default=0),
    )


def _end_if_outrun(config: RunConfig, group: Members, fence: Fence, step: int, generation: int) -> None:
    """The source was left behind, and others have trained without it. Where none of them is left, their checkpoint is further on
    than all that is in memory: new processes go on from that."""
    newest = newest_checkpoint(config, fence) if group.rank == 0 else None
    if group.hand_out_facts(newest is not None and newest[0] > generation and newest[1] > step):
        meet_again(PeerLostError(f"all machines that have trained since step {step} are gone"))


def inherit_beside(config: RunConfig, group: Members) -> Inherited:
    """In a process that has no place yet: of the generation that trains. Nothing is written under it."""
    start = Start(**group.beside["start"])
    return Inherited(start=start, fence=FileFence(config.output, start.generation), facts=group.beside["facts"], training=True)


def ready(answers: list[Any], *, behind: bool) -> Standing:
    """Of a rank that gets ready for its first step. `behind`: it has to take its state from another one."""
    return Standing(-1, {"answers": answers, "behind": behind})


def meet(config: RunConfig, group: Members, mine: Standing, *, leaving: Callable[[], bool]) -> tuple[RunConfig, Inherited]:
    """In a process that has done no step: the present generation, or, as often as one breaks, the next. Raises GracefulExit when
    `leaving`, and PeerLostError where nobody gives it a place."""
    while True:
        try:
            return _meet_once(config, group, mine, leaving=leaving)
        except (PeerLostError, Stale):
            if not group.can_follow:
                raise
            group.abandon()


def _meet_once(config: RunConfig, group: Members, mine: Standing, *, leaving: Callable[[], bool]) -> tuple[RunConfig, Inherited]:
    """Raises PeerLostError and Stale too."""
    if group.beside is not None or group.is_over:
        if not group.follow(broken=group.broken, leaving=leaving):
            raise GracefulExit
        config = _placed(config, group)
    return config, inherit(config, group, mine)


def come_in(
    config: RunConfig, group: Members, found: Inherited, *, leaving: Callable[[], bool], pod: Pod | None = None
) -> tuple[RunConfig, Inherited, dict[str, Any]]:
    """In a process that is ready for its first step: the others' state, once they have stopped for it at a step boundary.

    As often as a generation breaks, the next one's. Raises GracefulExit when `leaving`; ends the process when all that had a
    state are gone, since it has read no checkpoint.
    """

    def take() -> dict[str, Any]:
        nonlocal config, found
        if group.beside is not None or group.is_over:
            config, found = _meet_once(config, group, ready([], behind=True), leaving=leaving)
            if not found.training:
                meet_again(PeerLostError("no process is left that has trained"))
        state: dict[str, Any] = decode(group.pass_on(found.chain))
        return state

    while True:
        try:
            state = take() if pod is None else pod.together(take)
            return config, found, state
        except (PeerLostError, Stale):
            if not group.can_follow:
                raise
            group.abandon()


@dataclass(kw_only=True)
class Recovery:
    """Of one process. `answers` are what the program was told by other ranks before its first step."""

    config: RunConfig
    group: Members
    checkpointing: Checkpointing
    loader: Loader
    answers: list[Any]
    start: Start
    evaluated: Evaluated  # the last one that any rank is through with, as far as this one knows
    through: int  # evaluations that this rank has given its program
    ended: int  # parts of the end that any rank is through with, as far as this one knows
    entered: Callable[[Inherited], None]  # the run's own numbers of the new generation
    calls: Calls  # of the program's networks
    pod: Pod | None = None
    _ending: int = 0  # the part of the end that this rank has come to

    def follow(self, loop: Loop, *, broken: bool, members_only: bool = False) -> bool:
        """Into a generation in which all ranks stand at the same step: this one's, or the next, which it then takes at its step
        boundary. True if some of them are newcomers. Raises GracefulExit, with a checkpoint, where a notice comes while it waits
        for the others."""
        began, before = time.monotonic(), self.group.world_size
        with loop.watchdog.paused():
            while True:

                def enter(broken: bool = broken) -> bool:
                    if not self.group.follow(broken=broken, leaving=lambda: loop.notice.seen, members_only=members_only):
                        save_after_loss(self.group, loop)
                        raise GracefulExit
                    try:
                        return self._stand(loop)
                    except Stale as error:
                        raise PeerLostError(str(error)) from error

                try:
                    newcomers = enter() if self.pod is None else self.pod.together(enter)
                    break
                except PeerLostError:
                    broken = True
        loop.report.say(
            f"generation {loop.report.generation}: {before} -> {self.group.world_size} ranks after step {loop.step}, in memory, "
            f"{time.monotonic() - began:.2f} s, of which {self.group.transfer_seconds:.2f} s for the transfer"
        )
        return newcomers

    def _stand(self, loop: Loop) -> bool:
        """Raises PeerLostError."""
        loop.gradients.undo()
        config = self.config = _placed(self.config, self.group)
        found = inherit(config, self.group, Standing(loop.step, self._facts(loop)))
        self.start, self.evaluated = found.start, max(self.evaluated, found.evaluated)
        self.ended = max(self.ended, found.ended)
        move_saver(loop.saver, config, found.start, found.fence, self.checkpointing.identity)
        self.entered(found)
        newer = self.group.pass_on(found.chain, give=loop.give)
        plan = plan_of(
            config,
            self.group,
            loop.stream,
            self.checkpointing,
            self.loader,
            first_step=found.step,
            limit=loop.plan.max_micro_batch if self.pod is not None else read_limit(config, self.group.device),
            pod=self.pod,
        )
        loop.enter(
            plan=plan,
            source=self.loader.start(plan, self.group.device, say=loop.report.advise),
            generation=found.start.generation,
            resumed_generation=found.facts["generation"],
            names=found.facts["names"],
            newer=None if newer is None else decode(newer),
        )
        if newer is None:
            self.group.barrier()  # those that are new, or behind, are there too
        self.tell(loop)
        return found.newcomers

    def tell(self, loop: Loop) -> None:
        """From now on newcomers may get ready beside this generation."""
        self.group.tell({"start": asdict(self.start), "facts": self._facts(loop)})

    def tell_calls(self, loop: Loop) -> None:
        """After the first step newcomers can hear of what was not known before it."""
        if self.calls.known:
            self.tell(loop)

    def _facts(self, loop: Loop) -> dict[str, Any]:
        return {
            "answers": self.answers,
            "names": loop.names,
            "generation": loop.report.generation,
            "pod_size": 1 if self.pod is None else self.pod.size,
            "evaluated": [self.evaluated.count, self.evaluated.figures],
            "ended": self.ended,
            "calls": self.calls.known,
        }

    def evaluate(self, loop: Loop, once: Callable[[Callable[[], bool]], dict[str, float]]) -> dict[str, float]:
        """once(told), on all ranks; again, without those that leave or are lost, as often as that cuts it short.

        A rank that is through with it while another one is not gives that one the figures. Raises GracefulExit; PeerLostError
        where the weights are others for this evaluation, or where it cannot go on without newcomers, who are in none.
        """
        before = loop.step
        repeatable = loop.begin_evaluation()
        if loop.step <= before + 1:
            self.through += 1  # otherwise the others have made this one, and those after it
        while self.evaluated.count < self.through:
            told = listener(loop.notice, self.group) if repeatable else lambda: False
            try:
                with loop.watchdog.unhurried():
                    self.evaluated = Evaluated(self.through, once(told))
            except Stopped:
                self._go_on_after_notice(loop)
            except PeerLostError:
                if not repeatable:
                    raise
                self._evaluate_again(loop, broken=True)
        loop.evaluation_pending = False
        return self.evaluated.figures

    def _go_on_after_notice(self, loop: Loop) -> None:
        """All ranks have stopped the evaluation, since one of them heard a notice."""

        def agree() -> Agreed:
            loop.settle()
            return self.group.agree(leave=loop.notice.seen, wish=False, change=False, checkpoint_step=0, sums=[]).wait()

        try:
            told = agree() if self.pod is None else self.pod.together(agree)
        except PeerLostError:
            return self._evaluate_again(loop, broken=True)
        if len(told.leaving) == self.group.machines:
            loop.leave()
        if self.group.machine in told.leaving:
            loop.report.say(f"left an evaluation after step {loop.step}; the other machines make it")
            raise GracefulExit
        return self._evaluate_again(loop, broken=False)

    def _evaluate_again(self, loop: Loop, *, broken: bool) -> None:
        if loop.follow_group(broken=broken, members_only=True):
            raise PeerLostError("an evaluation cannot go on with newcomers, nor without them")
        if loop.is_outrun:
            meet_again(PeerLostError("the others have gone on from the step before which the program evaluates"))
        loop.take_newer()
        loop.renew_step()

    def end(self, loop: Loop, part: Callable[[], None]) -> None:
        """See Loop.end. A part ends when all ranks have come to its end: where one is through with it, no other repeats it.
        Raises GracefulExit."""
        self._ending += 1
        while self.ended < self._ending:
            try:
                part()
                self.ended = self._ending
            except (PeerLostError, Stale):
                self.group.abandon()
                loop.follow_group(broken=True, members_only=True)

    def take(self, loop: Loop, saved: dict[str, Any]) -> None:
        """The state of another rank, which is ahead, in the place of this one's."""
        if int(saved["step"]) > loop.step + 1:
            self.through = self.evaluated.count
        pending = self.checkpointing.take(saved)
        loop.take(int(saved["step"]), saved["account"], evaluation_pending=pending)
        try:
            self.group.barrier()
        except PeerLostError:
            self.group.abandon()  # the next boundary is here


def _placed(config: RunConfig, group: Members) -> RunConfig:
    return replace(config, place=group.placed(config.place))
