"""One plot as HTML, and its axes: an SVG that stretches with the page, with the labels around it in HTML, which do not. Pure.

    figure(Chart(title="Loss", x=seconds_axis(0, 90), y=axis(0, 2.3), lines=(Line(name="loss", points=...),), ...))

A plotting library was considered: plotly.js and vega put 3 MB and 0.8 MB of script into each page and draw nothing without it,
and matplotlib would be the CLI's largest dependency (with numpy, 60 MB) for pictures of a fixed width. A report needs lines,
bands and marks only, hence this. Colours are variables of page.css, which knows light and dark; page.js adds the values
under the pointer. Whatever a user wrote goes through `escape`.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from html import escape

MOST_TICKS = 7
_ROUND = (1.0, 2.0, 5.0, 10.0)
_TIMES = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)


@dataclass(frozen=True, kw_only=True)
class Axis:
    """From `low` to `high`; a logarithmic one has its ticks at powers of ten, and 2 and 5 times these."""

    low: float
    high: float
    ticks: tuple[float, ...]
    write: Callable[[float], str]
    kind: str = "number"  # how page.js writes values: number, seconds, usd, percent
    unit: str = ""  # of the ticks, where they do not say it
    log: bool = False

    def place(self, value: float) -> float:
        """0 at the low end, 1 at the high one."""
        if self.log:
            return math.log(max(value, self.low) / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)


def axis(low: float, high: float, *, write: Callable[[float], str] | None = None, kind: str = "number") -> Axis:
    """Widened to round numbers."""
    if high - low <= 1e-6 * max(abs(low), abs(high)):
        low, high = (0.0, high) if high > 0 else (low - 1.0, low + 1.0)
    step = _round_step((high - low) / (MOST_TICKS - 1))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    ticks = tuple(float(f"{index * step:.12g}") for index in range(first, last + 1))
    return Axis(low=ticks[0], high=ticks[-1], ticks=ticks, write=write or short, kind=kind)


def log_axis(low: float, high: float) -> Axis:
    """For positive numbers of very different size."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    marks = [factor * 10.0**power for power in powers for factor in (1, 2, 5)]
    first = max((mark for mark in marks if mark <= low), default=marks[0])
    last = min((mark for mark in marks if mark >= high), default=marks[-1])
    inside = [mark for mark in marks if first <= mark <= last]
    while len(inside) > MOST_TICKS:
        inside = inside[::2]
    return Axis(low=first, high=max(last, first * 2), ticks=tuple(inside), write=short, log=True)


def seconds_axis(low: float, high: float) -> Axis:
    """Ends where the time ends: only its ticks are round."""
    high = max(high, low + 1.0)
    step = next((step for step in _TIMES if (high - low) / step <= MOST_TICKS), 0) or 86400 * math.ceil((high - low) / 86400 / 6)
    ticks = tuple(float(index * step) for index in range(math.ceil(low / step), math.floor(high / step) + 1))
    write, unit = next((write, unit) for most, write, unit in _CLOCKS if high <= most)
    return Axis(low=low, high=high, ticks=ticks, write=write, kind="seconds", unit=unit)


def count_axis(low: float, high: float) -> Axis:
    """Of samples or steps, to its exact end."""
    wide = axis(low, max(high, low + 1))
    return Axis(low=low, high=max(high, low + 1), ticks=tuple(tick for tick in wide.ticks if low <= tick <= high), write=short)


def whole_axis(high: int) -> Axis:
    """Of a few whole things, from none."""
    high = max(1, high)
    step = math.ceil(high / (MOST_TICKS - 1))
    ticks = tuple(float(tick) for tick in range(0, high + step, step))
    return Axis(low=0.0, high=ticks[-1], ticks=ticks, write=short)


def _round_step(least: float) -> float:
    power = 10.0 ** math.floor(math.log10(least))
    return next(factor * power for factor in _ROUND if factor * power >= least * 0.999)


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


