"""The settings of training on images; the flags of the original torchelastic ImageNet example mean the same here.

    python -m trainer.images -a resnet50 --epochs 20 --batch-size 32 -j 8 --checkpoint-file /mnt/output/c.pth /mnt/data/imagenet

    config = parse(sys.argv[1:], os.environ)

Two things differ from the original, on purpose. -b is the batch of a process, as there, but only at the first start does it make
the global batch, which then stays whatever the number of processes (batch.py). And --dist-backend is chosen by the device. What
any run can be told (its folder, checkpoints, metrics) comes with RunConfig.
"""

import argparse
import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from ebb.elastic import ENV_PLANNED_WORKERS, ConfigError, Parser, RunConfig, add_flags, complete, option
from ebb.elastic.speed import SpeedOptions
from trainer.images.batch import batch_sizes, kept_global_batch, processes_wanted
from trainer.images.schedule import KINDS

PROGRAM = "python -m trainer.images"
# ebb.elastic.data.augment.AUGMENTATIONS; its import would load torchvision's codecs for a --help
AUGMENTATIONS = ("shift", "imagenet", "none")


@dataclass(frozen=True, kw_only=True)
class VisionConfig(RunConfig, SpeedOptions):
    """A run on images. Defaults are those of the original example where it has the flag."""

    # --- data
    data: Path = field(metadata={"help": "folder with train/<class>/<images> and val/<class>/<images>, or shards made of one; "
                                         "also as the last argument, without the flag"})  # fmt: skip
    image_size: int = option(224, "side of the square images, in pixels", low=8)
    augment: str = option("imagenet", "imagenet: random area and flip; shift: random crop of the padded image; or none",
                          choices=AUGMENTATIONS)  # fmt: skip
    cache_gib: float = option(0.0, "keep images of shards on the machine's own disk, in TMPDIR, and read each from the volume "
                                   "once; 0: none", low=0.0)  # fmt: skip
    # --- batch (batch.py)
    batch_size: int = option(0, "samples of a process in one pass: what its memory must hold. Times the processes wanted, it "
                             "makes the global batch at the first start. 0: 32", low=0, short="-b")  # fmt: skip
    global_batch: int = option(0, "samples per optimizer step over all processes, instead; 0: from --batch-size", low=0)
    max_micro_batch: int = option(0, "samples in one pass, if not those of --batch-size; a larger share is accumulated", low=0)
    # --- model and optimizer
    arch: str = option("resnet18", "a classification network of torchvision", short="-a")
    epochs: int = option(90, "how often every sample is used", low=1)
    lr: float = option(0.1, "peak learning rate", low=0.0, short="--learning-rate")
    momentum: float = option(0.9, "momentum of SGD", low=0.0)
    weight_decay: float = option(1e-4, "weight decay of SGD", low=0.0, short="--wd")
    schedule: str = option("step", "step: times 0.1 every 30 epochs, as in the original example; cosine: down to zero; or "
                                   "constant", choices=KINDS)  # fmt: skip
    warmup_epochs: float = option(
        0.0, "epochs until the peak learning rate is reached; 5 is usual for large global batches", low=0.0
    )
    label_smoothing: float = option(0.0, "share of the target that is given to all classes; 0.1 is usual", low=0.0)
    mixup: float = option(0.0, "blend pairs of images and their labels: alpha of their proportions' Beta distribution, 0.2 is "
                               "usual; the same blends on any number of machines; 0: none", low=0.0)  # fmt: skip
    ema: float = option(0.0, "validate a moving average of the weights with this decay, 0.9999 for example; 0: none", low=0.0)
    ema_every: int = option(32, "steps between two updates of that average", low=1)
    # --- speed, besides SpeedOptions
    dist_backend: str = option("auto", "the original example's flag; it is nccl on GPUs and gloo on CPUs, whatever is given",
                               choices=("auto", "nccl", "gloo"))  # fmt: skip
    # --- what is said
    log_every: int = option(10, "steps between two lines of progress and metrics", low=1, short="--print-freq")
    evaluate_every: int = option(1, "epochs between two validations; the last epoch always has one; 0: it alone", low=0)
    no_tensorboard: bool = option(False, "write no event files for TensorBoard")
    debug_images: int = option(16, "validation images saved with their predictions after each validation; 0: none", low=0)
    planned_workers: int = 0  # by the controller; 0: there is none

    def __post_init__(self) -> None:
        super().__post_init__()
        for flag, value in (("--label-smoothing", self.label_smoothing), ("--ema", self.ema)):
            if value >= 1:
                raise ConfigError(f"{flag} is {value!r}; it must be less than 1")


