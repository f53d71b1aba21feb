"""Timing of commands: whole processes, from their start to their end, in turns.

    took = await in_turns({"ebb": ["ebb", "--help"], "python": ["python", "-c", "pass"]}, rounds=9)
    took["ebb"]                          # nine seconds-values, in their order

In turns, so that a machine that is busy for a while hinders all alike. A first run of each, which is not counted, lets Python
write its bytecode (into a folder of ours) and the kernel read the files.
"""

import asyncio
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

from benchmarks.controller.processes import BenchmarkError

SECONDS = 60.0
"""More than any of these may take."""

Times = dict[str, list[float]]


async def in_turns(commands: Mapping[str, Sequence[str]], rounds: int, *, folder: Path, **environment: str) -> Times:
    """Raises BenchmarkError for a command that fails."""
    env = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    env |= {"PYTHONPYCACHEPREFIX": str(folder / "bytecode"), **environment}
    took: Times = {name: [] for name in commands}
    for number in range(rounds + 1):
        for name, command in commands.items():
            seconds = await _seconds(command, env)
            if number:
                took[name].append(seconds)
    return took


async def output(command: Sequence[str], **environment: str) -> str:
    """Return what a command prints. Raises BenchmarkError if it fails."""
    code, text = await _run(command, os.environ | environment)
    if code:
        raise BenchmarkError(f"{' '.join(command)} ended with {code}: {text[-500:]}")
    return text


def middle(times: Sequence[float]) -> float:
    """Their median, in seconds to the millisecond."""
    return round(median(times), 3)


async def _seconds(command: Sequence[str], env: Mapping[str, str]) -> float:
    began = time.perf_counter()
    code, text = await _run(command, env)
    took = time.perf_counter() - began
    if code:
        raise BenchmarkError(f"{' '.join(command)} ended with {code}: {text[-500:]}")
    return took


async def _run(command: Sequence[str], env: Mapping[str, str]) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        *command, env=env, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    try:
        async with asyncio.timeout(SECONDS):
            raw, _ = await process.communicate()
    except TimeoutError as error:
        raise BenchmarkError(f"{' '.join(command)} did not end within {SECONDS:g} s") from error
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return process.returncode or 0, raw.decode(errors="replace")