def _clock(size: int) -> Callable[[float], str]:
    """5400 as 90:00 or 1:30."""
    return lambda seconds: f"{int(seconds) // size}:{int(seconds) % size // (size // 60):02d}"


_CLOCKS = ((100.0, duration, ""), (7200.0, _clock(60), "min:s"), (172800.0, _clock(3600), "h:min"), (math.inf, duration, ""))


def usd(value: float) -> str:
    """Cents, or what a small sum needs to be more than nothing."""
    return f"${value:,.2f}" if abs(value) >= 0.1 or value == 0 else f"${value:.3g}"


def percent(share: float) -> str:
    return f"{f'{100 * share:.1f}'.removesuffix('.0')} %"


COLOURS = 8  # of page.css, --c0 to --c7; with more lines, they are dashed
LONG = 30  # letters of a cell
WIDE, HIGH = 1000, 400  # units of the drawing, not pixels

XY = tuple[float, float | None]


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
    rows: Sequence[Sequence[str]] = field(default_factory=tuple)


def figure(chart: Chart) -> str:
    """The whole figure: title, sentence, plot, legend, numbers."""
    unit = f" ({chart.x.unit})" if chart.x.unit else ""
    return (
        f'<figure class="chart{" wide" if chart.wide else ""}">'
        f"<figcaption><h3>{escape(chart.title)}</h3><p>{escape(chart.says)}</p></figcaption>"
        f'<p class="y-name">{escape(chart.y_name)}</p>{_plot(chart)}{_ribbon(chart)}'
        f'<p class="x-name">{escape(chart.x_name + unit)}</p>{_legend(chart)}{_numbers(chart)}</figure>'
    )


def table(head: Sequence[str], rows: Sequence[Sequence[str]], caption: str = "", *, marked: frozenset[int] = frozenset()) -> str:
    """Cells are escaped here. `marked`: rows that stand out."""
    heads = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in head)
    body = "".join(
        f"<tr{' class=marked' if index in marked else ''}>{''.join(map(_cell, row))}</tr>" for index, row in enumerate(rows)
    )
    title = f"<caption>{escape(caption)}</caption>" if caption else ""
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(caption or "table")}">'
        f"<table>{title}<thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _cell(text: str) -> str:
    """Long ones are broken into lines, others are not."""
    return f"<td{' class=long' if len(text) > LONG else ''}>{escape(text)}</td>"


def _plot(chart: Chart) -> str:
    drawn = "".join(
        (*(_grid(chart)), *(_curve(chart, line) for line in chart.lines), *(_mark(chart, mark) for mark in chart.marks))
    )
    x, y = chart.x, chart.y
    facts = f'data-x="{x.low:g} {x.high:.10g} {x.kind}" data-y="{y.low:g} {y.high:.10g} {y.kind}{" log" if y.log else ""}"'
    return (
        f'<div class="plot" {facts}><svg viewBox="0 0 {WIDE} {HIGH}" preserveAspectRatio="none" role="img" '
        f'aria-label="{escape(f"{chart.title}. {chart.says}")}">{drawn}</svg>{_ticks(chart)}</div>'
    )


def _ticks(chart: Chart) -> str:
    across = [(chart.x.place(tick), chart.x.write(tick)) for tick in chart.x.ticks]
    up = [(chart.y.place(tick), chart.y.write(tick)) for tick in chart.y.ticks]
    words = [_word("x-tick", "left", at, text, index) for index, (at, text) in enumerate(across)]
    return "".join(words + [_word("y-tick", "bottom", at, text, index) for index, (at, text) in enumerate(up)])


def _word(kind: str, side: str, at: float, text: str, index: int) -> str:
    """Every second word may be hidden where it is narrow."""
    return f'<span class="{kind}{" odd" if index % 2 else ""}" style="{side}:{100 * at:.2f}%">{escape(text)}</span>'


