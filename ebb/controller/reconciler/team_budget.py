"""The budget of a team: while the jobs of its namespace have cost what they may cost in a month, they wait. Pure.

    waits = team_budget.verdict(view, draft)        # (reason, sentence): the job is to have no workers now

The sum is the machine usage record's, which is brought up to date at least once a minute, by the prices of ebb-platform. Jobs
that run are stopped with a checkpoint: so a team spends more than its budget by a minute or two and the workers' grace, no more.
Months are UTC's. A limit that is raised in the stack lets them go on.
"""

from ebb.api import contract as names
from ebb.api.clock import stamp
from ebb.api.costs import dollars
from ebb.controller.reconciler.types import JobView, PlanBuilder

LOOK_SECONDS = 60.0  # as often as the sum is brought up to date
SOON_SECONDS = 2.0  # until a controller that has just begun knows the sum


def verdict(view: JobView, draft: PlanBuilder) -> tuple[str, str] | None:
    """The reason why the job is to have no workers now; None: it may."""
    platform, spent = view.observed.platform, view.observed.spent
    team = platform.team_of(view.job.namespace) if platform else None
    if team is None or team.usd_per_month is None:
        return None
    if spent is None:
        draft.wakes.append(view.now + SOON_SECONDS)
        unknown = f"the controller has just begun, and does not know yet what team {team.name!r} has spent in this month."
        return None if view.workers else (names.WAITING_TEAM_BUDGET, unknown)
    draft.wakes.append(view.now + LOOK_SECONDS)
    if spent < team.usd_per_month:
        return None
    return names.WAITING_TEAM_BUDGET, (
        f"team {team.name!r} has spent {dollars(spent)} of the {dollars(team.usd_per_month)} USD that its jobs may cost in "
        f"{stamp(view.now)[:7]}: the job holds no machines until the next month, or until usdPerMonth of the team is raised in "
        "the stack. It goes on by itself then."
    )
