"""Holds what the verbs print with `-o json` to docs/cli/schemas: conftest.py does so for every call of every test here.

    complaint = misfit(document, schema)        # "" if it fits; else where it does not, and why

The part of JSON Schema that ebb/cli/schemas.py writes, and stricter in one thing: a field that no schema has is a misfit.
"""

import json
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from ebb.cli.app import VERBS
from ebb.cli.schemas import DOCUMENTS, FOLDER

Schema = dict[str, Any]
KINDS: dict[str, tuple[type, ...]] = {
    "string": (str,), "integer": (int,), "number": (int, float), "boolean": (bool,), "null": (type(None),), "array": (list,),
    "object": (dict,),
}  # fmt: skip
OTHERS = {"outputs": ("data-ls", "data-transfer")}  # verbs whose documents have other names
LINES = frozenset({"status-watch", "events-follow", "logs", "sweep-show"})  # one document a line


def misfit(found: Any, schema: Schema, root: Schema | None = None, at: str = "$") -> str:
    """Where and why a document does not fit."""
    root = schema if root is None else root
    if "$ref" in schema:
        return misfit(found, root["$defs"][schema["$ref"].removeprefix("#/$defs/")], root, at)
    if "anyOf" in schema:
        complaints = [misfit(found, one, root, at) for one in schema["anyOf"]]
        return "" if "" in complaints else " or ".join(complaints)
    if "enum" in schema:
        return "" if found in schema["enum"] else f"{at} is {found!r}, none of {schema['enum']}"
    kind = schema.get("type")
    if kind and (not isinstance(found, KINDS[kind]) or (isinstance(found, bool) and kind != "boolean")):
        return f"{at} is {found!r}, no {kind}"
    return _inside(found, schema, root, at)


def _inside(found: Any, schema: Schema, root: Schema, at: str) -> str:
    if schema.get("type") == "array":
        parts = schema.get("prefixItems") or [schema["items"]] * len(found)
        if len(parts) != len(found):
            return f"{at} has {len(found)} items, not {len(parts)}"
        return next(filter(None, (misfit(one, part, root, f"{at}[]") for one, part in zip(found, parts, strict=True))), "")
    if schema.get("type") == "object":
        properties, other = schema.get("properties", {}), schema.get("additionalProperties")
        if lacking := set(schema.get("required", ())) - set(found):
            return f"{at} lacks {', '.join(sorted(lacking))}"
        if other is None and (strange := set(found) - set(properties)):
            return f"{at} has {', '.join(sorted(strange))}, of which no schema tells"
        inner = (misfit(value, properties.get(name, other), root, f"{at}.{name}") for name, value in found.items())
        return next(filter(None, inner), "")
    return ""


def check(words: Sequence[str], printed: str) -> None:
    """Assert that what a call of `ebb` printed with -o json is as the schemas say. Dry runs print manifests."""
    verb = next((word for word in words if word in VERBS), None)
    if verb is None or not _is_json(words) or "--dry-run" in words or not printed.strip():
        return
    names = OTHERS.get(verb) or tuple(name for name in DOCUMENTS if name == verb or name.startswith(f"{verb}-"))
    assert names, f"ebb {verb} -o json prints something, and ebb/cli/schemas.py tells nothing of it"
    complaints = []
    for name in names:
        schema = json.loads((FOLDER / f"{name}.json").read_text())
        try:
            documents = [json.loads(printed)]
        except ValueError:
            if name not in LINES:
                continue
            documents = [json.loads(line) for line in printed.splitlines()]
        complaint = next(filter(None, (misfit(one, schema) for one in documents)), "")
        if not complaint:
            return
        complaints.append(f"{name}: {complaint}")
    raise AssertionError(f"ebb {' '.join(words)} prints what no schema has: {'; '.join(complaints)}")


def _is_json(words: Sequence[str]) -> bool:
    return any(pair in (("-o", "json"), ("--output", "json")) for pair in pairwise(words))
