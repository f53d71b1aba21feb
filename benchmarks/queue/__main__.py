"""A month of jobs under six orders of the line, and whether what we promise is kept: `python -m benchmarks.queue`."""

import argparse
import json
import random
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.controller.figures import percentile
from benchmarks.queue.play import FAIR, FIFO, GPUS, LENT, POLICIES, QUOTA, STARVED_SECONDS, Played, play
from benchmarks.queue.trace import DAY, HOUR, month
from devcluster.commands import say

KEPT, BROKEN, INTERRUPTED = 0, 1, 130
LEAST_FAIR = 0.9  # of Jain's index
HELP = f"""\
Five made-up teams with different habits share {GPUS} GPUs in two zones. The same jobs are played six times:

  fifo                      first come, first served
  priority                  higher priority first, then as above
  fair_share_without_loans  priority, then who used less of an equal part, then age
  fair_share                the same, and what is kept for a job that cannot start is lent: what Ebb does
  fair_share_with_quotas    the same, and each team has a quota, beyond which it gets nothing
  fair_share_with_lent_quotas  the same, and teams lend what they do not use: `borrow` of a team

Who is placed, lent to and stopped is decided by the controller's own code, in simulated time. The last line is one JSON object:
of each policy the hours that a job waited in all, by team and by size, the part of the GPUs' time in the month that was used, and
Jain's index of what the teams had against a max-min fair part of the machines, while somebody waited. About three minutes of
processor time.

exit status: 0 every promise is kept, 1 one is broken, 130 interrupted
"""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Options of the command line."""

    seed: int
    days: int


def read_settings(arguments: Sequence[str]) -> Settings:
    """The only reader of argv."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.queue",
        description="Whose job is next, and how long do the others wait?",
        epilog=HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seed", metavar="N", type=int, default=1, help="of the jobs (default: %(default)d)")
    parser.add_argument("--days", metavar="N", type=int, default=30, help="in which jobs arrive (default: %(default)d)")
    given = parser.parse_args(arguments)
    if given.days < 1:
        parser.error(f"--days {given.days} is less than 1")
    return Settings(seed=given.seed, days=given.days)


def figures(played: Played) -> dict[str, Any]:
    """One policy's, for the last line."""
    waits = {team: [seconds / HOUR for seconds in found] for team, found in sorted(played.waits.items())}
    sizes = {str(gpus): [seconds / HOUR for seconds in found] for gpus, found in sorted(played.by_size.items())}
    return {
        "wait_median_hours": {team: round(percentile(found, 50), 2) for team, found in waits.items()},
        "wait_p95_hours": {team: round(percentile(found, 95), 2) for team, found in waits.items()},
        "wait_median_hours_by_gpus": {gpus: round(percentile(found, 50), 2) for gpus, found in sizes.items()},
        "wait_p95_hours_by_gpus": {gpus: round(percentile(found, 95), 2) for gpus, found in sizes.items()},
        "utilisation": round(played.utilisation, 3),
        "fairness": round(played.fairness, 3),
        "longest_hours_without_a_machine": round(played.starved / HOUR, 1),
        "hours_idle_beside_a_job_that_fits": round(played.idle_seconds / HOUR, 1),
        "stops": played.stops,
        "gpu_hours_lent": round(played.lent / HOUR),
        "longest_hours_kept_waiting_within_a_quota": round(played.kept_waiting / HOUR, 2),
        "jobs_that_can_never_start": played.never,
    }


def broken(told: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The promises that are not kept, in sentences."""
    ours, plain, lent, closed = (told[one.name] for one in (FAIR, FIFO, LENT, QUOTA))
    limit = STARVED_SECONDS / HOUR
    return [
        sentence
        for sentence, kept in (
            (
                f"nobody waits without a machine for more than {limit:g} h",
                max(one["longest_hours_without_a_machine"] for one in (ours, lent)) <= limit,
            ),
            (
                "no machine idles that a waiting job could use",
                ours["hours_idle_beside_a_job_that_fits"] == lent["hours_idle_beside_a_job_that_fits"] == 0,
            ),
            ("more of the machines is used where teams lend their quotas", lent["utilisation"] > closed["utilisation"]),
            (f"Jain's index is at least {LEAST_FAIR:g}", ours["fairness"] >= LEAST_FAIR),
            ("no less of the machines is used than first come, first served", ours["utilisation"] >= plain["utilisation"] - 0.01),
        )
        if not kept
    ]


def run(settings: Settings) -> int:
    """All policies; returns the exit status."""
    asks = month(random.Random(settings.seed), days=settings.days)  # noqa: S311
    load = sum(ask.gpus * ask.seconds for ask in asks) / (GPUS * settings.days * DAY)
    say(f"{len(asks)} jobs of {len({ask.team for ask in asks})} teams need {load:.0%} of {GPUS} GPUs in {settings.days} days")
    told = {}
    for policy in POLICIES:
        due = [settings.days * DAY / 3]

        def progress(now: float, name: str = policy.name, due: list[float] = due) -> None:
            if now >= due[0]:
                say(f"{name}: day {now / DAY:.0f}")
                due[0] += settings.days * DAY / 3

        told[policy.name] = figures(play(asks, policy, days=settings.days, progress=progress))
        say(f"{policy.name}: {json.dumps(told[policy.name])}")
    wrong = broken(told)
    for sentence in wrong:
        say(f"LOST {sentence}")
    print(json.dumps({"seed": settings.seed, "jobs": len(asks), "load": round(load, 3), **told, "broken": wrong}), flush=True)
    return BROKEN if wrong else KEPT


if __name__ == "__main__":
    try:
        sys.exit(run(read_settings(sys.argv[1:])))
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
