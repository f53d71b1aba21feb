"""The settings of a stack: one typed, frozen model of Pulumi.<stack>.yaml, with all its problems reported at once.

    stack = config.load()                  # in the Pulumi program; alone touches pulumi.Config
    stack = config.parse(values, root)     # everything else: `values` is the ebb: section as plain data

The comments in Pulumi.local.yaml are the user's reference; a key's allowed values are here. Nothing here declares a resource.

    ConfigError      the stack's file cannot be used; the text lists every problem as key, value, what is allowed, the fix
"""

import difflib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, Self

import pulumi
import yaml
from pulumi.runtime import config as runtime
from pydantic import (
    AliasGenerator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic_core import ErrorDetails

from infra import catalog, clouds

NAMESPACE = "ebb"
ROOT = Path(__file__).resolve().parent.parent
JOB_API, JOB_KIND = "elastic.pytorch.org/v1alpha1", "ElasticJob"
_NAME = re.compile(r"[a-z][a-z0-9-]*[a-z0-9]")


class ConfigError(pulumi.RunError):
    """The stack's settings are wrong. A RunError, so that the engine shows the text alone."""


class Section(BaseModel):
    """Keys are camelCase in the file; an unknown one is an error, as it is most likely misspelt."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        alias_generator=AliasGenerator(lambda name: to_camel(name).replace("Gib", "GiB")),
    )


def _said(info: ValidationInfo) -> Mapping[str, Any]:
    """What the file says of cloud and zones, for the checks of single fields: so all of them are reported at once."""
    assert info.context is not None  # parse gives it
    said: Mapping[str, Any] = info.context
    return said


class Manager(Section):
    """The one machine, on-demand and without GPUs, that carries etcd, the controller and data preparation."""

    zone: str
    instance_type: str

    @field_validator("zone")
    @classmethod
    def _zone(cls, value: str, info: ValidationInfo) -> str:
        return _one_of(value, _said(info)["zones"])

    @field_validator("instance_type")
    @classmethod
    def _type(cls, value: str, info: ValidationInfo) -> str:
        return _one_of(value, catalog.names(_said(info)["cloud"], gpus=False))


class NodeGroup(Section):
    """Machines for jobs in one zone. Either the GPU (the smallest machine with it is taken) or the instance type is needed."""

    name: str = Field(max_length=40)  # machines are called <name>-<5 characters>, and pods carry that in a label of 63
    zone: str
    gpu: str | None = None
    instance_type: str | None = None
    capacity_type: Literal["spot", "on-demand"] = "spot"
    min: int = Field(default=0, ge=0)
    max: int = Field(ge=0)

    @field_validator("name")
    @classmethod
    def _name(cls, value: str) -> str:
        if not _NAME.fullmatch(value):
            raise ValueError(f"found {value!r}; allowed are a-z, 0-9 and -, first a letter: machines are called after it")
        return value

    @field_validator("zone")
    @classmethod
    def _zone(cls, value: str, info: ValidationInfo) -> str:
        return _one_of(value, _said(info)["zones"])

    @field_validator("gpu")
    @classmethod
    def _gpu(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is None:
            return None
        known = {name.lower(): name for name in catalog.gpu_types(_said(info)["cloud"])}
        return known.get(value.lower()) or _one_of(value, known.values())

    @field_validator("instance_type")
    @classmethod
    def _type(cls, value: str | None, info: ValidationInfo) -> str | None:
        return None if value is None else _one_of(value, catalog.names(_said(info)["cloud"]))

    @field_validator("max")
    @classmethod
    def _range(cls, value: int, info: ValidationInfo) -> int:
        least = info.data.get("min", 0)
        if least > value:
            raise ValueError(f"found {value}, which is less than min ({least}): raise max or lower min")
        return value

    @model_validator(mode="after")
    def _fits(self, info: ValidationInfo) -> Self:
        if not self.gpu and not self.instance_type:
            raise ValueError("neither gpu nor instanceType is there: name one of them")
        found = catalog.by_name(_said(info)["cloud"], self.instance_type or "")
        if found and self.gpu and found.gpu_type != self.gpu:
            has = f"has {found.gpu_type}" if found.gpu_type else "has no GPU"
            raise ValueError(f"instanceType {found.name!r} {has}, but gpu is {self.gpu!r}: leave one of the two out")
        return self


class Storage(Section):
    """Sizes of the shared volumes in GiB. Where the storage does not enforce sizes (the cloud in a box) they are labels."""

    data_gib: int = Field(default=10, ge=1)
    output_gib: int = Field(default=10, ge=1)


class Stack(Section):
    """All settings of a stack. `settings` is the cloud's own section, checked by the cloud's module."""

    cloud: str
    zones: tuple[str, ...] = Field(min_length=1, strict=False)
    manager: Manager
    node_groups: tuple[NodeGroup, ...] = Field(default=(), strict=False)
    storage: Storage = Storage()
    digits: bool = False
    jobs: tuple[dict[str, Any], ...] = Field(default=(), strict=False)
    settings: Any = None

    @model_validator(mode="after")
    def _differ(self) -> Self:
        seen = {"manager"}
        for index, group in enumerate(self.node_groups):
            if group.name in seen:
                raise ValueError(
                    f"nodeGroups[{index}].name: {group.name!r} is taken: names differ, and 'manager' is the platform's own"
                )
            seen.add(group.name)
        return self


def load() -> Stack:
    """The settings of the stack that runs. Raises ConfigError."""
    everything = {**runtime.get_config_env(), **runtime.CONFIG.get()}
    own = {key.split(":", 1)[1]: value for key, value in everything.items() if key.startswith(f"{NAMESPACE}:")}
    return parse({key: _structured(value) for key, value in own.items()}, ROOT)


def _structured(value: Any) -> Any:
    """Pulumi hands out everything as text: structures and numbers as JSON, strings as they are."""
    try:
        return json.loads(value)
    except (TypeError, ValueError):
        return value


def parse(values: Mapping[str, Any], root: Path) -> Stack:
    """Check settings; files that they name are relative to `root`. Raises ConfigError with all problems."""
    cloud = values.get("cloud")
    known = isinstance(cloud, str) and cloud in clouds.names()
    problems = [] if known else [f"cloud: {_choice(cloud, clouds.names())}"]
    settings, more = _settings(clouds.module(str(cloud)) if known else None, values.get(str(cloud), {}))
    jobs, unread = _read_jobs(values.get("jobs"), root)
    own = {key: value for key, value in values.items() if key not in ("cloud", "jobs", *([cloud] if known else clouds.names()))}
    context = {"cloud": cloud if known else None, "zones": values.get("zones")}
    stack: Stack | None = None
    try:
        everything = {**own, "cloud": str(cloud), "jobs": jobs, "settings": settings}
        stack = Stack.model_validate(everything, context=context)
    except ValidationError as error:
        problems += [_sentence(one, Stack) for one in error.errors()]
    problems += [*more, *unread, *_job_problems(jobs)]
    if problems or stack is None:
        raise ConfigError(_report(problems))
    return stack


def _settings(module: ModuleType | None, section: Any) -> tuple[Any, list[str]]:
    """The cloud's own section, and its problems."""
    if module is None:
        return None, []
    name = module.__name__.rpartition(".")[2]
    try:
        return module.Settings.model_validate(section), []
    except ValidationError as error:
        return None, [_sentence(one, module.Settings, name) for one in error.errors()]


def _read_jobs(entries: Any, root: Path) -> tuple[list[Any], list[str]]:
    """Jobs are written in place, or named as files of which each may hold several."""
    jobs, problems = [], []
    for index, entry in enumerate(entries if isinstance(entries, list) else []):
        if not isinstance(entry, str):
            jobs.append(entry)
            continue
        try:
            jobs += [document for document in yaml.safe_load_all((root / entry).read_text()) if document]
        except OSError as error:
            problems.append(f"jobs[{index}]: cannot read {entry!r} ({error.strerror}): give a path relative to the checkout")
        except yaml.YAMLError as error:
            problems.append(f"jobs[{index}]: {entry} is not YAML: {error}")
    if entries is not None and not isinstance(entries, list):
        problems.append(f"jobs: found {entries!r}; allowed is a list of job files and jobs")
    return jobs, problems


def _job_problems(jobs: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    names = set()
    for index, job in enumerate(jobs):
        meta = job.get("metadata")
        name = meta.get("name") if isinstance(meta, dict) else None
        if (job.get("apiVersion"), job.get("kind")) != (JOB_API, JOB_KIND) or not isinstance(job.get("spec"), dict):
            found = f"{job.get('apiVersion')} {job.get('kind')}"
            yield f"jobs[{index}]: found {found!r}; allowed is {JOB_API} {JOB_KIND} with a spec (see: ebb submit --dry-run)"
        elif not name:
            yield f"jobs[{index}].metadata.name: missing: a job of a stack needs a name, or every update would start it again"
        elif name in names:
            yield f"jobs[{index}].metadata.name: {name!r} is there twice: rename one"
        names.add(name)


def _sentence(error: ErrorDetails, model: type[BaseModel], section: str = "") -> str:
    """A pydantic error in our words."""
    where, kind, found = _path([section, *error["loc"]] if section else error["loc"]), error["type"], error.get("input")
    if kind == "value_error":
        words = str(error["ctx"]["error"])
    elif kind == "extra_forbidden":
        words = "unknown key" + _nearest(str(error["loc"][-1]), _keys(model, error["loc"][:-1]))
    elif kind == "missing":
        words = "missing: add it to the stack's file"
    else:
        words = f"found {found!r}; {error['msg'][0].lower()}{error['msg'][1:]}"
    return f"{where}: {words}" if where else words


def _path(location: Iterable[int | str]) -> str:
    text = ""
    for part in location:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def _keys(model: type[BaseModel], location: Iterable[int | str]) -> list[str]:
    """The keys that are allowed at a place in the file."""
    for part in location:
        field = next((one for one in model.model_fields.values() if one.alias == part), None)
        if field is not None:
            inner = [one for one in (field.annotation, *getattr(field.annotation, "__args__", ())) if isinstance(one, type)]
            model = next((one for one in inner if issubclass(one, BaseModel)), model)
    return [str(field.alias or name) for name, field in model.model_fields.items() if name != "settings"]


def _nearest(found: str, allowed: Iterable[str]) -> str:
    close = difflib.get_close_matches(found, list(allowed), n=1, cutoff=0.75)
    return f"; did you mean {close[0]!r}?" if close else f"; allowed are {', '.join(sorted(allowed))}"


def _one_of(found: str, allowed: Any) -> str:
    """The value, if it is allowed. What is allowed may be wrong itself (then that is reported, not this)."""
    options = [str(one) for one in allowed] if isinstance(allowed, Iterable) and not isinstance(allowed, str) else []
    if options and found not in options:
        raise ValueError(_choice(found, options))
    return found


def _choice(found: object, options: Sequence[str]) -> str:
    close = difflib.get_close_matches(str(found), options, n=1, cutoff=0.75)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    return f"found {found!r}; allowed {'is' if len(options) == 1 else 'are'} {', '.join(options)}{hint}"


def _report(problems: list[str]) -> str:
    count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
    return f"{count} in the stack's settings (Pulumi.<stack>.yaml, section ebb):\n" + "\n".join(f"  {one}" for one in problems)
