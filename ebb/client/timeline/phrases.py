"""Kubernetes' events and the controller's history in plain words. Pure code.

Of a worker, the sentence has `{who}` in it, and `{waits|wait}` where its verb depends on how many they are: the timeline says one
thing of several workers once. What is not known here is shown in Kubernetes' own words.
"""

import re
from collections.abc import Mapping
from typing import Any

from ebb.api import contract as names
from ebb.client.jobs.reclaims import Reclaim
from ebb.client.jobs.view import CAUSES, Happening
from ebb.client.jobs.words import duration, happening

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
    return happening(
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
