"""A rule of the policy pack, a resource as it judges it, and the sentence about one that breaks it. Pure.

    RULE = Rule(name="mars-encryption", title="Disks are encrypted", types=("mars:disks/*",), check=_encrypted)
    for violation in RULE.broken_by(declaration, stack): print(violation)

A check yields violations; the sentence names the resource, the property, the value, what is allowed and the fix. What a preview
does not know yet is UNKNOWN: it breaks no rule, as the same rule judges the value when the update knows it.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Final

from infra.config.model import Stack

UNKNOWN: Final = "<known after the update>"
ANYWHERE = frozenset({"0.0.0.0/0", "::/0", "*", "Internet", "Any", "0/0"})
SHOWN = 80  # characters of a value in a sentence


@dataclass(frozen=True, kw_only=True)
class Declaration:
    """One resource as the program declares it. `inputs` have the engine's names (camelCase). `provider`: the inputs of its
    provider. `retained`: a destroy leaves it there; None where nobody can say, as Pulumi says it to no policy."""

    type: str
    name: str
    inputs: Mapping[str, Any]
    provider: Mapping[str, Any] = field(default_factory=dict)
    protect: bool = False
    retained: bool | None = None
    deleted_first: bool = False  # before its replacement is made

    def get(self, path: str, default: Any = None) -> Any:
        """The value at a path such as vpcConfig.endpointPublicAccess, or UNKNOWN where it or a part of the path is that."""
        here: Any = self.inputs
        for step in path.split("."):
            if here == UNKNOWN:
                return UNKNOWN
            if isinstance(here, Mapping):
                here = here.get(step)
            elif isinstance(here, Sequence) and not isinstance(here, str):
                here = here[int(step)] if int(step) < len(here) else None
            else:
                return default
        return default if here is None else here

    def each(self, path: str) -> list[str]:
        """The paths of the items of the list at a path."""
        found = self.get(path)
        return (
            [f"{path}.{index}" for index in range(len(found))]
            if isinstance(found, Sequence) and not isinstance(found, str)
            else []
        )


@dataclass(frozen=True, kw_only=True)
class Violation:
    """`found` at `property` where only `allowed` may be; `fix`: what to do."""

    property: str
    found: Any
    allowed: str
    fix: str


Check = Callable[[Declaration, Stack], Iterable[Violation]]


@dataclass(frozen=True, kw_only=True)
class Rule:
    """`name`: with the cloud before it, as Pulumi prints it. `types`: globs of the types that it judges."""

    name: str
    title: str
    types: tuple[str, ...]
    check: Check

    def judges(self, type_: str) -> bool:
        return any(fnmatchcase(type_, glob) for glob in self.types)

    def broken_by(self, declaration: Declaration, stack: Stack) -> list[str]:
        """A sentence for each violation."""
        if not self.judges(declaration.type):
            return []
        known = (one for one in self.check(declaration, stack) if UNKNOWN not in json.dumps(one.found, default=str))
        return [_sentence(declaration, one) for one in known]


def _sentence(declaration: Declaration, one: Violation) -> str:
    found = json.dumps(one.found, default=str)
    shown = found if len(found) <= SHOWN else f"{found[:SHOWN]}..."
    where = f"{declaration.type} {declaration.name}: {one.property}"
    return f"{where} is {'not set' if one.found is None else shown}; allowed is {one.allowed}: {one.fix}"


def required(declaration: Declaration, wanted: Mapping[str, Any], fix: str) -> Iterator[Violation]:
    """Properties that must be there with one value."""
    for path, value in wanted.items():
        found = declaration.get(path)
        if found != UNKNOWN and not same(found, value):
            yield Violation(property=path, found=found, allowed=json.dumps(value), fix=fix)


def refused(declaration: Declaration, unwanted: Mapping[str, Any], fix: str) -> Iterator[Violation]:
    """Properties that may be left out, and may not have one value."""
    for path, value in unwanted.items():
        found = declaration.get(path)
        if same(found, value):
            yield Violation(property=path, found=found, allowed=f"anything but {json.dumps(value)}", fix=fix)


def same(found: Any, value: Any) -> bool:
    """Equality as providers have it: in some places booleans are texts, and of the engine all numbers are floats."""
    return found == value or str(found).lower() == str(value).lower()


def from_anywhere(path: str, ranges: Any, allowed: str, fix: str) -> Iterator[Violation]:
    """The ranges of addresses at a path, one or a list, that are the whole internet."""
    listed = [ranges] if isinstance(ranges, str) else list(ranges or ()) if ranges != UNKNOWN else []
    for one in listed:
        if one in ANYWHERE:
            yield Violation(property=path, found=one, allowed=allowed, fix=fix)


def missing_tags(path: str, found: Any, wanted: Iterable[str], fix: str) -> Iterator[Violation]:
    """The keys that a map of tags must have, by which a stack's things are found, billed and swept up."""
    tags = plain(found)
    if tags == UNKNOWN:
        return
    lacking = sorted(set(wanted) - set(tags or ()))
    if lacking:
        yield Violation(property=path, found=tags or None, allowed=f"a map with the keys {', '.join(lacking)} too", fix=fix)


def plain(value: Any) -> Any:
    """The settings of a provider are texts of JSON, as are policy documents."""
    if not isinstance(value, str) or value == UNKNOWN:
        return value
    try:
        return json.loads(value)
    except ValueError:
        return UNKNOWN if UNKNOWN in value else value


def data_kept(declaration: Declaration, on_destroy: str, fix: str) -> Iterator[Violation]:
    """Violations by a resource that holds people's data. `on_destroy` is the stack's own word for it, keep, protect or delete."""
    if declaration.deleted_first:
        yield Violation(
            property="deleteBeforeReplace", found=True, allowed="false: a changed name would delete the data", fix=fix
        )
    if on_destroy == "protect" and not declaration.protect:
        yield Violation(property="protect", found=False, allowed="true, as storage.data is protect", fix=fix)
    if on_destroy == "keep" and not declaration.protect and declaration.retained is False:
        yield Violation(property="retainOnDelete", found=False, allowed="true, as storage.data is keep", fix=fix)
