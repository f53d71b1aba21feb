"""The settings of `python -m trainer`: those of any run (trainer/run/config.py), and the model, the data and the optimizer.

    config = parse(sys.argv[1:], os.environ)

It opens no file; it only looks whether the data folder is there.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from trainer.run import config as run_config
from trainer.run.config import ConfigError, RunConfig, option

PROGRAM = "python -m trainer"


@dataclass(frozen=True, kw_only=True)
class TrainConfig(RunConfig):
    """A run on images. Fields without a default must be given."""

    data: Path = field(metadata={"help": "folder with train/<class>/*.png|jpg and val/<class>/*"})
    arch: str = option("resnet18", "a classification network of torchvision")
    image_size: int = option(224, "side of the square images, in pixels", low=8)
    # best of 0.02, 0.05 and 0.1 on the digits, ResNet-18, batch 64, 8 epochs, 2 seeds each: 0.997, 0.98, 0.97 (2026-11-21)
    lr: float = option(0.02, "peak learning rate; a cosine brings it to zero", low=0.0)
    momentum: float = option(0.9, "momentum of SGD", low=0.0)
    weight_decay: float = option(5e-4, "weight decay of SGD", low=0.0)
    warmup_epochs: float = option(1.0, "epochs until the peak learning rate is reached", low=0.0)
    label_smoothing: float = option(0.0, "share of the target given to all classes", low=0.0)
    augment: str = option("shift", "shift: random crop of the padded image; imagenet: random area and flip; or none",
                          choices=("shift", "imagenet", "none"))  # fmt: skip


def parse(arguments: list[str], environment: Mapping[str, str]) -> TrainConfig:
    """The settings of this process.

    Raises ConfigError for a wrong flag, value or data folder. `--help` prints and raises SystemExit(0).
    """
    config = run_config.parse(
        TrainConfig,
        arguments,
        environment,
        program=PROGRAM,
        description="Train a torchvision network on an image folder, exactly: every sample once per epoch, whatever machines "
        "come and go. SIGTERM writes a checkpoint at the next step boundary and leaves; the same command goes on from there.",
        epilog=f"example: {PROGRAM} --data /mnt/data/digits --output /tmp/run --arch resnet18 --image-size 32 --epochs 8",
    )
    for part in ("train", "val"):
        if not (config.data / part).is_dir():
            raise ConfigError(
                f"--data {config.data}: there is no folder {config.data / part}. It must hold train/<class>/<images> and "
                "val/<class>/<images>; `python -m trainer.digits DIR` writes a small one"
            )
    return config
