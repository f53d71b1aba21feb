"""The page as HTML: a snapshot, and of one job its feed -> what stands in <main>. Pure, and in the words of the CLI.

    body = overview(snapshot, place)
    html = whole(body, place, title="Jobs", stream="stream?page=")

Whatever a user or a program wrote (names, messages, arguments) goes through `escape` here or in ebb/client/report; the lines of
logs are no HTML at all: ui.js puts them in as text. Rows have a key, by which ui.js finds them again.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from urllib.parse import quote

from ebb.cli.pages import job_facts
from ebb.cli.render import age, clock, number, steps
from ebb.cli.ui.feed import JobFeed
from ebb.cli.ui.live import Snapshot
from ebb.cli.verbs.gpus import gpu_lines
from ebb.client.diagnostics.symptoms import plural
from ebb.client.jobs.view import FINISHED, OVER, RUNNING_STATE, JobView, WorkerView
from ebb.client.report import report_of
from ebb.client.report.chart import figure, short, usd
from ebb.client.report.charts import WORKERS, run_charts
from ebb.client.report.lines import Training
from ebb.client.report.page import Tile, notes_list, run_tiles, section, tile_list
from ebb.client.sweep import RunView, SweepView
from ebb.client.sweep.results import ranked
from ebb.client.sweep.view import count_states
from ebb.client.timeline.events import job_timeline
from ebb.client.timeline.timeline import Entry

CHARTS = ("Loss against time", "Rate against time", WORKERS, "Money against on-demand")
READ_ONLY = "This page reads with your own rights and changes nothing: ebb scale, stop, resume and delete do."
_LOUD = frozenset({"failed", "recovering", "waiting", "stopped", "deleting"})  # states that say why


@dataclass(frozen=True, kw_only=True)
class PagePlace:
    """The address below which everything lies, and the platform in words."""

    base: str  # begins and ends with /
    platform: str

    def link(self, kind: str, name: str) -> str:
        return f'<a href="{self.base}{kind}/{quote(name, safe="")}">{escape(name)}</a>'


def whole(body: str, place: PagePlace, *, title: str, stream: str, log: bool = False) -> str:
    """The document around a body; `stream` is where its news come from."""
    base = place.base
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{escape(title)} - Ebb</title>\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<link rel="icon" href="{base}static/icon.svg">\n<link rel="stylesheet" href="{base}static/page.css">\n'
        f'<link rel="stylesheet" href="{base}static/ui.css">\n<script src="{base}static/page.js" defer></script>\n'
        f'<script src="{base}static/ui.js" defer></script>\n</head>\n<body>\n'
        f'<header class="bar"><a class="home" href="{base}">Ebb</a><nav aria-label="Pages"><a href="{base}">All jobs</a></nav>'
        f'<span class="soft">{escape(place.platform)}</span>'
        '<span class="soft" id="at"></span></header>\n'
        '<p class="banner" id="lost" role="alert" hidden></p>\n'
        f'<main data-stream="{base}{escape(stream)}">\n{body}\n</main>\n{_LOG if log else ""}'
        f'<footer class="foot">{escape(READ_ONLY)}</footer>\n</body>\n</html>\n'
    )


_LOG = (
    '<section class="log-part"><div class="log-head"><h2>Log</h2>'
    '<label><input type="checkbox" id="follow" checked> follow</label></div>'
    '<div id="log" class="log" tabindex="0" role="region" aria-label="The end of the log"></div></section>\n'
)


def trouble_banner(trouble: str, snapshot: Snapshot | None) -> str:
    """A sentence while the API server is away."""
    if not trouble:
        return ""
    old = f" This is what was known {age(_stamp(snapshot.at), _now())} ago." if snapshot else ""
    return f'<p class="banner" role="status">{escape(trouble.rstrip("."))}.{old} Trying again.</p>'


def overview(snapshot: Snapshot, place: PagePlace) -> str:
    """Jobs, sweeps, GPUs."""
    jobs, now = snapshot.jobs, _local(snapshot.at)
    hint = f"No jobs in {snapshot.namespace} yet. Start one: ebb submit --gpus 1 -- python train.py"
    parts = [
        "<h1>Jobs</h1>",
        tile_list(_overview_tiles(snapshot)),
        _jobs(jobs, place, now) if jobs else f'<p class="empty">{escape(hint)}</p>',
        section("Sweeps", _sweeps(snapshot.sweeps, place)) if snapshot.sweeps else "",
        section("GPUs", _gpus(snapshot, now)) if snapshot.gpus.groups else "",
    ]
    return "\n".join(filter(None, parts))


def job(found: Snapshot, place: PagePlace, name: str, feed: JobFeed | None) -> str:
    """One job; before its feed has begun, without curves."""
    item = found.job(name)
    if item is None:
        return _absent(f"There is no job named {name!r} in {found.namespace}: it was deleted, or never there.", place)
    status, now = found.status(item), _local(found.at)
    run = report_of(
        item,
        feed.training if feed else Training(),
        now=found.at,
        source=feed.source if feed else "",
        notes=feed.notes if feed else (),
    )
    seen = run.job
    charts = {chart.title: chart for chart in run_charts(run)}
    drawn = "".join(figure(charts[title]) for title in CHARTS if title in charts)
    entries = job_timeline(item, list(found.pods), feed.told if feed else [], found.nodes)
    sweep = next((each.name for each in found.sweeps if any(run.job == name for run in each.runs)), "")
    ended = f", ended {age(seen.ended, now)} ago" if seen.ended else ""
    part = f"; a run of sweep {place.link('sweeps', sweep)}" if sweep else ""
    parts = [
        f"<h1>{escape(seen.name)} {_badge(seen.state)}</h1>",
        f'<p class="soft">Submitted {age(seen.created, now)} ago in {escape(seen.namespace)}{ended}{part}</p>',
        f'<p class="because" role="status">{escape(_because(seen))}</p>',
        notes_list(run.notes),
        tile_list(run_tiles(run)),
        f'<div class="charts">{drawn}</div>' if drawn else "",
        section("Now", _facts(job_facts(seen, status.reclaims, now))),
        section("Workers", _workers(status.workers, now) if status.workers else '<p class="soft">None now.</p>'),
        section("What happened, newest first", _timeline(entries, now)),
    ]
    return "\n".join(filter(None, parts))


def sweep(found: Snapshot, place: PagePlace, name: str) -> str:
    """One sweep, the best run first."""
    seen = found.sweep(name)
    if seen is None:
        return _absent(f"There is no sweep named {name!r} in {found.namespace}: it was deleted, or never there.", place)
    best = next((run for run in seen.runs if run.job == seen.best), None)
    tiles = [("Runs", str(len(seen.runs)), count_states(seen))]
    if best is not None:
        tiles.append((f"Best {seen.metric} so far", number(best.metric), _settings(best)))
    if seen.usd_spent is not None:
        tiles.append(("Money", usd(seen.usd_spent), "all runs together"))
    if seen.max_parallel and not seen.over:
        tiles.append(("At once", str(seen.max_parallel), "runs at most"))
    parts = [f"<h1>{escape(seen.name)}</h1>", '<p class="soft">Sweep, ranked by its loss.</p>', tile_list(tiles)]
    return "\n".join([*parts, _runs(seen, place)])


def _absent(sentence: str, place: PagePlace) -> str:
    return f'<h1>Not there</h1><p class="empty">{escape(sentence)}</p><p><a href="{place.base}">All jobs</a></p>'


def _overview_tiles(found: Snapshot) -> list[Tile]:
    jobs, groups = found.jobs, found.gpus.groups
    alive = [job for job in jobs if job.state not in OVER]
    running = sum(job.state == RUNNING_STATE for job in jobs)
    tiles = [("Running", str(running), f"of {plural(len(alive), 'job')} that {'is' if len(alive) == 1 else 'are'} not over")]
    if groups:
        free, there, more = ([getattr(group, name) for group in groups] for name in ("gpus_free", "gpus_now", "gpus_to_come"))
        known = None not in free
        words = f"of {sum(there)} that are there; up to {sum(more)} more can boot" if known else "you may not look at machines"
        tiles.append(("GPUs free", str(sum(free)) if known else "?", words))
    rates = [job.usd_per_hour for job in alive if job.usd_per_hour is not None]
    spent = [job.usd_spent for job in jobs if job.usd_spent is not None]
    saved = sum(job.usd_saved for job in jobs if job.usd_saved is not None)
    if spent:
        tiles.append(("Money now", f"{usd(sum(rates))}/h", "all jobs together"))
        tiles.append(("Money so far", usd(sum(spent)), f"{usd(saved)} less than on demand"))
    tiles.append(("Reclaims", str(sum(job.reclaims for job in jobs)), "in these jobs so far"))
    return tiles


def _jobs(jobs: Sequence[JobView], place: PagePlace, now: datetime) -> str:
    heads = ("Job", "State", "Workers", "Step", "Loss", "Reclaims", "Cost", "Age")
    rows = [
        (
            job.name,
            (
                place.link("jobs", job.name),
                _badge(job.state) + (f"<small>{escape(because)}</small>" if (because := _because(job)) else ""),
                f"{job.workers}/{job.wanted_workers}",
                escape(steps(job)),
                number(job.loss),
                str(job.reclaims),
                "-" if job.usd_spent is None else usd(job.usd_spent),
                age(job.created, now),
            ),
        )
        for job in jobs
    ]
    return _stack(heads, rows, "Jobs, newest first; those that are over come last. Workers: running of wanted.", numbers=2)


def _sweeps(sweeps: Sequence[SweepView], place: PagePlace) -> str:
    rows = []
    for each in sweeps:
        best = next((run for run in each.runs if run.job == each.best), None)
        words = escape(f"{_settings(best)} ({each.metric} {number(best.metric)})") if best else "-"
        spent = "-" if each.usd_spent is None else usd(each.usd_spent)
        rows.append((each.name, (place.link("sweeps", each.name), escape(count_states(each)), words, spent)))
    return _stack(("Sweep", "Runs", "Best so far", "Cost"), rows, "Sweeps", numbers=3)


def _gpus(found: Snapshot, now: datetime) -> str:
    report = found.gpus
    rows = []
    for one in report.groups:
        group = one.group
        cells = (
            escape(group.gpu_type),
            escape(group.zone),
            escape(group.capacity_type),
            escape(f"{group.instance_type}, {group.gpus_per_node} each"),
            "?" if one.gpus_free is None else str(one.gpus_free),
            "?" if one.gpus_now is None else str(one.gpus_now),
            str(group.max * group.gpus_per_node),
            usd(one.usd_per_gpu_hour),
        )
        rows.append((group.name, cells))
    heads = ("GPU", "Zone", "Capacity", "Machine", "Free", "Now", "Max", "$ per GPU and hour")
    lines = "".join(f"<li>{escape(line)}</li>" for line in gpu_lines(report, now))
    return _stack(heads, rows, "GPUs by node group", numbers=4) + f'<ul class="lines">{lines}</ul>'


def _workers(workers: Iterable[WorkerView], now: datetime) -> str:
    rows = [
        (
            f"{item.worker}",
            (
                f"worker {item.worker}",
                _badge(item.state),
                escape(item.machine) or "-",
                escape(item.instance_type) or "-",
                escape(item.zone) or "-",
                age(item.since, now),
                age(item.machine_since, now),
            ),
        )
        for item in workers
    ]
    return _stack(("Worker", "State", "Machine", "Type", "Zone", "For", "Machine up"), rows, "Workers of the job", numbers=5)


def _timeline(entries: Sequence[Entry], now: datetime) -> str:
    if not entries:
        return '<p class="soft">Nothing so far.</p>'
    lines = []
    for entry in reversed(entries):
        last = f", last {clock(entry.last, now)}" if entry.last != entry.at else ""
        times = f" ({entry.count} times{last})" if entry.count > 1 else ""
        look = "warning" if entry.warning else "calm"
        lines.append(
            f'<li class="{look}"><time datetime="{escape(entry.at)}">{escape(clock(entry.at, now))}</time> '
            f"<span>{'<b>!</b> ' if entry.warning else ''}{escape(entry.text + times)}</span></li>"
        )
    return f'<ol class="happened" tabindex="0" aria-label="Reclaims, recoveries and other events">{"".join(lines)}</ol>'


def _runs(seen: SweepView, place: PagePlace) -> str:
    runs = {run.job: run for run in seen.runs}
    places = {job: str(index) for index, job in enumerate(ranked({job: run.metric for job, run in runs.items()}, seen.by), 1)}
    rows = []
    for run in [*(runs[job] for job in places), *(run for run in seen.runs if run.job not in places)]:
        why = run.stopped_because or (run.detail if run.state in _LOUD else "")
        cells = (
            places.get(run.job, "-") + (" (best)" if run.job == seen.best else ""),
            place.link("jobs", run.job),
            escape(_settings(run)),
            _badge(run.state) + (f"<small>{escape(why)}</small>" if why else ""),
            "-" if run.step is None else short(run.step) + (f"/{short(run.total_steps)}" if run.total_steps else ""),
            number(run.metric),
            "-" if run.usd_spent is None else usd(run.usd_spent),
        )
        rows.append((run.job, cells))
    heads = ("Rank", "Run", "Settings", "State", "Step", seen.metric.replace("_", " ").capitalize(), "Cost")
    return _stack(heads, rows, "Runs, the best first", numbers=4)


def _stack(heads: Sequence[str], rows: Iterable[tuple[str, Sequence[str]]], caption: str, *, numbers: int) -> str:
    """A table that becomes a list of cards where it is narrow. Cells are HTML; from the column `numbers` on they are figures.

    The roles keep it a table for screen readers there, too.
    """
    looks = ["figure" if index >= numbers else "text" for index in range(len(heads))]
    head = "".join(
        f'<th role="columnheader" scope="col" class="{look}">{escape(each)}</th>' for each, look in zip(heads, looks, strict=True)
    )
    body = []
    for key, cells in rows:
        row = "".join(
            f'<td role="cell" class="{look}" data-label="{escape(label)}"><div>{cell}</div></td>'
            for label, look, cell in zip(heads, looks, cells, strict=True)
        )
        body.append(f'<tr role="row" data-key="{escape(key)}">{row}</tr>')
    return (
        f'<div class="scroll stack" tabindex="0" role="region" aria-label="{escape(caption)}"><table role="table">'
        f'<caption>{escape(caption)}</caption><thead role="rowgroup"><tr role="row">{head}</tr></thead>'
        f'<tbody role="rowgroup">{"".join(body)}</tbody></table></div>'
    )


def _facts(lines: Iterable[tuple[str, str]]) -> str:
    items = "".join(f"<div><dt>{escape(label)}</dt><dd>{escape(text)}</dd></div>" for label, text in lines if text)
    return f'<dl class="facts">{items}</dl>'


def _badge(state: str) -> str:
    """The state in words; the colour only says it again."""
    return f'<span class="state s-{escape(state.partition(" ")[0])}">{escape(state)}</span>'


def _because(job: JobView) -> str:
    return job.detail if job.state not in (RUNNING_STATE, FINISHED) else ""


def _settings(run: RunView) -> str:
    return " ".join(f"{key}={value}" for key, value in run.point.items()) or run.job


def _local(at: float) -> datetime:
    return datetime.fromtimestamp(at, UTC).astimezone()


def _stamp(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat()


def _now() -> datetime:
    return datetime.now(UTC)
