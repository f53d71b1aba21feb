"""Timeline of a job as one readable list: its own history merged with Kubernetes' events about it and its pods. Pure code.

    for entry in timeline(job, events, reclaims): print(entry.at, entry.text)

Where the controller wrote the same thing twice, as history and as event, the one that says more stays. The same thing said again
within half a minute, of one worker or of several, is one entry with a count. In the phrases, `{who}` stands for the workers, and
`{waits|wait}` where a verb depends on how many they are; an event that is not known here is shown in Kubernetes' own words.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from ebb.api import contract as names
from ebb.client.jobs.reclaims import Reclaim
from ebb.client.jobs.view import CAUSES, Happening, describe, duration

Object = Mapping[str, Any]


# What says nothing to somebody who wonders about a training: steps between two that are told anyway.
SILENT = frozenset({"Created", "SandboxChanged", "Pulled", names.REASON_RUNNING})
PHRASES = {
    "FailedScheduling": "{who} {waits|wait} for a machine",
    "Pulling": "{who} {fetches|fetch} the image",
    "Started": "{who} {starts|start}",
    "Killing": "{who} {is|are} told to stop",
    "TriggeredScaleUp": "{who} {gets|get} a new machine, which is booting",
    "Preempted": "{who} {gives|give} way to a job that goes before",
    "TaintManagerEviction": "{who} {leaves|leave} a machine that is taken away",
    "NodeNotReady": "{who}: the machine does not answer",
    "Evicted": "{who} {is|are} put off the machine",
    "BackOff": "{who} {fails|fail} to start and {is|are} tried again",
}
LOST = frozenset({names.CAUSE_DELETED, names.CAUSE_VANISHED})  # nobody took a machine back

_NODE = re.compile(r"Successfully assigned \S+ to (\S+)")
_NO_SCALE_UP = re.compile(r"^pod didn't trigger scale-up:? *")
_LONGEST = 300


def of_event(event: Object, of_worker: bool) -> str | None:
    """A sentence; None where there is nothing worth telling."""
    reason, message = event.get("reason") or "", str(event.get("message") or "").strip()[:_LONGEST]
    if reason in SILENT or "initContainers" in str((event.get("involvedObject") or {}).get("fieldPath") or ""):
        return None
    if not of_worker:
        return (message or reason).rstrip(".")
    if match := _NODE.match(message):
        return f"{{who}} {{goes|go}} to machine {match[1]}"
    if reason == "NotTriggerScaleUp":
        return f"{{who}} {{gets|get}} no machine now: {_NO_SCALE_UP.sub('', message) or 'the cloud has none'}".rstrip(".")
    return PHRASES.get(reason) or f"{{who}}: {message or reason}".rstrip(".")


def of_history(item: Object) -> str:
    """An entry of status.history."""
    worker = item.get("worker")
    return describe(
        Happening(
            at=item.get("at") or "",
            what=item.get("what") or "",
            worker=int(worker) if worker is not None else None,
            machine=item.get("node") or "",
            cause=item.get("cause") or "",
        )
    )


def of_reclaim(loss: Reclaim) -> str:
    """worker 1 reclaimed in us-west-2a, back in us-west-2b after 41 s: the cloud takes its machine back."""
    verb = "lost" if loss.cause in LOST else "reclaimed"
    zone = f" in {loss.zone}" if loss.zone else ""
    elsewhere = f" in {loss.back_zone}" if loss.back_zone and loss.back_zone != loss.zone else ""
    back = f", back{elsewhere} after {duration(loss.seconds)}" if loss.seconds is not None else ""
    return f"worker {loss.worker} {verb}{zone}{back}: {CAUSES.get(loss.cause, loss.cause)}"


AGAIN_SECONDS = 30.0
TWICE_SECONDS = 5.0  # the event is written within a second of the history; its time has no fractions
_NUMBER = re.compile(r"\{([a-z' ]+)\|([a-z' ]+)\}")

# Whose words stay: the history's have the time that was lost, the event's say why and what to do.
HISTORY_SAYS_MORE = {
    "reclaimed": {names.REASON_RECLAIMED},
    "left": {names.REASON_LEAVES},
    "placed": {names.REASON_PLACED},
}
EVENT_SAYS_MORE = {
    "failed": {names.REASON_PROGRAM_FAILED, names.REASON_FAILED},
    "held": {
        names.REASON_BUDGET,
        names.REASON_TIME_UP,
        names.REASON_CANNOT_START,
        names.REASON_NO_PROGRESS,
        names.REASON_REPEATEDLY_LOST,
        names.REASON_SWEEP_WORST,
        names.REASON_SWEEP_PAUSED,
    },
    "stalled": {names.REASON_CANNOT_START, names.REASON_NO_PROGRESS},
    "ended": {names.REASON_SUCCEEDED, names.REASON_FAILED, names.REASON_DEADLINE},
}


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One line. `reason` is the machine's word: contract.py's or Kubernetes'."""

    at: str  # when it happened first
    last: str  # and last
    text: str  # in a sentence without the time and the count
    count: int
    workers: tuple[int, ...]  # whom it is about; () for the whole job
    reason: str
    warning: bool


