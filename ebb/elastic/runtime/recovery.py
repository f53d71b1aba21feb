"""Recovery in memory: a run's processes live through a change of machines (--recovery memory).

    recovery = Recovery(config=config, group=group, checkpointing=checkpointing, loader=loader, ...)
    recovery.follow(loop, broken=True)       # at a step boundary, or before any of a step is done; afterwards the loop goes on
    inherited = inherit(config, group, lambda: b"")             # in a process that has just started

All ranks of the new generation compare how many steps they have done. Nobody can be more than one step ahead: a step needs the
gradients of all. The one with the most steps is the source, and whoever is behind or new takes its whole state. So a step
happens for all or for none, without a vote in every step, and nothing is read from a disk.
"""

import io
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch

from ebb.elastic.checkpoint import Fence, Stale
from ebb.elastic.checkpoint.state import load
from ebb.elastic.runtime.checkpointing import Checkpointing
from ebb.elastic.runtime.config import RunConfig
from ebb.elastic.runtime.loading import Loader
from ebb.elastic.runtime.loop import GracefulExit, Loop, plan_of
from ebb.elastic.runtime.members import Members, Standing
from ebb.elastic.runtime.peer_loss import save_after_loss
from ebb.elastic.runtime.process_group import PeerLostError
from ebb.elastic.runtime.start import Start, join, move_saver


@dataclass(frozen=True, kw_only=True)
class Inherited:
    """The part of a rank that comes from the others of its generation. `content` is a whole state, as a checkpoint's file has it;
    empty where all have the same."""

    start: Start
    fence: Fence
    step: int = -1  # that the source has done; -1: nobody has done any, all have just started
    source: int = 0
    facts: dict[str, Any]
    content: bytes = b""


def inherit(config: RunConfig, group: Members, mine: Standing, give: Callable[[], bytes]) -> Inherited:
    """The same on all ranks of a generation that has just formed. `give` is asked for the state on the source alone.

    Raises PeerLostError, and what runtime.start.join does.
    """
    start, fence = join(config, group)
    found = group.standings(mine)
    source = max(range(group.world_size), key=lambda rank: (found[rank].step, -rank))
    step, facts = found[source]
    content = b""
    if step >= 0 and any(each.step != step for each in found):
        content = group.hand_out(give() if group.rank == source else None, source)
    content = b"" if mine.step == step else content
    return Inherited(start=start, fence=fence, step=step, source=source, facts=facts, content=content)


@dataclass(kw_only=True)
class Recovery:
    """Of one process. `answers` are what the program was told by other ranks before its first step."""

    config: RunConfig
    group: Members
    checkpointing: Checkpointing
    loader: Loader
    answers: list[Any]
    entered: Callable[[Inherited], None]  # the run's own numbers of the new generation

    def follow(self, loop: Loop, *, broken: bool) -> None:
        """Into a generation in which all ranks stand at the same step: this one's, or the next, which it then takes at its step
        boundary. Raises GracefulExit, with a checkpoint, where a notice comes while it waits for the others."""
        began, before = time.monotonic(), self.group.world_size
        with loop.watchdog.paused():
            while True:
                try:
                    if not self.group.follow(broken=broken, leaving=lambda: loop.notice.seen):
                        save_after_loss(self.group, loop)
                        raise GracefulExit
                    self._stand(loop)
                    break
                except (PeerLostError, Stale):
                    broken = True
        loop.report.say(
            f"generation {loop.report.generation}: {before} -> {self.group.world_size} ranks after step {loop.step}, in memory, "
            f"{time.monotonic() - began:.2f} s"
        )

    def _stand(self, loop: Loop) -> None:
        """Raises PeerLostError."""
        loop.gradients.undo()
        config = self.config = _placed(self.config, self.group)
        mine = Standing(loop.step, {"answers": self.answers, "names": loop.names, "generation": loop.report.generation})
        found = inherit(config, self.group, mine, lambda: _content(loop.state()))
        move_saver(loop.saver, config, found.start, found.fence, self.checkpointing.identity)
        self.entered(found)
        plan = plan_of(config, self.group, loop.stream, self.checkpointing, self.loader, first_step=found.step)
        loop.enter(
            plan=plan,
            source=self.loader.start(plan, self.group.device, say=loop.report.advise),
            generation=found.start.generation,
            resumed_generation=found.facts["generation"],
            names=found.facts["names"],
            newer=found.content,
        )
        if not found.content:
            self.group.barrier()  # those that are new, or behind, are there too

    def take(self, loop: Loop, content: bytes) -> None:
        """The state of another rank, which is a step ahead, in the place of this one's."""
        saved = load(content, "another rank's state")
        pending = self.checkpointing.take(saved)
        loop.take(int(saved["step"]), saved["account"], evaluation_pending=pending)
        try:
            self.group.barrier()
        except PeerLostError:
            self.group.abandon()  # the next boundary is here


def _placed(config: RunConfig, group: Members) -> RunConfig:
    return replace(config, place=group.placed(config.place))


def _content(state: dict[str, Any]) -> bytes:
    buffer = io.BytesIO()
    torch.save(state, buffer)
    return buffer.getvalue()
