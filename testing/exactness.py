"""Was every sample trained on exactly once per epoch? An independent answer, from what the trainer's ranks wrote down.

    python -m testing.exactness OUTPUT_DIR          prints one JSON line; exit code 1 when the ledger is broken

It reads OUTPUT_DIR/ledger/g<generation>-r<rank>.jsonl and result.json, and imports nothing of the trainer. The final weights
come from one line of descent: the generation that finished, back through the (generation, step) that each one resumed from. The
steps on that line count; what a generation did after the checkpoint that the next one resumed from was discarded and done
again. A line is written before its step is finished, so `steps_redone` may count a step that a kill cut off in the middle.
"""

import json
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_HEADER = ("generation", "resumed_step", "resumed_generation", "rank", "world_size", "dataset_size", "global_batch", "epochs")


class LedgerError(ValueError):
    """The ledger cannot be judged; the message says which file or generation, and what is wrong with it."""


@dataclass(frozen=True)
class Verdict:
    """The counts along the line of descent; `problems` says in words what is wrong, empty when nothing is."""

    samples_lost: int
    samples_repeated: int
    steps: int
    steps_redone: int
    generations: int
    samples: int
    problems: list[str] = field(default_factory=list)
    steps_of_other_size: int = 0  # on the line, with more or fewer samples than the global batch
    discarded: dict[int, int] = field(default_factory=dict)  # generation -> its steps that were done again, where there are any
    setbacks: dict[int, dict[int, dict[int, int]]] = field(default_factory=dict)
    """Generation that began behind -> each generation of whose work it threw some away -> by rank, how many steps that one had
    begun. Several, where all were lost and the last checkpoint was older than the last generations."""

    @property
    def exact(self) -> bool:
        return not (self.samples_lost or self.samples_repeated or self.steps_of_other_size or self.problems)


@dataclass(frozen=True)
class _Generation:
    """Records of all ranks of one generation: the header they share, and per step the ids of each rank."""

    number: int
    resumed_step: int
    resumed_generation: int
    world_size: int
    shape: tuple[int, int, int, bool]  # dataset_size, global_batch, epochs, epochs_apart
    steps: dict[int, dict[int, list[list[int]]]]  # step -> rank -> one list of ids per line


