"""Holds the machine of a worker whose program failed, so that people can look into it (spec.holdOnFailureSeconds). Pure.

    crashed = first_held(view, failed)                   # the failure whose launcher stays, of those that are new
    begin(view, draft, crashed[0], what)                 # the job is held, and the machine with it
    held, uid = renew(view, draft, held, held.machine)   # in each later round: the pod to spare, "" when that is over

The launcher keeps the time and ends by itself (ebb/elastic/launch/crash_hold.py), also where no controller runs. The failure is
counted; the job is then held as by a rule that says HoldJob, and stays so when the machine is given back: no try is spent, and no
machine paid for, while nobody looks.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

from ebb.api import contract as names
from ebb.api.clock import stamp, unix
from ebb.api.status import HeldMachine, Hold
from ebb.controller.reconciler.failure_policy import Loss
from ebb.controller.reconciler.lifecycle import hold
from ebb.controller.reconciler.types import JobView, PlanBuilder
from ebb.controller.reconciler.worker_state import Outcome, Worker

GIVEN_BACK = "Its machine was held to look into it, and is given back: "


def first_held(view: JobView, failed: Sequence[Loss]) -> Loss | None:
    """The failure whose launcher stays; of several the one with the lowest index, and the others' machines are given back."""
    return min((loss for loss in failed if loss[0].uid in view.observed.crashes), key=lambda loss: loss[0].index, default=None)


def begin(view: JobView, draft: PlanBuilder, worker: Worker, what: str) -> None:
    """Hold the job and the machine; all workers, this one as well, are of an earlier attempt from now on."""
    until = view.observed.crashes[worker.uid].until
    draft.status = replace(draft.status, restarts=draft.status.restarts + 1)
    message = (
        f"{what} Its machine is held for you until {datetime.fromtimestamp(until, UTC):%H:%M} UTC, and costs money until then: "
        f"ebb exec {view.job.name}. Release it with ebb resume {view.job.name}, which tries again from the last checkpoint, or "
        f"ebb stop {view.job.name}."
    )
    machine = HeldMachine(worker=worker.index, uid=worker.uid, until=stamp(until))
    hold(view, draft, names.REASON_PROGRAM_FAILED, message, machine)


def renew(view: JobView, draft: PlanBuilder, held: Hold, machine: HeldMachine) -> tuple[Hold, str]:
    """The hold as it is now, and the UID of the pod to spare; "" once the machine is gone or its time over."""
    until = unix(machine.until) or view.now
    over = _over(view, machine.uid) or ("the time is over" if view.now >= until else "")
    if not over:
        draft.wakes.append(until)
        return held, machine.uid
    what = held.message.partition(" Its machine is held for you")[0]
    message = f"{what} {GIVEN_BACK}{over}. Any change of the job's spec lets it try again, as ebb resume {view.job.name} does."
    held = replace(held, message=message, machine=None)
    draft.status = replace(draft.status, hold=held)
    return held, ""


def _over(view: JobView, uid: str) -> str:
    """The reason why it cannot be held any longer; "" if it can."""
    found = next(((worker, verdict) for worker, verdict in view.workers if worker.uid == uid), None)
    if found is None:
        return "its worker is gone"
    worker, verdict = found
    if verdict.outcome is Outcome.RECLAIMED:
        return verdict.message or "the machine is lost"
    return "its worker has ended" if worker.finished or worker.leaving else ""
