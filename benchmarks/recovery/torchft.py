"""torchft beside torch: its packages, in a folder of their own, and its lighthouse, where machines find each other.

    with lighthouse(folder, ["--join_timeout_ms=1000"]) as endpoint:    # http://127.0.0.1:PORT
        ...                                                             # machines with ENVIRONMENT

The folder is made once, by uv from torchft-requirements.txt, and stays out of the checkout's environment.
"""

import contextlib
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.controller.processes import BenchmarkError
from benchmarks.exact.machines import environment, until
from devcluster.commands import dies_with_us, last_lines, say
from devcluster.settings import EBB_HOME
from testing.ports import free_port

REQUIREMENTS = Path(__file__).with_name("torchft-requirements.txt")
PACKAGES = EBB_HOME / "torchft" / hashlib.sha256(REQUIREMENTS.read_bytes()).hexdigest()[:12]
ENVIRONMENT = {"PYTHONPATH": str(PACKAGES), "RUST_LOG": "warn"}  # by default it logs several lines a step
_READY_SECONDS = 30.0
_READY = "Lighthouse listening"  # words of its log


def install() -> None:
    """Raises BenchmarkError, with the end of uv's words, where a package cannot be had."""
    if PACKAGES.exists():
        return
    say(f"installing torchft into {PACKAGES}")
    partial = PACKAGES.with_name(f"{PACKAGES.name}.{os.getpid()}")
    done = subprocess.run(
        [sys.executable, "-m", "uv", "pip", "install", f"--python={sys.executable}", "--quiet", "--no-deps",
         f"--target={partial}", f"--requirement={REQUIREMENTS}"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        shutil.rmtree(partial, ignore_errors=True)
        raise BenchmarkError(f"torchft could not be installed: {done.stderr.strip()[-500:]}")
    partial.rename(PACKAGES)


@contextlib.contextmanager
def lighthouse(folder: Path, flags: Sequence[str]) -> Iterator[str]:
    """Its endpoint, http://127.0.0.1:PORT. It ends with this process."""
    install()
    port = free_port()
    log = folder / f"lighthouse-{port}.log"
    command = [sys.executable, str(PACKAGES / "bin" / "torchft_lighthouse"), "--min_replicas=1", f"--bind=[::]:{port}", *flags]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*dies_with_us(), *command],
            stdout=output,
            stderr=output,
            env=environment() | ENVIRONMENT | {"RUST_LOG": "info"},
            start_new_session=True,
        )
    try:
        until(lambda: process.poll() is not None or _READY in log.read_text(), _READY_SECONDS)
        if process.poll() is not None or _READY not in log.read_text():
            raise BenchmarkError(f"torchft's lighthouse did not come up; the end of {log}:\n{last_lines(log, 10)}")
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()