def check(output: Path, *, unfinished: tuple[int, int] | None = None) -> Verdict:
    """The verdict on a finished job, or on an unfinished one: (generation, steps done) then says how far it has come.

    Raises LedgerError when there is nothing to judge.
    """
    generations = _read(output / "ledger")
    final = unfinished[0] if unfinished else _final_generation(output)
    if final not in generations:
        raise LedgerError(f"the job ends in generation {final}, of which there is no ledger")
    dataset_size, global_batch, all_epochs, apart = generations[final].shape
    length = dataset_size if apart else dataset_size * all_epochs  # of what is cut into steps
    steps_of_length = -(-length // global_batch)
    total_steps = unfinished[1] if unfinished else steps_of_length * (all_epochs if apart else 1)

    def start_of(step: int) -> int:
        """Its first position in the stream of all epochs."""
        times, number = divmod(step, steps_of_length)
        return times * length + number * global_batch

    total_samples = min(dataset_size * all_epochs, start_of(total_steps))
    epochs = -(-total_samples // dataset_size)  # the last one may be under way
    line = _descent(generations, final, total_steps)
    problems: list[str] = []
    counts = [Counter[int]() for _ in range(epochs)]
    other_size = 0
    for step in range(total_steps):
        ids = _ids_of_step(generations[line[step]], step, problems)
        size = min(start_of(step + 1), total_samples) - start_of(step)
        other_size += len(ids) != size
        _count(ids, start_of(step), size, dataset_size, counts)
    due = [min(dataset_size, total_samples - number * dataset_size) for number in range(epochs)]
    lost = sum(max(0, wanted - len(epoch.keys() & range(dataset_size))) for wanted, epoch in zip(due, counts, strict=True))
    repeated = sum(times - 1 for epoch in counts for times in epoch.values())
    strangers = sorted({number for epoch in counts for number in epoch} - set(range(dataset_size)))
    if strangers:
        problems.append(f"ids that are not in the data set: {strangers[:5]}")
    again = {
        number: [ranks for step, ranks in generation.steps.items() if line.get(step, number) != number]
        for number, generation in sorted(generations.items())
    }
    return Verdict(
        samples_lost=lost,
        samples_repeated=repeated,
        steps=total_steps,
        steps_redone=sum(map(len, again.values())),
        generations=len(set(line.values())),
        samples=sum(epoch.total() for epoch in counts),
        problems=problems[:10],
        steps_of_other_size=other_size,
        discarded={number: len(steps) for number, steps in again.items() if steps},
        setbacks=_setbacks(generations),
    )


def _setbacks(generations: dict[int, _Generation]) -> dict[int, dict[int, dict[int, int]]]:
    found: dict[int, dict[int, dict[int, int]]] = {}
    lines: dict[int, dict[int, int]] = {}  # of each generation: step -> whose work it is, with the steps that it has only begun
    before: dict[int, int] = {}
    for number, generation in sorted(generations.items()):
        resumed = lines.get(generation.resumed_generation, {})
        line = {step: of for step, of in resumed.items() if step < generation.resumed_step}
        for step, of in before.items():
            if line.get(step) != of:
                by_rank = found.setdefault(number, {}).setdefault(of, {})
                for rank in generations[of].steps[step]:
                    by_rank[rank] = by_rank.get(rank, 0) + 1
        before = lines[number] = line | dict.fromkeys(generation.steps, number)
    return found


def _read(folder: Path) -> dict[int, _Generation]:
    files = sorted(folder.glob("g*-r*.jsonl"))
    if not files:
        raise LedgerError(f"{folder} has no ledger: train with --ledger")
    found: dict[int, _Generation] = {}
    for path in files:
        header, lines = _read_file(path)
        facts = _Generation(
            header["generation"],
            header["resumed_step"],
            header["resumed_generation"],
            header["world_size"],
            (header["dataset_size"], header["global_batch"], header["epochs"], bool(header.get("epochs_apart"))),
            {},
        )
        generation = found.setdefault(facts.number, facts)
        if (facts.resumed_step, facts.resumed_generation, facts.world_size, facts.shape) != (
            generation.resumed_step,
            generation.resumed_generation,
            generation.world_size,
            generation.shape,
        ):
            raise LedgerError(f"{path.name}: its header differs from that of another rank of generation {facts.number}")
        for entry in lines:
            generation.steps.setdefault(entry["step"], {}).setdefault(header["rank"], []).append(entry["ids"])
    return found


def _read_file(path: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The header and the whole lines; a last line that a kill cut off is no line."""
    text = path.read_text(encoding="utf-8")
    lines = text.split("\n")[:-1]
    try:
        header, *entries = [json.loads(line) for line in lines]
        missing = [name for name in _HEADER if name not in header]
        if missing or not all("step" in entry and "ids" in entry for entry in entries):
            raise ValueError(f"fields are missing: {missing or 'step or ids'}")
    except ValueError as error:
        raise LedgerError(f"{path} cannot be read: {error}") from error
    return header, entries


def _final_generation(output: Path) -> int:
    try:
        return int(json.loads((output / "result.json").read_text(encoding="utf-8"))["generation"])
    except FileNotFoundError:
        raise LedgerError(f"{output} has no result.json: the job has not finished") from None
    except (ValueError, KeyError, TypeError) as error:
        raise LedgerError(f"{output / 'result.json'} cannot be read: {error}") from error


def _descent(generations: dict[int, _Generation], final: int, total_steps: int) -> dict[int, int]:
    """Which generation's work each step of the final weights is."""
    line: dict[int, int] = {}
    number, stop = final, total_steps
    while True:
        generation = generations.get(number)
        if generation is None:
            raise LedgerError(f"generation {number}, from which a later one resumed, has no ledger")
        if generation.shape != generations[final].shape:
            raise LedgerError(f"generation {number} trained on other data or with another global batch or number of epochs")
        if generation.resumed_step > stop:
            raise LedgerError(f"generation {number} starts after step {generation.resumed_step}, but was resumed from at {stop}")
        line.update(dict.fromkeys(range(generation.resumed_step, stop), number))
        if generation.resumed_step == 0 and generation.resumed_generation == 0:
            return line
        if generation.resumed_generation >= number:
            raise LedgerError(f"generation {number} says that it resumed from generation {generation.resumed_generation}")
        number, stop = generation.resumed_generation, generation.resumed_step


def _ids_of_step(generation: _Generation, step: int, problems: list[str]) -> list[int]:
    """The ids that all ranks trained on in a step, in the order of the ranks."""
    ranks = generation.steps.get(step, {})
    where = f"generation {generation.number}, step {step}"
    if missing := [rank for rank in range(generation.world_size) if rank not in ranks]:
        problems.append(f"{where}: nothing written by rank {', '.join(map(str, missing))} of {generation.world_size}")
    if doubled := [rank for rank, lines in ranks.items() if len(lines) > 1]:
        problems.append(f"{where}: written more than once by rank {', '.join(map(str, doubled))}")
    return [number for rank in sorted(ranks) for ids in ranks[rank] for number in ids]


def _count(ids: list[int], start: int, size: int, dataset_size: int, counts: list[Counter[int]]) -> None:
    """Credit the ids to their epoch. Shares are contiguous and ordered by rank, so an epoch's end cuts a step's list in two."""
    for offset, number in enumerate(ids):
        epoch = min((start + min(offset, size - 1)) // dataset_size, len(counts) - 1)
        counts[epoch][number] += 1


def main(arguments: list[str]) -> int:
    if len(arguments) != 1 or arguments[0].startswith("-"):
        print("usage: python -m testing.exactness OUTPUT_DIR\n\n" + str(__doc__))
        return 0 if arguments in (["-h"], ["--help"]) else 1
    try:
        verdict = check(Path(arguments[0]))
    except LedgerError as error:
        print(json.dumps({"ledger": "broken", "problems": [str(error)]}))
        return 1
    print(json.dumps({"ledger": "exact" if verdict.exact else "broken", **vars(verdict)}))
    return 0 if verdict.exact else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
