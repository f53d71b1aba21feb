"""AWS's own API models on a value: botocore's shapes, found by operation and member, and what is wrong with a value.

shape = member("eks", "CreateNodegroup", "scalingConfig.maxSize")
problem(shape, 0)                         # "is 0, and must be at least 1"
"""

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

import botocore.loaders
import botocore.model

Shape = Any  # botocore ships no types
SHOWN_VALUES = 40


@cache
def service(name: str) -> Any:
    """The model of a service."""
    return botocore.model.ServiceModel(botocore.loaders.Loader().load_service_model(name, "service-2"), name)


def inputs_of(name: str, operation: str) -> Mapping[str, Shape]:
    """Members of an operation's input."""
    shape = service(name).operation_model(operation).input_shape
    return dict(shape.members) if shape is not None else {}


def member(name: str, operation: str, path: str) -> Shape:
    """The shape at a dotted path of members; lists are gone through. Raises KeyError."""
    shape = service(name).operation_model(operation).input_shape
    for part in path.split("."):
        shape = inner(shape).members[part]
    return shape


def members_at(name: str, operation: str, path: str) -> Mapping[str, Shape]:
    """Members of the structure at a path ("" is the input itself); {} if what is there is none."""
    if not path:
        return inputs_of(name, operation)
    shape = inner(member(name, operation, path))
    return dict(shape.members) if shape.type_name == "structure" else {}


def has(name: str, operation: str, path: str) -> bool:
    """True if an operation takes something at that path, spelled alike."""
    place = ""
    for part in path.split("."):
        found = named(members_at(name, operation, place), part)
        if found is None:
            return False
        place = f"{place}.{found}".lstrip(".")
    return True


def inner(shape: Shape) -> Shape:
    """The shape of a list's items, however deep; another shape as it is."""
    while shape.type_name == "list":
        shape = shape.member
    return shape


def named(members: Mapping[str, Shape], name: str) -> str | None:
    """The member that a property of that name means: the same letters, singular or plural."""
    wanted = _letters(name)
    by_letters = {_letters(key): key for key in members}
    forms = (wanted, f"{wanted}s", wanted.removesuffix("s"), f"{wanted.removesuffix('y')}ies", f"{wanted.removesuffix('ies')}y")
    return next((by_letters[form] for form in forms if form in by_letters), None)


def _letters(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def problem(shape: Shape, value: object) -> str | None:
    """The model's objection to a scalar or the length of a list, as the rest of a sentence."""
    limits = shape.metadata
    if isinstance(value, bool):
        return None
    if isinstance(value, str) and shape.type_name == "string":
        return _text_problem(limits, value)
    if isinstance(value, int | float) and shape.type_name in ("integer", "long", "double", "float"):
        return _out_of(limits, value, f"is {value}, and must be")
    if isinstance(value, list | dict) and shape.type_name in ("list", "map"):
        return _out_of(limits, len(value), f"has {len(value)} items, and must have")
    return None


def _text_problem(limits: Mapping[str, Any], value: str) -> str | None:
    allowed = limits.get("enum")
    if allowed and value not in allowed:
        return f"is {value!r}, and must be one of {_listed(value, allowed)}"
    pattern = limits.get("pattern")
    if pattern and not _matches(pattern, value):
        return f"is {value!r}, and must match {pattern}"
    return _out_of(limits, len(value), f"is {value!r} of {len(value)} characters, and must have")


def _listed(value: str, allowed: list[str]) -> str:
    """All values, or of many those that begin alike."""
    near = [one for one in allowed if one[:2].lower() == value[:2].lower()] if len(allowed) > SHOWN_VALUES else allowed
    more = "" if len(near) == len(allowed) else f" (and {len(allowed) - len(near)} others)"
    return ", ".join(near[:SHOWN_VALUES]) + more


def _matches(pattern: str, value: str) -> bool:
    """Patterns that Python's re does not know (\\p{L} and the like) match everything: they are not proven here."""
    try:
        return re.fullmatch(pattern, value, re.DOTALL) is not None
    except re.error:
        return True


def _out_of(limits: Mapping[str, Any], size: float, sentence: str) -> str | None:
    if "min" in limits and size < float(limits["min"]):
        return f"{sentence} at least {limits['min']}"
    if "max" in limits and size > float(limits["max"]):
        return f"{sentence} at most {limits['max']}"
    return None
