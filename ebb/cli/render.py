"""Rendering of `ebb`'s output: views -> text of at most the terminal's width, in colour on a terminal. Pure but for `Console`.

Tables shrink one column only, with an ellipsis, mostly the first; numbers keep their digits. Into a pipe goes the same text,
uncoloured and as wide as it needs to be, so that scripts never meet a shortened name (`-o json` is for those that want more).
"""

import shlex
import textwrap
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from rich.console import Console, Group, RenderableType
from rich.text import Text

from ebb.api.platform import ON_DEMAND, Platform
from ebb.client.jobs.view import FAILED_STATE, FINISHED, RECOVERING, RUNNING_STATE, JobView
from ebb.client.queue import QueueLoan, QueuePlace
from ebb.client.submission.fit import Fit, Price, price
from ebb.client.submission.request import Request

PIPE_WIDTH = 500
STYLES = {RUNNING_STATE: "green", FINISHED: "cyan", FAILED_STATE: "red", RECOVERING: "yellow"}
SHORTEST_NAME = 8
NUMBERS = frozenset(
    {
        "WORKERS",
        "STEP",
        "LOSS",
        "RECLAIMS",
        "SPEED-UP",
        "IDEAL",
        "EFFICIENCY",
        "AGE",
        "GPUS",
        "MAX",
        "FREE",
        "NOW",
        "$/GPU/H",
        "$",
        "BUSY",
        "STEP/S",
        "SAMPLES/S",
        "UP",
        "PLACE",
        "BORROWED",
        "TEAM USED",
        "USER USED",
        "ALL-REDUCE",
        "ALL-GATHER",
        "SEND-RECV",
        "ALG",
        "BUS",
        "ALG=BUS",
        "MOST",
        "AVERAGE",
    }
)


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
            Text(f"held to {clock(job.held_until, now)}" if job.held_until else job.state, STYLES.get(job.state, "yellow")),
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


def queue_table(places: Iterable[QueuePlace], width: int) -> RenderableType:
    """`ebb list --queue`: a line of figures for each job, and below it the reason."""
    heads = ("PLACE", "NAME", "TEAM", "USER", "GPUS", "TEAM USED", "USER USED")
    found = tuple(places)
    rows = [
        (
            str(one.place),
            one.name,
            one.namespace,
            one.user or "-",
            str(one.gpus),
            *("first" if used is None else f"{used:.0%}" for used in (one.team_used, one.user_used)),
        )
        for one in found
    ]
    return _explained(heads, rows, [one.reason for one in found], width)


def loans_table(loans: Iterable[QueueLoan], width: int) -> RenderableType:
    """`ebb list --queue`: the jobs that run beyond the quotas of their teams."""
    found = tuple(loans)
    rows = [(one.name, one.namespace, one.user or "-", str(one.gpus)) for one in found]
    return _explained(("NAME", "TEAM", "USER", "BORROWED"), rows, [one.reason for one in found], width, gives=0)


def _explained(
    heads: Sequence[str], rows: Sequence[Sequence[str]], reasons: Iterable[str], width: int, *, gives: int = 1
) -> RenderableType:
    """A table with a sentence below each line."""
    head, *lines = table(heads, rows, width, gives=gives).split("\n")
    pairs = zip(lines, reasons, strict=True)
    return Group(head, *(text for line, reason in pairs for text in (line, *hanging(" " * 6, reason, width))))


def plan(
    request: Request,
    fit: Fit,
    platform: Platform,
    arguments: Iterable[str],
    width: int,
    *,
    now: str = "",
    most: str = "",
    code: str = "",
    start: str = "",
) -> RenderableType:
    """Return what `submit` is about to start, where and at what price."""
    zones = request.zone or (fit.zones[0] if len(fit.zones) == 1 else f"one of {', '.join(fit.zones)}")
    share = f"{fit.cpu_millis / 1000:g} CPUs, {fit.memory_mib / 1024:.1f} GiB of memory"
    sizes = f", from {fit.min_workers} to {fit.max_workers}" if fit.max_workers > fit.min_workers else ""
    lines = [
        ("workers", f"{fit.workers}{sizes}; each {fit.gpus_per_worker} {fit.gpu_type}, {share}"),
        ("machines", f"{', '.join(fit.instance_types)} ({fit.capacity}) in {zones}"),
        ("network", fit.network),
        ("now", now),
        ("price", price_text(fit)),
        ("at most", most),
        ("code", code),
        ("starts", start),
        ("program", shlex.join(arguments)),
    ]
    place = dict.fromkeys((platform.stack, platform.cloud, platform.region))  # the local cluster calls all three local
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


def table(headers: Sequence[str], rows: Iterable[Sequence[str | Text]], width: int, gives: int = 0) -> Text:
    """A borderless table of at most `width` columns; the column of number `gives` gives way. Lines of our own: rich's table takes
    0.3 s for 500 jobs."""
    cells = [[Text(header, "bold") for header in headers]]
    cells += [[cell if isinstance(cell, Text) else Text(cell) for cell in row] for row in rows]
    widths = [max(row[index].cell_len for row in cells) for index in range(len(headers))]
    widths[gives] = min(widths[gives], max(SHORTEST_NAME, width - sum(widths) + widths[gives] - (len(headers) - 1)))
    return Text("\n", no_wrap=True, overflow="ignore").join(_line(headers, row, widths) for row in cells)


def _line(headers: Sequence[str], cells: Sequence[Text], widths: Sequence[int]) -> Text:
    """One row, without spaces at its end."""
    line = Text()
    for header, cell, size in zip(headers, cells, widths, strict=True):
        if cell.cell_len > size:
            cell.truncate(size, overflow="ellipsis")
        space = " " * (size - cell.cell_len)
        line.append(space if _is_number(header) else "").append_text(cell).append("" if _is_number(header) else space).append(" ")
    line.rstrip()
    return line


def _is_number(header: str) -> bool:
    """Return whether a column is set to the right."""
    return header in NUMBERS or header.endswith(("-H", "/H", " $"))


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
    if value is None:
        return "-"
    return f"{value:.0f}" if 10**digits <= abs(value) < 1e12 else f"{value:.{digits}g}"


def age(stamp: str, now: datetime) -> str:
    """Time since, in one unit: 42s, 7m, 3h, 12d; "-" for never."""
    return "-" if not stamp else span((now - datetime.fromisoformat(stamp)).total_seconds())


def span(seconds: float) -> str:
    """A duration in one unit; minutes from two on, hours from two on, days from two on."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= 2 * size:
            return f"{int(seconds // size)}{unit}"
    return f"{max(0, int(seconds))}s"


def clock(stamp: str, now: datetime) -> str:
    """Local time of day, with the date if it was another day."""
    if not stamp:
        return "        "
    local = datetime.fromisoformat(stamp).astimezone(now.tzinfo)
    return local.strftime("%H:%M:%S" if local.date() == now.date() else "%Y-%m-%d %H:%M:%S")


def now_local() -> datetime:
    """Now, in the user's time zone."""
    return datetime.now(UTC).astimezone()


def _compared(fit: Fit, found: Price) -> str:
    if fit.capacity == ON_DEMAND:
        return "on-demand"
    return f"on spot (assumed; ${found.on_demand_usd_per_hour:.2f} on-demand)"
