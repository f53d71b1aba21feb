"""`python -m trainer.text.train --data /mnt/data/text`: a Llama-style decoder, through ebb/elastic/__init__.py.

    python -m trainer.text /mnt/data/text                                          # makes a corpus of bytes
    python -m trainer.text.train --data /mnt/data/text --output /tmp/lm --size tiny --epochs 1

    python -m ebb.elastic.launch ... --nproc-per-node 8 -m trainer.text.train --data ... --size 7b --shard --recovery memory

    python -m trainer.text /mnt/data/papers --tokenizer llama/tokenizer.json --text papers/*.txt
    python -m trainer.text.train --data /mnt/data/papers --output /tmp/tuned --weights llama --lora 16 --context 1024 --lr 2e-4

The second user of the public API, and an example of it: an optimizer that is not SGD, windows instead of images, gradients that
are clipped, frozen weights that no checkpoint holds. Exit codes are those of `python -m trainer`.
"""

import hashlib
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch

from ebb import elastic
from ebb.elastic import end_process, option, run_program
from ebb.elastic.speed import Speed, SpeedOptions, choose
from trainer.images.schedule import Schedule
from trainer.text.decoder import SIZES, Decoder, DecoderConfig, bits, losses
from trainer.text.flops import FlopMeter, flops_per_token
from trainer.text.lora import Adapters, add_lora, save_adapters
from trainer.text.weights import read, read_config, save
from trainer.text.windows import Windows

PROGRAM = "python -m trainer.text.train"
_VALIDATION_BATCH = 64
_DEFAULT_SIZE = "10m"


@dataclass(frozen=True, kw_only=True)
class TextConfig(elastic.RunConfig, SpeedOptions):
    """A run on text."""

    data: Path = field(metadata={"help": f"folder with train.bin and val.bin; `{PROGRAM.rsplit('.', 1)[0]} DIR` writes them"})
    size: str = option(_DEFAULT_SIZE, "of the network", choices=tuple(SIZES))
    weights: str = option("", "folder with a Llama model as Hugging Face stores it, to go on from, in the place of --size")
    lora: int = option(0, "rank of adapters, which alone are trained and kept; 0: all weights are", low=0)
    context: int = option(0, "tokens of a window; 0: as many as the network takes", low=0)
    shard: bool = option(False, "the processes of a machine hold the network together, each a part of every weight (FSDP2)")
    recompute: bool = option(False, "activation checkpointing: less memory, a third more work")
    export: str = option("", "folder for the weights, or the adapters, as Hugging Face stores them, at the end")
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
        description="Train a language model, exactly: every window once per epoch, whatever machines come and go.",
        epilog=f"example: {PROGRAM} --data /mnt/data/text --output /tmp/lm --size tiny --global-batch 32",
    )


def build(config: TextConfig, speed: Speed) -> tuple[Decoder, Adapters | None]:
    """Raises ConfigError and WeightsError."""
    if config.weights and config.size != _DEFAULT_SIZE:
        raise elastic.ConfigError(f"--size {config.size} and --weights are given: the folder has a size; leave --size out")
    if config.shard and config.export and not config.lora:
        raise elastic.ConfigError(
            f"--shard and --export {config.export} are given, and no process has all weights: leave --export out, and afterwards "
            f"run `python -m ebb.elastic.checkpoint export {config.output} {config.export}/model.safetensors`"
        )
    if config.shard and speed.precision == "fp16":
        raise elastic.ConfigError("--shard with --precision fp16: the scaler knows a part of the gradient alone; use bf16")
    if config.lora and not config.weights:
        raise elastic.ConfigError("--lora is given without --weights: adapters to weights that are random learn nothing")
    if config.weights:
        folder = Path(config.weights)
        network = read(folder, read_config(folder, context=config.context), recompute=config.recompute)
        if not config.lora or speed.precision != "bf16":
            network.float()  # an optimizer's small changes would be lost in 16 bits; frozen weights may stay in them
    else:
        size = SIZES[config.size]
        if config.context > size.context:
            raise elastic.ConfigError(f"--context is {config.context}; --size {config.size} takes {size.context} at most")
        network = Decoder(replace(size, context=config.context or size.context), recompute=config.recompute)
    return network, add_lora(network, rank=config.lora) if config.lora else None


