"""The end of a rank that cannot go on: it saves what it holds, if that is worth anything, and ends with 75: meet again.

Nothing here needs another rank: the group is broken, and threads of its collectives may never end. So the process ends at once.
"""

from __future__ import annotations

import os
import sys
import threading
import traceback

from ebb.compat import Never
from ebb.elastic.contract import EXIT_PEER_LOST
from ebb.elastic.runtime.loop import Loop
from ebb.elastic.runtime.process_group import Group

# For the main thread to notice that its collective is broken: gloo does at once when its connections are cut
_NOTICE_SECONDS = 10.0


def end(code: int) -> Never:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def meet_again(error: BaseException, group: Group | None = None, loop: Loop | None = None) -> Never:
    """A peer is gone, or a newer generation exists."""
    if group is not None and loop is not None:
        save_after_loss(group, loop)
    print(f"a peer is gone ({error})", flush=True)
    end(EXIT_PEER_LOST)


def repeat_smaller(error: BaseException, group: Group, loop: Loop) -> Never:
    """The step ran out of memory where this process cannot begin it once more: the next one does, with smaller micro-batches.
    Raises NoRoomError."""
    loop.shrink(str(error).partition("\n")[0])
    traceback.clear_frames(error.__traceback__)  # what the forward pass held
    save_after_loss(group, loop)
    end(EXIT_PEER_LOST)


def save_after_loss(group: Group, loop: Loop) -> None:
    """Keep the steps that are done. On GPUs the last ones may be of a broken collective, unless the group waits for each. In the
    middle of a step's update, or of what the program does after it before it evaluates, the state is that of no step. The
    first survivor with a whole state saves it, whatever its rank: nobody waits for one that may be gone."""
    group.abandon()  # first: others may wait for this rank, and not for the one that is gone
    if loop.pod is not None:
        return  # a part alone is worth nothing, and the pod's other ranks may not come here
    with loop.notice.saving():  # a write that is under way takes its time too
        loop.saver.finish()
        if group.device.type != "cpu" and group.world_size > 1 and not group.awaits_gpus:
            return
        if loop.at_boundary:
            loop.gradients.undo()
        if loop.whole and loop.saver.claim(loop.step):
            loop.saver.save_now(loop.step, loop.state)


def give_up(sentence: str, group: Group, noticed: threading.Event) -> None:
    """In the watchdog's thread. The main thread notices when its connections are cut, and saves; or it never will."""
    print(sentence, file=sys.stderr, flush=True)
    group.abandon()
    if not noticed.wait(_NOTICE_SECONDS):
        end(EXIT_PEER_LOST)
