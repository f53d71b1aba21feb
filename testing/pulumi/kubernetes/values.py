"""Between the engine's property values and plain JSON. Pure.

Numbers come as floats: whole ones become ints again, since the API server takes no 2.0 for an integer. The engine's placeholder
for unknown values is a string and passes through. Secrets and dependencies do not come here: the engine is told to keep them.
"""

from collections.abc import Mapping
from typing import Any

from pulumi.provider.experimental.property_value import PropertyValue

from ebb.kube import Object


def plain(properties: Mapping[str, PropertyValue]) -> Object:
    """Property values as JSON; values that are null are left out, as Kubernetes does."""
    return {key: _plain(value) for key, value in properties.items() if value.value is not None}


def _plain(value: PropertyValue) -> Any:
    inner = value.value
    if isinstance(inner, Mapping):
        return {key: _plain(item) for key, item in inner.items() if item.value is not None}
    if isinstance(inner, tuple):
        return [_plain(item) for item in inner]
    if isinstance(inner, float) and inner.is_integer():
        return int(inner)
    return inner


def wrapped(value: Mapping[str, Any]) -> dict[str, PropertyValue]:
    """JSON as property values."""
    return {key: _wrapped(item) for key, item in value.items()}


def _wrapped(value: Any) -> PropertyValue:
    if isinstance(value, Mapping):
        return PropertyValue(wrapped(value))
    if isinstance(value, list):
        return PropertyValue([_wrapped(item) for item in value])
    if isinstance(value, int) and not isinstance(value, bool):
        return PropertyValue(float(value))
    return PropertyValue(value)
