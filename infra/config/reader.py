"""Reads a Stack from its file or from the engine, or raises a ConfigError that lists every problem."""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pulumi
import yaml
from pulumi.runtime import config as runtime

from infra import clouds
from infra.config import checks, prices
from infra.config import jobs as job_files
from infra.config.model import CLOUD_KEY, Stack
from infra.config.salvage import drop_consequences, salvage
from infra.config.section import NAMESPACE, ROOT, ConfigError, Problem, Section, choice, report

WEBHOOK = "webhook"  # an address that holds a token: the one setting that has to be encrypted


def load() -> Stack:
    """The settings of the stack that runs. Raises ConfigError."""
    everything = {**runtime.get_config_env(), **runtime.CONFIG.get()}
    own = {key: _structured(value) for key, value in _own(everything)}
    encrypted = {key for key in own if runtime.is_config_secret(f"{NAMESPACE}:{key}")}
    return parse(_priced(own, ROOT, pulumi.get_stack()), ROOT, stack=pulumi.get_stack(), encrypted=encrypted)


def read(stack: str, root: Path = ROOT) -> Stack:
    """The settings of a stack by name, from Pulumi.<stack>.yaml in `root`, without the engine. Raises ConfigError."""
    path = root / f"Pulumi.{stack}.yaml"
    try:
        document = yaml.safe_load(path.read_text())
    except OSError as error:
        there = sorted(one.name.split(".")[1] for one in root.glob("Pulumi.*.yaml"))
        raise ConfigError(f"{path}: {error.strerror}: stacks with a file are {', '.join(there)}") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{path} is not YAML: {error}") from error
    values = document.get("config") if isinstance(document, dict) else None
    if not isinstance(values, dict):
        raise ConfigError(f"{path}: there is no section `config`")
    # `pulumi stack init` and `pulumi config set` write every plain value of the file again, as a text: digits: "true".
    own = {key: _structured(value) if isinstance(value, str) else value for key, value in _own(values)}
    return parse(_priced(own, root, stack), root, stack=stack)


def _priced(own: dict[str, Any], root: Path, stack: str) -> dict[str, Any]:
    """With the spot prices that were read, where the stack itself does not say what a machine type costs."""
    found, said, cloud = prices.read(stack, root), own.get("instanceTypes", {}), own.get("cloud")
    if found is None or not isinstance(said, dict) or cloud not in clouds.names():
        return own
    on_demand = {one.name: one.usd_per_hour for one in clouds.named(cloud).TYPES if one.name not in said}
    return {**own, "instanceTypes": {**prices.discounts(found, on_demand), **said}}


def _own(values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        # An encrypted value, in a file: the engine alone can read it, and no program without the engine needs one.
        if key.startswith(f"{NAMESPACE}:") and not (isinstance(value, dict) and set(value) == {"secure"}):
            yield key.split(":", 1)[1], value


def _structured(value: Any) -> Any:
    """Pulumi hands out everything as text: structures and numbers as JSON, strings as they are."""
    try:
        return json.loads(value)
    except (TypeError, ValueError):
        return value


def parse(values: Mapping[str, Any], root: Path, *, stack: str = "stack", encrypted: Collection[str] = ()) -> Stack:
    """Check settings; files that they name are relative to `root`, `stack` is the name, `encrypted` the keys whose values the
    stack's file has encrypted. Raises ConfigError with all problems."""
    cloud = values.get("cloud")
    known = isinstance(cloud, str) and cloud in clouds.names()
    jobs, unread = job_files.read(values.get("jobs"), root)
    own = {**values, "cloud": str(cloud), "jobs": [job for _, job in jobs if isinstance(job, dict)]}
    sections = _CloudSections(str(cloud) if known else None)
    settings, problems, wrong = salvage(Stack, sections.replaced(own))
    if not known:
        problems, wrong = [Problem("cloud", choice(cloud, clouds.names())), *problems], wrong | {"cloud"}
    problems += [*sections.problems, *unread, *job_files.problems(jobs)]
    if WEBHOOK in values and WEBHOOK not in encrypted:
        text = "is in the stack's file for all to read: `pulumi config set --secret ebb:webhook ADDRESS` encrypts it"
        problems.append(Problem(WEBHOOK, text))
    crossed = [*checks.name(stack), *checks.problems(settings), *sections.crossed(settings)]
    problems += drop_consequences(crossed, wrong | sections.wrong)
    if problems:
        raise ConfigError(report(problems))
    return settings


class _CloudSections:
    """The cloud's own sections, of the stack and of each node group, checked and put where the models have them."""

    def __init__(self, cloud: str | None) -> None:
        self._name, self._cloud = cloud, clouds.named(cloud) if cloud else None
        self.problems: list[Problem] = []
        self.wrong: set[str] = set()

    def replaced(self, own: Mapping[str, Any]) -> dict[str, Any]:
        """The settings, with models in place of the sections."""
        lines = own.get("nodeGroups")
        stack = self._one(own, self._cloud.Settings if self._cloud else Section, "")
        if isinstance(lines, list):
            group = self._cloud.GroupSettings if self._cloud else Section
            stack["nodeGroups"] = [
                self._one(line, group, f"nodeGroups[{index}].") if isinstance(line, dict) else line
                for index, line in enumerate(lines)
            ]
        return stack

    def crossed(self, stack: Stack) -> Iterable[Problem]:
        """Settings that do not agree on that cloud."""
        return self._cloud.problems(stack) if self._cloud else ()

    def _one(self, data: Mapping[str, Any], model: type[Section], where: str) -> dict[str, Any]:
        """Without a known cloud, the sections of all are left out: nobody can say what is right in them."""
        if self._name is None:
            return {key: value for key, value in data.items() if key not in clouds.names()}
        section, problems, wrong = salvage(model, data.get(self._name, {}), f"{where}{self._name}")
        self.problems += problems
        self.wrong |= wrong
        return {key: value for key, value in data.items() if key != self._name} | {CLOUD_KEY: section}
