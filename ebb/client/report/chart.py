"""One plot as HTML: an SVG that stretches with the page, with its words around it in HTML, which do not stretch. Pure.

    figure(Chart(title="Loss", x=seconds_axis(0, 90), y=axis(0, 2.3), lines=(Line(name="loss", points=...),), ...))

A plotting library was considered: plotly.js and vega put 3 MB and 0.8 MB of script into each page and draw nothing without it,
and matplotlib would be the CLI's largest dependency (with numpy, 60 MB) for pictures of a fixed width. What a report needs is
lines, bands and marks, hence this. Colours are variables of page.css, which knows light and dark; page.js adds the values
under the pointer. Whatever a user wrote goes through `escape`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape

from ebb.client.report.scale import Axis

COLOURS = 8  # of page.css, --c0 to --c7; with more lines, they are dashed
LONG = 30  # letters of a cell
WIDE, HIGH = 1000, 400  # units of the drawing, not pixels

XY = tuple[float, float | None]


@dataclass(frozen=True, kw_only=True)
class Line:
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
    """Where the job was from x to x: a piece of the ribbon under the plot."""

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
    lines: Sequence[Line]
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


def _curve(chart: Chart, line: Line) -> str:
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
