"""Figures of the controller and of the workers as Prometheus text, and the judgements that rest on them.

    metrics = Metrics(); metrics.observe("ebb_reconcile_seconds", 0.012); metrics.text()
    progress = read_progress(text_of_a_worker, now)
    health = Health(metrics, election, monotonic); health.sick(); health.not_ready()     # for /healthz and /readyz
    recovery = Recovery(metrics); recovery.noticed(key, decided, now); recovery.replaced(key, index, now)

Three kinds of figures are enough here: counters, histograms, and gauges that are computed when somebody asks.
prometheus_client 0.26 was tried in November 2026: 54 lines instead of 77, for one package more in the controller's image. Its
parser ends at the first line that it cannot read, so `parse` would stay.
"""

import os
import re
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from itertools import accumulate
from math import isfinite
from pathlib import Path
from typing import Any, Protocol

from ebb.api import contract as names
from ebb.api.clock import stamp, unix
from ebb.api.status import LEFT, RECLAIMED, Progress, Status
from ebb.controller.reconciler.types import Plan

STATES = (names.WAITING, names.RUNNING, names.RESTARTING, names.SUSPENDED, names.SUCCEEDED, names.FAILED)
LOOK_BUCKETS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 60.0)
# From a replacement that needs no machine to one for which an autoscaler makes a machine in another zone.
LOSS_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0)
RECONCILE_SECONDS = "ebb_reconcile_seconds"
REPLACEMENT_SECONDS = "ebb_replacement_seconds"
RECOVERY_SECONDS = "ebb_recovery_seconds"
RECLAIMS = "ebb_reclaims_total"
FAILURES = "ebb_program_failures_total"
ERRORS = "ebb_reconcile_errors_total"
NOTIFICATIONS = "ebb_notifications_total"
NOTIFICATION_FAILURES = "ebb_notification_failures_total"
QUEUE_DEPTH = "ebb_queue_depth"
WATCH_AGE = "ebb_watch_age_seconds"
LEADS = "ebb_leads"
JOBS = "ebb_jobs"
HELP = {
    RECONCILE_SECONDS: "Time to look at one job and act.",
    REPLACEMENT_SECONDS: "From noticing a lost worker to its replacement being created, waiting for its name included.",
    RECOVERY_SECONDS: "From a loss that left a job with fewer than minReplicas workers to its being Running again.",
    RECLAIMS: "Workers lost to reclaims, by cause.",
    FAILURES: "Failures of programs that were counted.",
    ERRORS: "Looks at a job that failed and were retried.",
    NOTIFICATIONS: "Notifications that the webhook took, by kind.",
    NOTIFICATION_FAILURES: "Attempts to send a notification that failed and were repeated.",
    JOBS: "Jobs by state.",
}
COUNTERS = (RECLAIMS, FAILURES, ERRORS, NOTIFICATIONS, NOTIFICATION_FAILURES)
HISTOGRAMS = {RECONCILE_SECONDS: LOOK_BUCKETS, REPLACEMENT_SECONDS: LOSS_BUCKETS, RECOVERY_SECONDS: LOSS_BUCKETS}
SILENT_SECONDS = 180.0  # every watch ends within 72 s and is begun anew: this long is one that nothing noticed to be broken
STUCK_SECONDS = 300.0  # one look makes a few calls, each of at most 60 s
UNHEARD_SECONDS = 30.0  # a follower reads the Lease every 2 s
Read = Callable[[], Mapping[str, float]]
"""Labels as they are written, e.g. `kind="pods"` -> value."""


class _Histogram:
    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds, self.counts, self.total = bounds, [0] * (len(bounds) + 1), 0.0

    def lines(self, name: str) -> list[str]:
        sums = list(accumulate(self.counts))
        bounds = (*map(str, self.bounds), "+Inf")
        lines = [f'{name}_bucket{{le="{bound}"}} {seen}' for bound, seen in zip(bounds, sums, strict=True)]
        return [*lines, f"{name}_sum {_number(self.total)}", f"{name}_count {sums[-1]}"]


