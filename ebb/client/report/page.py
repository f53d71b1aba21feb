"""A report as one HTML page: everything in it, nothing fetched from anywhere, complete without its script. Pure.

    html = run_page(run, made="2026-11-22T12:00:00Z")
    html = sweep_page(sweep, made=...)

Texts of users (names, messages, arguments) are escaped where they are put in; the page also forbids itself, by its own policy, to
load anything or to send anything.
"""

from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

from ebb.client.jobs.view import GpuView, mean_utilization
from ebb.client.report.chart import Chart, duration, figure, percent, short, table, usd
from ebb.client.report.charts import run_charts, sweep_charts
from ebb.client.report.data import Event, RunOfSweep, RunReport, SweepReport
from ebb.client.sweep import METRICS

POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
GIB = 2**30
_HERE = Path(__file__).parent

Tile = tuple[str, str, str]
"""A label, a figure, and a few words below it."""


def run_page(run: RunReport, *, made: str) -> str:
    """`made`: when, RFC 3339."""
    job, drawn = run.job, run_charts(run)
    place = ", ".join(filter(None, (job.gpu_type, job.capacity, job.zone)))
    used = ", ".join(use.words for use in job.secrets)
    about = f"Job in {job.namespace}, submitted {_moment(job.created)}{f'; {place}' if place else ''}."
    about += f" Secrets: {used}." if used else ""
    body = [
        page_head(job.name, job.state, about, job.detail if job.state not in ("running", "finished") else ""),
        notes_list(run.notes),
        tile_list(run_tiles(run)),
        _times(run),
        section("How it went", _charts(drawn)) if drawn else "",
        section("GPUs, when last seen", _gpus(job.gpus)) if job.gpus else "",
        section("Reclaims and other events", _events(run.events)),
    ]
    read = f" {run.lines:,} metric lines were read." if run.lines else ""
    return _page(f"{job.name}: report of a job", body, f"Figures: {run.source}.{read}", made)


def sweep_page(sweep: SweepReport, *, made: str) -> str:
    """All runs in one picture, and a table of them."""
    over = sum(run.report.job.state in ("finished", "failed") for run in sweep.runs)
    about = f"Sweep of {len(sweep.runs)} runs in {sweep.namespace}; {over} are over."
    body = [
        page_head(sweep.name, "", about, ""),
        notes_list(sweep.notes),
        tile_list(_sweep_tiles(sweep)),
        section("All runs", _charts(sweep_charts(sweep))),
        section("Runs", _runs(sweep)),
    ]
    return _page(f"{sweep.name}: report of a sweep", body, f"Figures: {sweep.source}.", made)


def _page(title: str, body: Iterable[str], source: str, made: str) -> str:
    footer = (
        f"{escape(source)} Made by <code>ebb report</code> {escape(_moment(made))}. Prices are the platform's; those of spot "
        "machines are assumed."
    )
    return html_page(title, body, footer)


def html_page(title: str, body: Iterable[str], footer: str) -> str:
    """A whole page with style and script. `body` and `footer` are HTML."""
    css, script = (_HERE / "page.css").read_text("utf-8"), (_HERE / "page.js").read_text("utf-8")
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{escape(title)}</title>\n'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(POLICY)}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<style>\n{css}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(filter(None, body))
        + f"\n<footer>{footer}</footer>\n</main>\n<script>\n{script}</script>\n</body>\n</html>\n"
    )


def page_head(name: str, state: str, about: str, because: str) -> str:
    badge = f' <span class="state">{escape(state)}</span>' if state else ""
    reason = f"<p>{escape(because)}</p>" if because else ""
    return f'<header><h1>{escape(name)}{badge}</h1><p class="soft">{escape(about)}</p>{reason}</header>'


def notes_list(notes: Sequence[str]) -> str:
    items = "".join(f"<li>{escape(note)}</li>" for note in dict.fromkeys(notes))
    return f'<ul class="notes" aria-label="What is missing">{items}</ul>' if items else ""


def tile_list(tiles: Iterable[Tile]) -> str:
    cells = "".join(
        f'<div class="tile"><dt>{escape(what)}</dt><dd>{escape(value)}<small>{escape(more)}</small></dd></div>'
        for what, value, more in tiles
    )
    return f'<dl class="tiles">{cells}</dl>'


