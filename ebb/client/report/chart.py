"""One plot as HTML: an SVG that stretches with the page, with the labels around it in HTML, which do not. Pure.

    figure(Chart(title="Loss", x=axis(0, 90, kind="seconds", exact=True), y=axis(0, 2.3), lines=(Curve(name="loss", ...),), ...))

Colours are variables of page.css, which knows light and dark; page.js adds the values under the pointer, and the page is
complete without it. Whatever a user wrote goes through `escape`.

Why no library draws it, tried in November 2026 on the report of a job with eight plots (103 KB; 320 lines here and in page.js):
- uPlot 1.6.32 (MIT, 51 KB of script in the page): as good to look at, and it zooms, with 60 lines less. But 146 KB; a
  canvas, so pixels in print; and empty plots where scripts do not run, as in previews of mail, chats and repositories.
- pygal 3.1.3 (LGPL): 735 KB and 0.8 s; no bands, no marks of events, axes that are still ours, values by a script from its site.
- leather 0.4.1 has no logarithmic axis. ziaplot 0.9 draws in fixed pixels, without values under the pointer.
- plotly puts 4.8 MB of script into a page, bokeh 1.3, Vega 0.8, and all draw nothing without it; matplotlib with numpy is 27 MB
  to download, twice the whole client with all that it needs.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

MOST_STEPS = 7  # from tick to tick along an axis
COLOURS = 8  # of page.css, --c0 to --c7; with more lines, they are dashed
LONG = 30  # letters of a cell
WIDE, HIGH = 1000, 400  # units of the drawing, not pixels
_TIMES = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200)

XY = tuple[float, float | None]
_Path = Sequence[tuple[float, float]]  # in units of the drawing


def short(value: float) -> str:
    """Four significant digits at most: 0.125, 1500, 12.5k, 1.2M, 3e-5."""
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= limit and abs(value) >= 1e4:
            return f"{value / limit:.4g}{unit}"
    return f"{value:.4g}".replace("e-0", "e-")


def duration(seconds: float) -> str:
    """In at most two units: 0.4 s, 41 s, 3 min, 2 h 5 min, 3 d 4 h."""
    if seconds < 9.95:
        return f"{f'{seconds:.1f}'.removesuffix('.0')} s"
    whole = round(seconds)
    for size, unit, smaller, name in ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= size:
            rest = whole % size // smaller
            return f"{whole // size} {unit}" + (f" {rest} {name}" if rest else "")
    return f"{whole} s"


def usd(value: float) -> str:
    """Cents, or what a small sum needs to be more than nothing."""
    return f"${value:,.2f}" if abs(value) >= 0.1 or value == 0 else f"${value:.3g}"


def percent(share: float) -> str:
    return f"{f'{100 * share:.1f}'.removesuffix('.0')} %"


_WRITE: dict[str, Callable[[float], str]] = {"number": short, "usd": usd, "percent": percent}


@dataclass(frozen=True, kw_only=True)
class Axis:
    """From `low` to `high`, with the text of each tick."""

    low: float
    high: float
    ticks: Sequence[tuple[float, str]]
    kind: str = "number"  # how page.js writes values: number, seconds, usd, percent
    unit: str = ""  # of the ticks, where they do not say it
    log: bool = False

    def place(self, value: float) -> float:
        """0 at the low end, 1 at the high one."""
        if self.log:
            return math.log(max(value, self.low) / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)


def axis(low: float, high: float, *, kind: str = "number", whole: bool = False, exact: bool = False) -> Axis:
    """Widened to round numbers. `exact`: only the ticks are round; `whole`: they are whole numbers."""
    if exact:
        high = max(high, low + 1.0)
    elif high - low <= 1e-6 * max(abs(low), abs(high)):
        low, high = (0.0, high) if high > 0 else (low - 1.0, low + 1.0)
    least = (high - low) / MOST_STEPS
    if kind == "seconds":
        step = next((step for step in _TIMES if step >= least), 0) or 86400.0 * math.ceil(least / 86400)
    else:
        power = 10.0 ** math.floor(math.log10(least))
        step = next(factor * power for factor in (1.0, 2.0, 5.0, 10.0) if factor * power >= least * 0.999)
        step = max(step, 1.0) if whole else step
    first, last = low / step, high / step
    counts = (math.ceil(first), math.floor(last)) if exact else (math.floor(first + 1e-9), math.ceil(last - 1e-9))
    places = [float(f"{index * step:.12g}") for index in range(counts[0], counts[1] + 1)]
    low, high = (low, high) if exact else (places[0], places[-1])
    write, unit = _clock(high) if kind == "seconds" else (_WRITE[kind], "")
    return Axis(low=low, high=high, ticks=[(place, write(place)) for place in places], kind=kind, unit=unit)


def log_axis(low: float, high: float) -> Axis:
    """For positive numbers of very different size: ticks at powers of ten, and 2 and 5 times these."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    marks = [factor * 10.0**power for power in powers for factor in (1, 2, 5)]
    first = max((mark for mark in marks if mark <= low), default=marks[0])
    last = min((mark for mark in marks if mark >= high), default=marks[-1])
    inside = [mark for mark in marks if first <= mark <= last]
    while len(inside) > MOST_STEPS:
        inside = inside[::2]
    return Axis(low=first, high=max(last, first * 2), ticks=[(mark, short(mark)) for mark in inside], log=True)


