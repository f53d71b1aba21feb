"""Prometheus text, written and read: the controller's own figures, and those of the workers.

    metrics = Metrics(); metrics.observe("ebb_reconcile_seconds", 0.012); metrics.text()
    progress = read_progress(text_of_a_worker, now)

Three kinds of figures are enough here: counters, histograms, and gauges that are computed when somebody asks.
"""

from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import isfinite

from workloads import contract as names
from workloads.clock import stamp
from workloads.job.status import Progress

BUCKETS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 60.0)
RECONCILE_SECONDS = "ebb_reconcile_seconds"
REPLACEMENT_SECONDS = "ebb_replacement_seconds"
RECLAIMS = "ebb_reclaims_total"
FAILURES = "ebb_program_failures_total"
ERRORS = "ebb_reconcile_errors_total"
HELP = {
    RECONCILE_SECONDS: "Time to look at one job and act.",
    REPLACEMENT_SECONDS: "From noticing a lost worker to its replacement being created, waiting for its name included.",
    RECLAIMS: "Workers lost to reclaims, by cause.",
    FAILURES: "Failures of programs that were counted.",
    ERRORS: "Looks at a job that failed and were retried.",
}


@dataclass
class _Histogram:
    counts: list[int] = field(default_factory=lambda: [0] * (len(BUCKETS) + 1))
    total: float = 0.0


class Metrics:
    """The controller's figures."""

    def __init__(self) -> None:
        self._counters: dict[str, dict[str, int]] = {RECLAIMS: {}, FAILURES: {}, ERRORS: {}}
        self._histograms: dict[str, _Histogram] = {RECONCILE_SECONDS: _Histogram(), REPLACEMENT_SECONDS: _Histogram()}
        self._gauges: list[tuple[str, str, Callable[[], Mapping[str, float]]]] = []

    def count(self, name: str, labels: str = "") -> None:
        """Add one; `labels` as they are written, e.g. `cause="NodeGone"`."""
        counter = self._counters[name]
        counter[labels] = counter.get(labels, 0) + 1

    def observe(self, name: str, value: float) -> None:
        """Add a measurement to a histogram."""
        histogram = self._histograms[name]
        histogram.counts[bisect_left(BUCKETS, value)] += 1
        histogram.total += value

    def gauge(self, name: str, meaning: str, read: Callable[[], Mapping[str, float]]) -> None:
        """A gauge that `read` gives when asked: labels -> value."""
        self._gauges.append((name, meaning, read))

    def text(self) -> str:
        """The exposition."""
        lines: list[str] = []
        for name, counter in self._counters.items():
            lines += _head(name, HELP[name], "counter")
            lines += [_line(name, labels, value) for labels, value in (counter or {"": 0}).items()]
        for name, histogram in self._histograms.items():
            lines += _head(name, HELP[name], "histogram") + _histogram_lines(name, histogram)
        for name, meaning, read in self._gauges:
            lines += _head(name, meaning, "gauge") + [_line(name, labels, value) for labels, value in read().items()]
        return "\n".join(lines) + "\n"


def read_progress(text: str, now: float) -> Progress | None:
    """What a worker's metrics say; None if they have no step yet."""
    values = parse(text)
    step = values.get(names.METRIC_STEP)
    if step is None:
        return None
    return Progress(
        step=int(step),
        total_steps=_whole(values, names.METRIC_TOTAL_STEPS),
        epoch=_whole(values, names.METRIC_EPOCH),
        loss=_finite(values, names.METRIC_LOSS),
        world_size=_whole(values, names.METRIC_WORLD_SIZE),
        generation=_whole(values, names.METRIC_GENERATION),
        samples_per_second=_finite(values, names.METRIC_SAMPLES_PER_SECOND),
        at=stamp(now),
    )


def parse(text: str) -> dict[str, float]:
    """Name -> value of all samples; labels are dropped, so of several samples of one name the last counts. Bad lines are skipped:
    what a worker's program writes must not stop a controller."""
    values: dict[str, float] = {}
    for line in text.splitlines():
        name, _, rest = line.partition("}" if "}" in line else " ")
        words = rest.split()
        if line.startswith("#") or not words:
            continue
        try:
            values[name.partition("{")[0]] = float(words[0])
        except ValueError:
            continue
    return values


def _whole(values: Mapping[str, float], name: str) -> int | None:
    value = _finite(values, name)
    return None if value is None or value < 0 else int(value)


def _finite(values: Mapping[str, float], name: str) -> float | None:
    """JSON has no NaN: a loss that is none is left out."""
    value = values.get(name)
    return value if value is not None and isfinite(value) else None


def _head(name: str, meaning: str, kind: str) -> list[str]:
    return [f"# HELP {name} {meaning}", f"# TYPE {name} {kind}"]


def _line(name: str, labels: str, value: float) -> str:
    return f"{name}{{{labels}}} {value:g}" if labels else f"{name} {value:g}"


def _histogram_lines(name: str, histogram: _Histogram) -> list[str]:
    lines, seen = [], 0
    for bound, number in zip((*map(str, BUCKETS), "+Inf"), histogram.counts, strict=True):
        seen += number
        lines.append(f'{name}_bucket{{le="{bound}"}} {seen}')
    return [*lines, f"{name}_sum {histogram.total:g}", f"{name}_count {seen}"]
