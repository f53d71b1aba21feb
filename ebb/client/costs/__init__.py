"""Money: what a job would cost, and what jobs, users and days did cost.

    found = await estimate(ebb, Wanted(gpus=8, gpu="T4", hours=5))
    report = await costs(ebb, by=By.USER, since_seconds=7 * 86400)

bills.py puts jobs, records of deleted jobs and the machine usage record together, report.py adds them up.
"""

import time

from ebb.client.costs.bills import Bill, Window, bills
from ebb.client.costs.estimate import Estimate, Wanted, estimate_of
from ebb.client.costs.read import read_records, read_usage
from ebb.client.costs.report import By, CostReport, CostRow, Rest, TeamCost, Whole, of_team, report_of, whole_days
from ebb.client.errors import BadRequest
from ebb.client.platform.connection import Ebb
from ebb.kube import ELASTIC_JOBS

__all__ = [
    "Bill",
    "By",
    "CostReport",
    "CostRow",
    "Estimate",
    "Rest",
    "TeamCost",
    "Wanted",
    "Whole",
    "Window",
    "bills",
    "costs",
    "estimate",
    "report_of",
    "whole_days",
]


async def estimate(ebb: Ebb, wanted: Wanted) -> Estimate:
    """Return what a job would cost. Raises BadRequest."""
    return estimate_of(wanted, ebb.platform)


async def costs(ebb: Ebb, *, by: By = By.JOB, since_seconds: float = 7 * 86400) -> CostReport:
    """Return what was spent in the days since then, by job, user or day; deleted jobs count. In a team's namespace by the team.

    Raises BadRequest for a team's days: machines are nobody's by the day."""
    team = ebb.platform.team_of(ebb.namespace)
    if team and by is By.DAY:
        raise BadRequest(f"--by day is of the whole platform, and not of team {team.name!r}: use --by job or --by user.")
    jobs = await ebb.kube.list(ELASTIC_JOBS, ebb.namespace)
    records = await read_records(ebb)
    usage = await read_usage(ebb)
    # After the reading: what is written later than this must not be counted until an earlier moment.
    window = whole_days(time.time(), since_seconds)
    if usage is not None:
        usage.extend(window.now)
    found = bills(jobs, records, usage, window)
    if team is None:
        return report_of(found, usage, window, by)
    own = (bill for bill in found if bill.namespace == team.namespace)
    return of_team(report_of(own, usage, window, by), team, usage, window.now)
