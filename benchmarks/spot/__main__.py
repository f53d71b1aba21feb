"""Cost of a job on spot machines that come and go by a trace, ours beside other ways to buy: `python -m benchmarks.spot`."""

import argparse
import json
import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.spot import others, ours
from benchmarks.spot.cloud import Cloud
from benchmarks.spot.curve import ARTICLE
from benchmarks.spot.figures import ON_DEMAND, OURS, Figures, broken, figures
from benchmarks.spot.market import TraceError, Zone, drawn, read
from benchmarks.spot.others import Case, Played
from benchmarks.spot.page import page
from devcluster.commands import say

KEPT, BROKEN, FAILED, INTERRUPTED = 0, 1, 2, 130
HOUR = 3600.0
# AWS, us-east-1, November 2026: p3.2xlarge with one V100; p3.16xlarge has eight for eight times as much.
USD_PER_GPU_HOUR, SPOT_DISCOUNT = 3.06, 0.7
LARGE = 8  # GPUs of a machine of jobs that have more than FEW machines of one
FEW = 16
DRAWN_DAYS = 21.0
WAYS: dict[str, Callable[[Case, Cloud], Played]] = {
    ON_DEMAND: others.on_demand,
    "naive": others.naive,
    "restarts": others.restarts,
    "elastic": others.elastic,
    "uniform_progress": others.uniform_progress,
    OURS: ours.play,
}
HELP = """\
A job of --hours, undisturbed, on all its machines; it has until --slack times that. Each way to buy plays it at --starts moments
of the same trace, with up to 16 machines of one GPU, and beyond of eight:

  on_demand         at the full price
  naive             spot, all machines or none, in any zone; a reclaim begins the work anew
  restarts          the same with a checkpoint each 15 minutes, and 42 s for a restart
  elastic           the article's: torchelastic in one zone, with a quarter of its machines or more, 42 s for each change
  uniform_progress  Uniform Progress (Wu et al., Can't Be Late, NSDI 2024): on-demand machines where spot would be too late
  ours              Ebb: spot-then-on-demand with a deadline, a quarter of its machines or more, in any zone

Ours is decided by the controller's own planner, with the pauses that were measured of recovery in memory. The others know at once
what each zone has; ours is told by the autoscaler's refusals. Prices are the catalogue's unless the traces have their own.

--traces DIR has one JSON file for each zone, as https://github.com/skypilot-org/spot-traces has them (benchmarks/spot/market.py).
Without it they are drawn from --seed, as often and as long without machines as three published ones. --page FILE gets a page.

The last line is one JSON object: number of GPUs -> way -> figures (benchmarks/spot/figures.py).

exit status: 0 ours missed no deadline, saved 60 % on up to 16 GPUs and, in the mean of all sizes, at most 2 % less of the price
than Uniform Progress, which knows more; 1 it did not, 2 the traces cannot be read, 130 interrupted
"""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Options of the command line. `hours`: of the work, undisturbed."""

    gpus: tuple[int, ...]
    hours: float
    slack: float
    starts: int
    seed: int
    traces: Path | None
    page: Path

    def case(self, gpus: int) -> Case:
        per_machine = 1 if gpus <= FEW else LARGE
        machines = gpus // per_machine
        seconds = self.hours * HOUR
        return Case(
            machines=machines, gpus_per_machine=per_machine, least=max(1, machines // 4), seconds=seconds,
            deadline=self.slack * seconds,
        )  # fmt: skip


def read_settings(arguments: Sequence[str]) -> Settings:
    """The only reader of argv."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.spot", description=__doc__, epilog=HELP, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    sizes = ",".join(map(str, ARTICLE))
    parser.add_argument("--gpus", metavar="A,B", default=sizes, help="sizes of the job (default: %(default)s)")
    parser.add_argument("--hours", type=float, default=24.0, help="of work (default: %(default)g)")
    parser.add_argument("--slack", type=float, default=1.5, help="the deadline, in times the work (default: %(default)g)")
    parser.add_argument("--starts", metavar="N", type=int, default=6, help="plays of each size (default: %(default)d)")
    parser.add_argument("--seed", metavar="N", type=int, default=1, help="of what is drawn (default: %(default)d)")
    parser.add_argument("--traces", metavar="DIR", type=Path, help="published traces in place of drawn ones")
    parser.add_argument("--page", metavar="FILE", type=Path, default=Path("build/spot.html"), help="(default: %(default)s)")
    given = parser.parse_args(arguments)
    try:
        gpus = tuple(int(word) for word in given.gpus.split(","))
    except ValueError:
        parser.error(f"--gpus {given.gpus} is not a list of numbers like {sizes}")
    for one in gpus:
        if one < 1 or (one > FEW and (one % LARGE or one // LARGE > FEW)):
            parser.error(f"--gpus {one} is none of 1 to {FEW}, nor a multiple of {LARGE} up to {LARGE * FEW}")
    if given.starts < 1 or given.hours <= 0 or given.slack < 1.1:
        parser.error(
            f"--starts {given.starts} must be 1 or more, --hours {given.hours:g} above 0, --slack {given.slack:g} 1.1 or more"
        )
    return Settings(
        gpus=gpus,
        hours=given.hours,
        slack=given.slack,
        starts=given.starts,
        seed=given.seed,
        traces=given.traces,
        page=given.page,
    )


def begins(zones: Sequence[Zone], case: Case, starts: int) -> list[float]:
    """Seconds of the trace at which plays begin: evenly, so that the deadline of the last is within it where that can be."""
    length = min(zone.seconds for zone in zones)
    last = max(0.0, length - case.deadline)
    return [last * number / max(1, starts - 1) for number in range(starts)]


def run(settings: Settings) -> int:
    """All sizes; returns the exit status."""
    zones = read(settings.traces) if settings.traces else drawn(random.Random(settings.seed), days=DRAWN_DAYS)  # noqa: S311
    days = min(zone.seconds for zone in zones) / 24 / HOUR
    source = f"traces of {settings.traces.name}" if settings.traces else f"traces drawn from seed {settings.seed}"
    about = (
        f"{source}: {len(zones)} zones, {days:.1f} days; {settings.hours:g} hours of work, {settings.starts} times, each with a "
        f"deadline after {settings.slack * settings.hours:g} hours"
    )
    say(about)
    told: dict[int, dict[str, Figures]] = {}
    for gpus in settings.gpus:
        case, plays = settings.case(gpus), {}
        for way, play in WAYS.items():
            plays[way] = [
                play(case, _cloud(zones, begin, case, seed=settings.seed + number))
                for number, begin in enumerate(begins(zones, case, settings.starts))
            ]
            found = figures(case, plays[way], plays[ON_DEMAND], USD_PER_GPU_HOUR)
            told.setdefault(gpus, {})[way] = found
            say(f"{gpus} GPUs, {way}: {json.dumps(found)}")
    wrong = broken(told)
    settings.page.parent.mkdir(parents=True, exist_ok=True)
    settings.page.write_text(page(told, about=about[0].upper() + about[1:] + ".", command="make spot"))
    say(f"the page: {settings.page}")
    for sentence in wrong:
        say(f"BROKEN {sentence}")
    conditions = {"traces": settings.traces.name if settings.traces else None, "seed": settings.seed, "hours": settings.hours}
    print(
        json.dumps({**conditions, "slack": settings.slack, "starts": settings.starts, "gpus": told, "broken": wrong}), flush=True
    )
    return BROKEN if wrong else KEPT


def _cloud(zones: Sequence[Zone], begin: float, case: Case, *, seed: int) -> Cloud:
    usd = USD_PER_GPU_HOUR * case.gpus_per_machine
    return Cloud(zones, begin=begin, on_demand_usd=usd, discount=SPOT_DISCOUNT, rng=random.Random(seed))  # noqa: S311


if __name__ == "__main__":
    try:
        sys.exit(run(read_settings(sys.argv[1:])))
    except TraceError as error:
        print(error, file=sys.stderr)
        sys.exit(FAILED)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
