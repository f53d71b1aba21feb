"""The settings of a worker: argv and environment, read here and nowhere else in the worker (launch.py reads the launcher's).

    config = parse(sys.argv[1:], os.environ)

Every field of TrainConfig is a flag of the same name. What a user can get wrong raises ConfigError, with the flag, its value,
what is allowed and the fix. It opens no file; it only looks whether the data folder is there.
"""

import argparse
import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Never, get_type_hints

from trainer import contract
from trainer.cores import cores_of_this_rank


class ConfigError(ValueError):
    """A setting is wrong; the message is the sentence for the user."""


def _option(default: Any, text: str, **checks: Any) -> Any:
    return field(default=default, metadata={"help": text, **checks})


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where this worker stands in its generation; the launcher says it through torchrun's variables."""

    rank: int = 0
    world_size: int = 1
    local_rank: int = 0
    local_world_size: int = 1
    launched: bool = False  # by a launcher that meets the other machines again when a worker leaves


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """What a run is. Fields without a default must be given."""

    data: Path = field(metadata={"help": "folder with train/<class>/*.png|jpg and val/<class>/*"})
    output: Path = field(metadata={"help": "the job's own folder: checkpoints, metrics, ledger, result ($EBB_OUTPUT_DIR)"})
    arch: str = _option("resnet18", "a classification network of torchvision")
    image_size: int = _option(224, "side of the square images, in pixels", low=8)
    epochs: int = _option(10, "how often every sample is used", low=1)
    global_batch: int = _option(64, "samples per optimizer step over all machines; stays the same at any number of them", low=1)
    max_micro_batch: int = _option(256, "samples in one forward pass; a larger share is accumulated", low=1)
    # best of 0.02, 0.05 and 0.1 on the digits, ResNet-18, batch 64, 8 epochs, 2 seeds each: 0.997, 0.98, 0.97 (2026-11-21)
    lr: float = _option(0.02, "peak learning rate; a cosine brings it to zero", low=0.0)
    momentum: float = _option(0.9, "momentum of SGD", low=0.0)
    weight_decay: float = _option(5e-4, "weight decay of SGD", low=0.0)
    warmup_epochs: float = _option(1.0, "epochs until the peak learning rate is reached", low=0.0)
    label_smoothing: float = _option(0.0, "share of the target given to all classes", low=0.0)
    augment: str = _option("shift", "shift: random crop of the padded image; imagenet: random area and flip; or none",
                           choices=("shift", "imagenet", "none"))  # fmt: skip
    seed: int = _option(0, "of the weights, the order and the augmentation", low=0)
    workers: int = _option(-1, "loader processes of a rank; -1: one less than its cores, at most 8", low=-1)
    threads: int = _option(0, "threads of a rank's tensor operations; 0: the cores of the pod shared by its ranks", low=0)
    device: str = _option("auto", "where to compute; auto: the GPU if there is one", choices=("auto", "cpu", "cuda"))
    log_every: int = _option(10, "steps between two lines of progress and metrics", low=1)
    checkpoint_seconds: float = _option(300.0, "longest time between checkpoints", low=0.1)
    # 2 s: on the demo's ResNet-18 (90 MB) more often would not shorten a recovery, since survivors save what they hold
    checkpoint_min_seconds: float = _option(2.0, "shortest time between checkpoints", low=0.0)
    checkpoint_overhead: float = _option(0.01, "share of the time that checkpoints may take; sets their distance", low=1e-6)
    keep_checkpoints: int = _option(3, "checkpoints that are kept", low=1)
    collective_seconds: float = _option(300.0, "last resort: how long to wait for a machine that hangs but answers", low=1.0)
    leave_seconds: float = _option(20.0, "longest wait for a step boundary after a notice", low=1.0)
    min_step_seconds: float = _option(0.0, "shortest time of a step: to watch a small model on a fast machine", low=0.0)
    ledger: bool = _option(False, "write down every sample id trained on, for the checker")
    metrics_port: int = _option(0, "port of the Prometheus text; 0: none ($EBB_METRICS_PORT)", low=0)
    place: Place = field(default_factory=Place)

    def __post_init__(self) -> None:
        for option in _flags():
            _check(_flag(option.name), getattr(self, option.name), option.metadata)
        if self.checkpoint_min_seconds > self.checkpoint_seconds:
            raise ConfigError(
                f"--checkpoint-min-seconds is {self.checkpoint_min_seconds}, more than --checkpoint-seconds "
                f"{self.checkpoint_seconds}: lower it, or raise the other"
            )


