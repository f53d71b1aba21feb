"""Goodput: the share of the paid machine time that trained. Pure code.

    goodput(job["status"], now)                     # of a job that is there, from what the controller adds up

    goodput = machine seconds in optimizer steps that count / machine seconds paid for

- Paid is the time from a worker's placement on a machine until its pod is gone: status.cost.machineSeconds, the same seconds that
  cost money. A worker that shares a machine counts for its share.
- In steps that count is what the trainer calls useful_seconds (ebb/elastic/runtime/report.py), times the machines that the job
held: the
  controller adds it up in status.cost.usefulMachineSeconds. A step that is done again counts once.
- So what is missing to 1 is booting and starting, meeting anew after a reclaim, steps done again, checkpoints that the training
  stood still for, evaluations, and leaving. Waiting without a machine costs nothing and is not in it.

It is the runtime part of Google's "ML productivity goodput" (blog of 2024-04-10; docs.cloud.google.com/tpu/docs/goodput: the
share of the time of use "spent making productive, preserved training progress"), weighted by machines. The scheduling part, the
wait for machines, costs nothing here; the program part, how well a step uses a GPU, is not in it.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

LEAST_SECONDS = 60.0
"""Of machine time that must be paid before a share of it says anything: the first machines have only just begun by then."""


def goodput(status: Mapping[str, Any], now: float | None = None) -> float | None:
    """Between 0 and 1; None where the trainer says nothing about its time, or too little was paid for. `now`: unix seconds."""
    cost, progress = status.get("cost") or {}, status.get("progress") or {}
    if progress.get("usefulSeconds") is None:
        return None
    # Both sums must end at the same moment: useful time is known until the last reading, paid time until cost.at.
    until = progress.get("at") or cost.get("at")
    paid = paid_machine_seconds(cost, now if until is None else _unix(until))
    return share(float(cost.get("usefulMachineSeconds") or 0), paid)


def paid_machine_seconds(cost: Mapping[str, Any], now: float | None) -> float:
    """The sum of status.cost until `now`, at its last rate; never less than what is written."""
    seconds = max(0.0, now - _unix(cost["at"])) if now is not None and cost.get("at") else 0.0
    return float(cost.get("machineSeconds") or 0) + seconds * float(cost.get("machines") or 0)


def share(useful: float, paid: float) -> float | None:
    """None for too little to tell."""
    return min(1.0, useful / paid) if paid >= LEAST_SECONDS else None


def _unix(stamp: str) -> float:
    return datetime.fromisoformat(stamp).timestamp()
