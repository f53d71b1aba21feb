"""Dataclasses that are also the schema of an API object: one place says a field's type, default and meaning.

    @dataclass(frozen=True, kw_only=True)
    class Placement:
        zone: str = described("Where the workers run.", TEXT, default="single")

    schema_of(Placement, "...")   # OpenAPI, for the CRD           decode(Placement, {"zone": "a"})   encode(placement)

JSON names are the field names in camelCase. Decoding trusts the API server's validation: it converts, it does not complain about
unknown keys. The rules that join several fields are CEL, beside the classes in spec.py.
"""

import dataclasses
import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING
from typing import Any, TypeVar

Schema = dict[str, Any]
Model = TypeVar("Model")

TEXT: Schema = {"type": "string"}
TIME: Schema = {"type": "string", "format": "date-time"}
NUMBER: Schema = {"type": "number"}
FLAG: Schema = {"type": "boolean"}
OPAQUE: Schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def count(minimum: int = 0, maximum: int | None = None) -> Schema:
    """A whole number of at least `minimum`; 32 bits, as upstream's."""
    return {"type": "integer", "format": "int32", "minimum": minimum, **({"maximum": maximum} if maximum else {})}


def one_of(*values: str) -> Schema:
    """One of these words."""
    return {"type": "string", "enum": list(values)}


def described(
    meaning: str,
    schema: Schema | None = None,
    *,
    default: Any = MISSING,
    factory: Callable[[], Any] | Any = MISSING,
    model: type | None = None,
    many: bool = False,
    key: str | None = None,
    most: int | None = None,
    json: str | None = None,
) -> Any:
    """A field of an API object. Without default it is required. `model` nests another class; `many`: a list of it, in which `key`
    distinguishes the items for server-side apply, and which has at most `most` of them."""
    metadata = {"meaning": meaning, "schema": schema, "model": model, "many": many, "key": key, "most": most, "json": json}
    if factory is not MISSING:
        return dataclasses.field(default_factory=factory, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def schema_of(model: type, meaning: str, rules: tuple[Schema, ...] = ()) -> Schema:
    """The OpenAPI schema of a class made of `described` fields."""
    fields = _fields(model)
    required = [name for name, field in fields.items() if field.default is MISSING and field.default_factory is MISSING]
    return {
        "type": "object",
        "description": meaning,
        **({"required": required} if required else {}),
        "properties": {name: _field_schema(field) for name, field in fields.items()},
        **({"x-kubernetes-validations": list(rules)} if rules else {}),
    }


def decode(model: type[Model], value: Mapping[str, Any]) -> Model:
    """An instance out of JSON; absent and null keys take the defaults. KeyError names a required key that is missing."""
    given = {}
    for name, field in _fields(model).items():
        if value.get(name) is not None:
            given[field.name] = _decode_field(field, value[name])
        elif field.default is MISSING and field.default_factory is MISSING:
            raise KeyError(name)
    return model(**given)


def encode(value: Any) -> dict[str, Any]:
    """JSON out of an instance. None and empty collections are left out, zero and "" are not, as a printer column shows them."""
    return {
        name: _encode_field(field, getattr(value, field.name))
        for name, field in _fields(type(value)).items()
        if getattr(value, field.name) not in (None, (), {})
    }


_KNOWN: dict[type[Any], dict[str, "dataclasses.Field[Any]"]] = {}


def _fields(model: type[Any]) -> dict[str, "dataclasses.Field[Any]"]:
    """JSON name -> field. Worked out once for each class: a controller decodes thousands of objects."""
    if model not in _KNOWN:
        fields = dataclasses.fields(model)
        _KNOWN[model] = {field.metadata["json"] or _camel(field.name): field for field in fields if "meaning" in field.metadata}
    return _KNOWN[model]


def _camel(name: str) -> str:
    return re.sub(r"_([a-z0-9])", lambda found: found.group(1).upper(), name)


def _field_schema(field: "dataclasses.Field[Any]") -> Schema:
    meaning, schema, model = field.metadata["meaning"], field.metadata["schema"], field.metadata["model"]
    if model is None:
        return {**schema, "description": meaning}
    rules = getattr(model, "RULES", ())
    if field.metadata["many"]:
        key = field.metadata["key"]
        kind = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [key]} if key else {}
        most = {"maxItems": field.metadata["most"]} if field.metadata["most"] else {}
        return {"type": "array", "description": meaning, **kind, **most, "items": schema_of(model, meaning, rules)}
    return schema_of(model, meaning, rules)


def _decode_field(field: "dataclasses.Field[Any]", value: Any) -> Any:
    model = field.metadata["model"]
    if model is None:
        return tuple(value) if isinstance(value, list) else value
    return tuple(decode(model, item) for item in value) if field.metadata["many"] else decode(model, value)


def _encode_field(field: "dataclasses.Field[Any]", value: Any) -> Any:
    if field.metadata["model"] is None:
        return list(value) if isinstance(value, tuple) else value
    return [encode(item) for item in value] if field.metadata["many"] else encode(value)
