"""Does harm to the real controller while jobs are busy, and says which promises held: `python -m benchmarks.faults`."""

import argparse
import asyncio
import json
import logging
import random
import signal
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ebb.kube import KubeError
from tests.apiserver import faults
from tests.apiserver.faults import Figures
from tests.apiserver.plane import Made, plane
from tests.apiserver.stage import REAL, Stage, stage

Play = Callable[[Stage], Awaitable[Figures]]
KEPT, BROKEN, INTERRUPTED = 0, 1, 130
SURVIVES = {"ebb.controller.election.RENEW_SECONDS": 600.0, "ebb.controller.election.DURATION_SECONDS": 900}
HELP = """\
It starts a real etcd, API server and controller manager. Jobs lose machines, fail, scale, pause and are made anew all the time,
each with a model that says what its status must be. Meanwhile, one after the other:

  killed     kill -9 at random points: before one of its writes reaches the API server, or when nobody was told that it did
  cut        the leader cannot renew its Lease, although it still could write
  frozen     the leader stands still until another one leads, then wakes up
  usurped    somebody takes the Lease away
  deaf       watches stay open and never say anything again
  refused    409, 410, 429 and 500 in place of a quarter of the answers, and answers that get lost
  skewed     each controller has a clock that is hours off
  tokens     the file of its token is written anew, and the old one ends
  away       the API server is away, and all machines are late when it comes back; the controller ends and is started again
  asleep     the same, with a controller that lives through it
  restarted  the API server dies and comes back

In all of them: never two pods of one index alive, never more pods than maxReplicas, every job ends as its model says, an end is
final, and of the budget only failures of the program are spent, each once. Limits are those that ship, but for the pause before
a restart. Progress goes to standard output; its last line is one JSON object. The first run builds Kubernetes and etcd with Go.
Everything else takes about 20 minutes. Nothing changes but a folder in /tmp, which is removed again.

exit status: 0 every promise is kept, 1 one is broken, 130 interrupted
"""


@dataclass(frozen=True, kw_only=True)
class FaultSettings:
    """Options of the command line."""

    only: tuple[str, ...]
    points: int
    away_seconds: float
    seed: int


def plays(settings: FaultSettings) -> dict[str, Play]:
    """Every fault at its full size, by name."""
    rng = random.Random(settings.seed)  # noqa: S311 - to be repeated
    hours = (2, -2, 12, -5, 0)
    return {
        "killed": lambda on: faults.killed(on, points=settings.points, rng=rng, say=say),
        "cut": lambda on: faults.cut_off(on, say=say),
        "frozen": lambda on: faults.frozen(on, say=say),
        "usurped": lambda on: faults.usurped(on, say=say),
        "deaf": lambda on: faults.deafened(on, times=2, say=say),
        "refused": lambda on: faults.refused(on, rate=0.25, steps=60, rng=rng, say=say),
        "skewed": lambda on: faults.skewed(on, hours=hours, steps=6, say=say),
        "tokens": lambda on: faults.tokens(on, times=2, lives_seconds=65.0, say=say),
        "away": lambda on: _away(on, settings.away_seconds),
        "asleep": lambda on: _asleep(on, settings.away_seconds),
        "restarted": lambda on: faults.restarted(on, times=3, say=say),
    }


async def run(settings: FaultSettings, folder: Path) -> int:
    """Play them all; returns the exit code."""
    known, figures, broken = plays(settings), dict[str, float](), dict[str, str]()
    say("starting etcd, the API server and the controller manager")
    async with plane(folder) as made:
        for number, name in enumerate(settings.only, 1):
            began = time.monotonic()
            say(f"[{number}/{len(settings.only)}] {name}")
            try:
                found = await _play(made, folder / name, known[name])
            except (AssertionError, TimeoutError, KubeError) as error:
                broken[name] = _short(str(error)) or type(error).__name__
                say(f"{name}: BROKEN: {broken[name]}")
            else:
                figures |= {f"{name}_{key}": round(value, 3) for key, value in found.items()}
                say(f"{name}: kept, in {time.monotonic() - began:.0f} s: {found}")
    say(json.dumps({"seed": settings.seed, "played": list(settings.only), "broken": broken, **figures}))
    return BROKEN if broken else KEPT


def _short(text: str, length: int = 2000) -> str:
    """Shorten to beginning and end: the one says what was wanted, the other what was there."""
    return text if len(text) <= 2 * length else f"{text[:length]} ... {text[-length:]}"


async def _play(made: Made, folder: Path, play: Play) -> Figures:
    folder.mkdir()
    async with stage(made, folder, REAL) as on:
        return await play(on)


async def _away(on: Stage, seconds: float) -> Figures:
    """A kubelet that could not renew its Lease tries again after at most 7 s, and every 10 s anyway (1.35, Leases of 40 s)."""
    return await faults.away(on, seconds=seconds, back_seconds=10.0, watched_seconds=60.0, say=say)


async def _asleep(on: Stage, seconds: float) -> Figures:
    on.limits = {**on.limits, **SURVIVES}
    found = await _away(on, seconds)
    assert found["controller_started_again"] == 0, "the controller ended, so that this says nothing"
    return found


def read_settings(arguments: Sequence[str]) -> FaultSettings:
    """The only reader of argv."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.faults",
        description="Does the controller keep its promises whatever is done to it?",
        epilog=HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = tuple(plays(FaultSettings(only=(), points=0, away_seconds=0, seed=0)))
    parser.add_argument("--points", metavar="N", type=int, default=50, help="kills (default: %(default)d)")
    parser.add_argument("--away", metavar="SECONDS", type=float, default=60.0, help="of the API server (default: %(default)g)")
    parser.add_argument("--only", metavar="A,B", default=",".join(names), help="of the faults below (default: all)")
    parser.add_argument("--seed", metavar="N", type=int, default=1, help="of all that is random (default: %(default)d)")
    given = parser.parse_args(arguments)
    only = tuple(given.only.split(","))
    unknown = sorted(set(only) - set(names))
    if unknown:
        parser.error(f"--only has {unknown[0]!r}: use some of {', '.join(names)}")
    if given.points < 1:
        parser.error(f"--points {given.points} kills nothing: use 1 or more")
    return FaultSettings(only=only, points=given.points, away_seconds=given.away, seed=given.seed)


def say(text: str) -> None:
    """One line, at once."""
    print(text, flush=True)


def main(arguments: Sequence[str]) -> int:
    """Returns the exit code."""
    settings = read_settings(arguments)
    logging.getLogger("workloads").setLevel(logging.ERROR)  # our own copies of what is there say that the API server is away
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    with tempfile.TemporaryDirectory(prefix="ebb-faults-", ignore_cleanup_errors=True) as folder:
        try:
            return asyncio.run(run(settings, Path(folder)))
        except KeyboardInterrupt:
            return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
