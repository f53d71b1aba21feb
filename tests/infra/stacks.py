"""Stack files for tests: those of the repository, with a value changed."""

import copy
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra import config

ROOT = Path(__file__).parent.parent.parent
STACKS = tuple(sorted(path.name.split(".")[1] for path in ROOT.glob("Pulumi.*.yaml")))
GONE = object()  # changed(..., GONE) removes the key
JOB = {"apiVersion": "elastic.pytorch.org/v1alpha1", "kind": "ElasticJob", "metadata": {"name": "one"}, "spec": {"a": 1}}


def settings(stack: str = "local") -> dict[str, Any]:
    """A stack as it is in the repository."""
    return copy.deepcopy(_written(stack))


@cache
def _written(stack: str) -> dict[str, Any]:
    written = yaml.safe_load((ROOT / f"Pulumi.{stack}.yaml").read_text())["config"]
    return {key.removeprefix("ebb:"): value for key, value in written.items() if key.startswith("ebb:")}


def changed(values: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """The settings with one value set; the path is that of the messages."""
    here: Any = values
    *steps, last = [int(one[1:-1]) if one.startswith("[") else one for one in path.replace("[", ".[").split(".")]
    for step in steps:
        if isinstance(here, dict):
            here.setdefault(step, {})
        here = here[step]
    if value is GONE:
        del here[last]
    elif isinstance(here, list) and last == len(here):
        here.append(value)
    else:
        here[last] = value
    return values


def problems(values: dict[str, Any], root: Path = ROOT) -> list[str]:
    """What is wrong with the settings."""
    with pytest.raises(config.ConfigError) as caught:
        config.parse(values, root)
    head, *lines = str(caught.value).splitlines()
    assert head.startswith("1 problem in" if len(lines) == 1 else f"{len(lines)} problems in")
    return [line.strip() for line in lines]
