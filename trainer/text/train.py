"""`python -m trainer.text.train --data /mnt/data/text`: a small GPT on bytes, through ebb/elastic/__init__.py.

    python -m trainer.text /mnt/data/text                                          # makes the corpus
    python -m trainer.text.train --data /mnt/data/text --output /tmp/gpt --size tiny --epochs 1

The second user of the public API, and an example of it: an optimizer that is not SGD, windows instead of images, gradients that
are clipped. Exit codes are those of `python -m trainer`.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch

from ebb import elastic
from ebb.elastic import end_process, option, run_program
from ebb.elastic.speed import SpeedOptions, choose
from trainer.images.schedule import Schedule
from trainer.text.gpt import SIZES, Gpt, bits_per_byte, losses
from trainer.text.windows import Windows

PROGRAM = "python -m trainer.text.train"
_VALIDATION_BATCH = 64


@dataclass(frozen=True, kw_only=True)
class TextConfig(elastic.RunConfig, SpeedOptions):
    """A run on text."""

    data: Path = field(metadata={"help": f"folder with train.bin and val.bin; `{PROGRAM.rsplit('.', 1)[0]} DIR` writes them"})
    size: str = option("small", "of the network", choices=tuple(SIZES))
    epochs: int = option(1, "how often every window is used", low=1)
    lr: float = option(1e-3, "peak learning rate; a cosine brings it to zero", low=0.0)
    weight_decay: float = option(0.1, "weight decay of AdamW, for matrices", low=0.0)
    warmup: float = option(0.02, "share of all samples until the peak learning rate is reached", low=0.0)
    clip: float = option(1.0, "largest norm of a step's gradient", low=0.0)
    evaluate_every: int = option(1, "epochs between two validations; the last epoch always has one; 0: it alone", low=0)


def parse(arguments: list[str], environment: Mapping[str, str]) -> TextConfig:
    """Raises ConfigError; `--help` prints and raises SystemExit(0)."""
    return elastic.parse(
        TextConfig,
        arguments,
        environment,
        program=PROGRAM,
        description="Train a small GPT on bytes, exactly: every window once per epoch, whatever machines come and go.",
        epilog=f"example: {PROGRAM} --data /mnt/data/text --output /tmp/gpt --size tiny --global-batch 32",
    )


def learn(config: TextConfig, run: elastic.Run) -> None:
    """Train to the end of the last epoch."""
    size = SIZES[config.size]
    train, val = (Windows(config.data / f"{part}.bin", context=size.context) for part in ("train", "val"))
    speed = choose(run.device, "gpt", config, from_all_ranks=run.from_all_ranks)
    run.log(f"speed: {speed}")
    network = Gpt(size)
    model = run.distribute(network, speed=speed)
    optimizer = torch.optim.AdamW(
        network.parameter_groups(config.weight_decay), lr=config.lr, betas=(0.9, 0.95), **speed.optimizer_options(run.device)
    )
    scaler = speed.scaler()
    run.register_state(model=model, optimizer=optimizer, scaler=scaler, identity={"arch": f"gpt-{config.size}"})
    schedule = schedule_of(config, len(train))
    bits: dict[str, float] = {}

    def evaluate() -> dict[str, float]:
        found = validate(run, network, val)
        run.best(-found["bits_per_byte"], **found)
        return found

    for step in run.steps(run.loader(train, seeded=False)):
        if run.evaluation_pending:  # of the epoch that ended before
            bits = evaluate()
        for group in optimizer.param_groups:
            group["lr"] = schedule.rate(start=step.samples.start, stop=step.samples.stop)
        for inputs, targets, _ in step:
            with step.within_memory():
                step.backward(losses(model(inputs), targets).mean(), scaler=scaler)
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(network.parameters(), config.clip)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)
        if step.ends_epoch and is_due(config, epochs=step.samples.stop // len(train)):
            bits = evaluate()

    if run.evaluation_pending:
        bits = evaluate()
    bits = bits or validate(run, network, val)  # resumed when all was done
    run.finish(validation_bits_per_byte=round(bits["bits_per_byte"], 5))
    run.log(f"finished after step {run.step}: {bits['bits_per_byte']:.4f} bits per byte of text that it has not seen")


def is_due(config: TextConfig, *, epochs: int) -> bool:
    """True if a validation comes after so many of them."""
    return epochs == config.epochs or (config.evaluate_every > 0 and epochs % config.evaluate_every == 0)


def validate(run: elastic.Run, network: torch.nn.Module, val: Windows) -> dict[str, float]:
    """8 bits per byte is knowing nothing."""

    def measure(batch: list[torch.Tensor]) -> dict[str, torch.Tensor]:
        inputs, targets, _ = batch
        return {"loss": losses(network(inputs), targets).sum()}

    found = run.evaluate(val, measure, batch_size=_VALIDATION_BATCH, seeded=False)
    return {"bits_per_byte": bits_per_byte(found["loss"])}


def schedule_of(config: TextConfig, dataset_size: int) -> Schedule:
    total = dataset_size * config.epochs
    return Schedule(kind="cosine", peak=config.lr, total_samples=total, warmup_samples=round(min(1.0, config.warmup) * total))


def main(arguments: list[str]) -> int:
    """The process's edge: errors become sentences and exit codes."""
    return run_program(arguments, parse, learn)


if __name__ == "__main__":
    end_process(main(sys.argv[1:]))
