"""Measurements on one GPU: `make prove-gpu`, or `python -m benchmarks.gpu --only images,memory`.

Two "machines" may share the GPU: NCCL_HOSTID makes NCCL take them for two hosts, joined by its sockets over loopback. So NCCL's
communicators are made, aborted and made anew as between machines, while the GPU's time is shared: a step takes longer than on
GPUs of their own, and a recovery no less.
"""

import argparse
import gzip
import json
import pickle
import re
import signal
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch

from benchmarks import verdict
from benchmarks.controller.processes import BenchmarkError
from benchmarks.exact import processes, watch
from benchmarks.exact.etcd import etcd
from benchmarks.exact.machines import Fresh, Machine, environment, nccl_host, until
from benchmarks.trainer import contenders
from benchmarks.trainer import folder as images
from benchmarks.trainer.figures import WARM_UP_STEPS
from benchmarks.verdict import Say
from devcluster.commands import last_lines
from devcluster.settings import BoxError

RECOVERY_SECONDS = 2.0  # beside the transfer
STALL_SHARE = 0.02  # of the time, besides what snapshots may take
STALL_SECONDS = 1.0  # that a step may be longer than the longest without snapshots, while their memory is taken too
DIFFERENCE = 1e-3  # of the losses of a step that was repeated in halves, whose sums come in another order
PROMISES = {
    "check": "every GPU passes the launcher's test",
    "change": f"a change takes at most {RECOVERY_SECONDS} s beside the transfer",
    "hang": "the flight recorder has the collectives of a hang",
    "trace": "a trace has the GPU's kernels",
    "images": "snapshots take no more of the time than they may, and no step waits for one",
    "text": "snapshots take no more of the time than they may, and no step waits for one",
    "memory": "a step that does not fit is repeated in smaller parts, with the same losses",
}
HANG_SECONDS = 10.0
COME_UP_SECONDS = 240.0  # imports, CUDA's context, and the compilation of a network
_RECOVERED = re.compile(r"generation (\d+): (\d+) -> (\d+) ranks after step (\d+), in memory, ([\d.]+) s, of which ([\d.]+) s")
_SNAPSHOT = re.compile(r"snapshots in memory: ([\d.]+) MiB in ([\d.]+) s, one every ([\d.]+) s")
_HALVED = re.compile(r"(\d+) samples at once ran out of memory on .*: step (\d+) is repeated with (\d+) at most")
_FLOPS = re.compile(r"([\d.]+) TFLOP/s a rank(?:, ([\d.]+) %)?")


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Of the work: on a GPU, or on a CPU to try this program itself."""

    device: str
    arch: str
    images: int  # of the data set
    batch: int
    text: str  # the large network of text
    text_batch: int
    memory: str  # and the one whose batch does not fit
    memory_batch: int
    steps: int  # that are measured


GPU = Sizes(
    device="cuda", arch="resnet50", images=2048, batch=256, text="1b", text_batch=8, memory="200m", memory_batch=512, steps=40
)
CPU = Sizes(
    device="cpu", arch="resnet18", images=64, batch=8, text="tiny", text_batch=8, memory="tiny", memory_batch=64, steps=12
)


@dataclass
class Job:
    """Launchers of one training on this machine, in one folder."""

    folder: Path
    endpoint: str
    program: list[str]
    machines: list[Machine] = field(default_factory=list)

    def start(self) -> Machine:
        number = len(self.machines) + 1
        self.folder.mkdir(parents=True, exist_ok=True)
        flags = [f"--rdzv_endpoint={self.endpoint}", f"--rdzv_id={self.folder.name}", "--rdzv_backend=etcd3"]
        command = [*flags, "--nnodes=1:2", "--nproc-per-node=1", "--local-addr=127.0.0.1", *self.program]
        given = environment() | nccl_host(number) | {"EBB_OUTPUT_DIR": str(self.output), "TMPDIR": str(self.folder)}
        machine = Fresh().start([*command, "--output", str(self.output)], given, self.folder / f"machine{number}.log")
        self.machines.append(machine)
        return machine

    @property
    def output(self) -> Path:
        return self.folder / "output"

    @property
    def log(self) -> str:
        """Of all machines."""
        return "".join(path.read_text(errors="replace") for path in sorted(self.folder.glob("machine*.log")))

    def lines(self) -> list[dict[str, Any]]:
        """One of metrics.jsonl for each step."""
        path = self.output / "metrics.jsonl"
        text = path.read_text() if path.exists() else ""
        return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]

    def wait(self, what: str, look: Callable[[], object], seconds: float = COME_UP_SECONDS) -> None:
        """Until it is true. Raises BenchmarkError."""

        def ended() -> bool:
            return all(machine.code is not None for machine in self.machines)

        if not until(lambda: look() or ended(), seconds) or not look():
            logs = "\n".join(last_lines(machine.log, 15) for machine in self.machines)
            raise BenchmarkError(f"{self.folder.name}: {what} did not come in {seconds:.0f} s, or all ended:\n{logs}")

    def wait_for_steps(self, count: int) -> None:
        self.wait(f"step {count}", lambda: len(self.lines()) >= count)

    def stop(self) -> None:
        for machine in self.machines:
            machine.kill()


@dataclass(frozen=True, kw_only=True)
class Bench:
    """The place of all cases."""

    folder: Path
    endpoint: str
    sizes: Sizes
    say: Say

    def job(self, name: str, program: list[str]) -> Job:
        common = ["--device", self.sizes.device, "--recovery", "memory", "--log-every", "1", "--epochs", "1000"]
        return Job(self.folder / name, self.endpoint, ["-m", *program, *common])

    def images(self, name: str, *more: str) -> Job:
        data = self.folder / "shards"
        if not data.exists():
            self.say("making images")
            images.write(self.folder / "images", train=self.sizes.images)
            contenders.convert(self.folder / "images", data, self.folder / "convert.log")
        program = ["trainer", "--data", str(data), "--arch", self.sizes.arch, "--image-size", "224", "--augment", "none"]
        return self.job(name, [*program, "--global-batch", str(self.sizes.batch), *more])

    def text(self, name: str, size: str, batch: int, *more: str) -> Job:
        data = self.folder / "text"
        if not data.exists():
            contenders.run_module(["trainer.text", str(data)], self.folder / "text.log")
        program = ["trainer.text.train", "--data", str(data), "--size", size, "--global-batch", str(batch)]
        return self.job(name, [*program, *more])


def check(bench: Bench) -> dict[str, Any]:
    """The launcher's test of a GPU before a machine joins."""
    log, began = bench.folder / "check.log", time.monotonic()
    contenders.run_module(["ebb.elastic.launch.hardware_check"], log)
    found = [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{")]
    faults = [line["error"] for line in found if "error" in line]
    return {"gpus": found[-1].get("done"), "faults": faults, "seconds": round(time.monotonic() - began, 2)}


def change(bench: Bench) -> dict[str, Any]:
    """A compiled network, of which a machine is lost and another one comes: seconds of each, and the steps right after it, in
    which a graph that was compiled anew would show."""
    job = bench.images("change", "--compile", "--min-step-seconds", "0.2")
    try:
        job.start()
        job.start()
        job.wait("both machines' training", lambda: _steps(job, world=2) >= 8)
        together = len(job.lines())
        job.machines[1].kill()
        job.wait("a step of the one that is left", lambda: _steps(job, world=1, after=together) >= 8)
        alone = len(job.lines())
        job.start()
        job.wait("a step of both", lambda: _steps(job, world=2, after=alone) >= 8)
        lines, told = job.lines(), _RECOVERED.findall(job.log)
    finally:
        job.stop()
    found: dict[str, Any] = {}
    for name, before, after in (("loss", 2, 1), ("join", 1, 2)):
        seconds, transfer = next((float(one[4]), float(one[5])) for one in told if (int(one[1]), int(one[2])) == (before, after))
        place = next(
            number
            for number in range(1, len(lines))
            if (lines[number - 1]["world_size"], lines[number]["world_size"]) == (before, after)
        )
        found[name] = {
            "in_memory_seconds": seconds,
            "transfer_seconds": transfer,
            "gap_seconds": round(lines[place]["time"] - lines[place - 1]["time"], 2),
            "next_steps_seconds": [round(line["step_seconds"], 2) for line in lines[place : place + 5]],
            "usual_step_seconds": round(statistics.median(line["step_seconds"] for line in lines[place + 2 :]), 2),
        }
    return found | {"steps_redone": lines[-1]["steps_redone"]}


def _steps(job: Job, *, world: int, after: int = 0) -> int:
    return sum(line["world_size"] == world for line in job.lines()[after:])


def snapshots(bench: Bench, start: Callable[..., Job], overhead: float) -> dict[str, Any]:
    """The cost of snapshots: steps without them, and with them at this share of the time."""
    seconds: dict[str, list[float]] = {}
    longest: dict[str, float] = {}
    figures: dict[str, Any] = {}
    for name, share in (("without", 0.0), ("with", overhead)):
        job = start(
            name, "--snapshot-overhead", str(share), "--checkpoint-seconds", "100000", "--checkpoint-min-seconds", "100000"
        )
        job.start()
        try:
            job.wait_for_steps(bench.sizes.steps)
            if name == "with":
                job.wait("a second snapshot", partial(_has_snapshots, job))
                job.wait_for_steps(len(job.lines()) + bench.sizes.steps)
                size, each, apart = map(float, _SNAPSHOT.findall(job.log)[0])
                figures = {"state_mib": size, "snapshot_seconds": each, "every_seconds": apart}
            lines = job.lines()
            seconds[name] = [line["step_seconds"] for line in lines[-bench.sizes.steps + 5 :]]
            longest[name] = max(line["step_seconds"] for line in lines[WARM_UP_STEPS:])
            if flops := _FLOPS.findall(job.log):
                figures["tflops"], figures["flops_share"] = flops[-1][0], flops[-1][1]
        finally:
            job.stop()
    without, given = statistics.fmean(seconds["without"]), statistics.fmean(seconds["with"])
    return figures | {
        "overhead": overhead,
        "step_seconds": round(without, 4),
        "step_seconds_with": round(given, 4),
        "longest_with": round(longest["with"], 4),
        "longest_without": round(longest["without"], 4),
        "share": round(given / without - 1, 4),
    }


def _has_snapshots(job: Job) -> bool:
    return bool(_SNAPSHOT.search(job.log))


def memory(bench: Bench) -> dict[str, Any]:
    """A step that does not fit: repeated in smaller parts, with the gradient of one that fits at once."""
    losses: dict[str, list[float]] = {}
    figures: dict[str, Any] = {}
    for name, limit in (("large", bench.sizes.memory_batch), ("small", 8)):
        job = bench.text(f"memory-{name}", bench.sizes.memory, bench.sizes.memory_batch, "--max-micro-batch", str(limit))
        job.start()
        try:
            job.wait_for_steps(4)
            losses[name] = [line["loss"] for line in job.lines()[:4]]
            if name == "large":
                figures["halved"] = [[int(number) for number in one] for one in _HALVED.findall(job.log)]
        finally:
            job.stop()
    worst = max(abs(one - other) / other for one, other in zip(losses["large"], losses["small"], strict=True))
    return figures | {"losses": losses["large"], "difference": worst}


def hang(bench: Bench) -> dict[str, Any]:
    """A rank that stands still in the middle of training: NCCL's flight recorder of the one that waits for it."""
    job = bench.images("hang", "--ledger", "--collective-seconds", str(HANG_SECONDS), "--min-step-seconds", "0.2")
    try:
        job.start()
        job.start()
        job.wait("both machines' training", lambda: _steps(job, world=2) >= 8)
        rank = watch.ranks(job.output, job.machines)[1]
        processes.send(rank.pid, signal.SIGSTOP)
        began = time.monotonic()
        job.wait("the flight recorder", lambda: list(job.output.glob("nccl_trace_rank_*")), HANG_SECONDS * 4)
        seconds = time.monotonic() - began
        # torch's own format, written by our process a moment ago
        recorded = pickle.loads(next(job.output.glob("nccl_trace_rank_*")).read_bytes())  # noqa: S301
    finally:
        job.stop()
    entries = recorded["entries"]
    return {"seconds": round(seconds, 1), "collectives": len(entries), "last": [each["state"] for each in entries[-3:]]}


def trace(bench: Bench) -> dict[str, Any]:
    """`ebb profile`: its request, and the kernels that the trace has."""
    job = bench.images("trace")
    try:
        job.start()
        job.wait_for_steps(8)
        (job.output / "profile").mkdir(exist_ok=True)
        (job.output / "profile" / "request.json").write_text(json.dumps({"id": "bench", "steps": 3}))
        path = job.output / "profile" / "bench.json.gz"
        job.wait("the trace", path.exists)
        events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    finally:
        job.stop()
    kernels = [each for each in events if each.get("cat") == "kernel"]
    return {
        "kernels": len(kernels),
        "kernel_seconds": round(sum(each["dur"] for each in kernels) / 1e6, 4),
        "events": len(events),
    }


CASES = {
    "check": check,
    "change": change,
    "hang": hang,
    "trace": trace,
    "images": lambda bench: snapshots(bench, lambda name, *more: bench.images(f"images-{name}", *more), 0.01),
    "text": lambda bench: snapshots(
        bench,
        lambda name, *more: bench.text(f"text-{name}", bench.sizes.text, bench.sizes.text_batch, *more),
        0.05,  # at 1 % one of 12 GB would come less than once a minute
    ),
    "memory": memory,
}


ON_GPUS = ("check", "hang")  # a CPU has no driver to ask, and gloo no flight recorder


def judge(found: dict[str, Any]) -> list[str]:
    """The promises that the figures break, as sentences."""
    on_gpu = found["device"] != "cpu"
    kept: dict[str, Callable[[dict[str, Any]], bool]] = {
        "check": lambda case: not case["faults"],
        "change": lambda case: all(
            case[name]["in_memory_seconds"] - case[name]["transfer_seconds"] <= RECOVERY_SECONDS for name in ("loss", "join")
        ),
        "hang": lambda case: case["collectives"] > 0,
        "trace": lambda case: case["kernels"] > 0 or not on_gpu,
        "images": _is_cheap,
        "text": _is_cheap,
        "memory": lambda case: case["difference"] <= DIFFERENCE and (case["halved"] or not on_gpu),
    }
    return [f"{PROMISES[name]}: {found[name]}" for name, is_kept in kept.items() if name in found and not is_kept(found[name])]


def _is_cheap(case: dict[str, Any]) -> bool:
    stalls = case["longest_with"] - case["longest_without"]
    return bool(case["share"] <= case["overhead"] + STALL_SHARE and stalls <= STALL_SECONDS)


def measure(only: list[str], sizes: Sizes, folder: Path, say: Say) -> dict[str, Any]:
    """All figures. Raises BenchmarkError."""
    found: dict[str, Any] = {
        "device": torch.cuda.get_device_name() if sizes.device == "cuda" else "cpu",
        "torch": torch.__version__,
    }
    with etcd(folder) as endpoint:
        bench = Bench(folder=folder, endpoint=endpoint, sizes=sizes, say=say)
        for name in only:
            began = time.monotonic()
            found[name] = CASES[name](bench)
            say(f"{name}: {time.monotonic() - began:.0f} s: {json.dumps(found[name])}")
    return found


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", metavar="A,B", default="", help=f"of {', '.join(CASES)} (default: all)")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="cpu: tiny sizes, to try this program itself")
    given = parser.parse_args(arguments)
    only = given.only.split(",") if given.only else [name for name in CASES if given.device == "cuda" or name not in ON_GPUS]
    for word in only:
        if word not in CASES:
            parser.error(f"--only {word!r} is none of {', '.join(CASES)}")
    if given.device == "cuda" and not torch.cuda.is_available():
        parser.error("torch sees no GPU here; with --device cpu the program tries itself on tiny sizes")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sizes = GPU if given.device == "cuda" else CPU
    return verdict.conclude("gpu", partial(measure, only, sizes), judge, failures=(BenchmarkError, BoxError))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
