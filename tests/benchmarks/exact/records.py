"""A finished job's output as the trainer leaves it, written by hand: 12 samples, 2 epochs, 4 a step, two generations."""

import json
from pathlib import Path
from typing import Any

SHAPE = {"dataset_size": 12, "global_batch": 4, "epochs": 2}
STEPS = [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]] * 2


def write(
    output: Path,
    *,
    redone: int = 0,
    accuracy: float = 1.0,
    loss: float = 0.1,
    sha256: str = "a" * 64,
    generations: int = 2,
    finished: bool = True,
) -> Path:
    """Generation 1 (two ranks) reaches step 3 and `redone` steps more; generation 2 (one rank) goes on after step 3."""
    generation(output, 1, 2, (0, 0), range(3 + redone))
    if generations == 2:
        generation(output, 2, 1, (1, 3), range(3, 6))
    if not finished:
        return output
    result = {"generation": 2, "test_accuracy": accuracy, "weights_sha256": sha256, "epochs": 2}
    (output / "result.json").write_text(json.dumps(result))
    lines = [{"step": step + 1, "loss": loss} for step in range(6)]
    (output / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return output


def generation(output: Path, number: int, world_size: int, resumed: tuple[int, int], steps: range) -> None:
    """Its ledger; `resumed` is (generation, step)."""
    (output / "ledger").mkdir(parents=True, exist_ok=True)
    for rank in range(world_size):
        header: dict[str, Any] = {"generation": number, "rank": rank, "world_size": world_size, **SHAPE}
        header |= {"resumed_generation": resumed[0], "resumed_step": resumed[1]}
        share = len(STEPS[0]) // world_size
        lines = [{"step": step, "time": float(step), "ids": STEPS[step][rank * share :][:share]} for step in steps]
        text = "".join(json.dumps(line) + "\n" for line in [header, *lines])
        (output / "ledger" / f"g{number}-r{rank}.jsonl").write_text(text)
