"""One row of the reviewed AWS tables: the facts of one type, and what follows from them and the API's model.

A property of the type (its names are the installed SDK's, wheel.py) stands for a member of the create operation's input: the one
of the same letters, or what `members` says. From that follow the checks (the member's enum, pattern, limits) and whether a change
replaces the resource: it does, if no update operation takes the member, or if the delete operation does (it is the identity).
`replaces` and `updated` say otherwise where the real provider does; each has its source in a comment beside it.
"""

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property
from typing import Any

from testing.pulumi.mocks import models, wheel
from testing.pulumi.mocks.models import Shape
from testing.pulumi.mocks.rows import Allowed, within

ACCOUNT = "123456789012"  # as in AWS's own documentation
PARTITION = "aws"


@dataclass(frozen=True)
class AwsType:
    """`create` is "service/Operation"; `updates` and `delete` are operations of the same service.

    `members`: property path -> member of the create input (for a nested property: of the structure that it is in),
    "Operation:Member.path" or "service/Operation:Member.path"; None: the provider's own, without a counterpart in the API.

    `outputs`: templates of what AWS would make up; {name} is an input, {id}, {hash}, {region}, {account} are the mock's.
    `counters`: integers that begin at 1 and grow with every update but those of `quiet` properties. `sometimes`: from old and new
    inputs, properties that replace this once. `sets`: lists without an order. `allowed`: values, where the
    provider is stricter than the API. `exactly_one`: of these properties of a block, one and only one. `autoname`: the property
    that gets a name when it has none.
    """

    token: str
    _: KW_ONLY
    create: str
    updates: tuple[str, ...] = ()
    delete: str = ""
    members: Mapping[str, str | None] = field(default_factory=dict)
    replaces: tuple[str, ...] = ()
    updated: tuple[str, ...] = ()
    autoname: str = ""
    autoname_length: int = 255
    delete_first: bool = False
    id: str = ""
    outputs: Mapping[str, Any] = field(default_factory=dict)
    counters: tuple[str, ...] = ()
    quiet: tuple[str, ...] = ()
    sets: tuple[str, ...] = ()
    allowed: Mapping[str, Allowed] = field(default_factory=dict)
    exactly_one: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    sometimes: Callable[[Mapping[str, Any], Mapping[str, Any]], tuple[str, ...]] | None = None

    @property
    def service(self) -> str:
        return self.create.partition("/")[0]

    @property
    def operation(self) -> str:
        return self.create.partition("/")[2]

    @cached_property
    def properties(self) -> Mapping[str, wheel.Property]:
        return wheel.args_of(self.token)

    def shape_of(self, path: str) -> Shape | None:
        """The API's shape of a property, given without indices; None if it has none."""
        place = self.place_of(path)
        return None if place is None else models.member(*place)

    def replaced_by(self, path: str, value: Any = None) -> bool:
        """True if a change of the property, given without indices, needs a new resource. `value` does not count here: blocks that
        come and go are in conditions.py."""
        said = [(len(one), True) for one in self.replaces if within(path, one)]
        said += [(len(one), False) for one in self.updated if within(path, one)]
        return max(said)[1] if said else self._derived(path)

    def resolved(self, name: str) -> bool:
        """True if the table or the API's model has a place for a top-level property."""
        return name in ("region", "tags") or name in self.members or self.place_of(name) is not None

    def place_of(self, path: str) -> tuple[str, str, str] | None:
        """Service, operation and dotted members that a property stands for."""
        parent, _, name = path.rpartition(".")
        within = self.place_of(parent) if parent else (self.service, self.operation, "")
        if path in self.members:
            target = self.members[path]
            if target is None or (within is None and ":" not in target):
                return None
            return self._elsewhere(target) if ":" in target else _joined(within, target)
        if within is None:
            return None
        found = models.named(models.members_at(*within), name)
        return _joined(within, found) if found else None

    def _derived(self, path: str) -> bool:
        top = path.partition(".")[0]
        if top == "region":
            return True  # another region is another resource
        if top == "tags":
            return not any("Tag" in one for one in self.updates)
        place = self.place_of(path)
        if place is None:  # the provider's own, or the inside of something that the API has as a whole
            return "." in path and self._derived(path.rpartition(".")[0])
        service, operation, member = place
        if (service, operation) != (self.service, self.operation):
            return False  # another operation sets it
        if self.delete and member in models.inputs_of(service, self.delete):
            return True
        return not any(models.has(service, one, member) for one in self.updates)

    def _elsewhere(self, target: str) -> tuple[str, str, str]:
        operation, _, path = target.partition(":")
        service, _, operation = operation.rpartition("/")
        return service or self.service, operation, path


def _joined(within: tuple[str, str, str] | None, name: str) -> tuple[str, str, str]:
    assert within is not None, name
    service, operation, path = within
    return service, operation, f"{path}.{name}".lstrip(".")
