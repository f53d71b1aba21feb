"""Train and validate a network on images: the program behind `python -m trainer` and `python -m trainer.images`.

    with elastic.start(config) as run:
        learn(config, run)

Read learn() from top to bottom; what follows it are its parts. The loss is that of every sample by itself: the caller weighs them
by 1/G, so that uneven shares of a step add up to its mean. Exit codes are those of ebb.elastic.run_program.
Shapes: N samples of one forward pass, K classes.
"""

import contextlib
import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import torch
from torch.nn.functional import cross_entropy

from ebb import elastic
from ebb.elastic import Notice, run_program, run_rank
from ebb.elastic.data import Images, NodeCache, Sample, normalise, open_source
from ebb.elastic.report import Curves, EventFile, Labelled, append, save_images, spread
from ebb.elastic.speed import CompileCache, Speed, choose
from trainer.images import config as defaults
from trainer.images import models
from trainer.images.average import WeightAverage
from trainer.images.feed import Feed
from trainer.images.mixup import Mixed, Mixup
from trainer.images.options import VisionConfig, fixed
from trainer.images.schedule import Schedule

_VALIDATION_BATCH = 256


def learn(config: VisionConfig, run: elastic.Run) -> None:
    """Train to the end of the last epoch. Raises the errors of settings, data and checkpoints, and elastic.GracefulExit."""
    config = settle(config, run)
    data = Data.open(config, run)
    speed = speed_of(config, run)
    network = models.build(config.arch, len(data.train.classes), config.image_size)
    cache = CompileCache(run.output / "compiled", run.device) if speed.compiled else None
    model = run.distribute(network, speed=speed, cache=cache)
    optimizer = torch.optim.SGD(
        model.parameters(),
        lr=config.lr,
        momentum=config.momentum,
        weight_decay=config.weight_decay,
        **speed.optimizer_options(run.device),
    )
    scaler = speed.scaler()
    average = WeightAverage(network, decay=config.ema, every=config.ema_every) if config.ema else None
    others: dict[str, Any] = {"scaler": scaler}  # on any machine: the job may move to one that needs it
    if average:
        others |= {"average": average, "evaluated": average.weights}
    run.register_state(model=model, optimizer=optimizer, identity=identity(config, data), **others)
    schedule = schedule_of(config, len(data.train))
    mixup = Mixup(alpha=config.mixup, seed=config.seed)
    evaluator = Evaluator(config=config, run=run, data=data, network=network, speed=speed, average=average)
    with contextlib.closing(TrainingLog(config, run, optimizer, cache)) as log:
        for step in run.steps(data.loader(run, together=mixup.together)):
            log.begin(step.number)
            if run.evaluation_pending:
                log.validation(evaluator, step.number)  # of the step before, in which a notice came
            for group in optimizer.param_groups:
                group["lr"] = schedule.rate(start=step.samples.start, stop=step.samples.stop)
            for images, labels, _ in step:
                with step.within_memory():
                    mixed = mixup.mixed(normalise(images, run.device), labels, step=step.samples, own=step.piece)
                    scores = model(speed.laid_out(mixed.images_NCHW))
                    step.backward(mixed_losses(scores, mixed, label_smoothing=config.label_smoothing).mean(), scaler=scaler)
                    step.add(**right_answers(scores, labels))
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad(set_to_none=True)
            if average:
                average.update(step.number + 1)
            if step.ends_epoch and evaluator.is_due(step.number + 1):
                log.validation(evaluator, step.number + 1)
        if run.evaluation_pending:
            log.begin(run.step)
            log.validation(evaluator, run.step)

    found = evaluator.found or evaluator.validate()  # resumed when all was done
    run.finish(test_accuracy=round(found["top1"], 5), test_samples=int(found["samples"]))
    run.log(f"finished after step {run.step}: test accuracy {found['top1']:.4f} on {found['samples']:.0f} images")


def settle(config: VisionConfig, run: elastic.Run) -> VisionConfig:
    """Rank 0 says how large a step is, so that nobody can read something else from a folder that changes."""
    chosen, why = fixed(config) if run.rank == 0 else (config, "")
    facts = run.from_rank_zero({"global_batch": chosen.global_batch, "max_micro_batch": chosen.max_micro_batch})
    run.config = config = dataclasses.replace(config, **facts)
    run.log(f"{why}; at most {config.max_micro_batch} in one pass of a process")
    backend = "nccl" if run.device.type == "cuda" else "gloo"
    if config.dist_backend not in ("auto", backend):
        run.log(f"--dist-backend {config.dist_backend} is not used: on the {run.device.type} it is {backend}")
    return config


