"""Machine types from a cloud's machines.yaml: data with a source and a day, one line a type.

    TYPES = read(Path(__file__).with_name("machines.yaml"), Line, made)

A cloud's own columns are the fields of its MachineLine; what is computed from a line is the cloud's (`made`). Errors name the
file, the type and the key.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import Field, ValidationError

from infra.catalog import GPUS
from infra.config.salvage import salvage
from infra.config.section import ConfigError, Problem, Section, choice
from workloads.cluster import InstanceType

# YAML's C parser where it is there: all 132 lines of three clouds then take 18 ms, at every start.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_KEYS = ("source", "pricesOn", "types")


class MachineLine(Section):
    """The columns that every cloud has."""

    name: str = Field(description="As the cloud calls it.", examples=["name"])
    cpu: int = Field(ge=1, description="vCPUs.", examples=[4])
    memory_gib: int = Field(ge=1, description="GiB of memory.", examples=[16])
    usd_per_hour: float = Field(ge=0, strict=False, description="On-demand.", examples=[0.526])
    gpu: str | None = Field(default=None, description="Its GPU type, one of infra/catalog.py.")
    gpus: int = Field(default=0, ge=0, description="How many.")

    @property
    def facts(self) -> dict[str, Any]:
        """The fields of an InstanceType, but for its name and its price."""
        return {"cpu": self.cpu, "memory_gib": self.memory_gib, "gpu_type": self.gpu or "", "gpus": self.gpus}


L = TypeVar("L", bound=MachineLine)
T = TypeVar("T", bound=InstanceType)


def read(path: Path, kind: type[L], made: Callable[[L], T]) -> tuple[T, ...]:
    """The types of a file, in its order. Raises ConfigError with all that is wrong."""
    try:
        document = yaml.load(path.read_text(), _LOADER)  # noqa: S506 - a safe one
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: not YAML: {error}") from error
    lines = document.get("types") if isinstance(document, dict) else None
    if not isinstance(lines, list) or set(document) != set(_KEYS):
        raise ConfigError(f"{path}: allowed are the keys {', '.join(_KEYS)}, and `types` is a list")
    found = [_line(number, one, kind) for number, one in enumerate(lines)]
    problems = [problem for _, wrong in found for problem in wrong] or list(_crossed([line for line, _ in found]))
    if problems:
        raise ConfigError("\n".join(f"{path}: {one}" for one in problems))
    types = [made(line) for line, _ in found]
    names = [one.name for one in types]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ConfigError(f"{path}: {', '.join(twice)} is there twice: remove one")
    return tuple(types)


def _line(number: int, one: Any, kind: type[L]) -> tuple[L, list[Problem]]:
    name = one.get("name") if isinstance(one, dict) else None
    where = name if isinstance(name, str) else f"types[{number}]"
    try:
        return kind.model_validate(one), []  # the way of a file that is right: salvage costs more
    except ValidationError:
        line, problems, _ = salvage(kind, one, where)
        return line, problems


def _crossed(lines: list[L]) -> Iterator[Problem]:
    for line in lines:
        if line.gpu is not None and line.gpu not in GPUS:
            yield Problem(f"{line.name}.gpu", choice(line.gpu, tuple(GPUS)))
        if (line.gpu is None) is not (line.gpus == 0):
            yield Problem(f"{line.name}.gpus", f"found {line.gpus} with gpu {line.gpu!r}; allowed is both, or none")
