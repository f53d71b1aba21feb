"""Seconds without a step when machines come and go, ours beside stock torchrun: `python -m benchmarks.recovery`."""

import argparse
import json
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from benchmarks.controller.processes import BenchmarkError, free_port
from benchmarks.exact import pictures
from benchmarks.exact.etcd import etcd
from benchmarks.exact.machines import given_up
from benchmarks.recovery import figures as kept
from benchmarks.recovery.play import EVENTS, FailedError, Found, Stage, play
from benchmarks.recovery.systems import ARCH, SYSTEMS, System
from devcluster.commands import say
from devcluster.settings import BoxError

KEPT, BROKEN, FAILED, INTERRUPTED = 0, 1, 2, 130
OTHERS_AT_ONCE = 3  # nearly all of their time they wait for clocks of their own: two cores were 96 % idle with one of them
HELP = f"""\
Two machines of one process each train a network on loopback, 24 samples a step, 10 steps a second at most. Then, in turn:

{chr(10).join(f"  {name:16}{text}" for name, text in EVENTS.items())}

and each time: seconds from the last step before to the first step after, steps that were done again, samples that were left out.

{chr(10).join(f"  {name:16}{system.title}" for name, system in SYSTEMS.items())}

Ours plays alone, the stock systems three at a time. Those run benchmarks/recovery/stock.py, which saves at the end of each epoch,
as image examples do. A system that does not go on before the cap, or of which all machines end, has null there; `reasons` says
which. The last line is one JSON object.

exit status: 0 every promise about ours is kept, 1 one is broken, 2 it could not be measured, 130 interrupted
"""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Options of the command line."""

    systems: tuple[str, ...]
    events: tuple[str, ...]
    repeat: int
    cap_seconds: float
    arch: str
    folder: Path


def read_settings(arguments: Sequence[str]) -> Settings:
    """The only reader of argv."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.recovery", description=__doc__, epilog=HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("--only", metavar="A,B", default=",".join(SYSTEMS), help="of the systems below (default: all)")
    parser.add_argument("--events", metavar="A,B", default=",".join(EVENTS), help="of the changes below (default: all)")
    parser.add_argument("--repeat", metavar="N", type=int, default=5, help="rounds (default: %(default)d)")
    parser.add_argument(
        "--cap", metavar="SECONDS", type=float, default=120.0, help="longest wait for a step (default: %(default)g)"
    )
    parser.add_argument(
        "--arch",
        metavar="NAME",
        default=ARCH,
        help="network of torchvision; vgg16 has a state of 1.1 GB (default: %(default)s)",
    )
    given = parser.parse_args(arguments)
    systems, events = tuple(given.only.split(",")), tuple(given.events.split(","))
    for option, words, allowed in (("--only", systems, SYSTEMS), ("--events", events, EVENTS)):
        for word in words:
            if word not in allowed:
                parser.error(f"{option} {word!r} is none of {', '.join(allowed)}")
    if given.repeat < 1:
        parser.error(f"--repeat {given.repeat} is less than 1")
    return Settings(
        systems=systems,
        events=events,
        repeat=given.repeat,
        cap_seconds=given.cap,
        arch=given.arch,
        folder=Path(tempfile.mkdtemp(prefix="ebb-recovery-")),
    )


def measure(settings: Settings) -> dict[str, dict[str, list[Found]]]:
    """system -> event -> one for each round. An event that a system did not survive is not tried on it again."""
    found: dict[str, dict[str, list[Found]]] = {name: {} for name in settings.systems}
    pictures.write(settings.folder / "data")
    with ExitStack() as opened:
        stages = {name: _stage(settings, SYSTEMS[name], opened) for name in settings.systems}
        for number in range(settings.repeat):  # in turns, so that a machine that is busy for a while hinders all alike
            _round_of_all(settings, number, stages, found)
    return found


def _round_of_all(settings: Settings, number: int, stages: dict[str, Stage], found: dict[str, dict[str, list[Found]]]) -> None:
    """Ours by itself, then the others side by side."""
    ours = [name for name in settings.systems if SYSTEMS[name].is_ours]
    with ThreadPoolExecutor(OTHERS_AT_ONCE) as pool:
        try:
            for name in ours:
                _round(settings, number, name, stages[name], found[name])
            rest = [name for name in settings.systems if name not in ours]
            for future in [pool.submit(_round, settings, number, name, stages[name], found[name]) for name in rest]:
                future.result()
        except BaseException:
            given_up.set()
            pool.shutdown(cancel_futures=True)
            raise


def _round(settings: Settings, number: int, name: str, stage: Stage, found: dict[str, list[Found]]) -> None:
    lost = [event for event, changes in found.items() if any(isinstance(one, str) for one in changes)]
    events = [event for event in settings.events if event not in lost]
    folder = settings.folder / name / f"round{number + 1}"
    try:
        for event, one in play(SYSTEMS[name], events, stage, folder, f"{name}-{number}"):
            found.setdefault(event, []).append(one)
            words = one if isinstance(one, str) else f"{one.seconds:.2f} s, {one.steps_redone:g} steps redone"
            say(f"round {number + 1} of {settings.repeat}, {name}, {event}: {words}")
    except FailedError as error:  # of this system; the others are measured all the same
        say(str(error))
        for event in events:
            found.setdefault(event, []).append(str(error))


def _stage(settings: Settings, system: System, opened: ExitStack) -> Stage:
    """An etcd of its own; for c10d the port on which one of its machines will listen."""
    if system.etcd is None:
        endpoint = f"127.0.0.1:{free_port()}"
    else:
        tool, *flags = system.etcd
        endpoint = opened.enter_context(etcd(settings.folder, tool=tool, flags=flags))
    return Stage(data=settings.folder / "data", arch=settings.arch, endpoint=endpoint, cap_seconds=settings.cap_seconds)


def main(arguments: Sequence[str]) -> int:
    """Returns the exit status."""
    settings, began = read_settings(arguments), time.monotonic()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    status = FAILED
    try:
        found = measure(settings)
        table = kept.figures(found)
        made = kept.promises(table)
        for line in [*kept.table_lines(table, settings.events), *(_verdict_line(promise) for promise in made)]:
            say(line)
        status = KEPT if all(promise.kept for promise in made) else BROKEN
        counts = {
            "promises_kept": sum(promise.kept for promise in made),
            "promises_broken": sum(not promise.kept for promise in made),
        }
        sizes = {
            "arch": settings.arch,
            "rounds": settings.repeat,
            "cap_seconds": settings.cap_seconds,
            "seconds": round(time.monotonic() - began, 1),
        }
        print(json.dumps({**table, "reasons": kept.reasons(found), **sizes, **counts}), flush=True)
    except (BenchmarkError, BoxError) as error:
        print(f"it could not be measured; logs are in {settings.folder}: {error}", file=sys.stderr)
    except KeyboardInterrupt:
        say("interrupted")
        status = INTERRUPTED
    finally:
        if status in (KEPT, INTERRUPTED):
            shutil.rmtree(settings.folder, ignore_errors=True)
    return status


def _verdict_line(promise: kept.Promise) -> str:
    return f"{'won ' if promise.kept else 'LOST'} {promise.text}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