C = TypeVar("C", bound=VisionConfig)


def parse(arguments: list[str], environment: Mapping[str, str]) -> VisionConfig:
    """The settings of this process. Raises ConfigError; `--help` prints and raises SystemExit(0)."""
    return parse_as(VisionConfig, PROGRAM, arguments, environment)


def parse_as(kind: type[C], program: str, arguments: list[str], environment: Mapping[str, str]) -> C:
    """The same for a program that has other defaults."""
    values = {name: value for name, value in vars(_parser(kind, program).parse_args(arguments)).items() if value is not None}
    place = values.pop("place_of_data", None)
    if place is not None and "data" in values:
        raise ConfigError(f"the data folder is given twice, as --data {values['data']} and as {place}: leave one of them out")
    if place is not None:
        values["data"] = place
    if "data" not in values:
        raise ConfigError(f"--data is missing: name the folder as the last argument; `{program} --help` explains all flags")
    values["planned_workers"] = _planned(environment)
    config = complete(kind, values, environment, "name a folder")
    for part in ("train", "val"):
        if not (config.data / part).is_dir():
            raise ConfigError(
                f"--data {config.data}: there is no folder {config.data / part}. It must hold train/<class>/<images> and "
                "val/<class>/<images>; `python -m trainer.digits DIR` writes a small one"
            )
    return config


def fixed(config: VisionConfig) -> tuple[VisionConfig, str]:
    """With the numbers of samples that hold for the whole job, and a sentence about them. Reads the job's folder."""
    sizes = batch_sizes(
        batch_size=config.batch_size,
        global_batch=config.global_batch,
        largest=config.max_micro_batch,
        processes=processes_wanted(
            planned_workers=config.planned_workers,
            local_world_size=config.place.local_world_size,
            world_size=config.place.world_size,
        ),
        kept=_kept_batch(config),
    )
    return dataclasses.replace(config, global_batch=sizes.global_batch, max_micro_batch=sizes.largest), sizes.why


def _kept_batch(config: VisionConfig) -> int | None:
    """Of this job; before its first checkpoint, of the job that it goes on from."""
    kept = kept_global_batch(config.output)
    return kept_global_batch(Path(config.resume_from)) if kept is None and config.resume_from else kept


def _planned(environment: Mapping[str, str]) -> int:
    text = environment.get(ENV_PLANNED_WORKERS, "0")
    if not text.isdecimal():
        raise ConfigError(f"the environment variable {ENV_PLANNED_WORKERS} is {text!r}; it must be a whole number")
    return int(text)


def _parser(kind: type[VisionConfig], program: str) -> argparse.ArgumentParser:
    parser = Parser(
        prog=program,
        allow_abbrev=False,
        description="Train a torchvision network on an image folder, exactly: every sample once per epoch, whatever machines "
        "come and go. SIGTERM writes a checkpoint at the next step boundary and leaves; the same command goes on from there.",
        epilog=f"example: {program} --arch resnet18 --epochs 20 --batch-size 32 /mnt/data/tiny-imagenet-200",
    )
    add_flags(parser, kind)
    parser.add_argument("-p", dest="log_every", type=int, metavar="N", default=None, help="the same as --print-freq")
    parser.add_argument("place_of_data", nargs="?", type=Path, metavar="DATA", help="the same as --data")
    return parser