class Metrics:
    """The controller's figures."""

    def __init__(self) -> None:
        self._counters: dict[str, dict[str, int]] = {name: {} for name in COUNTERS}
        self._histograms = {name: _Histogram(bounds) for name, bounds in HISTOGRAMS.items()}
        self._read: dict[str, tuple[str, str, Read]] = {}  # name -> meaning, kind, how it is read

    def count(self, name: str, labels: str = "") -> None:
        """Add one; `labels` as they are written, e.g. `cause="NodeGone"`."""
        counter = self._counters[name]
        counter[labels] = counter.get(labels, 0) + 1

    def observe(self, name: str, value: float) -> None:
        """Add a measurement to a histogram."""
        histogram = self._histograms[name]
        histogram.counts[bisect_left(histogram.bounds, value)] += 1
        histogram.total += value

    def gauge(self, name: str, meaning: str, read: Read, *, kind: str = "gauge") -> None:
        """A figure that `read` gives when asked. `kind` is counter for one that only grows."""
        self._read[name] = meaning, kind, read

    def value(self, name: str) -> Mapping[str, float]:
        """The present values of a gauge; empty for one that is not set."""
        return self._read[name][2]() if name in self._read else {}

    def observations(self, name: str) -> int:
        """Number of observations in a histogram."""
        return sum(self._histograms[name].counts)

    def text(self) -> str:
        """The exposition."""
        lines: list[str] = []
        for name, counter in self._counters.items():
            lines += _head(name, HELP[name], "counter")
            lines += [_line(name, labels, value) for labels, value in (counter or {"": 0}).items()]
        for name, histogram in self._histograms.items():
            lines += _head(name, HELP[name], "histogram") + histogram.lines(name)
        for name, (meaning, kind, read) in self._read.items():
            lines += _head(name, meaning, kind) + [_line(name, labels, value) for labels, value in read().items()]
        return "\n".join(lines) + "\n"


def show_process(metrics: Metrics) -> None:
    """Memory, CPU time and age of this process under the names that Prometheus' own clients use. Linux only."""
    page = os.sysconf("SC_PAGE_SIZE")
    began = time.time() - (time.clock_gettime(time.CLOCK_BOOTTIME) - _started_after_boot())

    def resident() -> Mapping[str, float]:
        return {"": int(Path("/proc/self/statm").read_text().split()[1]) * page}

    def files() -> Mapping[str, float]:
        return {"": len(os.listdir("/proc/self/fd"))}  # noqa: PTH208 - counts names only

    metrics.gauge("process_resident_memory_bytes", "Memory in use.", resident)
    metrics.gauge("process_cpu_seconds_total", "CPU time used.", lambda: {"": time.process_time()}, kind="counter")
    metrics.gauge("process_start_time_seconds", "When the process began, in unix seconds.", lambda: {"": began})
    metrics.gauge("process_open_fds", "Open files and connections.", files)


def _started_after_boot() -> float:
    """Seconds from the machine's start to this process's: field 22 of /proc/self/stat; the name before may have spaces."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    return int(fields[19]) / os.sysconf("SC_CLK_TCK")


def by_state(jobs: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """Jobs counted by status.state, as a gauge gives it; one without a status yet is Waiting."""
    found = Counter(str((job.get("status") or {}).get("state") or names.WAITING) for job in jobs)
    return {f'state="{state}"': float(found[state]) for state in sorted({*STATES, *found})}


def read_progress(text: str, now: float) -> Progress | None:
    """Progress from a worker's metrics; None if they have no step yet."""
    values = parse(text)
    step = _whole(values, names.METRIC_STEP)
    if step is None:
        return None
    return Progress(
        step=step,
        total_steps=_whole(values, names.METRIC_TOTAL_STEPS),
        epoch=_whole(values, names.METRIC_EPOCH),
        loss=_finite(values, names.METRIC_LOSS),
        world_size=_whole(values, names.METRIC_WORLD_SIZE),
        generation=_whole(values, names.METRIC_GENERATION),
        samples_per_second=_finite(values, names.METRIC_SAMPLES_PER_SECOND),
        checkpoint_step=_whole(values, names.METRIC_CHECKPOINT_STEP),
        useful_seconds=_finite(values, names.METRIC_USEFUL_SECONDS),
        tracker=_tracker(text),
        at=stamp(now),
    )


def _tracker(text: str) -> str | None:
    """A program says it, and people click on it: an address of the web, or none."""
    found = [labels.get("url", "") for labels, _ in samples(text, names.METRIC_TRACKER)]
    return next((url for url in found if re.fullmatch(r"https?://[!-~]{1,490}", url)), None)


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


_SAMPLE = re.compile(r"([a-zA-Z_:][\w:]*)(?:\{(.*)\})? +(\S+)")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_ESCAPE, _ESCAPED = re.compile(r"\\."), {"\\n": "\n", '\\"': '"', "\\\\": "\\"}


def _unescaped(found: re.Match[str]) -> str:
    return _ESCAPED.get(found[0], found[0])


