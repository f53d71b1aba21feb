"""Sources of a Request: the flags of `ebb submit`, a short job file (YAML, its keys are the flags' names), or both.

    # yaml-language-server: $schema=docs/job.schema.json
    gpus: 2
    max: 4
    gpu: T4
    env: {LR: 0.1}
    command: python train.py --lr 0.1

train.py is looked for beside the file, then in the current folder; the one that has it goes along, as `code: .` says and `code:
false` denies (program.py).

The first line, a path or an address, lets editors complete and check the file (jobschema.py). A flag wins over the file. A file
of kind ElasticJob is not a request: it goes to the cluster as it is.
"""

import shlex
from collections.abc import Iterable, Mapping
from datetime import date
from pathlib import Path, PurePosixPath
from typing import Any

import yaml

from ebb.api.contract import API_VERSION, KIND
from ebb.api.parts import SPOT_THEN_ON_DEMAND
from ebb.api.platform import CAPACITY_BLOCK, FLEX_START, ON_DEMAND, SPOT
from ebb.client.errors import BadRequest
from ebb.client.secrets.uses import destinations, secret_name
from ebb.client.submission.own_image import interpreter_of
from ebb.client.submission.program import find_program
from ebb.client.submission.request import Request, launcher_arguments
from ebb.client.times import moment, seconds

TEXTS = ("name", "gpu", "zone", "capacity", "image", "shm", "data", "code", "priority", "queue", "progress-regex",
         "registry-secret", "run-as")  # fmt: skip
COUNTS = ("gpus", "min", "max")
KEYS = (*TEXTS, *COUNTS, "writable-root", "max-cost", "deadline", "hold-on-failure", "burn-in", "env", "env-file", "secret",
        "command")  # fmt: skip
CAPACITIES = (SPOT, ON_DEMAND, SPOT_THEN_ON_DEMAND, CAPACITY_BLOCK, FLEX_START)
_PATHS = ("code", "env-file")


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
    return {key: _beside(path, item) if key in _PATHS else item for key, item in value.items()}


def is_elastic_job(value: Mapping[str, Any]) -> bool:
    """Return whether a file is a whole ElasticJob. Raises BadRequest for other Kubernetes objects."""
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
    told = {key: value for key, value in flags.items() if value is not None and key not in ("env", "secret")}
    merged = {key: value for key, value in file.items() if value is not None} | told
    if merged.get("code") is False:
        merged["code"] = ""
    words = tuple(command) or _command(merged.get("command"))
    arguments = launcher_arguments(words)
    texts = {key: _text(key, merged[key]) for key in TEXTS if key in merged}
    counts = {key: _count(key, merged[key]) for key in COUNTS if key in merged}
    if texts.get("capacity") not in (None, *CAPACITIES):
        raise BadRequest(f"capacity {texts['capacity']!r} is unknown: use {', '.join(CAPACITIES[:-1])} or {CAPACITIES[-1]}.")
    registry = texts.pop("registry-secret", None)
    return Request(
        name=texts.pop("name", "") or generated_name(arguments, suffix),
        arguments=arguments,
        gpus=counts.get("gpus", 1),
        min_gpus=counts.get("min"),
        max_gpus=counts.get("max"),
        env=_variables(file, flags),
        secrets=destinations(_secrets(file.get("secret"))) | destinations(flags.get("secret") or ()),
        registry_secret=None if registry is None else secret_name(registry),
        interpreter=interpreter_of(words) if "image" in merged else None,
        writable_root=_truth("writable-root", merged.get("writable-root")),
        max_cost=_money(merged.get("max-cost")),
        deadline=_deadline(merged.get("deadline")),
        hold_on_failure=_length(merged.get("hold-on-failure"), "hold-on-failure"),
        burn_in=_length(merged.get("burn-in"), "burn-in"),
        **{key.replace("-", "_"): text for key, text in texts.items()},
    )


def _variables(file: Mapping[str, Any], flags: Mapping[str, Any]) -> dict[str, str]:
    """--env before --env-file before the job file's own, one by one."""
    found: dict[str, str] = {}
    for source in (file, flags):
        if source.get("env-file"):
            found |= read_variables(Path(_text("env-file", source["env-file"])))
        if source is file:
            found |= _env(file.get("env") or {})
    return found | assignments(flags.get("env") or ())


def _secrets(value: object) -> list[str]:
    """One text, or a list of them, as --secret has them."""
    if value is None:
        return []
    given: list[object] = value if isinstance(value, list) else [value]
    found = [item for item in given if isinstance(item, str)]
    if found != given:
        raise BadRequest("secret is not a list of names: write it as in `secret: [hf-token, gcs=/secrets/gcs.json]`.")
    return found


def read_variables(path: Path) -> dict[str, str]:
    """The NAME=VALUE lines of a file, as shells and compose files have them. Raises BadRequest."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise BadRequest(f"env-file {str(path)!r} cannot be read: {why}. Give a file with lines such as LR=0.1.") from error
    found = {}
    for number, line in enumerate(lines, 1):
        text = line.strip().removeprefix("export ").strip()
        if not text or text.startswith("#"):
            continue
        key, equals, value = text.partition("=")
        if not equals:
            raise BadRequest(f"env-file {str(path)!r}, line {number}: {text!r} has no value: write NAME=VALUE.")
        quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "'\""
        found[key.strip()] = value[1:-1] if quoted else value
    return found


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
    found = find_program(arguments)
    program = "job" if found is None else found.name.split(".")[-1] if found.module else PurePosixPath(found.name).stem
    plain = "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in program.lower()).strip("-")
    stem = plain[:30].strip("-") if plain[:1].isalpha() else f"job-{plain[:26]}".strip("-")
    return f"{stem}-{suffix}"


def _beside(path: Path, value: object) -> object:
    """A path in a job file is meant from where the file is."""
    return str(path.parent / value) if isinstance(value, str) else value


def _money(value: object) -> float | None:
    if value is None:
        return None
    try:
        if isinstance(value, bool):
            raise TypeError
        return float(str(value).removeprefix("$"))
    except (TypeError, ValueError) as error:
        raise BadRequest(f"max-cost {value!r} is not an amount of USD: write it as in `max-cost: 40`.") from error


def _deadline(value: object) -> str | None:
    if value is None:
        return None
    text = value.isoformat() if isinstance(value, date) else _text("deadline", value)  # YAML makes moments of some texts
    return moment(text, "deadline")


def _length(value: object, key: str) -> int | None:
    return None if value is None else round(seconds(_text(key, value), key))


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


def _truth(key: str, value: object) -> bool | None:
    if value is not None and not isinstance(value, bool):
        raise BadRequest(f"{key} {value!r} is neither true nor false: write it as in `{key}: true`.")
    return value


def _env(value: object) -> dict[str, str]:
    if not isinstance(value, dict):
        raise BadRequest(f"env {value!r} is not a mapping: write it as in `env: {{LR: 0.1}}`.")
    return {str(key): _text(f"env.{key}", item) for key, item in value.items()}