def _clock(high: float) -> tuple[Callable[[float], str], str]:
    """Return what writes the ticks of a time axis, 5400 as 90:00 or 1:30, and their unit."""
    if not 100 < high <= 172800:
        return duration, ""
    size, unit = (60, "min:s") if high <= 7200 else (3600, "h:min")
    return lambda seconds: f"{int(seconds) // size}:{int(seconds) % size // (size // 60):02d}", unit


@dataclass(frozen=True, kw_only=True)
class Curve:
    """A curve; None in it is a gap. `band`: (x, low, high) behind it."""

    name: str
    points: Sequence[XY]
    colour: int = 0
    band: Sequence[tuple[float, float, float]] = ()
    steps: bool = False  # keeps its value until the next point
    filled: bool = False
    faint: bool = False

    @property
    def look(self) -> str:
        """Its classes in page.css."""
        return f"c{self.colour % COLOURS}{' dashed' if self.colour >= COLOURS else ''}{' faint' if self.faint else ''}"


@dataclass(frozen=True, kw_only=True)
class Mark:
    """Something happened at that x."""

    x: float
    text: str


@dataclass(frozen=True, kw_only=True)
class Strip:
    """The job's zone from x to x: a piece of the ribbon under the plot."""

    x: float
    until: float
    text: str
    colour: int


@dataclass(frozen=True, kw_only=True)
class Chart:
    """`says`: what the picture shows, in a sentence or two. `head` and `rows`: the same in numbers."""

    title: str
    says: str
    x: Axis
    y: Axis
    x_name: str
    y_name: str
    lines: Sequence[Curve]
    marks: Sequence[Mark] = ()
    strips: Sequence[Strip] = ()
    legend: bool = False
    wide: bool = False  # across both columns
    head: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()


def figure(chart: Chart) -> str:
    """The whole figure: title, sentence, plot, ribbon of zones, legend, numbers."""
    unit = f" ({chart.x.unit})" if chart.x.unit else ""
    numbers = f"<details><summary>The numbers</summary>{table(chart.head, chart.rows, chart.title)}</details>"
    return (
        f'<figure class="chart{" wide" if chart.wide else ""}">'
        f"<figcaption><h3>{escape(chart.title)}</h3><p>{escape(chart.says)}</p></figcaption>"
        f'<p class="y-name">{escape(chart.y_name)}</p>{_plot(chart)}{_ribbon(chart)}'
        f'<p class="x-name">{escape(chart.x_name + unit)}</p>{_legend(chart)}{numbers if chart.rows else ""}</figure>'
    )


