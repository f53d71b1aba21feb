"""How `ebb` looks: views -> text of at most the terminal's width, with colour where there is a terminal. Pure but for `Console`.

Tables shrink their first column only, with an ellipsis; numbers keep their digits. Into a pipe goes the same text, uncoloured and
as wide as it needs to be, so that scripts never meet a shortened name (`-o json` is for those that want more).
"""

import shlex
import textwrap
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from workloads.client.fit import Fit, Price, price
from workloads.client.request import Request
from workloads.client.view import FAILED_STATE, FINISHED, OVER, RECOVERING, RUNNING_STATE, JobView, WorkerView
from workloads.client.words import happening
from workloads.platform import ON_DEMAND, Platform

PIPE_WIDTH = 500
STYLES = {RUNNING_STATE: "green", FINISHED: "cyan", FAILED_STATE: "red", RECOVERING: "yellow"}
SHORTEST_NAME = 8
RECENT = 10  # lines of history that `status` shows
NUMBERS = frozenset({"WORKERS", "STEP", "LOSS", "RECLAIMS", "AGE", "GPUS", "MAX", "$/GPU/H"})


def make_console(*, stderr: bool = False) -> Console:
    """The terminal, or a pipe that is never wrapped or coloured."""
    console = Console(stderr=stderr, highlight=False, soft_wrap=False, emoji=False, markup=False)
    if not console.is_terminal and "COLUMNS" not in console._environ:
        console.width = PIPE_WIDTH
    return console


def job_table(jobs: Iterable[JobView], now: datetime, width: int) -> RenderableType:
    """`ebb list`."""
    rows = [
        (
            job.name,
            Text(job.state, STYLES.get(job.state, "yellow")),
            f"{job.workers}/{job.wanted_workers}",
            job.zone or "-",
            job.gpu_type or "-",
            steps(job),
            number(job.loss),
            str(job.reclaims),
            age(job.created, now),
        )
        for job in jobs
    ]
    return table(("NAME", "STATE", "WORKERS", "ZONE", "GPU", "STEP", "LOSS", "RECLAIMS", "AGE"), rows, width)


def job_page(job: JobView, workers: Sequence[WorkerView], now: datetime, width: int) -> RenderableType:
    """`ebb status`."""
    parts: list[RenderableType] = [
        Text.assemble((job.name, "bold"), "  ", (job.state, STYLES.get(job.state, "yellow")), _since(job, now)),
    ]
    if job.detail and job.state not in (RUNNING_STATE, FINISHED):
        parts += facts([("because", job.detail)], width)
    parts += facts(_facts(job), width)
    if workers:
        rows = [(str(item.worker), item.state, item.machine or "-", age(item.since, now)) for item in workers]
        parts += [Text(), table(("WORKER", "STATE", "MACHINE", "AGE"), rows, width)]
    if job.history:
        parts.append(Text())
        for item in job.history[-RECENT:]:
            parts += hanging(f"{clock(item.at, now)}  ", happening(item), width)
    return Group(*parts)


def group_table(platform: Platform, width: int) -> RenderableType:
    """`ebb gpus`."""
    rows = [
        (
            group.gpu_type,
            str(group.gpus_per_node),
            group.zone,
            group.capacity_type,
            group.instance_type,
            str(group.max * group.gpus_per_node),
            f"{group.usd_per_hour / max(group.gpus_per_node, 1):.2f}",
        )
        for group in sorted(platform.gpu_groups(), key=lambda group: (group.gpu_type, group.usd_per_hour, group.zone))
    ]
    return table(("GPU", "GPUS", "ZONE", "CAPACITY", "MACHINE", "MAX", "$/GPU/H"), rows, width)


def plan(request: Request, fit: Fit, platform: Platform, arguments: Iterable[str], width: int) -> RenderableType:
    """What `submit` is about to start, where and at what price."""
    zones = request.zone or (fit.zones[0] if len(fit.zones) == 1 else f"one of {', '.join(fit.zones)}")
    share = f"{fit.cpu_millis / 1000:g} CPUs, {fit.memory_mib / 1024:.1f} GiB of memory"
    sizes = f", from {fit.min_workers} to {fit.max_workers}" if fit.max_workers > fit.min_workers else ""
    lines = [
        ("workers", f"{fit.workers}{sizes}; each {fit.gpus_per_worker} {fit.gpu_type}, {share}"),
        ("machines", f"{', '.join(fit.instance_types)} ({fit.capacity}) in {zones}"),
        ("price", price_text(fit)),
        ("program", shlex.join(arguments)),
    ]
    place = dict.fromkeys((platform.stack, platform.cloud, platform.region))  # the box calls all three local
    title = Text(f"{request.name} on {' '.join(place)}", "bold")
    return Group(title, *facts(lines, width))


def price_text(fit: Fit) -> str:
    """The price per hour at the wanted size and at the largest one."""
    now, most = price(fit, fit.workers), price(fit, fit.max_workers)
    largest = f"; up to ${most.usd_per_hour:.2f} with {fit.max_workers} workers" if most.machines > now.machines else ""
    return f"${now.usd_per_hour:.2f} per hour {_compared(fit, now)}{largest}"


def facts(lines: Iterable[tuple[str, str]], width: int) -> list[Text]:
    """Labelled lines, those with a text; what is too long goes on under its beginning."""
    return [line for label, text in lines for line in hanging(f"  {label:<9} ", text, width)]