def timeline(job: Object, events: Iterable[Object], reclaims: Sequence[Reclaim] = ()) -> tuple[Entry, ...]:
    """By time, the oldest first. `events` may be those of a whole namespace."""
    told = [event for event in events if is_about(event, job)]
    history = (job.get("status") or {}).get("history") or []
    items = [*_of_history(history, told, reclaims), *_of_events(told, history, job["metadata"]["name"])]
    return _merged(sorted(items, key=lambda item: unix(item.at)))


def is_about(event: Object, job: Object) -> bool:
    """Return whether it is about this job or a pod of it, and not about an earlier one of that name."""
    about, metadata = event.get("involvedObject") or {}, job["metadata"]
    if about.get("kind") == names.KIND:
        return bool(about.get("uid") == metadata.get("uid"))
    ours = about.get("kind") == "Pod" and worker_of(str(about.get("name") or ""), metadata["name"]) is not None
    return ours and unix(_times(event)[1]) >= unix(metadata.get("creationTimestamp") or "")


def worker_of(pod: str, job: str) -> int | None:
    """The number in a pod's name; None for pods of others."""
    number = pod.removeprefix(f"{job}-worker-")
    return int(number) if number != pod and number.isdecimal() else None


def unix(stamp: str) -> float:
    """Unix seconds; 0 for no time."""
    return datetime.fromisoformat(stamp).timestamp() if stamp else 0.0


def _of_history(history: Sequence[Object], events: Sequence[Object], reclaims: Sequence[Reclaim]) -> list[Entry]:
    costs = {(loss.at, loss.worker): loss for loss in reclaims}
    kept = [item for item in history if not _near(item, events, EVENT_SAYS_MORE)]
    entries = []
    for item in kept:
        loss = costs.get((item["at"], item.get("worker", -1)))
        text = of_reclaim(loss) if loss else of_history(item)
        workers = () if item.get("worker") is None else (int(item["worker"]),)
        bad = item.get("what") in ("reclaimed", "failed", "stalled", "held")
        entries.append(
            Entry(at=item["at"], last=item["at"], text=text, count=1, workers=workers, reason=item.get("what") or "", warning=bad)
        )
    return entries


def _of_events(events: Sequence[Object], history: Sequence[Object], job: str) -> list[Entry]:
    entries = []
    for event in events:
        twice = any(_near(item, [event], HISTORY_SAYS_MORE) for item in history)
        worker = worker_of(str(event["involvedObject"].get("name") or ""), job)
        text = None if twice else of_event(event, worker is not None)
        if text is None:
            continue
        first, last = _times(event)
        entries.append(
            Entry(
                at=first,
                last=last,
                text=text,
                count=_count(event),
                workers=() if worker is None else (worker,),
                reason=event.get("reason") or "",
                warning=event.get("type") == "Warning",
            )
        )
    return entries


def _near(item: Object, events: Iterable[Object], pairs: Mapping[str, set[str]]) -> bool:
    """Return whether one of the events says what this entry of the history says."""
    reasons, at = pairs.get(item.get("what") or "", set()), unix(item["at"])
    return any(event.get("reason") in reasons and abs(unix(_times(event)[0]) - at) <= TWICE_SECONDS for event in events)


def _merged(entries: Iterable[Entry]) -> tuple[Entry, ...]:
    """Joins what is the same but for the worker and the time. A text about workers has "{who}" for them."""
    found: list[Entry] = []
    for entry in entries:
        same = next((one for one in reversed(found) if _same(one, entry)), None)
        if same is None:
            found.append(entry)
        else:
            later = max(same.last, entry.last, key=unix)
            workers = tuple(sorted({*same.workers, *entry.workers}))
            again = same.count + entry.count if same.workers == entry.workers else max(same.count, entry.count)
            found[found.index(same)] = replace(same, last=later, workers=workers, count=again)
    return tuple(replace(entry, text=_spoken(entry)) for entry in found)


def _same(earlier: Entry, later: Entry) -> bool:
    alike = (earlier.reason, earlier.text) == (later.reason, later.text)
    return alike and unix(later.at) - unix(earlier.last) <= AGAIN_SECONDS


def _spoken(entry: Entry) -> str:
    """The sentence with those whom it is about in it: see PHRASES for `{who}` and `{waits|wait}`."""
    text = entry.text.replace("{who}", who(entry.workers)) if entry.workers else entry.text
    return _NUMBER.sub(lambda match: match[1] if len(entry.workers) == 1 else match[2], text)


def who(workers: Sequence[int]) -> str:
    """worker 1; workers 0 to 3; workers 0, 2 and 5."""
    if len(workers) == 1:
        return f"worker {workers[0]}"
    if len(workers) > 2 and list(workers) == list(range(workers[0], workers[-1] + 1)):
        return f"workers {workers[0]} to {workers[-1]}"
    return f"workers {', '.join(map(str, workers[:-1]))} and {workers[-1]}"


def _times(event: Object) -> tuple[str, str]:
    """First and last. New clients write eventTime and a series, older ones two times."""
    metadata, series = event.get("metadata") or {}, event.get("series") or {}
    first = event.get("firstTimestamp") or event.get("eventTime") or metadata.get("creationTimestamp") or ""
    return first, series.get("lastObservedTime") or event.get("lastTimestamp") or first


def _count(event: Object) -> int:
    return int((event.get("series") or {}).get("count") or event.get("count") or 1)