def speed_of(config: VisionConfig, run: elastic.Run) -> Speed:
    """The same on all ranks. Where the bits must be the same nothing is tuned."""
    if config.virtual_workers:
        return Speed(device_type=run.device.type, why="virtual workers: the same bits everywhere")
    speed = choose(run.device, config.arch, config, from_all_ranks=run.from_all_ranks)
    run.log(f"speed: {speed}")
    return speed


def identity(config: VisionConfig, data: "Data") -> dict[str, Any]:
    """The facts that a checkpoint must have in common with this run."""
    found = {"arch": config.arch, "image_size": config.image_size, "data": data.fingerprint[:16]}
    return {**found, "ema": config.ema} if config.ema else found


def schedule_of(config: VisionConfig, dataset_size: int) -> Schedule:
    return Schedule.of_epochs(
        config.schedule,
        peak=config.lr,
        dataset_size=dataset_size,
        epochs=config.epochs,
        warmup_epochs=min(config.warmup_epochs, config.epochs),
    )


@dataclass(frozen=True, kw_only=True)
class Data:
    """Training and validation images, and how they are read."""

    train: Images
    val: Images
    feed: Feed
    fingerprint: str

    @classmethod
    def open(cls, config: VisionConfig, run: elastic.Run) -> Self:
        with run.rank_zero_first():  # it lists the folder, the others find its list
            train, val = (_open(config, run, part) for part in ("train", "val"))
        feed = Feed.choose(config, train, run.device, world_size=run.world_size, say=run.log)
        return cls(train=train, val=val, feed=feed, fingerprint=train.source.fingerprint)

    def loader(self, run: elastic.Run, *, together: int) -> elastic.Loader:
        return run.loader(
            self.train,
            workers=self.feed.workers,
            advice=self.feed.advice,
            fingerprint=self.fingerprint,
            seeded=False,
            together=together,
        )


def _open(config: VisionConfig, run: elastic.Run, part: str) -> Images:
    cache = NodeCache.of(config.cache_gib) if config.cache_gib else None
    source = open_source(config.data / part, config.output, say=print if run.rank == 0 else None, cache=cache)
    augment = config.augment if part == "train" else "none"
    return Images(source, image_size=config.image_size, augment=augment, seed=config.seed)


@dataclass(kw_only=True)
class Evaluator:
    """Validations of the present weights, or of their average."""

    config: VisionConfig
    run: elastic.Run
    data: Data
    network: torch.nn.Module
    speed: Speed
    average: WeightAverage | None
    found: dict[str, float] = field(default_factory=dict)  # by the last validation

    def epoch(self, step: int) -> int:
        """So many are done after so many steps."""
        total = self.config.epochs * len(self.data.train)
        return min(step * self.config.global_batch, total) // len(self.data.train)

    def is_due(self, step: int) -> bool:
        epoch, every = self.epoch(step), self.config.evaluate_every
        return epoch == self.config.epochs or (every > 0 and epoch % every == 0)

    def validate(self) -> dict[str, float]:
        """Over all ranks: loss, top1, top5 (from 0 to 1), samples."""
        with self.speed.uncompiled():
            self.found = self.run.evaluate(
                self.data.val, self._measure, batch_size=_VALIDATION_BATCH, workers=self.data.feed.workers, seeded=False
            )
        return self.found

    def _measure(self, batch: list[torch.Tensor]) -> dict[str, torch.Tensor]:
        images, labels, _ = batch
        scores = self._scores(images)
        return {"loss": losses(scores, labels).sum(), **right_answers(scores, labels)}

    @torch.no_grad()
    def debug_images(self) -> list[Labelled]:
        """A few images, the same ones each time, with the network's answers. On one rank."""
        numbers = spread(len(self.data.val), self.config.debug_images)
        images, labels = zip(*map(self._image, numbers), strict=True)
        training = self.network.training
        self.network.eval()
        with self.speed.uncompiled():
            scores = self._scores(torch.stack(images)).cpu()
        self.network.train(training)
        return [Labelled(*each) for each in zip(images, labels, scores, strict=True)]

    def _image(self, number: int) -> tuple[torch.Tensor, int]:
        image, label, _ = self.data.val[Sample(0, number)]
        return image, label

    def _scores(self, images: torch.Tensor) -> torch.Tensor:
        inputs = self.speed.laid_out(normalise(images, self.run.device))
        scores: torch.Tensor = self.average.answers(inputs) if self.average else self.network(inputs)
        return scores