def hanging(head: str, text: str, width: int) -> list[Text]:
    """Text after a head, wrapped under its own beginning; nothing for no text."""
    wrapped = textwrap.wrap(text, width, initial_indent=head, subsequent_indent=" " * len(head)) if text else []
    return [Text(line) for line in wrapped]


def table(headers: Sequence[str], rows: Iterable[Sequence[str | Text]], width: int) -> Table:
    """A borderless table of at most `width` columns; the first column gives way."""
    cells = [[cell if isinstance(cell, Text) else Text(cell) for cell in row] for row in rows]
    widths = [max([len(header), *(row[index].cell_len for row in cells)]) for index, header in enumerate(headers)]
    first = max(SHORTEST_NAME, width - sum(widths[1:]) - (len(headers) - 1))
    made = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold")
    for index, header in enumerate(headers):
        made.add_column(
            header,
            no_wrap=True,
            overflow="ellipsis",
            justify="right" if header in NUMBERS else "left",
            max_width=min(first, widths[0]) if index == 0 else None,
            min_width=None if index == 0 else widths[index],
        )
    for row in cells:
        made.add_row(*row)
    return made


def steps(job: JobView) -> str:
    """Steps done of all, shortened past five digits: 120/560, 12k/1.2M."""
    if job.step is None:
        return "-"
    return short(job.step) if job.total_steps is None else f"{short(job.step)}/{short(job.total_steps)}"


def short(count: int) -> str:
    """At most five characters of a count."""
    for limit, unit in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if count >= max(limit, 10**5):
            return f"{count / limit:.3g}{unit}"
    return str(count)


def number(value: float | None, digits: int = 4) -> str:
    """Significant digits, "-" for none."""
    return "-" if value is None else f"{value:.{digits}g}"


def age(stamp: str, now: datetime) -> str:
    """Time since, in one unit: 42s, 7m, 3h, 12d; "-" for never."""
    return "-" if not stamp else span((now - datetime.fromisoformat(stamp)).total_seconds())


def span(seconds: float) -> str:
    """A duration in one unit; minutes from two on, hours from two on, days from two on."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= 2 * size:
            return f"{int(seconds // size)}{unit}"
    return f"{max(0, int(seconds))}s"


def duration(seconds: float) -> str:
    """A duration in two units: 41 s, 3 min 12 s, 2 h 5 min."""
    minutes, rest = divmod(max(0, round(seconds)), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if minutes else f"{rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def clock(stamp: str, now: datetime) -> str:
    """Local time of day, with the date if it was another day."""
    if not stamp:
        return "        "
    local = datetime.fromisoformat(stamp).astimezone(now.tzinfo)
    return local.strftime("%H:%M:%S" if local.date() == now.date() else "%Y-%m-%d %H:%M:%S")


def now_local() -> datetime:
    """Now, in the user's time zone."""
    return datetime.now(UTC).astimezone()


def _facts(job: JobView) -> list[tuple[str, str]]:
    elastic = f", from {job.min_workers} to {job.max_workers}" if job.min_workers < job.max_workers else ""
    size = f"{job.workers} of {job.wanted_workers}{elastic}"
    gpus = f"; each {job.gpus_per_worker} {job.gpu_type}".rstrip() if job.gpus_per_worker else ""
    zone = f"in {job.zone}" if job.zone else "no zone yet"
    return [
        ("workers", size + gpus),
        ("where", f"{job.capacity}, {zone}" if job.capacity else zone),
        ("last seen" if job.state in OVER else "progress", _progress(job)),
        ("speed", _speed(job)),
        ("reclaims", str(job.reclaims) if job.reclaims else "none"),
        ("failures", str(job.failures) if job.failures else ""),
        ("cost", _cost(job)),
    ]


def _progress(job: JobView) -> str:
    if job.step is None:
        return ""
    share = f" ({100 * job.step // job.total_steps} %)" if job.total_steps else ""
    total = f" of {job.total_steps}" if job.total_steps else ""
    epoch = f", epoch {job.epoch}" if job.epoch is not None else ""
    loss = f", loss {number(job.loss)}" if job.loss is not None else ""
    return f"step {job.step}{total}{share}{epoch}{loss}"


def _speed(job: JobView) -> str:
    parts = (
        f"{number(job.samples_per_second)} samples/s" if job.samples_per_second is not None else "",
        f"world size {job.world_size}" if job.world_size is not None else "",
        f"generation {job.generation}" if job.generation is not None else "",
    )
    return ", ".join(filter(None, parts))


def _cost(job: JobView) -> str:
    if job.usd_spent is None or job.usd_on_demand is None:
        return ""
    rate = f", ${job.usd_per_hour:.2f} per hour now" if job.usd_per_hour else ""
    saved = job.usd_on_demand - job.usd_spent
    return f"${job.usd_spent:.2f}{rate}" + (f" (${saved:.2f} less than on-demand)" if saved >= 0.005 else "")


def _since(job: JobView, now: datetime) -> str:
    if job.state in OVER and job.ended:
        begun = datetime.fromisoformat(job.started or job.created)
        took = duration((datetime.fromisoformat(job.ended) - begun).total_seconds())
        return f"  after {took}, {age(job.ended, now)} ago"
    return f"  submitted {age(job.created, now)} ago" if job.created else ""


def _compared(fit: Fit, found: Price) -> str:
    if fit.capacity == ON_DEMAND:
        return "on-demand"
    return f"on spot (assumed; ${found.on_demand_usd_per_hour:.2f} on-demand)"
