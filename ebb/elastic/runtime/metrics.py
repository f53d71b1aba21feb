"""The metrics of a run: one JSON line per logging interval (rank 0), and Prometheus text on a port (every machine).

    board = Board(); serve(board, 9400); lines = MetricLines(output / "metrics.jsonl")
    board.show(progress); lines.write(progress)

`Progress` is the one record; both forms are made from it. The server answers in a daemon thread with what was shown last; it
never touches a tensor. A port that is taken costs the metrics, not the training.
"""

from __future__ import annotations

import contextlib
import dataclasses
import http.server
import json
import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

from ebb.compat import dataclass
from ebb.elastic import contract

_LONGEST_ADDRESS = 500  # it is kept in the job's status


@dataclass(frozen=True, kw_only=True)
class Progress:
    """The progress of a run after `step` steps. Seconds are of the whole job, over all generations."""

    time: float
    step: int
    total_steps: int
    epoch: float
    loss: float
    samples_per_second: float
    world_size: int
    generation: int
    useful_seconds: float  # in steps that count
    lost_seconds: float  # since the first step, not in steps that count: recoveries, steps done again
    steps_redone: int
    checkpoint_seconds: float  # the training stood still for checkpoints
    checkpoint_step: int = 0  # of the newest checkpoint; 0: there is none. Lines of earlier versions lack it and what follows
    step_seconds: float = 0.0  # of this step
    data_seconds: float = 0.0  # of those, waited for data, on the rank that waited longest
    samples: int = 0  # trained on so far, each counted once
    figures: dict[str, float] = dataclasses.field(
        default_factory=dict
    )  # the program's own, means over the samples since the last line


_GAUGES = {
    contract.METRIC_STEP: ("step", "Optimizer steps done."),
    contract.METRIC_TOTAL_STEPS: ("total_steps", "Optimizer steps of the whole run."),
    contract.METRIC_EPOCH: ("epoch", "Epochs done, with the part of the current one."),
    contract.METRIC_LOSS: ("loss", "Mean loss of the last logged step over its global batch."),
    contract.METRIC_SAMPLES_PER_SECOND: ("samples_per_second", "Samples trained on per second, all machines together."),
    contract.METRIC_WORLD_SIZE: ("world_size", "Ranks that train together now."),
    contract.METRIC_GENERATION: ("generation", "Number of the present membership; it only grows."),
    contract.METRIC_CHECKPOINT_STEP: ("checkpoint_step", "Step of the newest checkpoint; 0 before the first."),
}
_COUNTERS = {
    contract.METRIC_USEFUL_SECONDS: ("useful_seconds", "Seconds spent in steps that count."),
    contract.METRIC_LOST_SECONDS: ("lost_seconds", "Seconds spent in recoveries and in steps that were done again."),
    contract.METRIC_STEPS_REDONE: ("steps_redone", "Optimizer steps that were done again."),
    contract.METRIC_CHECKPOINT_SECONDS: ("checkpoint_seconds", "Seconds for which the training stood still for checkpoints."),
}


def prometheus_text(progress: object | None) -> str:
    """The exposition format of a Progress, or of what a plain program says of one; empty before the first step."""
    if progress is None:
        return ""
    lines = []
    for kind, table in (("gauge", _GAUGES), ("counter", _COUNTERS)):
        for name, (field, text) in table.items():
            if (value := getattr(progress, field, None)) is not None:
                lines += [f"# HELP {name} {text}", f"# TYPE {name} {kind}", f"{name} {value}"]
    return "\n".join(lines) + "\n"


class Board:
    """The last progress; written by the loop, read by the server's thread."""

    def __init__(self) -> None:
        self.progress: object | None = None
        self.tracker = ""

    def show(self, progress: object) -> None:
        self.progress = progress
        self.tracker = self.tracker or find_tracker()

    def text(self) -> str:
        text = prometheus_text(self.progress)
        if not text or not self.tracker:
            return text
        url = self.tracker.replace("\\", "\\\\").replace('"', '\\"')
        name = contract.METRIC_TRACKER
        return f'{text}# HELP {name} The run in the program\'s own tracker.\n# TYPE {name} gauge\n{name}{{url="{url}"}} 1\n'


def find_tracker() -> str:
    """The address of this process's run in a tracker, of W&B or of an MLflow server; "" where none has begun, or it is
    offline. Only a library that the program has imported is asked, and nothing is sent.

    To be called in the thread that trains: MLflow's run is one of a thread. A library of an unknown version costs the address.
    """
    for name, find in (("wandb", _wandb), ("mlflow", _mlflow)):
        module = sys.modules.get(name)
        try:
            url = find(module) if module is not None else ""
        except Exception:  # noqa: S112  # whatever a library raises must not stop the training
            continue
        if url.startswith(("https://", "http://")) and len(url) <= _LONGEST_ADDRESS and url.isprintable():
            return url
    return ""


