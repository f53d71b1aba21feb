"""`python -m trainer`: a network of torchvision on an image folder, through trainer/elastic.py.

Exit codes (trainer/contract.py): 0 trained to the end; 1 the program failed; 138 left at a step boundary after a notice, with
a checkpoint of that step on the disk; 75, for the launcher only: another rank vanished, meet the others again.
"""

import os
import sys
import traceback

import torch
from torch.nn.functional import cross_entropy

from trainer import elastic
from trainer.checkpoint import RefusedError
from trainer.contract import EXIT_FINISHED, EXIT_PEER_LOST, EXIT_PROGRAM_FAILED, EXIT_RECLAIMED
from trainer.data import DataError, Images, open_source
from trainer.data.augment import normalise
from trainer.notices.notice import Notice, install
from trainer.vision import models
from trainer.vision.config import TrainConfig, parse
from trainer.vision.feed import Feed
from trainer.vision.schedule import Schedule


def main(arguments: list[str]) -> int:
    """The process's edge: errors become sentences and exit codes."""
    notice = install()
    try:
        config = parse(arguments, os.environ)
        notice.leave_within(config.leave_seconds, EXIT_PEER_LOST)
        return train(config, notice)
    except (elastic.ConfigError, models.UnknownModelError, DataError, RefusedError) as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        return EXIT_PROGRAM_FAILED
    except Exception:  # whatever the program raised: its code must be 1 under any launcher
        traceback.print_exc()
        return EXIT_PROGRAM_FAILED


def train(config: TrainConfig, notice: Notice) -> int:
    """Train this rank's part; returns the exit code. Raises the errors of settings, data and checkpoints."""
    try:
        with elastic.start(config, notice=notice) as run:
            _train(config, run)
    except elastic.Left:
        return EXIT_RECLAIMED
    return EXIT_FINISHED


def _train(config: TrainConfig, run: elastic.Run) -> None:
    with run.rank_zero_first():
        train_set, val_set = (_open(config, run, part) for part in ("train", "val"))
    fingerprint = train_set.source.fingerprint
    feed = Feed.choose(config, train_set, run.device, world_size=run.world_size, say=run.say)
    loader = run.loader(train_set, workers=feed.workers, advice=feed.advice, fingerprint=fingerprint, seeded=False)

    model = run.distribute(models.build(config.arch, len(train_set.classes), config.image_size))
    optimizer = torch.optim.SGD(model.parameters(), lr=config.lr, momentum=config.momentum, weight_decay=config.weight_decay)
    schedule = _schedule(config, len(train_set))
    run.keep(
        model=model,
        optimizer=optimizer,
        identity={"arch": config.arch, "image_size": config.image_size, "data": fingerprint[:16]},
    )

    for step in run.steps(loader):
        for group in optimizer.param_groups:
            group["lr"] = schedule.rate(start=step.samples.start, stop=step.samples.stop)
        for images, labels, _ in step:
            scores = model(normalise(images, run.device))
            step.backward(cross_entropy(scores, labels, label_smoothing=config.label_smoothing))
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    def right_answers(batch: list[torch.Tensor]) -> dict[str, torch.Tensor]:
        images, labels, _ = batch
        return {"accuracy": (model(normalise(images, run.device)).argmax(1) == labels).sum()}

    found = run.evaluate(val_set, right_answers, workers=feed.workers, seeded=False)
    run.finish(test_accuracy=round(found["accuracy"], 5), test_samples=int(found["samples"]))
    run.say(f"finished after step {run.step}: test accuracy {found['accuracy']:.4f} on {found['samples']:.0f} images")


def _open(config: TrainConfig, run: elastic.Run, part: str) -> Images:
    source = open_source(config.data / part, config.output, say=print if run.rank == 0 else None)
    augment = config.augment if part == "train" else "none"
    return Images(source, image_size=config.image_size, augment=augment, seed=config.seed)


def _schedule(config: TrainConfig, dataset_size: int) -> Schedule:
    total = dataset_size * config.epochs
    warmup = min(total, round(config.warmup_epochs * dataset_size))
    return Schedule(kind="cosine", peak=config.lr, total_samples=total, warmup_samples=warmup)