class TrainingLog:
    """The log and TensorBoard curves beside the run's own lines; on rank 0."""

    def __init__(
        self, config: VisionConfig, run: elastic.Run, optimizer: torch.optim.Optimizer, cache: CompileCache | None
    ) -> None:
        self._config, self._run, self._optimizer, self._cache = config, run, optimizer, cache
        self._events: EventFile | None = None
        self._begun = False
        run.on_progress(self._line)

    def begin(self, steps_done: int) -> None:
        """Before a step: the first one says where this generation goes on."""
        if self._begun or self._run.rank != 0 or self._config.no_tensorboard:
            return
        self._begun = True
        try:
            self._events = EventFile(self._run.output / "tensorboard", generation=self._run.generation, first_step=steps_done)
        except OSError as error:
            self._run.log(f"no curves for TensorBoard: {error}")

    def close(self) -> None:
        if self._events is not None:
            self._events.close()
            self._events = None

    def _line(self, progress: elastic.Progress) -> None:
        if self._cache is not None:
            self._cache.keep()
        if self._events is not None:
            Curves(self._events, more=lambda: {"train/learning_rate": self._optimizer.param_groups[0]["lr"]})(progress)

    def validation(self, evaluator: Evaluator, step: int) -> None:
        """Of the weights after so many steps."""
        run, found, epoch = self._run, evaluator.validate(), evaluator.epoch(step)
        run.best(100 * found["top1"], **{name: found[name] for name in ("loss", "top1", "top5")})
        run.log(
            f"validation after epoch {epoch}: top-1 {100 * found['top1']:.2f} %  top-5 {100 * found['top5']:.2f} %  "
            f"loss {found['loss']:.4f}  on {found['samples']:.0f} images"
        )
        if run.rank != 0:
            return
        append(run.output / "validations.jsonl", {"step": step, "epoch": epoch, **found})
        if self._events is not None:
            self._events.scalars(step, {f"validation/{name}": found[name] for name in ("loss", "top1", "top5")})
        if self._config.debug_images:
            self._images(step, epoch, evaluator)

    def _images(self, step: int, epoch: int, evaluator: Evaluator) -> None:
        path = self._run.output / "images" / f"epoch-{epoch:03}.png"
        try:
            save_images(path, evaluator.debug_images(), classes=evaluator.data.train.classes)
            if self._events is not None:
                self._events.image(step, "validation", path.read_bytes())
        except OSError as error:
            self._run.log(f"{path} cannot be written: {error.strerror}; training goes on")


def losses(logits_NK: torch.Tensor, labels_N: torch.Tensor, *, label_smoothing: float = 0.0) -> torch.Tensor:
    """Cross entropy, (N,), in 32 bits also under autocast. Smoothing gives that share of the target to all classes alike."""
    return cross_entropy(logits_NK.float(), labels_N, reduction="none", label_smoothing=label_smoothing)


def mixed_losses(logits_NK: torch.Tensor, mixed: Mixed, *, label_smoothing: float = 0.0) -> torch.Tensor:
    """(N,): each sample has two labels, in the proportion of its two images."""
    own = losses(logits_NK, mixed.labels_N, label_smoothing=label_smoothing)
    if mixed.proportions_N is None:
        return own
    other = losses(logits_NK, mixed.other_labels_N, label_smoothing=label_smoothing)
    return torch.lerp(other, own, mixed.proportions_N)


def right_answers(scores_NK: torch.Tensor, labels_N: torch.Tensor) -> dict[str, torch.Tensor]:
    """Samples whose label has the highest score, and whose label is among the five highest; with fewer classes, all."""
    places_N = places(scores_NK.detach(), labels_N)
    return {"top1": (places_N < 1).sum(), "top5": (places_N < 5).sum()}


def places(logits_NK: torch.Tensor, labels_N: torch.Tensor) -> torch.Tensor:
    """(N,): how many classes come before the label's. Of equal scores the lower class comes first, as argmax has it; a score that
    is not a number comes before all, so a network that has diverged gets nothing right."""
    own_N1 = logits_NK.gather(1, labels_N[:, None])
    classes_K = torch.arange(logits_NK.shape[1], device=logits_NK.device)
    higher_NK = ~(logits_NK <= own_N1)
    equal_before_NK = (logits_NK == own_N1) & (classes_K < labels_N[:, None])
    places_N: torch.Tensor = (higher_NK | equal_before_NK).sum(1)
    return places_N


Parse = Callable[[list[str], Mapping[str, str]], VisionConfig]


def main(arguments: list[str], parse: Parse = defaults.parse) -> int:
    """The process's edge: errors become sentences and exit codes."""
    return run_program(arguments, parse, learn)


def train(config: VisionConfig, notice: Notice) -> int:
    """Train this rank's part; returns the exit code. Raises the errors of settings, data and checkpoints."""
    return run_rank(config, notice, learn)