def _wandb(module: Any) -> str:
    run = getattr(module, "run", None)
    return str(run.url or "") if run is not None and not run.offline else ""  # an offline one warns when it is asked


def _mlflow(module: Any) -> str:
    run = module.active_run()
    server = str(module.get_tracking_uri()).rstrip("/")
    return f"{server}/#/experiments/{run.info.experiment_id}/runs/{run.info.run_id}" if run is not None else ""


def complain(text: str) -> None:
    """On stderr, if it takes anything."""
    with contextlib.suppress(OSError, ValueError):
        print(text, file=sys.stderr, flush=True)


class Page(Protocol):
    """The text that is served."""

    def text(self) -> str: ...


def serve(
    board: Page,
    port: int,
    *,
    advice: str = "choose another with --metrics-port",
    say: Callable[[str], None] = complain,
) -> http.server.ThreadingHTTPServer | None:
    """Answer /metrics in a daemon thread. None, with a warning, when the port cannot be had."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = self.path == "/metrics"
            body = board.text().encode() if found else b"see /metrics\n"
            self.send_response(200 if found else 404)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """A line per scrape would bury the training's own."""

    try:
        server = http.server.ThreadingHTTPServer(("", port), Handler)
    except OSError as error:
        say(f"metrics are not served: port {port}: {error.strerror}; {advice}")
        return None
    threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()
    return server


class MetricLines:
    """metrics.jsonl, appended to by rank 0 of each generation."""

    def __init__(self, path: Path, *, say: Callable[[str], None] = complain) -> None:
        self.last = _last_line(path)  # of the generations before this one
        self._path, self._say = path, say
        self._file = path.open("ab", buffering=0)
        self._torn = torn(path)  # a line cut off by a kill or a full disk must not swallow the next one
        self._told = False

    def write(self, progress: Progress) -> None:
        self.write_record(dataclasses.asdict(progress))

    def write_record(self, record: dict[str, Any]) -> None:
        """A disk that is full costs the line, not the training."""
        line = json.dumps(record, separators=(",", ":")).encode() + b"\n"
        line = b"\n" + line if self._torn else line
        try:
            self._torn = self._file.write(line) != len(line)
        except OSError as error:
            if not self._told:
                self._say(f"{self._path} cannot be written: {error.strerror}; training goes on")
            self._told = True

    def close(self) -> None:
        self._file.close()


class LastStep:
    """The last step that the job has done, in a file that rank 0 writes after each: metrics.jsonl has one in log_every.

    It is for the count of steps that are done again. `step` is -1 where no generation before this one has left any.
    """

    def __init__(self, path: Path) -> None:
        self.step, self.steps_redone = -1, 0
        self._path = path
        self._descriptor = -1
        with contextlib.suppress(OSError, ValueError):  # none yet, or cut off: then the metrics alone count
            self.step, self.steps_redone = map(int, path.read_text(encoding="ascii").split())

    def write(self, step: int, steps_redone: int) -> None:
        """In place, one write of the same length: some microseconds, and a killed process loses none."""
        with contextlib.suppress(OSError):  # it costs the count, not the training
            if self._descriptor < 0:
                self._descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
            os.pwrite(self._descriptor, f"{step:015d} {steps_redone:015d}\n".encode(), 0)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)


def torn(path: Path) -> bool:
    """True if the file ends in the middle of a line."""
    return _tail(path)[-1:] not in (b"", b"\n")


def _last_line(path: Path) -> Progress | None:
    for record in _records_backwards(path):
        with contextlib.suppress(TypeError):  # of another version, or of a plain program
            return Progress(**record)
    return None


def last_record(path: Path) -> dict[str, Any] | None:
    """The last line that is whole, of whatever program; None where there is none, or it cannot be read."""
    with contextlib.suppress(OSError):
        return next(_records_backwards(path), None)
    return None


def _records_backwards(path: Path) -> Iterator[dict[str, Any]]:
    for line in reversed(_tail(path).splitlines()):
        with contextlib.suppress(ValueError):  # cut off by a kill, or by our own short look
            if isinstance(record := json.loads(line), dict):
                yield record


def _tail(path: Path) -> bytes:
    if not path.exists():
        return b""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - 4096))
        return file.read()