def table(head: Sequence[str], rows: Sequence[Sequence[str]], caption: str = "", *, marked: frozenset[int] = frozenset()) -> str:
    """Cells are escaped here, and long ones broken into lines. `marked`: rows that stand out."""
    heads = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in head)
    lines = ["".join(f"<td{' class=long' if len(cell) > LONG else ''}>{escape(cell)}</td>" for cell in row) for row in rows]
    body = "".join(f"<tr{' class=marked' if index in marked else ''}>{line}</tr>" for index, line in enumerate(lines))
    title = f"<caption>{escape(caption)}</caption>" if caption else ""
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(caption or "table")}">'
        f"<table>{title}<thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _plot(chart: Chart) -> str:
    x, y = chart.x, chart.y
    grid = "".join(f"M0 {HIGH * (1 - y.place(tick)):.1f}H{WIDE}" for tick, _ in y.ticks)
    marks = "".join(
        f'<path class="mark" d="M{WIDE * x.place(mark.x):.1f} 0V{HIGH}"><title>{escape(mark.text)}</title></path>'
        for mark in chart.marks
    )
    drawn = f'<path class="grid" d="{grid}"/>{"".join(_curve(chart, line) for line in chart.lines)}{marks}'
    words = "".join(
        # Every second one may be hidden where it is narrow.
        f'<span class="{kind}{" odd" if index % 2 else ""}" style="{side}:{100 * along.place(tick):.2f}%">{escape(text)}</span>'
        for kind, side, along in (("x-tick", "left", x), ("y-tick", "bottom", y))
        for index, (tick, text) in enumerate(along.ticks)
    )
    ends = [f"{along.low:g} {along.high:.10g} {along.kind}{' log' if along.log else ''}" for along in (x, y)]
    facts = f'data-x="{ends[0]}" data-y="{ends[1]}"'
    return (
        f'<div class="plot" {facts}><svg viewBox="0 0 {WIDE} {HIGH}" preserveAspectRatio="none" role="img" '
        f'aria-label="{escape(f"{chart.title}. {chart.says}")}">{drawn}</svg>{words}</div>'
    )


def _curve(chart: Chart, line: Curve) -> str:
    def at(x: float, y: float) -> tuple[float, float]:
        return WIDE * chart.x.place(x), HIGH * (1 - chart.y.place(y))

    pieces: list[list[tuple[float, float]]] = [[]]  # cut at gaps
    for x, y in line.points:
        if y is None or not math.isfinite(y):
            pieces.append([])
        else:
            pieces[-1].append(at(x, y))
    pieces = [piece for piece in pieces if piece]
    parts = []
    if line.band:
        above = [at(x, high) for x, _, high in line.band]
        below = [at(x, low) for x, low, _ in reversed(line.band)]
        parts.append(f'<path class="band {line.look}" d="{_joined([*above, *below])}Z"/>')
    if line.filled:
        areas = "".join(f"{_stepped(piece)}V{HIGH}H{piece[0][0]:.1f}Z" for piece in pieces)
        parts.append(f'<path class="area {line.look}" d="{areas}"/>')
    path = "".join(_stepped(piece) if line.steps else _joined(piece) for piece in pieces)
    name, steps = escape(line.name), " data-steps" if line.steps else ""
    return "".join(parts) + f'<path class="line {line.look}" data-name="{name}"{steps} d="{path}"/>'


def _joined(piece: _Path) -> str:
    if len(piece) == 1:  # a dot, by the round ends of a line without length
        return f"M{piece[0][0]:.1f} {piece[0][1]:.1f}h0.1"
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in piece)


def _stepped(piece: _Path) -> str:
    first, *rest = piece
    return f"M{first[0]:.1f} {first[1]:.1f}" + "".join(f"H{x:.1f}V{y:.1f}" for x, y in rest)


def _ribbon(chart: Chart) -> str:
    pieces = []
    for strip in chart.strips:
        left, right = (100 * chart.x.place(end) for end in (strip.x, strip.until))
        look = f'class="strip c{strip.colour % COLOURS}" style="left:{left:.2f}%;width:{right - left:.2f}%"'
        pieces.append(f'<span {look} title="{escape(strip.text)}">{escape(strip.text)}</span>')
    return f'<div class="ribbon">{"".join(pieces)}</div>' if pieces else ""


def _legend(chart: Chart) -> str:
    named = [line for line in chart.lines if chart.legend and not line.faint]
    keys = [(line.look, line.name) for line in sorted(named, key=lambda line: line.colour)]
    keys += [("mark", "a worker was lost")] if chart.marks else []
    entries = "".join(f'<li><span class="key {look}"></span>{escape(name)}</li>' for look, name in keys)
    return f'<ul class="legend">{entries}</ul>' if entries else ""