def _grid(chart: Chart) -> list[str]:
    levels = [HIGH * (1 - chart.y.place(tick)) for tick in chart.y.ticks]
    return [f'<path class="grid" d="{"".join(f"M0 {level:.1f}H{WIDE}" for level in levels)}"/>']


def _curve(chart: Chart, line: Curve) -> str:
    pieces = _pieces(chart, line.points)
    path = "".join(_steps(piece) if line.steps else _joined(piece) for piece in pieces)
    look = f"c{line.colour % COLOURS}{' dashed' if line.colour >= COLOURS else ''}{' faint' if line.faint else ''}"
    parts = []
    if line.band:
        above = [_at(chart, x, high) for x, _, high in line.band]
        below = [_at(chart, x, low) for x, low, _ in reversed(line.band)]
        parts.append(f'<path class="band {look}" d="{_joined([*above, *below])}Z"/>')
    if line.filled:
        areas = [f"{_steps(piece)}V{HIGH}H{piece[0][0]:.1f}Z" for piece in pieces]
        parts.append(f'<path class="area {look}" d="{"".join(areas)}"/>')
    name = escape(line.name)
    parts.append(f'<path class="line {look}" data-name="{name}"{" data-steps" if line.steps else ""} d="{path}"/>')
    return "".join(parts)


def _pieces(chart: Chart, points: Sequence[XY]) -> list[list[tuple[float, float]]]:
    """Cut at gaps."""
    pieces: list[list[tuple[float, float]]] = [[]]
    for x, y in points:
        if y is None or not math.isfinite(y):
            pieces.append([])
        else:
            pieces[-1].append(_at(chart, x, y))
    return [piece for piece in pieces if piece]


def _at(chart: Chart, x: float, y: float) -> tuple[float, float]:
    return WIDE * chart.x.place(x), HIGH * (1 - chart.y.place(y))


def _joined(piece: Sequence[tuple[float, float]]) -> str:
    if len(piece) == 1:  # a dot, by the round ends of a line without length
        return f"M{piece[0][0]:.1f} {piece[0][1]:.1f}h0.1"
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in piece)


def _steps(piece: Sequence[tuple[float, float]]) -> str:
    first, *rest = piece
    return f"M{first[0]:.1f} {first[1]:.1f}" + "".join(f"H{x:.1f}V{y:.1f}" for x, y in rest)


def _mark(chart: Chart, mark: Mark) -> str:
    at = WIDE * chart.x.place(mark.x)
    return f'<path class="mark" d="M{at:.1f} 0V{HIGH}"><title>{escape(mark.text)}</title></path>'


def _ribbon(chart: Chart) -> str:
    if not chart.strips:
        return ""
    pieces = []
    for strip in chart.strips:
        left, right = (100 * chart.x.place(end) for end in (strip.x, strip.until))
        look = f'class="strip c{strip.colour % COLOURS}" style="left:{left:.2f}%;width:{right - left:.2f}%"'
        pieces.append(f'<span {look} title="{escape(strip.text)}">{escape(strip.text)}</span>')
    return f'<div class="ribbon">{"".join(pieces)}</div>'


def _legend(chart: Chart) -> str:
    ordered = sorted(chart.lines, key=lambda line: line.colour)
    looks = [(f"c{line.colour % COLOURS}{' dashed' if line.colour >= COLOURS else ''}", line) for line in ordered]
    shown = [(look, line.name) for look, line in looks if chart.legend and not line.faint]
    entries = [f'<li><span class="key {look}"></span>{escape(name)}</li>' for look, name in shown]
    if chart.marks:
        entries.append('<li><span class="key mark"></span>a worker was lost</li>')
    return f'<ul class="legend">{"".join(entries)}</ul>' if entries else ""


def _numbers(chart: Chart) -> str:
    if not chart.rows:
        return ""
    return f"<details><summary>The numbers</summary>{table(chart.head, chart.rows, chart.title)}</details>"
