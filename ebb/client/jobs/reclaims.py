"""Cost of reclaims: when each lost worker was back, and where. Pure code.

    for loss in losses(job, pods, zones, starts): loss.seconds      # None as long as it is not back

The controller's history says when a worker was lost and where the job then was. When it was back is told by its present pod, or,
where that one was lost again since, by the events of pods, which Kubernetes keeps for an hour.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ebb.client.jobs.view import worker_container, worker_index

Object = Mapping[str, Any]
Start = tuple[int, str]
"""A worker that began to run: its number, and when (RFC 3339)."""


@dataclass(frozen=True, kw_only=True)
class Reclaim:
    """One worker that was lost with its machine."""

    at: str
    worker: int
    machine: str
    cause: str
    zone: str  # "" where the history does not reach back to it
    back: str  # when its successor ran; "" if none does yet, or nobody knows any more
    back_zone: str
    seconds: float | None  # from the loss until then; the others may have trained meanwhile


def losses(job: Object, pods: Iterable[Object], zones: Mapping[str, str], starts: Iterable[Start] = ()) -> tuple[Reclaim, ...]:
    """Those that the history remembers, in its order. `zones`: of machines that are there. `starts`: from events()."""
    history = (job.get("status") or {}).get("history") or []
    present = {start: zones.get(str(pod["spec"].get("nodeName") or ""), "") for pod in pods if (start := _start(pod))}
    began = sorted({*present, *starts}, key=lambda start: _unix(start[1]))
    lost = [item for item in history if item.get("what") == "reclaimed" and item.get("worker") is not None]
    return tuple(_reclaim(item, lost, began, history, present) for item in lost)


def _reclaim(
    item: Object, lost: list[Object], began: list[Start], history: list[Object], present: Mapping[Start, str]
) -> Reclaim:
    at, worker = _unix(item["at"]), int(item["worker"])
    again = min((_unix(other["at"]) for other in lost if other["worker"] == worker and _unix(other["at"]) > at), default=None)
    back = next((s for s in began if s[0] == worker and at < _unix(s[1]) and (again is None or _unix(s[1]) <= again)), None)
    return Reclaim(
        at=item["at"],
        worker=worker,
        machine=item.get("node") or "",
        cause=item.get("cause") or "",
        zone=_zone_at(history, at),
        back=back[1] if back else "",
        back_zone=(present.get(back) or _zone_at(history, _unix(back[1]))) if back else "",
        seconds=round(_unix(back[1]) - at, 3) if back else None,
    )


def starts(events: Iterable[Object], job: str) -> tuple[Start, ...]:
    """Return when workers of a job began to run, as Kubernetes' events of their pods say."""
    found = []
    for event in events:
        about = event.get("involvedObject") or {}
        number = str(about.get("name") or "").removeprefix(f"{job}-worker-")
        # Containers that prepare a pod start before; the field's path names the one that is meant.
        if event.get("reason") == "Started" and about.get("kind") == "Pod" and number.isdigit() and "initC" not in _field(about):
            found.append((int(number), str(event.get("firstTimestamp") or event.get("eventTime") or "")))
    return tuple(start for start in found if start[1])


def _start(pod: Object) -> Start | None:
    state = worker_container(dict(pod))[1].get("state") or {}
    at = (state.get("running") or state.get("terminated") or {}).get("startedAt")
    return (worker_index(dict(pod)), at) if at else None


def _zone_at(history: Iterable[Object], at: float) -> str:
    """Return where the job was placed then: the last decision before it."""
    placed = [item for item in history if item.get("what") == "placed" and _unix(item["at"]) <= at]
    return (placed[-1].get("cause") or "") if placed else ""


def _field(about: Object) -> str:
    return str(about.get("fieldPath") or "")


def _unix(stamp: str) -> float:
    return datetime.fromisoformat(stamp).timestamp()
