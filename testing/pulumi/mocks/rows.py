"""The interface of a reviewed row, which holds what the mock must know of one type, and its plain form.

A property's path is as Pulumi has it, camelCase, without indices and without keys of maps. Where a cloud publishes a model of its
API, a row can be derived from that (kind.py does so for AWS); a plain Row says by hand what replaces, with the source beside it.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property
from typing import Any, Protocol

from testing.pulumi.mocks import wheel
from testing.pulumi.mocks.wheel import Property

Allowed = tuple[str, ...] | range | re.Pattern[str]
"""Values of a property: as texts, between bounds, or texts of a form."""
Condition = Callable[[Mapping[str, Any], Mapping[str, Any]], tuple[str, ...]]


class Reviewed(Protocol):
    """One row. Fields as Row has them."""

    @property
    def token(self) -> str: ...
    @property
    def autoname(self) -> str: ...
    @property
    def autoname_length(self) -> int: ...
    @property
    def delete_first(self) -> bool: ...
    @property
    def id(self) -> str: ...
    @property
    def outputs(self) -> Mapping[str, Any]: ...
    @property
    def counters(self) -> tuple[str, ...]: ...
    @property
    def quiet(self) -> tuple[str, ...]: ...
    @property
    def sets(self) -> tuple[str, ...]: ...
    @property
    def allowed(self) -> Mapping[str, Allowed]: ...
    @property
    def exactly_one(self) -> Mapping[str, tuple[str, ...]]: ...
    @property
    def sometimes(self) -> Condition | None: ...
    @property
    def properties(self) -> Mapping[str, Property]: ...

    def shape_of(self, path: str) -> Any:
        """The API's model of a property's values, as models.py has it; None where there is none."""

    def replaced_by(self, path: str, value: Any = None) -> bool:
        """True if a change of the property needs a new resource. `value`: what comes or goes there, where it does as a whole."""


@dataclass(frozen=True)
class Row:
    """A type by hand. `replaces`: paths whose change needs a new resource, with all that is inside them but `updated`.

    `outputs`: templates of what the cloud would make up; {name} is an input, {id}, {hash}, {region}, {account} are the mock's.
    `counters`: integers that begin at 1 and grow with every update but those of `quiet` properties. `sometimes`: from old and new
    inputs, properties that replace this once. `sets`: lists without an order. `allowed`: values. `exactly_one`: of
    these properties of a block, one and only one. `autoname`: the property that gets a name when it has none. `delete_first`:
    never two at once.
    """

    token: str
    _: KW_ONLY
    replaces: tuple[str, ...] = ()
    updated: tuple[str, ...] = ()
    sets: tuple[str, ...] = ()
    autoname: str = "name"
    autoname_length: int = 63
    delete_first: bool = False
    id: str = ""
    outputs: Mapping[str, Any] = field(default_factory=dict)
    counters: tuple[str, ...] = ()
    quiet: tuple[str, ...] = ()
    allowed: Mapping[str, Allowed] = field(default_factory=dict)
    exactly_one: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    sometimes: Condition | None = None

    @cached_property
    def properties(self) -> Mapping[str, Property]:
        return wheel.args_of(self.token)

    def shape_of(self, path: str) -> None:
        return None

    def replaced_by(self, path: str, value: Any = None) -> bool:
        """The longest path that is said decides. A block that comes or goes takes along what is inside it."""
        return any(self._is_replaced(one) for one in (path, *_inside(path, value)))

    def _is_replaced(self, path: str) -> bool:
        said = [(len(one), True) for one in self.replaces if within(path, one)]
        said += [(len(one), False) for one in self.updated if within(path, one)]
        return bool(said) and max(said)[1]


def within(path: str, prefix: str) -> bool:
    """True if a path is another, or inside it."""
    return path == prefix or path.startswith(f"{prefix}.")


def _inside(path: str, value: Any) -> Iterator[str]:
    """The paths of all that is inside a value."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield f"{path}.{key}"
            yield from _inside(f"{path}.{key}", item)
    elif isinstance(value, list):
        for item in value:
            yield from _inside(path, item)
