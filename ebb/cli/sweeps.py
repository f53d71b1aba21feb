"""How a sweep looks: `SweepView` -> a table and two lines, or one line. Pure."""

from rich.console import Group, RenderableType
from rich.text import Text

from ebb.cli.render import STYLES, number, short, table
from ebb.client.jobs.view import STOPPED
from ebb.client.submission.fit import Fit, price
from ebb.client.sweep import Plan, RunView, SweepView
from ebb.client.sweep.view import counted

_HEADS = {"loss": "LOSS", "samples_per_second": "SAMPLES/S"}


def sweep_page(sweep: SweepView, width: int) -> RenderableType:
    """One row a run, then how many are in which state and which is the best."""
    rows = [
        (
            Text(_point(run.point) or run.job, "bold" if run.job == sweep.best else ""),
            run.job,
            Text(_state(run), STYLES.get(run.state, "yellow")),
            _steps(run),
            number(run.metric),
            _usd(run.usd_spent),
        )
        for run in sweep.runs
    ]
    return Group(table(("POINT", "JOB", "STATE", "STEP", _HEADS[sweep.metric], "$"), rows, width), Text(), Text(summary(sweep)))


def summary(sweep: SweepView) -> str:
    """A sweep in one line."""
    best = next((run for run in sweep.runs if run.job == sweep.best), None)
    parts = [
        f"{sweep.name}: {counted(sweep)}",
        f"best so far {_point(best.point) or best.job} ({sweep.metric} {number(best.metric)})" if best else "",
        f"${sweep.usd_spent:.2f} spent" if sweep.usd_spent is not None else "",
        f"{sweep.max_parallel} at once" if sweep.max_parallel and not sweep.over else "",
    ]
    return "; ".join(filter(None, parts))


def price_line(plan: Plan, fit: Fit) -> str:
    """What all runs cost together while they train."""
    count = len(plan.points)
    at_once = min(count, plan.max_parallel or count)
    runs = "1 run" if count == 1 else f"{count} runs"
    most = f", at most ${count * plan.request.max_cost:.2f} in all" if plan.request.max_cost else ""
    return f"{runs} like this, {at_once} at once: ${at_once * price(fit, fit.workers).usd_per_hour:.2f} per hour{most}"


def _point(point: dict[str, str]) -> str:
    return " ".join(f"{key}={value}" for key, value in point.items())


def _state(run: RunView) -> str:
    return "among the worst" if run.state == STOPPED and run.stopped_because else run.state


def _steps(run: RunView) -> str:
    if run.step is None:
        return "-"
    return short(run.step) + (f"/{short(run.total_steps)}" if run.total_steps else "")


def _usd(spent: float | None) -> str:
    return "-" if spent is None else f"{spent:.2f}"
