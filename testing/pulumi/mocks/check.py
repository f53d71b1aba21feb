"""Whether a cloud would take a resource's inputs: names and kinds by the SDK's classes, values by the API's model. Pure.

A value that a preview does not know yet passes; `up` checks it again.
"""

import difflib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from testing.pulumi.mocks import wheel
from testing.pulumi.mocks.models import Shape, problem
from testing.pulumi.mocks.package import Failure, is_unknown
from testing.pulumi.mocks.rows import Reviewed
from testing.pulumi.mocks.wheel import Property
from testing.pulumi.mocks.wire import SIGNATURE

CLASSES = {"list": list, "map": dict, "object": dict}
NUMBER = re.compile(r"-?\d+(\.\d+)?")


@dataclass(frozen=True)
class Place:
    """`path` has no indices, as the tables know the property; `shown` has them, as people do."""

    kind: Reviewed
    path: str
    shown: str

    def below(self, key: str) -> "Place":
        return Place(self.kind, f"{self.path}.{key}".lstrip("."), f"{self.shown}.{key}".lstrip("."))

    def at(self, index: str) -> "Place":
        return Place(self.kind, self.path, f"{self.shown}[{index}]")


def wrong_inputs(kind: Reviewed, inputs: Mapping[str, Any]) -> Iterator[Failure]:
    """Everything that is wrong with a resource's inputs."""
    yield from _wrong_fields(Place(kind, "", ""), inputs, kind.properties)


def unknown_keys(value: Mapping[str, Any], known: Mapping[str, Property], where: str) -> Iterator[Failure]:
    for key in value:
        if key not in known and not key.startswith("__"):
            near = difflib.get_close_matches(key, known, n=3) or sorted(known)
            yield Failure(where + key, f"is not a property here; there are {', '.join(near)}")


def _wrong_fields(place: Place, value: Mapping[str, Any], known: Mapping[str, Property]) -> Iterator[Failure]:
    where = f"{place.shown}." if place.shown else ""
    yield from unknown_keys(value, known, where)
    for key, prop in known.items():
        if key in value:
            below = place.below(key)
            yield from _wrong(below, value[key], prop, place.kind.shape_of(below.path))
        elif prop.required:
            yield Failure(where + key, "is missing")


def _wrong(place: Place, value: Any, prop: Property, shape: Shape | None) -> Iterator[Failure]:
    if is_unknown(value) or (isinstance(value, dict) and SIGNATURE in value):
        return
    if value in ("", [], {}) and not prop.required:
        return  # as if it were not there: the provider leaves empty values out of the call
    said = None if _is(value, prop) else f"is {value!r}, and must be {_article(prop.kind)}"
    said = said or _stricter(place, value) or (problem(shape, value) if shape is not None else None)
    if said:
        yield Failure(place.shown, said)
    elif prop.kind == "list":
        yield from _wrong_items(place, value, prop, shape)
    elif prop.kind == "map":
        yield from _wrong_entries(place, value, prop, shape)
    elif prop.kind == "object" and prop.fields:
        yield from _wrong_fields(place, value, wheel.fields_of(prop.fields))


def _stricter(place: Place, value: Any) -> str | None:
    allowed = place.kind.allowed.get(place.path)
    return f"is {value!r}, and must be one of {', '.join(allowed)}" if allowed and str(value) not in allowed else None


def _wrong_items(place: Place, value: list[Any], prop: Property, shape: Shape | None) -> Iterator[Failure]:
    of_item = shape.member if shape is not None and shape.type_name == "list" else shape
    for index, item in enumerate(value):
        if prop.item:
            yield from _wrong(place.at(str(index)), item, prop.item, of_item)


def _wrong_entries(place: Place, value: Mapping[str, Any], prop: Property, shape: Shape | None) -> Iterator[Failure]:
    if shape is None or shape.type_name != "map":
        return
    for key, item in value.items():
        said = problem(shape.key, key)
        if said:
            yield Failure(place.shown, f"has a key that {said}")
        if prop.item:
            yield from _wrong(place.at(f'"{key}"'), item, prop.item, shape.value)


def _is(value: object, prop: Property) -> bool:
    """Texts that are numbers or truth values pass for those, as they do with the real provider."""
    if prop.kind == "any":
        return True
    if prop.kind in ("integer", "number"):
        return not isinstance(value, bool) and (isinstance(value, int | float) or NUMBER.fullmatch(str(value)) is not None)
    if prop.kind == "string":
        return isinstance(value, str | int | float | bool)
    if prop.kind == "boolean":
        return isinstance(value, bool) or value in ("true", "false")
    return isinstance(value, CLASSES[prop.kind])


def _article(kind: str) -> str:
    return f"{'an' if kind[0] in 'aio' else 'a'} {kind}"