def run_tiles(run: RunReport) -> list[Tile]:
    job, points = run.job, run.points
    losses = [point.loss.mean for point in points if point.loss]
    rates = sorted(point.samples_per_second.mean for point in points if point.samples_per_second)
    pauses = [event.pause_seconds for event in run.events if event.pause_seconds is not None]
    last = points[-1].step if points else None
    step = last if last is not None and (job.step is None or job.ended) else job.step  # the platform misses the last steps
    total = f"of {short(job.total_steps)} steps" if job.total_steps else "steps"
    tiles = [("Time", duration(run.times.total), "since submission" if job.ended == "" else "from submission to the end")]
    if step is not None:
        tiles.append(("Steps", short(step), total))
    if losses:
        tiles.append(("Loss", short(losses[-1]), f"least {short(min(losses))}"))
    elif job.loss is not None:
        tiles.append(("Loss", short(job.loss), "as the platform last saw it"))
    if rates:
        tiles.append(("Samples per second", short(rates[len(rates) // 2]), f"median; at most {short(rates[-1])}"))
    if run.goodput is not None:
        tiles.append(("Goodput", percent(run.goodput), "of the paid machine time trained"))
    if (mean := mean_utilization(job.gpus)) is not None:
        idle = sum(gpu.is_idle for gpu in job.gpus)
        tiles.append(("GPUs busy", percent(mean / 100), f"when last seen; {idle} hardly used" if idle else "when last seen"))
    rest = f"longest {duration(max(pauses))} without a step" if pauses else "workers lost with their machines"
    tiles.append(("Reclaims", str(job.reclaims), rest))
    if job.usd_spent is not None and job.usd_on_demand is not None:
        tiles.append(("Money", usd(job.usd_spent), f"{usd(job.usd_on_demand - job.usd_spent)} less than on demand"))
    return tiles


def _times(run: RunReport) -> str:
    """One bar: where the time went."""
    found = run.times
    if found.useful is None or found.lost is None or not found.total:
        return ""
    parts = [
        ("before the first step", found.waiting or 0.0, 7),
        ("in steps that count", found.useful, 2),
        ("lost: meeting anew, steps done again", found.lost, 1),
        ("checkpoints, evaluations", found.other or 0.0, 4),
    ]
    whole = sum(seconds for _, seconds, _ in parts) or 1.0
    pieces = "".join(
        f'<span class="c{colour}" style="width:{100 * seconds / whole:.2f}%"></span>' for _, seconds, colour in parts
    )
    words = "".join(
        f'<li><span class="key c{colour}"></span>{escape(name)}: {escape(duration(seconds))} ({percent(seconds / whole)})</li>'
        for name, seconds, colour in parts
    )
    says = "; ".join(f"{name} {duration(seconds)}" for name, seconds, _ in parts)
    bar = f'<div class="share" role="img" aria-label="{escape(says)}">{pieces}</div><ul class="legend">{words}</ul>'
    return section("Where the time went", bar)


def _charts(charts: Iterable[Chart]) -> str:
    return f'<div class="charts">{"".join(figure(chart) for chart in charts)}</div>'


def _events(events: Sequence[Event]) -> str:
    if not events:
        return "<p>Nothing happened to it.</p>"
    head = ("After", "At (UTC)", "What", "Zone", "Without a step", "Steps redone")
    rows = [
        (
            duration(event.seconds),
            _moment(event.at)[:19],
            event.sentence,
            event.zone or "-",
            "-" if event.pause_seconds is None else duration(event.pause_seconds),
            "-" if event.steps_redone is None else str(event.steps_redone),
        )
        for event in events
    ]
    marked = frozenset(index for index, event in enumerate(events) if event.loss)
    return table(head, rows, "Marked lines are workers that were lost.", marked=marked)


def _gpus(gpus: Sequence[GpuView]) -> str:
    """A row for each: utilization and memory."""
    rows = [
        (
            ", ".join(map(str, gpu.ranks)) or "-",
            f"{gpu.gpu} of worker {gpu.worker}",
            "-" if gpu.utilization is None else f"{gpu.utilization} %",
            "-" if gpu.memory_used_bytes is None else f"{gpu.memory_used_bytes / GIB:.1f} GiB",
            "-" if gpu.memory_total_bytes is None else f"{gpu.memory_total_bytes / GIB:.0f} GiB",
            f"hardly used for {duration(gpu.idle_seconds)}" if gpu.is_idle else "",
        )
        for gpu in gpus
    ]
    return table(("Rank", "GPU", "Busy", "Memory used", "Memory", ""), rows)


def _sweep_tiles(sweep: SweepReport) -> list[Tile]:
    best = next((run for run in sweep.runs if run.job == sweep.best), None)
    money = [(job.usd_spent, job.usd_on_demand) for job in (run.report.job for run in sweep.runs)]
    spent = sum(each for each, _ in money if each is not None)
    compared = sum(each for _, each in money if each is not None)
    states = [run.report.job.state for run in sweep.runs]
    counts = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
    tiles = [("Runs", str(len(sweep.runs)), counts)]
    if best is not None and best.value is not None:
        tiles.append((f"Best {sweep.metric}", short(best.value), best.settings))
    tiles.append(("Reclaims", str(sum(run.report.job.reclaims for run in sweep.runs)), "in all runs"))
    if compared:
        tiles.append(("Money", usd(spent), f"{usd(compared - spent)} less than on demand"))
    return tiles


def _runs(sweep: SweepReport) -> str:
    def best(run: RunOfSweep, metric: str) -> str:
        return " (best)" if run.job == sweep.best and metric == sweep.metric else ""

    own = () if sweep.metric in METRICS else (sweep.metric,)  # the others have columns
    head = ("Run", "Settings", "State", "Steps", "Loss", *own, "Samples/s", "Reclaims", "Goodput", "Spent")
    rows = [
        (
            run.job,
            run.settings,
            run.report.job.state,
            "-" if run.step is None else short(run.step),
            ("-" if run.last_loss is None else short(run.last_loss)) + best(run, "loss"),
            *(("-" if run.value is None else short(run.value)) + best(run, each) for each in own),
            ("-" if run.median_rate is None else short(run.median_rate)) + best(run, "samples_per_second"),
            str(run.report.job.reclaims),
            "-" if run.report.goodput is None else percent(run.report.goodput),
            "-" if run.report.job.usd_spent is None else usd(run.report.job.usd_spent),
        )
        for run in sweep.runs
    ]
    commands = [(run.job, run.command) for run in sweep.runs if run.command]
    shown = table(head, rows, "In the order of their settings.")
    if not commands:
        return shown
    return f"{shown}<details><summary>Each run again</summary>{table(('Run', 'Command'), commands)}</details>"


def section(title: str, body: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{body}</section>"


def _moment(stamp: str) -> str:
    """2026-11-22 12:00:00 UTC of an RFC 3339 text in UTC, as all of Kubernetes' are."""
    return f"{stamp[:10]} {stamp[11:19]} UTC" if stamp else "at a time that is not known"
