"""The settings of `python -m trainer`: those of `python -m trainer.images` (options.py) with other defaults.

    config = parse(sys.argv[1:], os.environ)

The defaults suit the small data sets of the devcluster and of first tries; the other program's are the original example's.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from ebb.elastic import option
from trainer.images.options import AUGMENTATIONS, VisionConfig, parse_as
from trainer.images.schedule import KINDS

PROGRAM = "python -m trainer"


@dataclass(frozen=True, kw_only=True)
class TrainConfig(VisionConfig):
    """A run on images. Fields without a default must be given."""

    epochs: int = option(10, "how often every sample is used", low=1)
    global_batch: int = option(64, "samples per optimizer step over all machines; 0: from --batch-size", low=0)
    max_micro_batch: int = option(256, "samples in one forward pass; a larger share is accumulated", low=0)
    # best of 0.02, 0.05 and 0.1 on the digits, ResNet-18, batch 64, 8 epochs, 2 seeds each: 0.997, 0.98, 0.97 (2026-11-21)
    lr: float = option(0.02, "peak learning rate", low=0.0, short="--learning-rate")
    weight_decay: float = option(5e-4, "weight decay of SGD", low=0.0, short="--wd")
    schedule: str = option("cosine", "cosine: down to zero; step: times 0.1 every 30 epochs; or constant", choices=KINDS)
    warmup_epochs: float = option(1.0, "epochs until the peak learning rate is reached", low=0.0)
    augment: str = option("shift", "shift: random crop of the padded image; imagenet: random area and flip; or none",
                          choices=AUGMENTATIONS)  # fmt: skip
    evaluate_every: int = option(0, "epochs between two validations; the last epoch always has one; 0: it alone", low=0)


def parse(arguments: list[str], environment: Mapping[str, str]) -> TrainConfig:
    """The settings of this process.

    Raises ConfigError for a wrong flag, value or data folder. `--help` prints and raises SystemExit(0).
    """
    return parse_as(TrainConfig, PROGRAM, arguments, environment)
