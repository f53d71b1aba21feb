"""The contenders: the original with two numbers of loader processes, ours as it comes, and ours with one choice changed.

Each runs one process that trains one network on the same folder, batch and number of steps, by its command line. All crop and
normalise alike to 224 x 224 and write a line for every step. On a CPU all compute in 32 bits unless they say otherwise; how
pixels and memory lie is each one's own default.
"""

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.controller.processes import BenchmarkError
from benchmarks.exact.machines import environment
from devcluster.commands import dies_with_us, last_lines
from devcluster.settings import CHECKOUT
from testing.ports import free_port

LIMIT_SECONDS = 1800.0


@dataclass(frozen=True, kw_only=True)
class Work:
    """The work that all contenders do."""

    upstream: Path | None
    data: Path
    shards: Path  # the same images, decoded once
    arch: str
    batch: int
    steps: int
    cores: int
    device: str


@dataclass(frozen=True, kw_only=True)
class Contender:
    """`flags` are the trainer's; None: this is the original, with `workers` loader processes. `shards`: of decoded images.
    `device`: on the other one it is what ours does as it comes."""

    name: str
    title: str
    flags: tuple[str, ...] | None = None
    workers: int = 0
    shards: bool = False
    environment: tuple[tuple[str, str], ...] = ()
    device: str = ""


OURS = "ours"
ORIGINAL = ("original", "original_loading")
SYNTHETIC = "synthetic"
CHECKPOINTS = "checkpoints"
PROMISED = (*ORIGINAL, OURS, SYNTHETIC, CHECKPOINTS)
CONTENDERS = (
    Contender(name="original", title="the original example as it comes (no loader process)"),
    Contender(name="original_loading", title="the original example with a loader process for each core", workers=-1),
    Contender(name=OURS, title="ours as it comes", flags=()),
    Contender(name=SYNTHETIC, title="ours, input that costs nothing", flags=("--augment", "none"), shards=True),
    Contender(
        name=CHECKPOINTS,
        title="ours, a checkpoint every 5 s",
        flags=("--checkpoint-seconds", "5", "--checkpoint-min-seconds", "5"),
    ),
    Contender(name="no_loader_process", title="ours without a loader process", flags=("--workers", "0")),
    Contender(name="shards", title="ours from decoded shards", flags=(), shards=True),
    Contender(name="contiguous", title="ours, channels first", flags=("--channels-last", "off")),
    Contender(name="not_fused", title="ours, optimizer not fused", flags=("--fused", "off")),
    Contender(
        name="memory_given_back",
        title="ours, freed memory given back",
        flags=(),
        environment=(("MALLOC_MMAP_MAX_", "65536"),),  # glibc's default: what a user sets stays
        device="cpu",
    ),
    Contender(name="fp32", title="ours in 32 bits", flags=("--precision", "fp32"), device="cuda"),
    Contender(name="bf16", title="ours in bf16", flags=("--precision", "bf16"), device="cpu"),
    Contender(name="compiled", title="ours, compiled", flags=("--compile",)),
)


def run(contender: Contender, work: Work, folder: Path) -> Path:
    """Train; returns the folder with log.txt and, for ours, output/. Raises BenchmarkError."""
    folder.mkdir(parents=True)
    command = _original(contender, work, folder) if contender.flags is None else _ours(contender, work, folder)
    log = folder / "log.txt"
    with log.open("wb") as output:
        try:
            done = subprocess.run(
                [*dies_with_us(), sys.executable, *command], stdout=output, stderr=output, cwd=CHECKOUT,
                env=_given(folder) | dict(contender.environment), timeout=LIMIT_SECONDS, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired as error:
            raise BenchmarkError(f"{contender.title} did not end in {LIMIT_SECONDS:.0f} s; see {log}") from error
    if done.returncode:
        raise BenchmarkError(f"{contender.title} ended with {done.returncode}; the end of {log}:\n{last_lines(log, 15)}")
    return folder


def _original(contender: Contender, work: Work, folder: Path) -> list[str]:
    workers = work.cores if contender.workers < 0 else contender.workers
    return [
        *["-m", "benchmarks.trainer.shim", str(work.upstream), str(work.data), "-a", work.arch, "-b", str(work.batch)],
        *["-j", str(workers), "--epochs", "1", "-p", "1", "--checkpoint-file", str(folder / "checkpoint.pth.tar")],
        *["--dist-backend", "nccl" if work.device == "cuda" else "gloo"],
    ]


def _ours(contender: Contender, work: Work, folder: Path) -> list[str]:
    data = work.shards if contender.shards else work.data
    return [
        *["-m", "ebb.elastic.launch", "--standalone", "--nproc-per-node=1", "-m", "trainer", "--data", str(data)],
        *["--output", str(folder / "output"), "--arch", work.arch, "--global-batch", str(work.batch), "--epochs", "1"],
        *["--image-size", "224", *(["--augment", "imagenet"] if "--augment" not in (contender.flags or ()) else [])],
        *["--log-every", "1", "--device", work.device, *(contender.flags or ())],
    ]


def _given(folder: Path) -> dict[str, str]:
    """One process, which may use all cores; the original takes its place in a group from the environment."""
    given = {name: value for name, value in environment().items() if name not in ("OMP_NUM_THREADS", "OMP_WAIT_POLICY")}
    place = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1"}
    return given | place | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "TMPDIR": str(folder)}


def convert(data: Path, shards: Path, log: Path) -> None:
    """Decode the images once. Raises BenchmarkError."""
    run_module(["ebb.elastic.data", "convert", str(data), str(shards)], log)


def run_module(command: Sequence[str], log: Path) -> None:
    """A short program of Python's, to its end. Raises BenchmarkError."""
    with log.open("wb") as output:
        done = subprocess.run(
            [sys.executable, "-m", *command], stdout=output, stderr=output, cwd=CHECKOUT, env=environment(), check=False
        )
    if done.returncode:
        raise BenchmarkError(f"{command[0]} ended with {done.returncode}; the end of {log}:\n{last_lines(log, 10)}")


def known_flags() -> str:
    """The trainer's own help: a choice that it does not offer (yet) is not measured."""
    command = [sys.executable, "-m", "trainer", "--help"]
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd=CHECKOUT, env=environment()).stdout


def offered(contenders: Sequence[Contender], told: str) -> list[Contender]:
    """Those whose flags the trainer has."""
    return [contender for contender in contenders if all(word in told for word in contender.flags or () if word.startswith("--"))]
