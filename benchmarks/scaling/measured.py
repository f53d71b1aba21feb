"""Epochs and all-reduces on this machine: the reference trainer for text, and the program of `ebb check network`, under the
launcher, with gloo between the ranks."""

import json
import statistics
import sysconfig
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.controller.processes import BenchmarkError
from benchmarks.exact.machines import Fresh, environment
from benchmarks.scaling.model import Point
from ebb.client.diagnostics.network import ALL_REDUCE, NetworkReading

SIZE, PARAMETERS = "10m", 9.54e6  # trainer/text/decoder.py
CONTEXT = 64  # tokens of a window
BATCH = 4  # windows of a rank and step
STEPS = 12  # of an epoch of one rank; divisible by 2, 3 and 4
LARGEST = 2**26  # bytes of an all-reduce
FROM_BYTES = 2**16  # sizes that the model is fitted to: below, a time is the processes' turn on the cores
LIMIT_SECONDS = 900.0


@dataclass(frozen=True, kw_only=True)
class Epoch:
    """One epoch on so many ranks. `step_seconds`: the median of its steps; `seconds`: of all of them, were they so."""

    ranks: int
    steps: int
    step_seconds: float

    @property
    def seconds(self) -> float:
        return self.steps * self.step_seconds


def write_corpus(folder: Path) -> Path:
    """Texts of Python's library, of which one epoch has STEPS steps of one rank. Raises BenchmarkError."""
    library = Path(sysconfig.get_path("stdlib"))
    text = b"\n".join(path.read_bytes() for path in sorted(library.glob("*.py"))[:40])
    train = BATCH * STEPS * (CONTEXT + 1) + 1
    (folder / "val.txt").write_bytes(text[: BATCH * (CONTEXT + 1) + 1])
    (folder / "train.txt").write_bytes(text[-train:])
    corpus = folder / "corpus"
    files = [str(folder / "val.txt"), str(folder / "train.txt")]
    _run("trainer.text", [str(corpus), "--text", *files], folder / "corpus.log")
    return corpus


def time_epoch(corpus: Path, ranks: int) -> Epoch:
    """Train one epoch from its start. Raises BenchmarkError."""
    with tempfile.TemporaryDirectory(prefix="ebb-scaling-") as name:
        folder = Path(name)
        flags = ["--data", str(corpus), "--output", str(folder / "run"), "--size", SIZE, "--context", str(CONTEXT)]
        flags += ["--epochs", "1", "--global-batch", str(BATCH * ranks), "--max-micro-batch", str(BATCH), "--log-every", "1"]
        _launch(ranks, ["-m", "trainer.text.train", *flags], folder / "log")
        lines = [json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()]
    return epoch_of(ranks, lines)


def epoch_of(ranks: int, lines: Sequence[dict[str, float]]) -> Epoch:
    """Of its metric lines; the first step, which loads libraries, is left out. Raises BenchmarkError. Pure."""
    if len(lines) < 2 or lines[-1]["step"] != lines[-1]["total_steps"] or lines[-1]["world_size"] != ranks:
        raise BenchmarkError(f"an epoch on {ranks} ranks was not finished: its last line is {lines[-1] if lines else 'missing'}")
    median = statistics.median(line["step_seconds"] for line in lines[1:])
    return Epoch(ranks=ranks, steps=int(lines[-1]["total_steps"]), step_seconds=median)


def time_all_reduces(ranks: int, largest: int = LARGEST) -> list[Point]:
    """All sizes between so many ranks. Raises BenchmarkError."""
    with tempfile.TemporaryDirectory(prefix="ebb-scaling-") as name:
        log = Path(name, "log")
        _launch(ranks, ["-m", "ebb.elastic.netcheck", "--largest", str(largest), "--operation", ALL_REDUCE], log)
        reading = NetworkReading()
        for line in log.read_text().splitlines():
            reading.feed(line)
    if not reading.is_complete or any(one.wrong for one in reading.figures):
        raise BenchmarkError(f"all-reduces between {ranks} ranks were not finished, or wrong")
    return [(ranks, one.bytes, one.seconds) for one in reading.figures]


def _launch(ranks: int, words: Sequence[str], log: Path) -> None:
    _run("ebb.elastic.launch", ["--standalone", f"--nproc-per-node={ranks}", *words], log)


def _run(module: str, arguments: Sequence[str], log: Path) -> None:
    machine = Fresh(module).start(arguments, environment(), log)
    try:
        end = time.monotonic() + LIMIT_SECONDS
        while machine.code is None and time.monotonic() < end:
            time.sleep(0.1)
        code = machine.code
    finally:
        machine.kill()
    if code != 0:
        last = " | ".join(log.read_text(errors="replace").splitlines()[-4:])
        raise BenchmarkError(f"python -m {module} ended with {'nothing' if code is None else code}: {last}")
