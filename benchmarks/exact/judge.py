"""Which promises a history kept: every sample once, the same batch, little done again, the same result. Pure but for reading.

findings = judge(history, played, reference)      # findings.problems is empty when all are kept
"""

import json
import math
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.exact import watch
from benchmarks.exact.history import KILLS, SHORTEST, History
from benchmarks.exact.play import CHECKPOINT_SECONDS, FINISHED, RECLAIMED, Played
from testing import exactness as ledger

# Of the loss of each step, in nats, and of the validation at the end: bits per token, or accuracy. At another world size only
# the order of sums differs. Undisturbed runs of the text model on 1 and 4 ranks differed by 0.00001 at most, the last digit that
# is written, at any of 222 steps, and the bits per token not at all (2026-11-26). Ten times that.
TOLERANCE = 0.0001
# What is trained while a checkpoint is on its way to a disk that two cores and other jobs share.
_WRITE_SECONDS = 1.0


@dataclass(frozen=True, kw_only=True)
class Result:
    """The result of a job."""

    validation: float  # accuracy, or bits per token
    losses: dict[str, float]  # by step
    sha256: str

    @classmethod
    def read(cls, output: Path) -> "Result":
        found = json.loads((output / "result.json").read_text())
        validation = found.get("test_accuracy", found.get("validation_bits_per_token"))
        return cls(validation=validation, losses=watch.losses(output), sha256=found["weights_sha256"])


@dataclass(kw_only=True)
class Findings:
    """Results of one history; `problems` in words."""

    seed: int
    recovery: str
    agents: bool
    virtual: bool
    events: list[str]
    worlds: list[int]
    generations: int
    samples: int
    samples_lost: int
    samples_repeated: int
    steps: int
    steps_redone: int
    most_redone: int  # at once
    validation_off: float
    losses_missing: int
    loss_off: float  # at the step where it is most
    bit_identical: bool
    pids_kept: int
    pids_lost: int
    checkpoints_read: int
    left_behind: int  # machines that lived and were taken for dead
    seconds: float
    problems: list[str] = field(default_factory=list)

    def json(self) -> dict[str, Any]:
        return asdict(self)


def interval_steps(step_seconds: float) -> int:
    """The most steps between two checkpoints on the disk, and the one that was cut off."""
    return math.ceil((CHECKPOINT_SECONDS + _WRITE_SECONDS) / step_seconds) + 1


def judge(history: History, played: Played, reference: Result) -> Findings:
    """Raises ledger.LedgerError when there is nothing to judge."""
    verdict, result = ledger.check(played.output), Result.read(played.output)
    findings = Findings(
        seed=history.seed,
        recovery=history.recovery,
        agents=history.agents,
        virtual=history.virtual,
        events=list(played.events),
        worlds=[size * history.processes for size in history.sizes()][: len(played.events) + 1],
        generations=verdict.generations,
        samples=verdict.samples,
        samples_lost=verdict.samples_lost,
        samples_repeated=verdict.samples_repeated,
        steps=verdict.steps,
        steps_redone=verdict.steps_redone,
        most_redone=max(map(_steps_of, verdict.setbacks.values()), default=0),
        validation_off=round(abs(result.validation - reference.validation), 5),
        losses_missing=verdict.steps - len(result.losses),
        loss_off=round(max((abs(loss - reference.losses[step]) for step, loss in result.losses.items()), default=0.0), 5),
        bit_identical=result.sha256 == reference.sha256,
        pids_kept=played.pids_kept,
        pids_lost=played.pids_lost,
        checkpoints_read=played.checkpoints_read,
        left_behind=played.left_behind,
        seconds=round(played.seconds, 1),
    )
    findings.problems = [
        *_of_samples(verdict),
        *_of_steps(played, verdict),
        *(_of_memory(played, verdict) if history.recovery == "memory" else []),
        *_of_result(findings),
        *_of_machines(played),
    ]
    return findings


def _of_samples(verdict: ledger.Verdict) -> list[str]:
    found = list(verdict.problems)
    if verdict.samples_lost or verdict.samples_repeated:
        found.append(f"{verdict.samples_lost} samples lost, {verdict.samples_repeated} repeated")
    if verdict.steps_of_other_size:
        found.append(f"{verdict.steps_of_other_size} steps with more or fewer samples than the global batch")
    return found


def _of_steps(played: Played, verdict: ledger.Verdict) -> list[str]:
    """Only losses may cost steps: each the work since the last checkpoint, which may be that of several generations."""
    kills, limit = sum(event in KILLS for event in played.events), interval_steps(played.step_seconds)
    losses = kills + played.left_behind
    redone = {generation: _steps_of(thrown_away) for generation, thrown_away in verdict.setbacks.items()}
    found = [
        f"generation {generation}: {steps} steps done again, more than the {limit} of a checkpoint interval"
        for generation, steps in redone.items()
        if steps > limit
    ]
    if len(redone) > losses:
        found.append(
            f"{len(redone)} generations did steps again, but there were {kills} kills"
            f"{f' and {played.left_behind} machines taken for dead' if played.left_behind else ''}: {redone}"
        )
    return found


def _steps_of(thrown_away: dict[int, dict[int, int]], killed: frozenset[tuple[int, int]] = frozenset()) -> int:
    """All ranks of a generation begin with the same step, so those that any has begun are those of the rank with the most; of the
    ranks that were not killed, where there are any."""
    return sum(
        max(
            (steps for rank, steps in by_rank.items() if (generation, rank) not in killed),
            default=max(by_rank.values()),
        )
        for generation, by_rank in thrown_away.items()
    )


def _of_memory(played: Played, verdict: ledger.Verdict) -> list[str]:
    """A process that is left keeps its state, and does at most the step under way again: only where none was left is a checkpoint
    read, and more done again."""
    found, nobody_left = [], played.nobody_left
    if played.pids_lost:
        found.append(f"{played.pids_lost} processes that no event had hit were not there any more")
    if played.needlessly_read:
        found.append(f"{played.needlessly_read} checkpoints were read while processes were there that had trained")
    # A killed rank may have begun a step that no other had, as it had the sum of the one before and nobody else had: that sum
    # died with it. So those that lived on are asked, where there are any.
    again = {generation: _steps_of(thrown_away, played.killed) for generation, thrown_away in verdict.setbacks.items()}
    more = {generation: steps for generation, steps in again.items() if steps > 1}
    if len(more) > nobody_left:
        found.append(f"more than the step under way was done again: {more}, but nobody was left only {nobody_left} times")
    return found


def _of_result(findings: Findings) -> list[str]:
    """A step that is saved by what a kill left of a generation has no line of its loss."""
    found, kills = [], sum(event in KILLS for event in findings.events)
    if findings.losses_missing > kills:
        found.append(f"the losses of {findings.losses_missing} steps are not written down, but there were {kills} kills")
    if findings.virtual and not findings.bit_identical:
        found.append("the weights are not those of the undisturbed run, bit for bit")
    for name, off in (("the validation", findings.validation_off), ("the loss of a step", findings.loss_off)):
        if off > TOLERANCE:
            found.append(f"{name} is {off} off the undisturbed run's, more than {TOLERANCE}")
    return found


def _of_machines(played: Played) -> list[str]:
    found = [f"a machine ended with {code}" for code in played.codes if code not in (FINISHED, RECLAIMED)]
    if len(played.events) < SHORTEST:
        found.append(f"the job ended after {len(played.events)} events, fewer than {SHORTEST}")
    return found
