"""The cost of a job, and its budget. Pure.

accrue(view, draft)                     # status.cost: the sums until now, the rates from now on
spent = verdict(view, draft)            # (reason, message) when the budget is spent or the deadline over

A worker costs from its placement on a machine until its pod is gone or has ended, or its machine is gone. Prices are those of
ebb-platform: an assumption, not a bill. Time during which no controller looked counts at the rates that it last wrote down.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ebb.api import contract as names
from ebb.api.clock import unix
from ebb.api.costs import HOUR, dollars, group_of, sums
from ebb.api.needs import needs, workers_per_machine
from ebb.api.platform import NodeGroup
from ebb.api.status import Cost, Progress
from ebb.controller.reconciler.types import JobView, PlanBuilder
from ebb.controller.reconciler.worker_state import Worker

Object = Mapping[str, Any]

STOP_SECONDS = 5.0  # from the decision to the SIGTERM, and from the last exit to the pod's end: about a second each, with room
NOTHING_USD = 1e-6  # what sums of floating point may lack
NEARLY = 0.9  # of a budget: somebody who wants the job to go on has the time of the rest to say so


@dataclass(frozen=True)
class Rates:
    """The present cost of a job's machines."""

    machines: float = 0.0
    usd_per_hour: float = 0.0
    usd_on_demand_per_hour: float = 0.0


def accrue(view: JobView, draft: PlanBuilder) -> None:
    """Bring status.cost up to now. A job that never held a machine has none."""
    old, now = draft.status.cost, rates(view)
    if old is None and not now.machines:
        return
    if old is None and view.job.spec.budget and not now.usd_per_hour:
        message = (
            "spec.budget.maxUSD cannot be kept: the machines of this job have no price. "
            "Prices are in the node groups of ConfigMap ebb-system/ebb-platform."
        )
        draft.event(names.REASON_NO_PRICE, message, warning=True)
    summed = sums(old or Cost(), view.now)
    draft.status = replace(
        draft.status,
        cost=replace(
            summed,
            usd_per_hour=round(now.usd_per_hour, 6),
            usd_on_demand_per_hour=round(now.usd_on_demand_per_hour, 6),
            machines=round(now.machines, 6),
        ),
    )


def credit(view: JobView, draft: PlanBuilder, progress: Progress) -> None:
    """Add to status.cost the machine time that went into steps that count: what the training gained, on the machines that the job
    held meanwhile. Steps that are done again take back what they had added."""
    old, cost = view.job.status, draft.status.cost
    if cost is None or progress.useful_seconds is None:
        return
    # The first readings may say none: with ebb.log() a step's time is known when the next one is logged.
    before = (old.progress.useful_seconds if old.progress else None) or 0.0
    machines = old.cost.machines if old.cost and old.cost.machines else cost.machines
    useful = cost.useful_machine_seconds + machines * (progress.useful_seconds - before)
    # Never more than was paid: a step that was under way when the machines were last counted may have begun on other ones.
    useful = min(max(0.0, useful), cost.machine_seconds)
    draft.status = replace(draft.status, cost=replace(cost, useful_machine_seconds=round(useful, 3)))


def holders(view: JobView) -> tuple[Worker, ...]:
    """The workers that hold a machine."""
    there = (worker for worker, _ in view.workers if worker.node and not worker.finished)
    return tuple(worker for worker in there if worker.node not in view.observed.gone)


def rates(view: JobView) -> Rates:
    """The sum over the workers' shares of their machines. A machine that is in no node group counts as a whole one, for 0 USD."""
    workers, observed = holders(view), view.observed
    beside = Counter(worker.node for worker in workers)
    machines = usd = on_demand = 0.0
    for worker in workers:
        group = group_of(observed.nodes.get(worker.node), observed.platform)
        share = share_of(worker.pod, group, beside[worker.node])
        machines += share
        usd += share * (group.usd_per_hour if group else 0.0)
        on_demand += share * (group.on_demand_usd_per_hour if group else 0.0)
    return Rates(machines, usd, on_demand)


def share_of(pod: Object, group: NodeGroup | None, beside: int) -> float:
    """The share of its machine that a worker holds, when so many of its job are there."""
    return 1 / max(workers_per_machine(needs(dict(pod)), group) if group else 1, beside)


def verdict(view: JobView, draft: PlanBuilder) -> tuple[str, str] | None:
    """The reason to stop the job now: (reason of the contract, sentence); None: not yet. Adds a wake for that time."""
    return _time_up(view, draft) or _spent(view, draft)


def _time_up(view: JobView, draft: PlanBuilder) -> tuple[str, str] | None:
    ends = unix(view.job.spec.deadline)
    if ends is None:
        return None
    if view.now < ends:
        draft.wakes.append(ends)
        return None
    message = (
        f"spec.deadline {view.job.spec.deadline} is over: the workers are stopped with a checkpoint. A later one lets it go on."
    )
    return names.REASON_TIME_UP, message


def _spent(view: JobView, draft: PlanBuilder) -> tuple[str, str] | None:
    """Stopping takes the workers' grace, which costs too: so the job stops that much before its budget is spent."""
    budget, cost = view.job.spec.budget, draft.status.cost
    if budget is None or cost is None:
        return None
    stopping = STOP_SECONDS + max((worker.grace_seconds for worker in holders(view)), default=0)
    left = budget.max_usd - cost.usd_spent - cost.usd_per_hour * stopping / HOUR
    if left > NOTHING_USD:
        _warn(view, draft, budget.max_usd, cost)
        if cost.usd_per_hour:
            draft.wakes.append(_when(view, cost, left))
        return None
    limit = dollars(budget.max_usd)
    message = (
        f"The job has cost {dollars(cost.usd_spent)} USD of the {limit} USD in spec.budget.maxUSD, at "
        f"{dollars(cost.usd_per_hour)} USD per hour: its workers are stopped with a checkpoint. "
        f"Raise spec.budget.maxUSD above {limit} to go on."
    )
    return names.REASON_BUDGET, message


def _warn(view: JobView, draft: PlanBuilder, limit: float, cost: Cost) -> None:
    """Say once of each budget that it is nearly spent."""
    if draft.status.budget_warned == limit:
        return
    left = NEARLY * limit - cost.usd_spent
    if left > NOTHING_USD:
        if cost.usd_per_hour:
            draft.wakes.append(_when(view, cost, left))
        return
    draft.status = replace(draft.status, budget_warned=limit)
    message = (
        f"The job has cost {dollars(cost.usd_spent)} USD of the {dollars(limit)} USD in spec.budget.maxUSD, and goes on at "
        f"{dollars(cost.usd_per_hour)} USD per hour: it is stopped, with a checkpoint, before the rest is spent. "
        "Raise spec.budget.maxUSD to let it train longer."
    )
    draft.event(names.REASON_BUDGET_NEARLY, message, warning=True)


def _when(view: JobView, cost: Cost, usd: float) -> float:
    """The time at which so much more is spent, at the present rate."""
    return view.now + usd / cost.usd_per_hour * HOUR + 0.001  # sums are written to the millisecond
