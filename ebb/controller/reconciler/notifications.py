"""The news of a job that people want to hear: that it ended, was stopped, nears its budget, loses machines quickly. Pure.

    due(job, status, now)     # what is to be sent and was not, each with an id that is the same whoever works it out

`status.notified` remembers what was delivered: the latest of each kind.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from ebb.api import contract as names
from ebb.api.clock import stamp, unix
from ebb.api.costs import dollars, sums
from ebb.api.spec import Job
from ebb.api.status import RECLAIMED, Cost, Status

FINISHED, JOB_FAILED, HELD, BUDGET, RECLAIMS = "finished", "failed", "held", "budget", "reclaims"
RECLAIMS_SECONDS = 600.0  # two reclaims within this are told of, at most once in as long
# What happened longer ago is not told of: a controller that first hears where to send has a day of jobs in view, and a chat
# should not get them all at once.
NEWS_SECONDS = 3600.0


@dataclass(frozen=True, kw_only=True)
class Notification:
    """One message. `key` distinguishes it from the job's others, and begins with its kind."""

    key: str
    id: str
    at: str
    text: str
    job: str
    namespace: str
    user: str
    state: str
    step: int | None
    usd_spent: float

    @property
    def kind(self) -> str:
        return _kind(self.key)

    @property
    def body(self) -> dict[str, Any]:
        """The JSON that a webhook gets; docs/operations.md describes it."""
        return {
            "id": self.id,
            "kind": self.kind,
            "at": self.at,
            "text": self.text,
            "job": self.job,
            "namespace": self.namespace,
            "user": self.user,
            "state": self.state,
            "step": self.step,
            "usdSpent": self.usd_spent,
        }


def due(job: Job, status: Status, now: float) -> tuple[Notification, ...]:
    """Everything that `status` says and `status.notified` does not."""
    spent = sums(status.cost or Cost(), now).usd_spent
    who = f"{job.name} ({job.submitted_by})" if job.submitted_by else job.name
    return tuple(
        Notification(
            key=key,
            id=f"{job.uid}/{key}",
            at=at,
            text=f"{who} {text}",
            job=job.name,
            namespace=job.namespace,
            user=job.submitted_by,
            state=status.state,
            step=status.progress.step if status.progress else None,
            usd_spent=round(spent, 2),
        )
        for key, at, text in _happened(status, spent, now)
        if key not in status.notified and _seconds(at) > now - NEWS_SECONDS
    )


def remembered(status: Status, key: str) -> Status:
    """The status with a delivery in it, in place of the last one of its kind."""
    kind = _kind(key)
    others = tuple(item for item in status.notified if _kind(item) != kind)
    return replace(status, notified=(*others, key))


def _happened(status: Status, spent: float, now: float) -> Iterator[tuple[str, str, str]]:
    """Key, time and words after the job's name. The same status gives the same keys."""
    step = f" at step {status.progress.step:,}" if status.progress else ""
    ended = status.completion_time or stamp(now)
    if status.is_true(names.SUCCEEDED):
        yield FINISHED, ended, f"finished{step}; its machines cost about {dollars(spent)} USD."
    elif failed := next((item for item in status.conditions if item.type == names.FAILED and item.status == "True"), None):
        yield JOB_FAILED, ended, f"failed{step}: {failed.message}"
    elif status.hold and status.hold.reason not in (names.REASON_SWEEP_WORST, names.REASON_SWEEP_PAUSED):
        yield f"{HELD}/{status.hold.at}", status.hold.at, f"was stopped{step}: {status.hold.message}"
    if status.budget_warned is not None:
        budget = status.budget_warned
        yield f"{BUDGET}/{budget:g}", stamp(now), f"has spent 90 % of its budget of {dollars(budget)} USD."
    yield from _reclaims(status)


def _reclaims(status: Status) -> Iterator[tuple[str, str, str]]:
    """The first of the quick successions that was not told of. The next one waits until that is delivered."""
    told = next((_seconds(item.split("/")[1]) for item in status.notified if item.startswith(f"{RECLAIMS}/")), float("-inf"))
    lost = [entry for entry in status.history if entry.what == RECLAIMED]
    for before, entry in pairwise(lost):
        apart = _seconds(entry.at) - _seconds(before.at)
        if apart <= RECLAIMS_SECONDS and _seconds(entry.at) >= told + RECLAIMS_SECONDS:
            causes = " and ".join(dict.fromkeys(item.cause or "unknown" for item in (before, entry)))
            text = f"lost two workers within {apart:.0f} s ({causes}), {status.reclaims} in all; it replaces them."
            yield f"{RECLAIMS}/{entry.at}", entry.at, text
            return


def _kind(key: str) -> str:
    return key.partition("/")[0]


def _seconds(text: str) -> float:
    return unix(text) or 0.0
