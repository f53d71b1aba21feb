"""Where a Request comes from: the flags of `ebb submit`, a short job file (YAML, its keys are the flags' names), or both.

    gpus: 2
    max: 4
    gpu: T4
    env: {LR: 0.1}
    command: python train.py --lr 0.1

A flag wins over the file. A file of kind ElasticJob is not a request: it goes to the cluster as it is.
"""

import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

import yaml

from workloads.client.errors import BadRequest
from workloads.client.request import Request, launcher_arguments
from workloads.contract import API_VERSION, KIND
from workloads.platform import CAPACITY_BLOCK, FLEX_START, ON_DEMAND, SPOT

TEXTS = ("name", "gpu", "zone", "capacity", "image", "shm", "data")
COUNTS = ("gpus", "min", "max")
KEYS = (*TEXTS, *COUNTS, "env", "command")


def read_file(path: Path) -> dict[str, Any]:
    """The mapping in a YAML file: the keys above, or a whole ElasticJob. Raises BadRequest."""
    try:
        value = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadRequest(f"file {str(path)!r} cannot be read: {error.strerror}. Give a job file with -f.") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise BadRequest(f"file {str(path)!r} is not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(value, dict):
        raise BadRequest(f"file {str(path)!r} holds no job: write keys such as {', '.join(KEYS)}, or an {KIND}.")
    return value


def is_elastic_job(value: Mapping[str, Any]) -> bool:
    """Whether a file is a whole ElasticJob. Raises BadRequest for other Kubernetes objects."""
    if "kind" not in value and "apiVersion" not in value:
        return False
    if (value.get("apiVersion"), value.get("kind")) != (API_VERSION, KIND):
        raise BadRequest(
            f"kind {value.get('kind')!r} of {value.get('apiVersion')!r} cannot be submitted: use {KIND} of {API_VERSION!r}, "
            f"or a short job file with the keys {', '.join(KEYS)}."
        )
    if not isinstance(value.get("metadata"), dict) or not value["metadata"].get("name"):
        raise BadRequest("metadata.name is missing: an ElasticJob file must name its job.")
    return True


def request_of(file: Mapping[str, Any], flags: Mapping[str, Any], command: Iterable[str], suffix: str) -> Request:
    """File and flags as one request; `suffix` ends the name where none is given. Raises BadRequest."""
    for key in file:
        if key not in KEYS:
            raise BadRequest(f"key {key!r} in the job file is unknown: use {', '.join(KEYS)}.")
    told = {key: value for key, value in flags.items() if value is not None and key != "env"}
    merged = {key: value for key, value in file.items() if value is not None} | told
    arguments = launcher_arguments(tuple(command) or _command(merged.get("command")))
    texts = {key: _text(key, merged[key]) for key in TEXTS if key in merged}
    counts = {key: _count(key, merged[key]) for key in COUNTS if key in merged}
    if texts.get("capacity") not in (None, SPOT, ON_DEMAND, CAPACITY_BLOCK, FLEX_START):
        raise BadRequest(f"capacity {texts['capacity']!r} is unknown: use {SPOT}, {ON_DEMAND}, {CAPACITY_BLOCK} or {FLEX_START}.")
    return Request(
        name=texts.pop("name", "") or generated_name(arguments, suffix),
        arguments=arguments,
        gpus=counts.get("gpus", 1),
        min_gpus=counts.get("min"),
        max_gpus=counts.get("max"),
        env=_env(file.get("env") or {}) | assignments(flags.get("env") or ()),
        **texts,
    )


def assignments(pairs: Iterable[str]) -> dict[str, str]:
    """K=V texts of --env. Raises BadRequest."""
    found = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals:
            raise BadRequest(f"env {pair!r} has no value: use NAME=VALUE, as in --env LR=0.1.")
        found[key] = value
    return found


def generated_name(arguments: Iterable[str], suffix: str) -> str:
    """A name out of the program's: `python train.py` -> train-x7k2."""
    words = list(arguments)
    if "-m" in words[:-1]:
        program = words[words.index("-m") + 1].split(".")[-1]
    else:
        program = next((PurePosixPath(word).stem for word in words if word.endswith(".py")), "job")
    plain = "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in program.lower()).strip("-")
    stem = plain[:30].strip("-") if plain[:1].isalpha() else f"job-{plain[:26]}".strip("-")
    return f"{stem}-{suffix}"


def _command(value: object) -> tuple[str, ...]:
    if value is None:
        return ()
    if isinstance(value, list):
        return tuple(map(str, value))
    try:
        return tuple(shlex.split(_text("command", value)))
    except ValueError as error:
        raise BadRequest(f"command {value!r} cannot be split into words ({error}): close its quotes, or write a list.") from error


def _text(key: str, value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise BadRequest(f"{key} {value!r} is not text: write it as in `{key}: value`.")
    return str(value)


def _count(key: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise BadRequest(f"{key} {value!r} is not a whole number: write it as in `{key}: 2`.")
    return value


def _env(value: object) -> dict[str, str]:
    if not isinstance(value, dict):
        raise BadRequest(f"env {value!r} is not a mapping: write it as in `env: {{LR: 0.1}}`.")
    return {str(key): _text(f"env.{key}", item) for key, item in value.items()}
