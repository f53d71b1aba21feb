"""The settings of a run: what the program says, its flags, the environment. argv and environment are read here and nowhere else
in a worker (the launcher reads its own).

    config = parse(TrainConfig, sys.argv[1:], os.environ, program="python -m trainer", ...)     # flags win over the environment
    config = resolve(os.environ, global_batch=256, epochs=90)                                    # a program of one's own

Every field of RunConfig has a flag of the same name, and a variable: $EBB_CHECKPOINT_SECONDS is checkpoint_seconds. What a user
can get wrong raises ConfigError, with the name, the value, what is allowed and the fix. It opens no file.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

from ebb.compat import Never, dataclass
from ebb.elastic import contract
from ebb.elastic.checkpoint.owner import Owner
from ebb.elastic.cores import cores_of_this_rank

_TRUE, _FALSE = ("1", "true", "yes"), ("", "0", "false", "no")


class ConfigError(ValueError):
    """A setting is wrong; the message is the sentence for the user."""


def option(default: Any, text: str, **checks: Any) -> Any:
    """A field that is a flag. `checks`: low, choices; short: a second name of the flag."""
    return field(default=default, metadata={"help": text, **checks})


@dataclass(frozen=True, kw_only=True)
class Place:
    """The place of this worker in its generation; the launcher says it through torchrun's variables."""

    rank: int = 0
    world_size: int = 1
    local_rank: int = 0
    local_world_size: int = 1
    cores: int = 1  # that this rank may use
    machine: int = 0
    machines: int = 1
    launched: bool = False  # by a launcher that meets the other machines again when a worker leaves


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """The settings of every elastic run. Fields without a default must be given."""

    output: Path = field(metadata={"help": "the job's own folder: checkpoints, metrics, ledger, result ($EBB_OUTPUT_DIR)"})
    epochs: int = option(10, "how often every sample is used", low=1)
    global_batch: int = option(64, "samples per optimizer step over all machines; stays the same at any number of them", low=1)
    max_micro_batch: int = option(256, "samples in one forward pass; a larger share is accumulated", low=1)
    virtual_workers: int = option(0, "train as so many workers, bit for bit, on any number of machines up to it; 0: as fast as can be", low=0)  # fmt: skip  # noqa: E501
    seed: int = option(0, "of the weights, the order and the augmentation", low=0)
    workers: int = option(-1, "loader processes of a rank, never more than its cores; -1: measured on a GPU, else cores - 1",
                          low=-1, short="-j")  # fmt: skip
    threads: int = option(0, "threads of a rank's tensor operations; 0: the cores of the pod shared by its ranks", low=0)
    device: str = option(
        "auto", "where to compute; auto: the GPU if one was given, else the CPU", choices=("auto", "cpu", "cuda")
    )
    log_every: int = option(10, "steps between two lines of progress and metrics", low=1)
    checkpoint_seconds: float = option(300.0, "longest time between checkpoints", low=0.1)
    # 2 s: on the demo's ResNet-18 (90 MB) more often would not shorten a recovery, since survivors save what they hold
    checkpoint_min_seconds: float = option(2.0, "shortest time between checkpoints", low=0.0)
    checkpoint_overhead: float = option(0.01, "share of the time that checkpoints may take; sets their distance", low=1e-6)
    keep_checkpoints: int = option(3, "checkpoints that are kept, besides the best one", low=1)
    resume_from: str = option("", "an output folder of another job, or a checkpoint file, to go on from at the first start")
    checkpoint_file: str = option("", "leave a plain copy of each checkpoint here, and model_best.pth.tar beside it")
    # 30 min: compiling, first reads of cold storage
    first_step_seconds: float = option(1800.0, "longest time until the first step of a generation is done", low=1.0)
    # 240 s: well under five minutes, and a hundred times the slowest step that we have seen
    collective_seconds: float = option(240.0, "longest time of any later step: then a machine hangs, and all meet again", low=1.0)
    recovery: str = option("auto", "what ranks do when machines come or go; memory: go on with what they hold, and give it to "
                           "newcomers; restart: start from a checkpoint; auto: memory under Ebb's launcher",
                           choices=("auto", "memory", "restart"))  # fmt: skip
    snapshot_overhead: float = option(0.01, "share of the time that snapshots in memory may take, where ranks recover in memory; "
                                      "sets their distance; 0: none", low=0.0)  # fmt: skip
    leave_seconds: float = option(20.0, "longest wait for a step boundary after a notice", low=1.0)
    min_step_seconds: float = option(0.0, "shortest time of a step: to watch a small model on a fast machine", low=0.0)
    ledger: bool = option(False, "write down every sample id trained on, for the checker")
    metrics_port: int = option(0, "port of the Prometheus text; 0: none ($EBB_METRICS_PORT)", low=0)
    place: Place = field(default_factory=Place)
    owner: Owner = field(default_factory=Owner)

    def __post_init__(self) -> None:
        for each in flags(type(self)):
            _check(flag(each.name), getattr(self, each.name), each.metadata)
        if self.checkpoint_min_seconds > self.checkpoint_seconds:
            raise ConfigError(
                f"--checkpoint-min-seconds is {self.checkpoint_min_seconds}, more than --checkpoint-seconds "
                f"{self.checkpoint_seconds}: lower it, or raise the other"
            )

    def plain(self) -> dict[str, Any]:
        """The settings alone, as a checkpoint keeps them."""
        found = {name: value for name, value in vars(self).items() if name not in ("place", "owner")}
        return {name: str(value) if isinstance(value, Path) else value for name, value in found.items()}


C = TypeVar("C", bound=RunConfig)


