"""All scenarios of the rendezvous, many generations, changes and members, on each etcd: `python -m benchmarks.rendezvous`."""

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from devcluster import tools
from devcluster.commands import dies_with_us, say
from devcluster.settings import CHECKOUT, BoxError
from tests.elastic.rendezvous.servers import VERSIONS

KEPT, BROKEN, FAILED, INTERRUPTED = 0, 1, 2, 130
WITHOUT = "no etcd"  # scenarios that need none: the rules, on an etcd in a dict
SCENARIOS = "tests/elastic/rendezvous"
_SCALE = ("members", "start_seconds", "form_seconds", "lost", "survive_seconds", "load")
HELP = f"""\
First it builds each etcd with Go, where it is not there yet (a minute or two each). Then:

  scenarios     all of {SCENARIOS}: join, grow, leave, lose rank 0, lose all at once, stand still, be cut off, an etcd that
                restarts or loses its data, TLS and passwords, plain torchrun; and random histories of the rules without an etcd
  generations   two machines meet again and again, every tenth time with a new one of them; keys, threads, descriptors and
                memory at the end are compared with those after a fifth. All versions at once: this waits more than it computes
  changes       the same with workers that live through them (--recovery memory): the first of two does 1,000, each 20th of them
                the loss of the other; compared is what its process, the launchers' and etcd hold. All versions at once
  members       64 processes without a trainer meet in one rendezvous, then 20 are killed at once, rank 0 among them

The last line is one JSON object: of each version scenarios passed and failed, generations, keys_at_end (3 are right: two machines
and the generation) and megabytes by which this process and etcd's have grown; changes and what has grown by them; members, the
seconds that they need to meet and, without the lost, to meet again. About 30 minutes on 2 cores, the builds apart.

exit status: 0 all passed and nothing grew, 1 not so, 2 it could not be measured, 130 interrupted
"""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Options of the command line."""

    versions: tuple[str, ...]
    generations: int
    changes: int
    members: int
    lost: int
    scenarios: str


def read_settings(arguments: Sequence[str]) -> Settings:
    """The only reader of argv."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.rendezvous",
        description="Does the rendezvous keep its promises on every etcd?",
        epilog=HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    every = ",".join(sorted(VERSIONS))
    parser.add_argument("--versions", metavar="A,B", default=every, help="of etcd (default: %(default)s)")
    parser.add_argument("--generations", metavar="N", type=int, default=10_000, help="of each version (default: %(default)d)")
    parser.add_argument(
        "--scenarios", metavar="WORDS", default="", help="only those that pytest -k finds by these (default: all)"
    )
    parser.add_argument("--changes", metavar="N", type=int, default=1000, help="of each version (default: %(default)d)")
    parser.add_argument("--members", metavar="N", type=int, default=64, help="of one rendezvous (default: %(default)d)")
    parser.add_argument("--lost", metavar="N", type=int, default=20, help="of them, at once (default: %(default)d)")
    given = parser.parse_args(arguments)
    versions = tuple(given.versions.split(","))
    unknown = sorted(set(versions) - VERSIONS.keys())
    if unknown:
        parser.error(f"--versions has {unknown[0]!r}: use some of {every}")
    if given.generations < 10:
        parser.error(f"--generations {given.generations} cannot show that nothing grows: use 10 or more")
    if given.changes < 10:
        parser.error(f"--changes {given.changes} cannot show that nothing grows: use 10 or more")
    if not 0 < given.lost < given.members:
        parser.error(f"--lost {given.lost} must leave some of --members {given.members}, and take one at least")
    return Settings(
        versions=versions,
        generations=given.generations,
        changes=given.changes,
        members=given.members,
        lost=given.lost,
        scenarios=given.scenarios,
    )


def outcomes(report: Path, versions: Sequence[str]) -> dict[str, dict[str, list[str]]]:
    """version -> "passed", "failed", "skipped" -> names, from pytest's report. Other versions' scenarios are left out."""
    found: dict[str, dict[str, list[str]]] = {name: {"passed": [], "failed": [], "skipped": []} for name in (*versions, WITHOUT)}
    for case in ElementTree.parse(report).getroot().iter("testcase"):  # noqa: S314  # our own pytest's
        name = case.get("name", "")
        words = name.partition("[")[2].removesuffix("]").split("-")
        version = next((each for each in VERSIONS if each in words), WITHOUT)
        kinds = {child.tag for child in case}
        kind = "failed" if kinds & {"failure", "error"} else "skipped" if "skipped" in kinds else "passed"
        if version in found:
            found[version][kind].append(name)
    return found


Told = Mapping[str, Mapping[str, Any]]  # by version


def verdict(found: Mapping[str, Mapping[str, list[str]]], endured: Told, changed: Told, gathered: Told) -> dict[str, Any]:
    """The last line. A scenario that was skipped is not passed: each etcd has been built."""
    growth = {
        name: {size: round(each["after"][size] - each["before"][size], 1) for size in ("megabytes", "etcd_megabytes")}
        for name, each in endured.items()
    }
    return {
        "passed": {name: len(kinds["passed"]) for name, kinds in found.items()},
        "failed": {name: len(kinds["failed"]) + len(kinds["skipped"]) for name, kinds in found.items()},
        "failures": [f"{name}: {case}" for name, kinds in found.items() for case in [*kinds["failed"], *kinds["skipped"]]],
        "generations": {name: each["generations"] for name, each in endured.items()},
        "keys_at_end": {name: each["after"]["keys"] for name, each in endured.items()},
        "megabytes_grown": {name: each["megabytes"] for name, each in growth.items()},
        "etcd_megabytes_grown": {name: each["etcd_megabytes"] for name, each in growth.items()},
        "milliseconds_per_generation": {
            name: round(1000 * each["seconds"] / each["generations"], 1) for name, each in endured.items()
        },
        "grown": {name: each["grown"] for name, each in endured.items() if each["grown"]},
        "changes": {name: each["changes"] for name, each in changed.items()},
        "grown_by_changes": {name: each["grown"] for name, each in changed.items() if each["grown"]},
        "milliseconds_per_change": {name: round(1000 * each["seconds"] / each["changes"], 1) for name, each in changed.items()},
        "members": {name: {key: each[key] for key in _SCALE} for name, each in gathered.items()},
    }