def samples(text: str, name: str) -> list[tuple[dict[str, str], float]]:
    """The labels and the value of each sample of that name. Bad lines are skipped, as in parse."""
    found = []
    for row in text.splitlines():
        match = _SAMPLE.fullmatch(row.strip()) if row.startswith(name) else None
        if match is None or match[1] != name:
            continue
        labels = {key: _ESCAPE.sub(_unescaped, value) for key, value in _LABEL.findall(match[2] or "")}
        with suppress(ValueError):
            found.append((labels, float(match[3])))
    return found


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
    return f"{name}{{{labels}}} {_number(value)}" if labels else f"{name} {_number(value)}"


def _number(value: float) -> str:
    """Whole and exact: a counter in the millions must still be seen to grow."""
    return str(int(value)) if float(value).is_integer() else repr(float(value))


class Elector(Protocol):
    """Of an election, what is asked here."""

    @property
    def leads(self) -> bool: ...
    @property
    def unheard_seconds(self) -> float: ...


class Health:
    """Answers of the liveness and the readiness probe: a sentence, or "" if all is well.

    It judges by the figures that people see on /metrics. Only the controller that leads looks at jobs, and only its watches
    matter: a follower is well as long as it answers, and ready as long as it can read the Lease. An event loop that is stuck
    answers no probe at all. `refuses`: why it will not lead, which starting it again does not change. `clock` is monotonic. Ask
    at least once a minute, as probes do: it compares with what it saw then."""

    def __init__(
        self, metrics: Metrics, election: Elector, clock: Callable[[], float], *, refuses: Callable[[], str] = lambda: ""
    ) -> None:
        self._metrics, self._election, self._clock, self._refuses = metrics, election, clock, refuses
        self._looks, self._moved_at = -1, clock()

    def sick(self) -> str:
        """The trouble that only a restart may fix; "" for none."""
        waiting = self._metrics.value(QUEUE_DEPTH).get("", 0.0)
        stuck = self._stands_still(waiting)
        if not self._election.leads:
            return ""
        silent = {kind: round(age) for kind, age in self._metrics.value(WATCH_AGE).items() if age > SILENT_SECONDS}
        if silent:
            return f"nothing heard from the API server for seconds: {silent}"
        return f"{waiting:g} jobs wait, and none was looked at for {stuck:.0f} s" if stuck > STUCK_SECONDS else ""

    def not_ready(self) -> str:
        """The reason why it could not act or take over; "" if it could."""
        if refused := self._refuses():
            return refused
        unheard = self._election.unheard_seconds
        if not self._election.leads and unheard > UNHEARD_SECONDS:
            return f"the Lease could not be read for {unheard:.0f} s"
        return self.sick()

    def _stands_still(self, waiting: float) -> float:
        """For how many seconds jobs have waited while none was looked at."""
        looks, now = self._metrics.observations(RECONCILE_SECONDS), self._clock()
        if not waiting or looks != self._looks or not self._election.leads:
            self._looks, self._moved_at = looks, now
        return now - self._moved_at


Key = tuple[str, str]


class Recovery:
    """Time that losses cost, those by plan too: until the replacement is created, and until enough workers run again.

    In memory: what was lost before this controller began to lead is measured by the times in the job's conditions, or not at all.
    Times are unix seconds."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._lost: dict[Key, dict[int, float]] = {}  # job -> worker's index -> when its loss was noticed
        self._short: dict[Key, float] = {}  # job -> since when fewer than minReplicas run
        self._met: dict[Key, set[int]] = {}  # job -> workers replaced since its status was last written: looks find them again

    def noticed(self, key: Key, decided: Plan, now: float) -> None:
        """A look found what it found."""
        for entry in decided.happened:
            if entry.what in (RECLAIMED, LEFT) and entry.worker is not None and entry.worker not in self._met.get(key, ()):
                self._lost.setdefault(key, {}).setdefault(entry.worker, now)

    def replaced(self, key: Key, index: int, now: float) -> None:
        """A worker was created."""
        noticed = self._lost.get(key, {}).pop(index, None)
        if noticed is not None:
            self._metrics.observe(REPLACEMENT_SECONDS, now - noticed)
            self._met.setdefault(key, set()).add(index)

    def written(self, key: Key, before: Status, after: Status, now: float) -> None:
        """A status was written."""
        self._met.pop(key, None)
        if after.is_true(names.RESTARTING):
            condition = before.condition(names.RESTARTING)
            since = unix(condition.last_transition_time) if condition and condition.status == "True" else None
            self._short.setdefault(key, since or now)
        elif key in self._short:
            since = self._short.pop(key)
            if after.is_true(names.RUNNING):
                self._metrics.observe(RECOVERY_SECONDS, now - since)

    def forget(self, key: Key) -> None:
        """The job is gone."""
        self._met.pop(key, None)
        self._lost.pop(key, None)
        self._short.pop(key, None)
