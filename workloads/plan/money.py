"""What a job costs, and when that is enough. Pure.

accrue(view, draft)                     # status.cost: the sums until now, the rates from now on
spent = verdict(view, draft)            # (reason, message) when the budget is spent or the deadline over
"""

from workloads.plan.values import Draft, View


def accrue(view: View, draft: Draft) -> None:
    """Bring status.cost up to now."""


def verdict(view: View, draft: Draft) -> tuple[str, str] | None:
    """Why the job must stop now: (reason of the contract, sentence); None: it need not. Adds a wake for when it will."""
    return None