def resolve(environment: Mapping[str, str], **values: Any) -> RunConfig:
    """The settings of a program of one's own: what it says, and what the environment says about the rest.

    Raises ConfigError for a wrong name, value or variable.
    """
    known = [each.name for each in flags(RunConfig)]
    values = {name: value for name, value in values.items() if value is not None}  # a flag of add_flags that was not given
    for name in values:
        if name not in known:
            raise ConfigError(f"there is no setting {name!r}; allowed: {', '.join(known)}")
    if "output" in values:
        values["output"] = Path(values["output"])
    return complete(RunConfig, values, environment, "give start(output=...)")


def parse(
    kind: type[C], arguments: list[str], environment: Mapping[str, str], *, program: str, description: str, epilog: str
) -> C:
    """The settings of a program whose flags are the fields of `kind`.

    Raises ConfigError for a wrong flag or value. `--help` prints and raises SystemExit(0).
    """
    parser = Parser(prog=program, allow_abbrev=False, description=description, epilog=epilog)
    add_flags(parser, kind)
    values = {name: value for name, value in vars(parser.parse_args(arguments)).items() if value is not None}
    return complete(kind, values, environment, "name a folder")


def add_flags(parser: argparse.ArgumentParser, kind: type[RunConfig] = RunConfig) -> None:
    """Flags for the fields of `kind`. One that is not given is None in the namespace: the environment or the default decides."""
    types = get_type_hints(kind)
    for each in flags(kind):
        text = each.metadata["help"]
        if types[each.name] is bool:
            parser.add_argument(flag(each.name), action="store_true", default=None, help=text)
            continue
        default = "" if each.default is dataclasses.MISSING else f" (default {each.default})"
        metavar = "DIR" if types[each.name] is Path else "NAME" if types[each.name] is str else "N"
        names = [flag(each.name), *([each.metadata["short"]] if "short" in each.metadata else [])]
        parser.add_argument(*names, type=types[each.name], metavar=metavar, help=(text + default).replace("%", "%%"))


def flags(kind: type[RunConfig]) -> list[dataclasses.Field[Any]]:
    return [each for each in dataclasses.fields(kind) if "help" in each.metadata]


def flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def complete(kind: type[C], values: dict[str, Any], environment: Mapping[str, str], fix: str) -> C:
    """The settings from what was given, the environment and the defaults. `fix` is how the output folder can be given.

    Raises ConfigError.
    """
    types = get_type_hints(RunConfig)
    for each in flags(RunConfig):
        variable = contract.ENV_OUTPUT_DIR if each.name == "output" else "EBB_" + each.name.upper()
        if each.name not in values and environment.get(variable):
            values[each.name] = _READERS[types[each.name]](variable, environment[variable])
    for each in flags(kind):
        if each.default is dataclasses.MISSING and each.name not in values:
            how = f"{fix}, or set {contract.ENV_OUTPUT_DIR}" if each.name == "output" else "name the folder"
            raise ConfigError(f"{flag(each.name)} is missing: {how}; --help explains all flags")
    place = _place(environment)
    owner = Owner(
        uid=environment.get(contract.ENV_JOB_UID, ""),
        job=environment.get(contract.ENV_JOB, ""),
        namespace=environment.get(contract.ENV_NAMESPACE, ""),
    )
    config = kind(place=place, owner=owner, **values)
    return dataclasses.replace(config, threads=config.threads or _threads(config, environment))


def _threads(config: RunConfig, environment: Mapping[str, str]) -> int:
    """Another number of threads adds up in another order: where the bits must be the same it may not follow the machine."""
    if config.virtual_workers:
        return 1
    return _integer("OMP_NUM_THREADS", environment.get("OMP_NUM_THREADS", str(config.place.cores)))


def _place(environment: Mapping[str, str]) -> Place:
    def number(name: str, default: int) -> int:
        return _integer(name, environment.get(name, str(default)))

    local_world_size = number("LOCAL_WORLD_SIZE", 1)
    return Place(
        rank=number("RANK", 0),
        world_size=number("WORLD_SIZE", 1),
        local_rank=number("LOCAL_RANK", 0),
        local_world_size=local_world_size,
        machine=number("GROUP_RANK", 0),
        machines=number("GROUP_WORLD_SIZE", 1),
        cores=cores_of_this_rank(environment, local_world_size),
        launched="TORCHELASTIC_RUN_ID" in environment,
    )


def _check(name: str, value: Any, checks: Mapping[str, Any]) -> None:
    if "low" in checks and value < checks["low"]:
        raise ConfigError(f"{name} is {value!r}; it must be at least {checks['low']}")
    if "choices" in checks and value not in checks["choices"]:
        raise ConfigError(f"{name} is {value!r}; allowed: {', '.join(checks['choices'])}")


def _integer(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ConfigError(f"the environment variable {name} is {text!r}; it must be a whole number") from None


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ConfigError(f"the environment variable {name} is {text!r}; it must be a number") from None


def _truth(name: str, text: str) -> bool:
    if text.lower() not in _TRUE + _FALSE:
        raise ConfigError(f"the environment variable {name} is {text!r}; it must be 1 or 0")
    return text.lower() in _TRUE


_READERS: dict[Any, Callable[[str, str], Any]] = {
    int: _integer,
    float: _number,
    bool: _truth,
    str: lambda _, text: text,
    Path: lambda _, text: Path(text),
}


class Parser(argparse.ArgumentParser):
    """One that raises ConfigError instead of ending the process with a code of its own."""

    def error(self, message: str) -> Never:
        raise ConfigError(f"{message}; `{self.prog} --help` explains all flags")
