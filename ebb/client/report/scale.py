"""Axes: where the ticks are and what stands at them. Pure.

x = seconds_axis(0.0, 5400.0)         # ticks at 0, 15 min, 30 min, ...
y = axis(0.0, 2.31)
x.place(2700.0)                        # 0.5
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

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
