"""Hugging Face's Trainer, TRL with LoRA, Lightning and Accelerate on machines that are killed, told to leave and added."""

from __future__ import annotations

import argparse
import functools
import hashlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.adapters.history import EPOCH_STEPS, PROGRAMS, Library, play
from benchmarks.controller.processes import BenchmarkError
from benchmarks.exact.etcd import etcd
from benchmarks.verdict import Say, conclude
from devcluster.settings import CHECKOUT, EBB_HOME
from testing.exactness import LedgerError

HELP = """\
For each library two machines begin to train a tiny model. That of rank 0 loses its power, another one comes and loses its own,
one comes, the first gets a notice, one more comes, and the two that are left train to the end. Figures, by library:
  samples_lost, samples_repeated   of the ledger, in the steps that count
  steps_redone                     steps that the two kills have cost; of the notice and the joins there are none
  kills_at_epoch_ends              with Lightning these cost what came after the last checkpoint, here the epoch at most
  weights_difference               the largest of any final weight from those of a process that nothing disturbed
  changed_lines                    of the script, that name Ebb
The libraries, half a gigabyte, are installed once, beside the training environment, which has torch: .ebb/adapters.

exit status: 0 the promises are kept, 1 one is broken, 2 it could not be run, 130 interrupted
"""
LIBRARIES = ("trainer", "trl", "lightning", "accelerate")
_MOST_DIFFERENCE = 1e-4
_MOST_LINES = 5
_MOST_REDONE = 2  # of each kill the step under way when the power went
_NOT_INSTALLED = ("torch", "numpy")


def install(say: Say) -> Path:
    """The folder with the libraries. Raises BenchmarkError."""
    export = [sys.executable, "-m", "uv", "export", "--frozen", "--no-emit-project", "--no-header", "--quiet"]
    export += ["--only-group=adapters", *(f"--prune={name}" for name in _NOT_INSTALLED)]
    wanted = subprocess.run(export, capture_output=True, text=True, check=False, cwd=CHECKOUT)
    if wanted.returncode:
        raise BenchmarkError(f"uv.lock cannot be read: {wanted.stderr.strip()[-500:]}")
    folder = EBB_HOME / "adapters" / hashlib.sha256(wanted.stdout.encode()).hexdigest()[:12]
    packages = folder / "site-packages"  # datasets pickles by value what lies elsewhere, pyarrow too, and fails
    if packages.exists():
        return packages
    say(f"installing the libraries into {folder}")
    partial = folder.with_name(f"{folder.name}.{os.getpid()}")
    partial.mkdir(parents=True)
    (partial / "requirements.txt").write_text(wanted.stdout)
    command = [sys.executable, "-m", "uv", "pip", "install", f"--python={sys.executable}", "--quiet", "--no-deps"]
    command += [f"--target={partial / 'site-packages'}", f"--requirement={partial / 'requirements.txt'}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        shutil.rmtree(partial, ignore_errors=True)
        raise BenchmarkError(f"the libraries could not be installed: {done.stderr.strip()[-500:]}")
    partial.rename(folder)
    return packages


def measure(names: Sequence[str], folder: Path, say: Say) -> dict[str, Any]:
    """By library."""
    packages = install(say)
    base = folder / "base"
    environment = {**os.environ, "PYTHONPATH": f"{packages}:{CHECKOUT}"}
    if "trl" in names:
        say("a tiny base model and its tokenizer")
        subprocess.run([sys.executable, str(PROGRAMS / "base.py"), str(base)], env=environment, check=True, capture_output=True)
    libraries = {
        "trainer": Library(name="trainer", program="clm.py"),
        "trl": Library(name="trl", program="sft.py", arguments=[str(base)]),
        "lightning": Library(name="lightning", program="lit.py"),
        "accelerate": Library(name="accelerate", program="loop.py"),
    }
    with etcd(folder) as endpoint:
        return {name: play(libraries[name], folder, endpoint, packages, say) for name in names}


def judge(found: dict[str, Any]) -> list[str]:
    """The promises that are broken, in words."""
    broken = []
    for name, figures in found.items():
        for figure in ("samples_lost", "samples_repeated", "steps_of_other_size"):
            if figures[figure]:
                broken.append(f"{name}: {figure} is {figures[figure]}, and must be 0")
        broken += [f"{name}: {problem}" for problem in figures["problems"]]
        after_ends = figures["kills_at_epoch_ends"] * EPOCH_STEPS if name == "lightning" else 0  # checkpoints come each second
        for figure, most in (
            ("steps_redone", _MOST_REDONE + after_ends),
            ("weights_difference", _MOST_DIFFERENCE),
            ("changed_lines", _MOST_LINES),
        ):
            if not figures[figure] <= most:
                broken.append(f"{name}: {figure} is {figures[figure]:g}, and may be {most:g} at most")
        if figures["exit_codes"] != [138, 0, 0]:
            broken.append(f"{name}: the exit codes are {figures['exit_codes']}, and must be 138, 0 and 0")
        if figures["tracker_runs"] != 1:
            broken.append(f"{name}: W&B has {figures['tracker_runs']} runs, and must have 1")
    if "trl" in found and _weights(found["trl"]["checkpoint"]) != {"adapter_model.safetensors"}:
        broken.append(f"trl: the checkpoint holds other weights than the adapters: {found['trl']['checkpoint']}")
    return broken


def _weights(names: Sequence[str]) -> set[str]:
    return {name for name in names if name.endswith(".safetensors")}


def main(arguments: Sequence[str]) -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.adapters",
        description=__doc__,
        epilog=HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("libraries", nargs="*", metavar="LIBRARY", help=f"of {', '.join(LIBRARIES)}; without one all")
    names = parser.parse_args(arguments).libraries or list(LIBRARIES)
    if unknown := sorted(set(names) - set(LIBRARIES)):
        parser.error(f"there is no library {unknown[0]!r}; allowed: {', '.join(LIBRARIES)}")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    failures = (BenchmarkError, LedgerError, OSError, subprocess.CalledProcessError)
    return conclude("adapters", functools.partial(measure, names), judge, failures=failures)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
