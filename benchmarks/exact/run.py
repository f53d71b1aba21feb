"""All histories, several at a time: what is drawn is played, judged and kept; then the sums of the last line.

figures, problems = run(settings)
"""

import contextlib
import json
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import as_completed
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.exact import pictures, planted, watch, words
from benchmarks.exact.etcd import etcd
from benchmarks.exact.history import KILLS, LONGEST, RECOVERIES, SHORTEST, History, Recovery, Shape, draw, draw_recovery
from benchmarks.exact.judge import Findings, Result, judge
from benchmarks.exact.machines import Forked, Fresh, side_by_side, until
from benchmarks.exact.play import PATIENCE_SECONDS, BrokenError, Play, Played, Stage, job_environment, training
from benchmarks.exact.records import Records, fingerprint
from devcluster.commands import say
from devcluster.settings import EBB_HOME
from testing.exactness import LedgerError

# What the processes of a machine import: torch takes seconds. Those that there are no more are passed over.
PRELOADED = (
    "trainer.images.train",
    "trainer.text.train",
    "ebb.elastic.launch.node_agent",
    "ebb.elastic.launch.agent",
    "ebb.elastic.rendezvous.handler",
    "torch.distributed.run",
)
# Three histories of ten are played with virtual workers: they take several times as long.
VIRTUAL = (1, 3, 6)
VIRTUAL_OF = 10
# By agents and virtual; about 5 steps each: so long that the events of almost every history happen before the end.
EPOCHS = {(False, False): 12, (False, True): 8, (True, False): 24, (True, True): 18}
Figures = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Options of the command line. `resume`: histories that are done with this code are not played again. `events`: of each
    history; None: three to five."""

    first: int
    histories: int
    recovery: Recovery | None  # None: of each history drawn
    events: int | None
    agents: int
    at_once: int
    resume: bool
    folder: Path


@dataclass
class Totals:
    """Sums over the histories that are done."""

    findings: list[Findings] = field(default_factory=list)
    broken: dict[int, list[str]] = field(default_factory=dict)

    def figures(self) -> Figures:
        """Of all, and of each way to recover."""
        parts = {way: [each for each in self.findings if each.recovery == way] for way in RECOVERIES}
        ways = {way: _sums(found) | _of_processes(found) for way, found in parts.items() if found}
        return _sums(self.findings) | {"recovery": ways}


def _of_processes(found: Sequence[Findings]) -> Figures:
    return {
        "pids_kept": sum(each.pids_kept for each in found),
        "pids_lost": sum(each.pids_lost for each in found),
        "checkpoints_read": sum(each.checkpoints_read for each in found),
        "left_behind": sum(each.left_behind for each in found),
    }


def _sums(found: Sequence[Findings]) -> Figures:
    kinds = Counter(event for each in found for event in each.events)
    virtual = [each for each in found if each.virtual]
    return {
        "histories": len(found),
        "agent_histories": sum(each.agents for each in found),
        "events": kinds.total(),
        "joins": kinds["join"],
        "notices": kinds["notice"],
        "kills": sum(kinds[kind] for kind in KILLS),
        "kills_by_kind": {kind: kinds[kind] for kind in KILLS},
        "samples": sum(each.samples for each in found),
        "samples_lost": sum(each.samples_lost for each in found),
        "samples_repeated": sum(each.samples_repeated for each in found),
        "steps": sum(each.steps for each in found),
        "steps_redone": sum(each.steps_redone for each in found),
        "most_redone_at_once": max((each.most_redone for each in found), default=0),
        "virtual_histories": len(virtual),
        "bit_identical": sum(each.bit_identical for each in virtual) if virtual else None,
        "validation_off_most": max((each.validation_off for each in found), default=0.0),
        "loss_off_most": max((each.loss_off for each in found), default=0.0),
        "worlds": dict(sorted(Counter(world for each in found for world in each.worlds).items())),
    }


class Proof:
    """One run of the command."""

    def __init__(self, settings: Settings, stage: Stage, records: Records) -> None:
        self._settings, self._stage, self._records = settings, stage, records
        self._lock = threading.Lock()
        self._references: dict[tuple[Shape, bool, int], threading.Lock] = {}
        self.totals = Totals()

    def play_all(self, histories: Sequence[History]) -> None:
        """One line is told as each ends. Those that take longest come first, so that nobody waits for one of them at the end."""
        missing = sorted((history for history in histories if not self._is_done(history)), key=lambda history: not history.agents)
        if len(missing) < len(histories):
            say(f"{len(histories) - len(missing)} histories are done already: {self._records.path}")
        with side_by_side(self._settings.at_once) as pool:
            waiting = {pool.submit(self.one, history): history for history in missing}
            for number, future in enumerate(as_completed(waiting), 1):
                future.result()
                say(f"{number} of {len(missing)} done: {self._summarize(waiting[future])}")

    def one(self, history: History) -> None:
        """Play, judge, keep."""
        folder = self._settings.folder / history.name
        try:
            played = self._play(history, folder)
            epochs = json.loads((played.output / "result.json").read_text())["epochs"]
            reference = self.reference(history, epochs)
            findings = judge(history, played, reference)
            findings.problems += [f"the checker did not find a planted fault: {fault}" for fault in self._planted(played, folder)]
        except (BrokenError, LedgerError) as error:
            with self._lock:
                self.totals.broken[history.seed] = [str(error)]
            return
        with self._lock:
            self.totals.findings.append(findings)
            if findings.problems:
                self.totals.broken[history.seed] = findings.problems
                return
            self._records.keep(_key(history), findings.json())
        shutil.rmtree(folder)

    def reference(self, history: History, epochs: int) -> Result:
        """Run the same job alone and undisturbed, and return its result."""
        shape = history.shape
        with self._lock:
            lock = self._references.setdefault((shape, history.virtual, epochs), threading.Lock())
        with lock:
            key = f"reference {shape.name} virtual={history.virtual} epochs={epochs}"
            if kept := self._records.get(key):
                return Result(**kept)
            result = self._undisturbed(history, epochs)
            with self._lock:
                self._records.keep(key, vars(result))
            return result

    def _play(self, history: History, folder: Path) -> Played:
        """Once more with more epochs when the job had finished before enough had happened."""
        least = epochs = EPOCHS[history.agents, history.virtual] * -(-len(history.events) // LONGEST)
        enough = self._settings.events or SHORTEST
        while True:
            shutil.rmtree(folder, ignore_errors=True)
            played = Play(history, self._stage, folder, epochs=epochs).run()
            if len(played.events) >= enough or epochs > 4 * least:
                return played
            epochs *= 2

    def _undisturbed(self, history: History, epochs: int) -> Result:
        output = self._settings.folder / f"alone-{history.shape.name}-{epochs}" / "output"
        shutil.rmtree(output.parent, ignore_errors=True)  # of one that did not come to its end
        output.mkdir(parents=True)
        arguments = ["--standalone", *training(self._stage, history, epochs=epochs)]
        alone = self._stage.forked.start(arguments, job_environment(output), output / "machine.log")
        ended = until(lambda: alone.code is not None, PATIENCE_SECONDS, progress=watch.LastStep(output).look)
        if not ended or alone.code:
            alone.kill()
            raise BrokenError(f"the undisturbed run ended with {alone.code}; the end of {alone.log} says why")
        result = Result.read(output)
        shutil.rmtree(output.parent)
        return result

    def _planted(self, played: Played, folder: Path) -> list[planted.Fault]:
        return planted.missed_faults(played.output, folder / "planted")

    def _is_done(self, history: History) -> bool:
        kept = self._records.get(_key(history)) if self._settings.resume else None
        if kept is None:
            return False
        self.totals.findings.append(Findings(**kept))
        return True

    def _summarize(self, history: History) -> str:
        where = f"{history.recovery}, {'agents' if history.agents else 'forked'}{', virtual' if history.virtual else ''}"
        found = next((each for each in self.totals.findings if each.seed == history.seed), None)
        if history.seed in self.totals.broken:
            return f"seed {history.seed} ({where}) BROKEN: {'; '.join(self.totals.broken[history.seed])}"
        assert found is not None
        return (
            f"seed {history.seed} ({where}): {', '.join(found.events)}; "
            f"{found.generations} generations, {found.steps_redone} steps redone, {found.seconds:.0f} s"
        )


def histories(settings: Settings) -> list[History]:
    """`agents` of them, spread evenly, are played on launchers from nothing."""
    count, found = settings.histories, []
    for number in range(count):
        seed = settings.first + number
        agents = (number + 1) * settings.agents // count > number * settings.agents // count
        recovery = settings.recovery or draw_recovery(seed)
        virtual = seed % VIRTUAL_OF in VIRTUAL
        found.append(draw(seed, agents=agents, virtual=virtual, recovery=recovery, events=settings.events))
    return found


def run(settings: Settings) -> tuple[Figures, dict[int, list[str]]]:
    """The figures, and what was broken by seed."""
    records = Records.open(EBB_HOME / "exact", fingerprint())
    with _counted(records, settings) as seconds, _stage(settings) as stage:
        proof = Proof(settings, stage, records)
        proof.play_all(histories(settings))
    return proof.totals.figures() | {"seconds": round(seconds(), 1)}, proof.totals.broken


@contextlib.contextmanager
def _counted(records: Records, settings: Settings) -> Iterator[Callable[[], float]]:
    """Count the seconds of this run and of the interrupted ones before it."""
    began, key = time.monotonic(), f"seconds of {settings.histories} histories, {settings.recovery} {settings.events}"
    before = (records.get(key) or {}).get("seconds", 0.0) if settings.resume else 0.0

    def seconds() -> float:
        return float(before + time.monotonic() - began)

    try:
        yield seconds
    finally:
        if settings.resume:
            records.keep(key, {"seconds": seconds()})


@contextlib.contextmanager
def _stage(settings: Settings) -> Iterator[Stage]:
    pictures.write(settings.folder / "data" / "pictures")
    words.write(settings.folder / "data" / "words")
    with etcd(settings.folder) as endpoint, Forked(PRELOADED, settings.folder / "host.log") as forked:
        yield Stage(data=settings.folder / "data", endpoint=endpoint, fresh=Fresh(), forked=forked)


def _key(history: History) -> str:
    kind = f"recovery={history.recovery} agents={history.agents} virtual={history.virtual}"
    return f"history {history.seed} {kind} events={len(history.events)}"