def learn(config: TextConfig, run: elastic.Run) -> None:
    """Train to the end of the last epoch."""
    speed = choose(run.device, "decoder", config, from_all_ranks=run.from_all_ranks)
    run.log(f"speed: {speed}")
    network, adapters = build(config, speed)
    size = network.config
    train, val = (Windows(config.data / f"{part}.bin", context=size.context) for part in ("train", "val"))
    if train.vocabulary > size.vocabulary:
        raise elastic.ConfigError(
            f"--data {config.data} has tokens below {train.vocabulary}; this network knows {size.vocabulary}: make the corpus "
            "with the model's own tokenizer.json, or as bytes for --size"
        )
    model = run.distribute(network, shard=config.shard, speed=speed)
    optimizer = torch.optim.AdamW(
        network.parameter_groups(config.weight_decay), lr=config.lr, betas=(0.9, 0.95), **speed.optimizer_options(run.device)
    )
    scaler = speed.scaler()
    kept: torch.nn.Module = adapters or model
    run.register_state(model=kept, optimizer=optimizer, scaler=scaler, identity={"arch": f"decoder-{digest(size, config)}"})
    schedule = schedule_of(config, len(train))
    meter = FlopMeter(flops_per_token(size, adapters=adapters is not None) * size.context, run.device)
    run.on_progress(lambda progress: run.log(meter.text(progress.samples_per_second, progress.world_size)))
    found: dict[str, float] = {}

    def evaluate() -> dict[str, float]:
        measured = validate(run, network, val)
        run.best(-measured["bits_per_token"], **measured)
        return measured

    for step in run.steps(run.loader(train, seeded=False)):
        if run.evaluation_pending:  # of the epoch that ended before
            found = evaluate()
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
            found = evaluate()

    if run.evaluation_pending:
        found = evaluate()
    found = found or validate(run, network, val)  # resumed when all was done
    run.finish(validation_bits_per_token=round(found["bits_per_token"], 5))
    run.log(f"finished after step {run.step}: {found['bits_per_token']:.4f} bits per token of text that it has not seen")
    if config.export:
        export(config, run, network, adapters)


def export(config: TextConfig, run: elastic.Run, network: Decoder, adapters: Adapters | None) -> None:
    folder = Path(config.export)
    if adapters:
        save_adapters(adapters, folder if run.rank == 0 else None, base=config.weights)
    elif run.rank == 0:
        save(network, folder)
    run.log(f"the {'adapters' if adapters else 'weights'} are in {folder}")


def digest(size: DecoderConfig, config: TextConfig) -> str:
    """A name for a shape: a checkpoint of another one does not fit."""
    tuned = f" weights={config.weights} lora={config.lora}" if config.weights else ""
    return f"{size.layers}x{size.width}-{hashlib.sha256(f'{size}{tuned}'.encode()).hexdigest()[:8]}"


def is_due(config: TextConfig, *, epochs: int) -> bool:
    """True if a validation comes after so many of them."""
    return epochs == config.epochs or (config.evaluate_every > 0 and epochs % config.evaluate_every == 0)


def validate(run: elastic.Run, network: torch.nn.Module, val: Windows) -> dict[str, float]:
    """With a vocabulary of bytes, 8 bits per token is knowing nothing."""

    def measure(batch: list[torch.Tensor]) -> dict[str, torch.Tensor]:
        inputs, targets, _ = batch
        return {"loss": losses(network(inputs), targets).sum()}

    found = run.evaluate(val, measure, batch_size=_VALIDATION_BATCH, seeded=False)
    return {"bits_per_token": bits(found["loss"])}


def schedule_of(config: TextConfig, dataset_size: int) -> Schedule:
    total = dataset_size * config.epochs
    return Schedule(kind="cosine", peak=config.lr, total_samples=total, warmup_samples=round(min(1.0, config.warmup) * total))


def main(arguments: list[str]) -> int:
    """The process's edge: errors become sentences and exit codes."""
    return run_program(arguments, parse, learn)


if __name__ == "__main__":
    end_process(main(sys.argv[1:]))