def is_kept(told: Mapping[str, Any], settings: Settings) -> bool:
    """Also that each version was there: what did not run has not failed, but shows nothing."""
    parts = ("generations", "changes", "members")
    complete = all(set(told[part]) == set(settings.versions) for part in parts)
    complete = complete and all(told["passed"][name] for name in settings.versions)
    return complete and not told["failures"] and not told["grown"] and not told["grown_by_changes"]


def run(settings: Settings, folder: Path) -> int:
    """Returns the exit code. Raises BoxError when an etcd cannot be built, or nothing was played."""
    began = time.monotonic()
    for number, version in enumerate(settings.versions, 1):
        tool = VERSIONS[version]
        say(f"[{number}/{len(settings.versions)}] etcd {tools.TOOLS[tool].version}")
        asyncio.run(tools.ensure(tool))
    report = folder / "scenarios.xml"
    say("scenarios, one after the other")
    play(scenarios(settings, report))
    if not report.exists():
        raise BoxError("pytest has played nothing; its last lines say why")
    say(f"{settings.generations} generations on each etcd, side by side")
    endured = side_by_side(settings.versions, "tests.elastic.rendezvous.endurance", f"--generations={settings.generations}")
    say(f"{settings.changes} changes on each etcd, side by side")
    changed = side_by_side(settings.versions, "tests.elastic.runtime.endurance", f"--changes={settings.changes}")
    say(f"{settings.members} members on each etcd, one after the other")
    scale = ["tests.elastic.rendezvous.scale", f"--members={settings.members}", f"--lost={settings.lost}"]
    gathered: dict[str, dict[str, Any]] = {}
    for version in settings.versions:
        gathered |= side_by_side([version], *scale)
    told = verdict(outcomes(report, settings.versions), endured, changed, gathered)
    kept = is_kept(told, settings)
    print(json.dumps({**told, "kept": kept, "seconds": round(time.monotonic() - began, 1)}), flush=True)
    return KEPT if kept else BROKEN


def play(command: Sequence[str]) -> None:
    """To its end. In a process group of its own: when we are interrupted it ends with all its machines."""
    process = subprocess.Popen([*dies_with_us(), *command], cwd=CHECKOUT, env=_environment(), start_new_session=True)
    try:
        process.wait()
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise


def scenarios(settings: Settings, report: Path) -> list[str]:
    """The command that plays them and writes the report."""
    words = [f"not {version}" for version in sorted(VERSIONS.keys() - set(settings.versions))]
    words += [f"({settings.scenarios})"] if settings.scenarios else []
    chosen = ["-k", " and ".join(words)] if words else []
    return [sys.executable, "-m", "pytest", "-v", "--no-header", "-m", "not proof", f"--junitxml={report}", *chosen, SCENARIOS]


def side_by_side(versions: Sequence[str], module: str, *arguments: str) -> dict[str, dict[str, Any]]:
    """version -> what the module says of it at its end; a version that broke is not there."""
    program = [sys.executable, "-m", module, *arguments]
    found: dict[str, dict[str, Any]] = {}
    with ExitStack() as opened:
        # Files, as nobody reads while they run: a worker whose lines had filled a pipe would stand still.
        outputs = {version: opened.enter_context(tempfile.TemporaryFile("w+")) for version in versions}
        running = {
            version: subprocess.Popen([*program, f"--version={version}"], stdout=output, cwd=CHECKOUT, env=_environment())
            for version, output in outputs.items()
        }
        try:
            for version, process in running.items():
                process.wait()
                outputs[version].seek(0)
                told = outputs[version].read().splitlines()
                try:
                    found[version] = json.loads(told[-1])
                    say(f"etcd {version}: {told[-1]}")
                except (IndexError, ValueError):
                    say(f"etcd {version} broke off with {process.returncode}; what it has printed says why")
        finally:
            for process in running.values():
                process.terminate()
                process.wait()
    return found


def _environment() -> dict[str, str]:
    """Everything is on loopback: torch looks up the name of each peer of a store, and a lost DNS packet costs seconds."""
    own = {"RES_OPTIONS": "attempts:0", "TORCH_CPP_LOG_LEVEL": "ERROR", "OMP_NUM_THREADS": "1", "EBB_EVERY_ETCD": "1"}
    return {**os.environ, **own}


def main(arguments: Sequence[str]) -> int:
    """Returns the exit status."""
    settings = read_settings(arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with tempfile.TemporaryDirectory(prefix="ebb-rendezvous-", ignore_cleanup_errors=True) as folder:
        try:
            return run(settings, Path(folder))
        except BoxError as error:
            print(f"it could not be measured: {error}", file=sys.stderr)
            return FAILED
        except KeyboardInterrupt:
            say("interrupted")
            return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