def parse(arguments: list[str], environment: Mapping[str, str]) -> TrainConfig:
    """The settings of this process.

    Raises ConfigError for a wrong flag, value or data folder. `--help` prints and raises SystemExit(0).
    """
    values = {name: value for name, value in vars(_parser().parse_args(arguments)).items() if value is not None}
    if "output" not in values and environment.get(contract.ENV_OUTPUT_DIR):
        values["output"] = Path(environment[contract.ENV_OUTPUT_DIR])
    if "metrics_port" not in values and environment.get(contract.ENV_METRICS_PORT):
        values["metrics_port"] = _integer(contract.ENV_METRICS_PORT, environment[contract.ENV_METRICS_PORT])
    for name, fix in (("data", "name the image folder"), ("output", f"name a folder, or set {contract.ENV_OUTPUT_DIR}")):
        if name not in values:
            raise ConfigError(f"--{name} is missing: {fix}; `python -m trainer --help` explains all flags")
    place = _place(environment)
    cores = cores_of_this_rank(environment, place.local_world_size)
    config = TrainConfig(place=place, **values)
    _check_data(config.data)
    return dataclasses.replace(
        config,
        threads=config.threads or _integer("OMP_NUM_THREADS", environment.get("OMP_NUM_THREADS", str(cores))),
        workers=min(8, cores - 1) if config.workers < 0 else config.workers,
    )


def _place(environment: Mapping[str, str]) -> Place:
    def number(name: str, default: int) -> int:
        return _integer(name, environment.get(name, str(default)))

    return Place(
        rank=number("RANK", 0),
        world_size=number("WORLD_SIZE", 1),
        local_rank=number("LOCAL_RANK", 0),
        local_world_size=number("LOCAL_WORLD_SIZE", 1),
        launched="TORCHELASTIC_RUN_ID" in environment,
    )


def _check_data(data: Path) -> None:
    for part in ("train", "val"):
        if not (data / part).is_dir():
            raise ConfigError(
                f"--data {data}: there is no folder {data / part}. It must hold train/<class>/<images> and val/<class>/<images>; "
                "`python -m trainer.digits DIR` writes a small one"
            )


def _check(flag: str, value: Any, checks: Mapping[str, Any]) -> None:
    if "low" in checks and value < checks["low"]:
        raise ConfigError(f"{flag} is {value!r}; it must be at least {checks['low']}")
    if "choices" in checks and value not in checks["choices"]:
        raise ConfigError(f"{flag} is {value!r}; allowed: {', '.join(checks['choices'])}")


def _integer(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ConfigError(f"the environment variable {name} is {text!r}; it must be a whole number") from None


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> Never:
        raise ConfigError(f"{message}; `python -m trainer --help` explains all flags")


def _flags() -> list["dataclasses.Field[Any]"]:
    return [option for option in dataclasses.fields(TrainConfig) if "help" in option.metadata]


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="python -m trainer",
        allow_abbrev=False,
        description="Train a torchvision network on an image folder, exactly: every sample once per epoch, whatever machines "
        "come and go. SIGTERM writes a checkpoint at the next step boundary and leaves; the same command goes on from there.",
        epilog="example: python -m trainer --data /mnt/data/digits --output /tmp/run --arch resnet18 --image-size 32 --epochs 8",
    )
    types = get_type_hints(TrainConfig)
    for option in _flags():
        text = option.metadata["help"]
        if types[option.name] is bool:
            parser.add_argument(_flag(option.name), action="store_true", default=None, help=text)
            continue
        default = "" if option.default is dataclasses.MISSING else f" (default {option.default})"
        metavar = "DIR" if types[option.name] is Path else "NAME" if types[option.name] is str else "N"
        parser.add_argument(
            _flag(option.name), type=types[option.name], metavar=metavar, help=(text + default).replace("%", "%%")
        )
    return parser
